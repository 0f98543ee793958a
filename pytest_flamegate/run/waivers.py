"""Accepted slowdowns and other tokens: each a small file, with the measurement it rests on.

A person commits it. It counts in the change that adds it. Once that is merged, what it accepts is
part of the base, and the waiver stays as a record of the debt until somebody removes it. The file
is part of the change, so the reviewer of the change accepts it too.
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
from pytest_flamegate.gate.document import read_verdict
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.receipt import baseline as run_files
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.documents import decode_evidence
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report.text import plural, visible

DIRECTORY = "waivers"
MAX_AGE = timedelta(days=366)
_LONGEST_REASON = 1000
_CLOCKS = timedelta(days=1)
"""How far ahead the clock of the machine may be that wrote a waiver."""


_OF_SAMPLES = frozenset({"E_NO_SAMPLES", "E_FEW_SAMPLES"})
"""These forbid no comparison of rates."""


def find_other_tokens(verdict: Verdict, base: Evidence | None, head: Evidence | None) -> str | None:
    """Return the digest of the head's tokens if they alone forbid comparing the pairs, else None.

    None too if there are more or fewer of them than of the base's, or if those of a side vary.
    """
    codes = {each.code for each in verdict.reasons if each.leaves_open} - _OF_SAMPLES
    if verdict.verdict != "not_comparable" or codes != {"E_TOKENS_DIFFER"}:
        return None
    if base is None or head is None or (base.side, head.side) != ("base", "head"):
        return None
    sides = base, head
    vary = any(
        side.differs_at is not None
        or {run.token_digest for run in side.runs} != {side.token_digest}
        for side in sides
    )
    return None if vary or len(base.tokens) != len(head.tokens) else head.token_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """One accepted slowdown of one workload, or its other tokens, whose speed is unknown.

    Attributes:
        until: The last day on which it is accepted, in UTC.
        change_pct: The measured change of tokens per second in percent, negative; ``low_pct`` is
            the slower end of its interval. Both are None if ``tokens`` are accepted.
        tokens: The digest of the head's tokens, None for a slowdown.
        base: The commit that the slowdown was measured against; ``head`` has it.
        evidence_sha256: The digest of the evidence that shows it.
    """

    workload: NonEmpty
    reason: NonEmpty
    author: str
    accepted: date
    until: date
    change_pct: Annotated[float, Meta(lt=0, gt=-100)] | None = None
    low_pct: Annotated[float, Meta(lt=0, ge=-100)] | None = None
    tokens: Sha256 | None = None
    base: NonEmpty
    head: NonEmpty
    evidence_sha256: Sha256

    def __post_init__(self) -> None:
        if self.until - self.accepted > MAX_AGE:
            raise ValueError(f"it lasts longer than {MAX_AGE.days} days")
        if {self.change_pct is None, self.low_pct is None} != {self.tokens is not None}:
            raise ValueError("it has either change_pct and low_pct, or tokens")

    @property
    def effect(self) -> str:
        """The accepted change as a table shows it: ``3.1 % slower``."""
        if self.tokens is not None:
            return f"NOT COMPARED: other tokens ({self.tokens[:12]})"
        return f"{-(self.change_pct or 0.0):.1f} % slower"

    def is_expired(self, today: date) -> bool:
        """Whether it is accepted no longer."""
        return today > self.until

    def concerns(self, verdict: Verdict) -> bool:
        """Whether it accepts verdicts of this kind."""
        return verdict.verdict == ("not_comparable" if self.tokens else "regressed")

    def find_excess(self, verdict: Verdict, tokens: str | None, today: date) -> str | None:
        """Return why it does not cover a verdict that it concerns, None if it does.

        ``tokens`` are those that ``find_other_tokens`` has found.
        """
        if self.is_expired(today):
            return f"the waiver of {self.workload} ended on {self.until}"
        if self.accepted > today + _CLOCKS:
            return f"the waiver of {self.workload} is dated {self.accepted}, and it is {today}"
        if self.tokens is not None and tokens is None:
            return (
                f"not comparable, and not only by the tokens that {self.workload}'s waiver accepts"
            )
        if self.tokens is not None and tokens != self.tokens:
            return f"the waiver of {self.workload} accepts other tokens than these"
        if self.tokens is not None:
            return None
        rate, low_pct = verdict.signal(), self.low_pct or 0.0
        if rate is None or rate.change_pct is None or rate.change_pct < low_pct:
            slower = "unknown" if rate is None else f"{-(rate.change_pct or 0.0):.1f} %"
            return (
                f"the waiver of {self.workload} accepts at most {-low_pct:.1f} % slower, "
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
        raise UsageError("E_BAD_WAIVER", problem)
    return waiver


def accept_run(
    directory: Path, workload: str, reason: str, until: date, today: date
) -> tuple[Path, Waiver]:
    """Write the waiver of the last run of ``workload``, compared with a revision.

    It regressed, or could not be compared because its tokens differ, and for nothing else.

    Raises ``UsageError``: ``E_NO_RUN``, ``E_NOTHING_TO_ACCEPT`` for any other run,
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
    path = latest / (run_files.BASE + run_files.EVIDENCE)
    base = decode_evidence(read_bounded(path)) if is_file(path) else None
    tokens = find_other_tokens(verdict, base, evidence)
    if tokens is not None:
        against = base.commit.revision if base is not None and base.commit is not None else None
    is_slower = verdict.verdict == "regressed" and rate is not None
    if not (is_slower or tokens) or against is None or commit is None:
        raise UsageError(
            "E_NOTHING_TO_ACCEPT",
            f"The last run of {workload!r} is neither slower than a revision nor other than it in "
            f"its tokens alone, as many as before: {headline}",
        )
    waiver = Waiver(
        workload=workload,
        reason=visible(reason.strip(), _LONGEST_REASON),
        author=git.query(directory.parent, "config", "user.name") or "",
        accepted=today,
        until=until,
        change_pct=None if tokens or rate is None else min(rate.change_pct or 0.0, -0.001),
        low_pct=None if tokens or rate is None else min(rate.ci_low_pct or 0.0, -0.001),
        tokens=tokens,
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
        if value is not None
    ]
    kind = "other tokens" if waiver.tokens else "slowdown"
    return "\n".join([f"# Accepted {kind}, written by flamegate accept.", *lines, ""]).encode()


def describe_debt(waivers: Sequence[Waiver], today: date, new: Collection[Waiver]) -> list[str]:
    """Return what is accepted as lines: the sum, the new ones, and those that ended."""
    if not waivers:
        return []
    slower = [each.change_pct for each in waivers if each.change_pct is not None]
    oldest = max(0, *((today - each.accepted).days for each in waivers))
    counts = []
    if slower:
        counts.append(f"{plural(len(slower), 'accepted slowdown')}, {-sum(slower):.1f} % in sum")
    if others := len(waivers) - len(slower):
        counts.append(f"{others} with other tokens, accepted and NOT COMPARED")
    lines = [f"{', '.join(counts)}, oldest {plural(oldest, 'day')}"]
    for each in waivers:
        author = visible(each.author) or "unknown"
        about = f"{visible(each.workload)} {each.effect}, by {author}"
        if each.is_expired(today):
            lines.append(
                f"ended on {each.until}: {about}. See if it is still there: "
                f"flamegate run {visible(each.workload)} --against={visible(each.base[:12])}"
            )
        elif each in new:
            lines.append(f"new in this change: {about} until {each.until}: {visible(each.reason)}")
    return lines


def today_utc() -> date:
    """Return the date by which waivers expire: the same in every time zone."""
    return datetime.now(UTC).date()
