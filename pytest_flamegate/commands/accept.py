"""``flamegate accept``: write a waiver for what the last check or run of a workload found."""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from pytest_flamegate.commands import common
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.core import git
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.files import is_file, read_bounded, relative
from pytest_flamegate.core.json import decode_json
from pytest_flamegate.core.text import quote_toml, suggest
from pytest_flamegate.gate.document import read_verdict
from pytest_flamegate.receipt import baseline as run_files
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.baseline import StoredRun
from pytest_flamegate.receipt.documents import decode_evidence
from pytest_flamegate.report.text import visible
from pytest_flamegate.run.required_check import DOCUMENT, CheckAnswer
from pytest_flamegate.run.waivers import (
    DIRECTORY,
    MAX_AGE,
    Waiver,
    find_exceeded_limits,
    find_other_tokens,
    read_waiver,
    today_utc,
)

_LONGEST_REASON = 1000


def run(parsed: argparse.Namespace) -> int:
    """Write the waiver, and print what it accepts and what to do with it."""
    settings = common.read_settings(parsed)
    reason, today = visible(parsed.reason.strip(), _LONGEST_REASON), today_utc()
    if not reason:
        raise UsageError("E_BAD_OPTION", "The reason is empty.", "Write why this is accepted.")
    try:
        until = date.fromisoformat(parsed.until)
    except ValueError:
        raise UsageError(
            "E_BAD_OPTION", f"--until is {parsed.until!r}.", "Write a day as YYYY-MM-DD."
        ) from None
    if not today <= until <= today + MAX_AGE:
        raise UsageError(
            "E_BAD_OPTION",
            f"--until is {until}.",
            f"Give a day from {today} to {today + MAX_AGE}.",
        )
    name = common.get_workload_name(parsed.workload)
    found, notes = None, []
    if last := _read_check(settings):
        found = _find_policy(settings, last, name)
        changes = [each for each in last.policy_changes if found and each.workload == name]
        notes = [visible(str(each), _LONGEST_REASON) for each in changes]
    found = found or _find_run(settings, name)
    author = git.query(settings.root, "config", "user.name") or ""
    waiver = Waiver(
        workload=name, reason=reason, author=author, accepted=today, until=until, **found
    )
    directory = settings.directory / DIRECTORY
    path = store.child_path(directory, f"{name}-{waiver.head[:12]}.toml")
    replaced = [each for each in _find_replaced(directory, waiver) if each != path]
    store.ensure_gitignore(settings.directory)
    store.write_atomic(path, _encode(waiver, notes))
    for each in replaced:
        each.unlink()
    most = f", at most {-waiver.low_pct:.1f} %" if waiver.low_pct is not None else ""
    lines = [
        f"accepted: {name} {waiver.effect} (base {waiver.base[:12]}{most}), until {until}",
        *notes,
        *(f"replaced, because this change added it: {relative(each, settings.root)}"
          for each in replaced),
        f"commit it with the change: {common.git_add(directory)}",
    ]  # fmt: skip
    common.print_text("\n".join(lines))
    return 0


def _read_check(settings: Settings) -> CheckAnswer | None:
    """Return the answer of the last check, None if there was none."""
    path = settings.directory / DOCUMENT
    if not is_file(path):
        return None
    return decode_json(read_bounded(path), CheckAnswer, subject=f"The answer {path.name}")


def _find_policy(settings: Settings, last: CheckAnswer, name: str) -> dict[str, Any] | None:
    """Return what a waiver of a declaration holds, None if the last check asks for none.

    That check is of the commit that is checked out, and of the workload it found neither a slowdown
    nor other tokens, which a waiver of its run accepts.
    """
    row = next((each for each in last.required if each.workload == name), None)
    is_last = last.head == git.resolve(settings.root, "HEAD")
    digests = last.declarations.get(name)
    if not is_last or row is None or not row.exit_code or digests is None:
        return None
    if row.verdict == "regressed" or _is_other_tokens(settings, name, last.head):
        return None
    return {"declarations": digests, "base": last.base, "head": last.head}


def _is_other_tokens(settings: Settings, name: str, head: str) -> bool:
    try:
        found = _find_run(settings, name)
    except UsageError:
        return False
    return found["head"] == head and found["tokens"] is not None


def _find_run(settings: Settings, name: str) -> dict[str, Any]:
    """Return what a waiver of the last run of a workload holds: a slowdown, or other tokens.

    It was compared with a revision, and regressed, or could not be compared because its tokens
    differ, and for nothing else.

    Raises ``UsageError``: ``E_NO_RUN``, ``E_NOT_ACCEPTED`` for any other run.
    """
    latest = ArtifactStore(settings.directory).latest_directory(name)
    run = StoredRun(latest)
    if not (run.has(run_files.VERDICT) and run.has(run_files.EVIDENCE)):
        known = latest.parent.glob(f"*/{run_files.EVIDENCE}")
        runs = {path.parent.name for path in known} - {name}
        raise UsageError(
            "E_NO_RUN",
            f"There is no run of {name!r} in {str(latest)!a}.",
            f"{suggest(name, sorted(runs)) + ' Or measure' if runs else 'Measure'} first: "
            "flamegate check --base REV. Or put the files of CI's run there.",
        )
    headline, verdict = read_verdict(run.read(run_files.VERDICT))
    data = run.read(run_files.EVIDENCE)
    rate, evidence = verdict.signal(), decode_evidence(data)
    against, commit = verdict.against, evidence.commit
    base = run.base.evidence() if run.base.has(run_files.EVIDENCE) else None
    tokens = find_other_tokens(verdict, base, evidence)
    if tokens is not None:
        against = base.commit.revision if base is not None and base.commit is not None else None
    is_slower = verdict.verdict == "regressed" and rate is not None
    if not (is_slower or tokens) or against is None or commit is None:
        raise UsageError(
            "E_NOT_ACCEPTED",
            f"The last run of {name!r} is neither slower than a revision nor other than it in "
            "its tokens alone, as many as before, and the last check did not fail because the "
            f"head declares it otherwise: {headline}",
        )
    return {
        "change_pct": None if tokens or rate is None else min(rate.change_pct or 0.0, -0.001),
        "low_pct": None if tokens or rate is None else min(rate.ci_low_pct or 0.0, -0.001),
        "limits": () if tokens else find_exceeded_limits(verdict),
        "tokens": tokens,
        "base": against,
        "head": commit.revision,
        "evidence_sha256": hashlib.sha256(data).hexdigest(),
    }


def _find_replaced(directory: Path, waiver: Waiver) -> list[Path]:
    """Return the waivers of the same kind that the base does not have: the new one includes them.

    There are none if git does not know what the base has.
    """
    listed = git.query(directory, "ls-tree", "-z", "--name-only", waiver.base, "./")
    if listed is None:
        return []
    paths = [each for each in directory.glob("*.toml") if each.name not in listed.split("\0")]
    known = [(path, read_waiver(path)) for path in sorted(paths)]
    same = waiver.workload, waiver.kind
    return [path for path, each in known if (each.workload, each.kind) == same]


def _encode(waiver: Waiver, notes: list[str]) -> bytes:
    """Return the file: one key a line."""
    lines = [f"# Accepted {waiver.kind}, written by flamegate accept.", *(f"# {e}" for e in notes)]
    for name, value in asdict(waiver).items():
        if value == ():
            continue
        if isinstance(value, tuple):
            lines.append(f"{name} = {quote_toml([*value])}")
        elif value is not None:
            lines.append(f"{name} = {quote_toml(value) if isinstance(value, str) else value}")
    return "\n".join([*lines, ""]).encode()
