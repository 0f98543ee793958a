"""``flamegate check`` and ``accept``: judge a commit by its base's policy, accept what it found."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, cast

from pytest_flamegate.commands import common
from pytest_flamegate.commands.run import gate_all, show_outcomes
from pytest_flamegate.config.settings import Settings, read_ini
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, ToolError, UndecidedError, UsageError
from pytest_flamegate.core.files import relative
from pytest_flamegate.core.git import (
    ARTIFACTS,
    Commit,
    digest_file,
    digest_files,
    query,
    read_commit,
)
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.engines.declare import InvalidWorkload
from pytest_flamegate.observe.worktree import Checkout, open_checkout
from pytest_flamegate.receipt import Grade, store
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
from pytest_flamegate.run.publish import Outcome
from pytest_flamegate.run.required_check import (
    CHECK_VERSION,
    SETTINGS,
    BasePolicy,
    Check,
    Entry,
    compare_policies,
    compare_settings,
)
from pytest_flamegate.run.session import Session
from pytest_flamegate.run.stored_run import (
    find_attempts,
    find_runs,
    judge_stored_run,
    list_digests,
)
from pytest_flamegate.run.waivers import accept_run, describe_debt, read_waivers, today_utc

DOCUMENT, PAGE, DIGESTS = "check.json", "check.md", "check.sha256"
_LONG = 1000


@dataclass(frozen=True, slots=True)
class _Tree:
    """The files of one revision: the working tree, or a checkout of which nothing is run."""

    revision: str
    root: Path
    checkout: Checkout | None = None

    @classmethod
    def check_out(cls, stack: ExitStack, directory: Path, rev: str) -> _Tree:
        """Return ``rev`` of the repository around ``directory``, until ``stack`` ends.

        Its root is that of pytest's configuration for ``directory`` in this revision.
        """
        checkout = stack.enter_context(closing(open_checkout(directory, rev)))
        root = checkout.move_path(directory)
        found = read_ini(root)[0] if root.is_dir() else root
        is_inside = found.is_relative_to(checkout.root)
        return cls(checkout.commit, found if is_inside else root, checkout)

    def place(self, directory: Path) -> Path:
        """Return the counterpart in the working tree of a directory of this one.

        For a policy file outside of the repository it is the root's.
        """
        if self.checkout is None:
            return directory
        is_inside = directory.is_relative_to(self.checkout.root)
        inside = directory if is_inside else self.root
        return self.checkout.project / inside.relative_to(self.checkout.root)

    def move(self, path: Path) -> Path:
        """Return the counterpart of a path of the working tree."""
        return path if self.checkout is None else self.checkout.move_path(path)

    def read_declarations(self, settings: Settings) -> tuple[Entry, ...]:
        """Return the workloads declared here; none without a workload file."""
        config = settings.config and self.move(settings.config)
        return common.read_declarations(replace(settings, root=self.root, config=config))[1]

    @property
    def values(self) -> dict[str, Any]:
        """The keys in pytest's configuration file."""
        return read_ini(self.root)[1] if self.root.is_dir() else {}


def run_check(parsed: argparse.Namespace) -> int:
    """Check the working tree; return the exit code of the worst workload."""
    for name in ("head", "max_age", "kernel_policy", "key"):
        if getattr(parsed, name) and not parsed.receipts:
            raise UsageError(
                "E_BAD_OPTION",
                f"--{name.replace('_', '-')} is for --receipts: without it the commit that is "
                "checked out is measured here.",
                "Leave it out, or name the directories of finished runs: --receipts DIR.",
            )
    requirements = common.read_requirements(parsed)
    asked = requirements["require_grade"]
    if asked is not None and asked > Grade.OBSERVED and not parsed.receipts:
        raise UsageError(
            "E_BAD_OPTION",
            f"A receipt that is measured here reaches OBSERVED, and never {asked.name}.",
            "Leave --require-grade out, or name the directories of finished runs: --receipts DIR.",
        )
    with suppress(FlamegateError):
        # The base may name another directory, if there is one.
        _replace_earlier(common.read_settings(parsed), parsed.base)
    with ExitStack() as stack:
        # The base chooses the root too: a new pytest.ini must not hide its workload file.
        base = _Tree.check_out(stack, Path.cwd(), parsed.base)
        root = base.place(base.root)
        values = {name: value for name, value in base.values.items() if name in SETTINGS}
        declared = values.get("require_grade")
        grades = asked, Grade.parse(declared) if declared else None
        least_grade = max((each for each in grades if each), default=Grade.OBSERVED)
        requirements["require_grade"] = least_grade
        # An open question fails, whether CI is set or not. Receipts need the grade that the judge
        # of stored runs wants: time that no clock shows lowers it, but so does a GPU.
        settings = replace(
            common.read_settings(parsed, (root, values)),
            against=base.revision,
            strict=True,
            least_grade=least_grade.name,
        )
        _replace_earlier(settings, base.revision)
        # Of a head that is not checked out the files are read, and nothing is run.
        head = (
            _Tree.check_out(stack, root, parsed.head)
            if parsed.head
            else _Tree(_require_clean(root).revision, root)
        )
        if base.revision == head.revision:
            raise UsageError(
                "E_SAME_COMMIT",
                f"The base {parsed.base} is the commit that is checked ({base.revision[:12]}).",
            )
        merged, waivers = (read_waivers(each.move(settings.directory)) for each in (base, head))
        required, declared = (each.read_declarations(settings) for each in (base, head))
        base_name = f"The base {base.revision[:12]}"
        policy = compare_policies(required, declared, base_name, base.place)
        changes = (*compare_settings(base.values, head.values), *policy.changes)
    policy = replace(policy, changes=changes)
    if not policy.required and not policy.new:
        raise UsageError("E_NO_WORKLOADS", "Neither the base nor the head declares a workload.")
    common.print_text("\n".join(_heading(base.revision, head.revision, policy)))
    try:
        attempts = find_attempts(parsed.earlier, _attempt_number(parsed), root)
        earlier = find_runs(attempts)
    except FlamegateError as error:
        # The judge shows this sentence as the status of the commit.
        sentence = f"check failed: {error.problem}"
        _write_unfinished(base.revision, head.revision, settings, sentence, error.exit_code)
        raise
    _write_unfinished(base.revision, head.revision, settings)

    def judge(directory: Path, entry: Workload) -> Outcome:
        """Judge finished files of this attempt, together with those of the earlier ones."""
        commits = base.revision, head.revision
        runs = earlier.get(entry.name, ())
        others = {place: [e for e in runs if e.is_relative_to(place)] for place in attempts}
        return judge_stored_run(directory, entry, settings, commits, requirements, others)

    new: list[Outcome] = []
    if parsed.receipts:
        session = Session(settings)
        outcomes = _judge_stored(parsed.receipts, policy.required, session, judge)
        # Once it was merged, a declaration with an error would fail every later check.
        new = [session.reject(each) for each in policy.new if isinstance(each, InvalidWorkload)]
    else:
        files = digest_files(root)
        outcomes = gate_all(settings, policy.required) if policy.required else []
        outcomes = [
            _with_attempts(each, judge) if attempts and each.error is None else each
            for each in outcomes
        ]
        # There is nothing to compare a new workload with: it is measured alone.
        new = gate_all(replace(settings, against=None), policy.new) if policy.new else []
        _require_unchanged(files)
    known = {each.workload: each.base for each in merged}
    # A change of a waiver that was merged is no new waiver.
    own = tuple(each for each in waivers if known.get(each.workload) != each.base)
    found = Check(
        base.revision,
        head.revision,
        policy,
        required=tuple(outcomes),
        new=tuple(new),
        waivers=own,
        debt=tuple(describe_debt(waivers, today_utc(), own)),
        earlier=len(attempts),
    )
    _publish(found, settings)
    return found.exit_code


def _require_clean(root: Path) -> Commit:
    """Return the commit that is checked out; UsageError if files differ from it."""
    commit = read_commit(root)
    if commit is None:
        raise UsageError(
            "E_NO_REPOSITORY",
            f"There is no commit checked out at {root}.",
            "Run the check inside a clone of the project's repository.",
        )
    # Artifacts are not counted as files of the code, but an accepted slowdown has to be committed.
    waived = query(
        root, "status", "--porcelain", "-uall", "--", f":(glob)**/{ARTIFACTS}/waivers/**"
    )
    # None if git has failed: what it would have listed is unknown.
    if commit.uncommitted or waived != "":
        raise UsageError(
            "E_UNCOMMITTED",
            f"Files differ from the commit {commit.revision[:12]} (git status shows them), or the "
            "index has git skip them (git ls-files -v), and the check judges commits.",
        )
    return commit


def _require_unchanged(files: Mapping[Path, str]) -> None:
    """Raise ``ToolError`` if measuring has changed a file of the commit."""
    if changed := [path for path, digest in files.items() if digest_file(path) != digest]:
        raise ToolError(
            "E_TREE_CHANGED",
            f"Measuring changed {len(changed)} files of the commit, such as {changed[0].name}, so "
            "it may have measured other code than the commit's.",
        )


def _replace_earlier(settings: Settings, base: str) -> None:
    """Replace an earlier answer, if there is one, before anything can end the check."""
    if any(os.path.lexists(settings.directory / name) for name in (PAGE, DOCUMENT)):
        _write_unfinished(base, "", settings)


def _write_unfinished(
    base: str,
    head: str,
    settings: Settings,
    sentence: str = "The check has not ended.",
    exit_code: int = UndecidedError.exit_code,
) -> None:
    """Write an answer that fails: this check may end without one. ``head`` may be unknown."""
    document = {
        "check_version": CHECK_VERSION,
        "base": base,
        "head": head,
        "passed": False,
        "exit_code": exit_code,
        "sentence": sentence,
        "attempt": 1,
        **{name: [] for name in ("required", "new", "waivers", "policy_changes")},
    }
    _write_answer(settings, f"**{escape(sentence)}**\n", document)


def _write_answer(
    settings: Settings,
    page: str,
    document: Mapping[str, Any],
    results: Sequence[present.ResultView] = (),
    judged: Sequence[Outcome] = (),
) -> None:
    """Write the answer for people, for programs, for GitLab's widgets, and for an attestation."""
    files = {
        PAGE: page.encode(),
        DOCUMENT: encode_json(document),
        FINDINGS: encode_findings(results),
        FIGURES: encode_figures(results, passed=document["passed"]),
        DIGESTS: list_digests(judged),
    }
    for name, data in files.items():
        store.write_atomic(settings.directory / name, data)


def _attempt_number(parsed: argparse.Namespace) -> int | None:
    """Return the number of this attempt, None if it is not known."""
    if parsed.attempt is not None or parsed.receipts:
        return cast("int | None", parsed.attempt)
    number = os.environ.get("GITHUB_RUN_ATTEMPT", "")
    return int(number) if number.isdecimal() else None


def _with_attempts(outcome: Outcome, judge: Callable[[Path, Workload], Outcome]) -> Outcome:
    """Return the outcome of a measurement as it is with the earlier attempts."""
    pooled = judge(outcome.directory, outcome.workload)
    return replace(outcome, verdict=pooled.verdict, fails=pooled.fails, error=pooled.error)


def _judge_stored(
    directories: Sequence[Path],
    required: Sequence[Entry],
    session: Session,
    judge: Callable[[Path, Workload], Outcome],
) -> list[Outcome]:
    """Judge the stored runs of each required workload; each of several has to pass."""
    runs, outcomes = find_runs(directories), []
    for entry in required:
        stored = runs.get(entry.name, ())
        if isinstance(entry, InvalidWorkload):
            outcomes.append(session.reject(entry))
        elif not stored:
            missing = UsageError(
                "E_RUN_MISSING",
                f"There is no run of the required workload {entry.name!r} in "
                f"{', '.join(map(str, directories))}.",
            )
            outcomes.append(session.reject(InvalidWorkload(entry.name, missing, None)))
        else:
            outcomes += [judge(each, entry) for each in stored]
    return outcomes


def _heading(base: str, head: str, policy: BasePolicy) -> list[str]:
    names = ", ".join(each.name for each in policy.required) or "nothing"
    lines = [f"check of {head[:12]} by the policy of {base[:12]}, which requires {names}"]
    if policy.new:
        lines.append(f"new, required once merged: {', '.join(each.name for each in policy.new)}")
    if policy.changes:
        lines.append("changed by the head, and counts once merged:")
        lines += [f"  {visible(str(change), _LONG)}" for change in policy.changes]
    return lines


def _publish(found: Check, settings: Settings) -> None:
    """Print failures, table and answer; write the files of the answer and the job's summary."""
    outcomes = (*found.required, *found.new)
    views = show_outcomes(settings, outcomes)
    changes = [str(change) for change in found.policy.changes]
    measured = {each.workload.name for each in found.new}
    unseen = [each.name for each in found.policy.new if each.name not in measured]
    changes += [f"{name}: new, and required then" for name in unseen]
    rows = present.rows(
        [*views[: len(found.required)], *map(_mark_new, views[len(found.required) :])]
    )
    # Other commands would take the policy from the head.
    again = f"flamegate check --base {found.base[:12]}"
    rows = [replace(row, again=again) for row in rows]
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
    _write_answer(settings, page, found.document(), annotated, found.required)
    lines = report_to_github(annotated, page)
    common.print_text("\n".join([*lines, "", *found.debt, found.sentence]))


def _mark_new(view: present.ResultView) -> present.ResultView:
    """Return the view of a workload of the head, which needs no baseline."""
    if view.report.word != "no baseline":
        return view
    sentence = "new: measured alone, and required once it is merged"
    return replace(view, report=replace(view.report, headline=sentence))


def run_accept(parsed: argparse.Namespace) -> int:
    """Write the waiver, and print what it accepts and what to do with it."""
    settings = common.read_settings(parsed)
    try:
        until = date.fromisoformat(parsed.until)
    except ValueError:
        raise UsageError(
            "E_BAD_OPTION", f"--until is {parsed.until!r}.", "Write a day as YYYY-MM-DD."
        ) from None
    name = parsed.workload.rpartition("::")[2]
    path, waiver = accept_run(settings.directory, name, parsed.reason, until, today_utc())
    shown = relative(path, settings.root)
    most = f" (at most {-waiver.low_pct:.1f} %)" if waiver.low_pct is not None else ""
    common.print_text(
        f"accepted: {waiver.workload} {waiver.effect} than {waiver.base[:12]}{most}, "
        f"until {waiver.until}\n"
        f"commit it with the change: git add {shown}"
    )
    return 0
