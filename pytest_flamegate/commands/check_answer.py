"""What a required check answers: the printed text, the page, and files for programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from pytest_flamegate.commands import common
from pytest_flamegate.commands.run import show_views
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.receipt import store
from pytest_flamegate.report.markdown import check_markdown, escape
from pytest_flamegate.report.text import visible
from pytest_flamegate.run import present
from pytest_flamegate.run.hosts import (
    FIGURES,
    FINDINGS,
    encode_figures,
    encode_findings,
    report_to_github,
)
from pytest_flamegate.run.publish import Hints, Outcome
from pytest_flamegate.run.required_check import DOCUMENT, Check, CheckAnswer
from pytest_flamegate.run.stored_run import list_digests

PAGE, DIGESTS = "check.md", "check.sha256"
_LONG = 1000


def replace_earlier(settings: Settings, base: str) -> None:
    """Replace an earlier answer, if there is one, before anything can end the check."""
    if any(os.path.lexists(settings.directory / name) for name in (PAGE, DOCUMENT)):
        write_unfinished(base, "", settings)


def write_unfinished(
    base: str,
    head: str,
    settings: Settings,
    sentence: str = "The check has not ended.",
    exit_code: int = UndecidedError.exit_code,
) -> None:
    """Write an answer that fails: this check may end without one. ``head`` may be unknown."""
    answer = CheckAnswer(
        base=base, head=head, passed=False, exit_code=exit_code, sentence=sentence, required=()
    )
    # A full disk must not leave the answer of an earlier check.
    for name in (PAGE, DOCUMENT, DIGESTS):
        with suppress(OSError):
            (settings.directory / name).unlink()
    _write_answer(settings, f"**{escape(sentence)}**\n", answer)


def _write_answer(
    settings: Settings,
    page: str,
    answer: CheckAnswer,
    results: Sequence[present.ResultView] = (),
    judged: Sequence[Outcome] = (),
) -> None:
    """Write the answer for people, for programs, for GitLab's widgets, and for an attestation."""
    store.ensure_gitignore(settings.directory)
    files = {
        PAGE: page.encode(),
        DOCUMENT: encode_json(answer),
        FINDINGS: encode_findings(results),
        FIGURES: encode_figures(results, passed=answer.passed),
        DIGESTS: list_digests(judged),
    }
    for name, data in files.items():
        store.write_atomic(settings.directory / name, data)


def heading(check: Check) -> list[str]:
    """Return the lines that name the commits, the policy, and how the head would change it."""
    policy, base, head = check.policy, check.base[:12], check.head[:12]
    names = ", ".join(each.name for each in policy.required) or "nothing"
    lines = [f"check of {head} by the policy of {base}, which requires {names}"]
    if policy.new:
        lines.append(f"new, required once merged: {', '.join(each.name for each in policy.new)}")
    if accepted := (*policy.adopted, *policy.dropped):
        lines.append(f"counts now, as a waiver accepts: the head's policy of {', '.join(accepted)}")
    if policy.changes:
        lines.append("changed by the head, and counts once merged:")
        lines += [f"  {visible(str(change), _LONG)}" for change in policy.changes]
    return lines


def publish(found: Check, settings: Settings, judged_by: str | None = None) -> None:
    """Print failures, table and answer; write the files of the answer and the job's summary.

    ``judged_by`` is the command of this check if it measured nothing; the page has the one that
    measures, which works without the stored runs.
    """
    outcomes = (*found.required, *(each for _, each in found.ended), *found.new)
    hints = Hints(settings, as_command=True, checked_against=found.base, judged_by=judged_by)
    views = [present.view_of(each, each.workload.node_name, hints) for each in outcomes]
    first_new = len(outcomes) - len(found.new)
    views = [*views[:first_new], *map(_mark_new, views[first_new:])]
    show_views(views, hints)
    changes = [str(change) for change in found.policy.changes]
    measured = {each.workload.name for each in found.new}
    unseen = [each.name for each in found.policy.new if each.name not in measured]
    changes += [f"{name}: new, and required then" for name in unseen]
    again = replace(hints, judged_by=None).again()
    rows = [replace(row, again=again) for row in present.rows(views)]
    names, accepted = (
        {each.workload.name for each in some} for some in (found.failed, found.accepted)
    )
    page = check_markdown(found.sentence, rows, changes, found.debt, names, accepted - names)
    # A waived slowdown does not fail the check, and a missing comparison does.
    failed = {id(each) for each in found.failed}
    annotated = [
        replace(view, fails=id(outcome) in failed)
        for view, outcome in zip(views, outcomes, strict=True)
    ]
    _write_answer(settings, page, found.answer, annotated, found.required)
    lines = report_to_github(annotated, page)
    common.print_text("\n".join([*lines, "", *found.debt, found.sentence]))


def _mark_new(view: present.ResultView) -> present.ResultView:
    """Return the view of a workload of the head, which needs no baseline."""
    if not view.report.lacks_baseline:
        return view
    sentence = "new: measured alone, and required once it is merged"
    return replace(view, fails=False, report=replace(view.report, headline=sentence))
