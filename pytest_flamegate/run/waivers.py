"""Accepted slowdowns: each a small file that a person commits, with the measurement it rests on.

A waiver counts in the change that adds it. Once it is merged the slowdown is part of the base,
and the waiver stays as a record of the debt until somebody removes it. The file is part of the
change, so whoever reviews the change accepts it too.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from pytest_flamegate.config.workload import parse_toml, read_toml_bytes
from pytest_flamegate.core import git
from pytest_flamegate.core.errors import ReceiptError, UsageError
from pytest_flamegate.core.files import is_file, read_bounded
from pytest_flamegate.core.json import NonEmpty, Sha256, decode_plain
from pytest_flamegate.core.text import quote_toml
from pytest_flamegate.gate import Verdict
from pytest_flamegate.gate.document import read_verdict
from pytest_flamegate.receipt import baseline as run_files
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.documents import decode_evidence
from pytest_flamegate.report.text import plural, visible

DIRECTORY = "waivers"
MAX_AGE = timedelta(days=366)
_LONGEST_REASON = 1000
_CLOCKS = timedelta(days=1)
"""How far ahead the clock of the machine may be that wrote a waiver."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """One accepted slowdown of one workload.

    Attributes:
        until: The last day on which it is accepted, in UTC.
        change_pct: The measured change of tokens per second in percent, negative; ``low_pct`` is
            the slower end of its interval.
        base: The commit that the slowdown was measured against; ``head`` has it.
        evidence_sha256: The digest of the evidence that shows it.
    """

    workload: NonEmpty
    reason: NonEmpty
    author: str
    accepted: date
    until: date
    change_pct: Annotated[float, Meta(lt=0, gt=-100)]
    low_pct: Annotated[float, Meta(lt=0, ge=-100)]
    base: NonEmpty
    head: NonEmpty
    evidence_sha256: Sha256

    def __post_init__(self) -> None:
        if self.until - self.accepted > MAX_AGE:
            raise ValueError(f"it lasts longer than {MAX_AGE.days} days")

    def is_expired(self, today: date) -> bool:
        """Whether it is accepted no longer."""
        return today > self.until

    def find_objection(self, verdict: Verdict, today: date) -> str | None:
        """Return why it does not cover this regression, None if it does."""
        if self.is_expired(today):
            return f"the waiver of {self.workload} ended on {self.until}"
        if self.accepted > today + _CLOCKS:
            return f"the waiver of {self.workload} is dated {self.accepted}, and it is {today}"
        rate = verdict.signal()
        if rate is None or rate.change_pct is None or rate.change_pct < self.low_pct:
            slower = "unknown" if rate is None else f"{-(rate.change_pct or 0.0):.1f} %"
            return (
                f"the waiver of {self.workload} accepts at most {-self.low_pct:.1f} % slower, "
                f"and {slower} was measured"
            )
        return None


def read_waivers(directory: Path) -> tuple[Waiver, ...]:
    """Return the waivers in an artifact directory; UsageError ``E_BAD_WAIVER``, ``E_BAD_TOML``."""
    return tuple(_read(path) for path in sorted((directory / DIRECTORY).glob("*.toml")))


def _read(path: Path) -> Waiver:
    document = parse_toml(path, read_toml_bytes(path))
    try:
        waiver = decode_plain(document, Waiver, subject=f"The waiver {path.name}")
        problem = "" if waiver.workload == path.stem else f"{path.name} is of {waiver.workload!r}."
    except ReceiptError as error:
        problem = error.problem
    if problem:
        remedy = "Write it with flamegate accept, or remove the file."
        raise UsageError("E_BAD_WAIVER", problem, remedy)
    return waiver


def accept_run(
    directory: Path, workload: str, reason: str, until: date, today: date
) -> tuple[Path, Waiver]:
    """Write the waiver of the last run of ``workload``, which regressed against a revision.

    Raises ``UsageError``: ``E_NO_RUN``, ``E_NOTHING_TO_ACCEPT`` for a run that did not regress,
    ``E_BAD_OPTION`` for an empty reason or a day that is past or more than a year away.
    """
    if not reason.strip():
        raise UsageError("E_BAD_OPTION", "The reason is empty.", "Write why this is accepted.")
    if not today <= until <= today + MAX_AGE:
        raise UsageError(
            "E_BAD_OPTION",
            f"--until is {until}.",
            f"Give a day from {today} to {today + MAX_AGE}.",
        )
    latest = store.child_path(directory / "latest", workload)
    paths = latest / run_files.VERDICT, latest / run_files.EVIDENCE
    if not all(map(is_file, paths)):
        raise UsageError(
            "E_NO_RUN",
            f"There is no run of {workload!r} in {str(latest)!a}.",
            "Measure first: flamegate check --base REV. Or put the files of CI's run there.",
        )
    verdict_data, data = (read_bounded(path) for path in paths)
    headline, verdict = read_verdict(verdict_data)
    rate, evidence = verdict.signal(), decode_evidence(data)
    against, commit = verdict.against, evidence.commit
    if verdict.verdict != "regressed" or rate is None or against is None or commit is None:
        raise UsageError(
            "E_NOTHING_TO_ACCEPT",
            f"The last run of {workload!r} is no regression against a revision: {headline}",
            "Accept a slowdown that flamegate check has measured.",
        )
    waiver = Waiver(
        workload=workload,
        reason=visible(reason.strip(), _LONGEST_REASON),
        author=git.query(directory.parent, "config", "user.name") or "",
        accepted=today,
        until=until,
        change_pct=min(rate.change_pct or 0.0, -0.001),
        low_pct=min(rate.ci_low_pct or 0.0, -0.001),
        base=against,
        head=commit.revision,
        evidence_sha256=hashlib.sha256(data).hexdigest(),
    )
    path = store.child_path(directory / DIRECTORY, f"{workload}.toml")
    store.ensure_gitignore(directory)
    store.write_atomic(path, _encode(waiver))
    return path, waiver


def _encode(waiver: Waiver) -> bytes:
    """Return the file: one key a line."""
    lines = [
        f"{name} = {quote_toml(value) if isinstance(value, str) else value}"
        for name, value in asdict(waiver).items()
    ]
    return "\n".join(["# Accepted slowdown, written by flamegate accept.", *lines, ""]).encode()


def describe_debt(waivers: Sequence[Waiver], today: date, new: Collection[Waiver]) -> list[str]:
    """Return the accepted slowdowns as lines: their sum, the new ones, and those that ended."""
    if not waivers:
        return []
    total = -sum(each.change_pct for each in waivers)
    oldest = max(0, *((today - each.accepted).days for each in waivers))
    count = plural(len(waivers), "accepted slowdown")
    lines = [f"{count}, {total:.1f} % in sum, oldest {plural(oldest, 'day')}"]
    for each in waivers:
        author = visible(each.author) or "unknown"
        about = f"{visible(each.workload)} {-each.change_pct:.1f} % slower, by {author}"
        if each.is_expired(today):
            lines.append(
                f"ended on {each.until}: {about}. See if it is still there: "
                f"flamegate run {visible(each.workload)} --against={visible(each.base[:12])}"
            )
        elif each in new:
            lines.append(f"new in this change: {about} until {each.until}: {visible(each.reason)}")
    return lines


def today_utc() -> date:
    """Return the day of today in UTC."""
    return datetime.now(UTC).date()
