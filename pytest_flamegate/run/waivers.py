"""Accepted slowdowns, other tokens and other declarations: a small file for each acceptance.

A person commits it. It counts in the change that adds it. Once that is merged, what it accepts is
part of the base, and the waiver stays as a record of the debt until somebody removes it. The file
is part of the change, so the reviewer of the change accepts it too.
"""

import math
import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from pytest_flamegate.config.workload import parse_toml, read_toml_bytes
from pytest_flamegate.core.errors import ReceiptError, UsageError
from pytest_flamegate.core.git import is_ancestor, query
from pytest_flamegate.core.json import NonEmpty, Sha256, decode_plain
from pytest_flamegate.gate.rule import BRICK, CALLS, Signal
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report.text import plural, visible

DIRECTORY = "waivers"
MAX_AGE = timedelta(days=366)
_COMMIT = r"^[0-9a-f]{40,64}$"
_CLOCKS = timedelta(days=1)
"""How far ahead the clock of the machine may be that wrote a waiver."""


_OF_SAMPLES = frozenset({"E_NO_SAMPLES", "E_FEW_SAMPLES", "E_STACKS_CUT"})
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
    """One acceptance for one workload: a slowdown, or other tokens or another declaration.

    Attributes:
        until: The last day on which it is accepted, in UTC.
        change_pct: The measured change of tokens per second in percent, negative; ``low_pct`` is
            the slower end of its interval. Both are None if something else is accepted.
        limits: The signals of bricks and calls that the accepted slowdown has past their limits, as
            ``brick:Up (us/token)``, each with the upper end of its change in percent. One that the
            base does not have, or that has a budget, is ``absolute``: a number of calls, or percent
            of the budget.
        tokens: The digest of the head's tokens, None if something else is accepted.
        declarations: The digests of the workload's declarations in base and head, None if something
            else is accepted. The second one is empty if the head declares it no longer.
        base: The commit that was the base; ``head`` has the change.
        evidence_sha256: The digest of the evidence of a slowdown or of other tokens.
    """

    workload: NonEmpty
    reason: NonEmpty
    author: str
    accepted: date
    until: date
    change_pct: Annotated[float, Meta(lt=0, gt=-100)] | None = None
    low_pct: Annotated[float, Meta(lt=0, ge=-100)] | None = None
    limits: tuple[tuple[str, float], ...] = ()
    tokens: Sha256 | None = None
    declarations: tuple[str, str] | None = None
    base: Annotated[str, Meta(pattern=_COMMIT)]
    head: Annotated[str, Meta(pattern=_COMMIT)]
    evidence_sha256: Sha256 | None = None

    def __post_init__(self) -> None:
        if self.until < self.accepted:
            raise ValueError("it ends before it was accepted")
        if self.until - self.accepted > MAX_AGE:
            raise ValueError(f"it lasts longer than {MAX_AGE.days} days")
        slowdown = {self.change_pct is None, self.low_pct is None}
        given = slowdown == {False}, self.tokens is not None, self.declarations is not None
        if sum(given) != 1 or len(slowdown) != 1:
            raise ValueError("it has either change_pct and low_pct, or tokens, or declarations")
        if (self.low_pct or 0.0) > (self.change_pct or 0.0):
            raise ValueError("low_pct, the slower end of the interval, is above change_pct")
        if self.evidence_sha256 is None and self.declarations is None:
            raise ValueError("it has no evidence_sha256")

    @property
    def kind(self) -> str:
        """The kind of change that it accepts."""
        if self.declarations is not None:
            return "declaration"
        return "slowdown" if self.tokens is None else "other tokens"

    @property
    def effect(self) -> str:
        """The accepted change as a table shows it: ``3.1 % slower``."""
        if self.tokens is not None:
            return f"NOT COMPARED: other tokens ({self.tokens[:12]})"
        if self.declarations is not None:
            new = self.declarations[1]
            return f"declared otherwise ({new[:12]})" if new else "NO LONGER REQUIRED"
        past = "".join(f", {name} past its limit" for name, _ in self.limits)
        return f"{-(self.change_pct or 0.0):.1f} % slower{past}"

    @property
    def limit(self) -> str:
        """The largest slowdown that it accepts: ``, up to 4.0 %``; empty for other changes."""
        return "" if self.low_pct is None else f", up to {-self.low_pct:.1f} %"

    def is_expired(self, today: date) -> bool:
        """Whether it is accepted no longer."""
        return today > self.until

    def find_problem(self, today: date) -> str | None:
        """Return why it does not count on that day, None if it does."""
        if self.is_expired(today):
            return f"the waiver of {self.workload} ended on {self.until}"
        if self.accepted > today + _CLOCKS:
            return f"the waiver of {self.workload} is dated {self.accepted}, and it is {today}"
        return None


def find_exceeded_limits(verdict: Verdict) -> tuple[tuple[str, float], ...]:
    """Return the signals of bricks and calls that regressed, as ``Waiver.limits`` has them."""
    found = []
    for each in _signals_past_limits(verdict):
        ends = each.change_pct, each.ci_low_pct, each.ci_high_pct
        sizes = [end for end in ends if end is not None] or [each.current or 0.0]
        found.append((_name_limit(each), max(sizes)))
    return tuple(found)


def _signals_past_limits(verdict: Verdict) -> list[Signal]:
    return [
        each
        for each in verdict.signals
        if each.decision == "regressed" and each.name.startswith((BRICK, CALLS))
    ]


def _name_limit(signal: Signal) -> str:
    """Return its name with its unit: a brick's cost per token and per call have limits each.

    One without a figure of the base is limited by itself, and not by its growth.
    """
    return f"{signal.name} ({signal.unit}{'' if signal.baseline else ', absolute'})"


def _is_accepted(signal: Signal, limits: Sequence[tuple[str, float]]) -> bool:
    """Whether these limits of waivers cover it: growth adds up, what has no baseline does not.

    It is the change itself, as of the rate: the ends of two intervals differ by chance.
    """
    sizes = [size for name, size in limits if name == _name_limit(signal)]
    size = signal.current if signal.change_pct is None else signal.change_pct
    if signal.baseline and size is not None:
        return 1.0 + size / 100.0 <= math.prod(1.0 + each / 100.0 for each in sizes)
    return bool(sizes) and (size or 0.0) <= max(sizes)


def find_new(
    waivers: Sequence[Waiver], merged: Collection[Waiver], root: Path, base: str
) -> tuple[Waiver, ...]:
    """Return the waivers that are not among those merged before; a changed one is no new one.

    Nor is one of a change that the commit ``base`` has already.
    """
    known = {(each.workload, each.head) for each in merged}
    return tuple(
        each
        for each in waivers
        if (each.workload, each.head) not in known and not is_ancestor(root, each.head, base)
    )


def find_excess(
    waivers: Sequence[Waiver], verdict: Verdict, tokens: str | None, today: date
) -> str | None:
    """Return why the waivers of a workload do not cover a verdict: "" if they do, None without any.

    Accepted slowdowns add up: there are several if the base is older than their changes. ``tokens``
    are those that ``find_other_tokens`` has found.
    """
    kind = {"not_comparable": "other tokens", "regressed": "slowdown"}.get(verdict.verdict)
    found = [each for each in waivers if each.kind == kind]
    problems = [problem for each in found if (problem := each.find_problem(today)) is not None]
    valid = [each for each in found if each.find_problem(today) is None]
    if not valid:
        return problems[0] if problems else None
    name = valid[0].workload
    if kind == "other tokens":
        if tokens is None:
            return f"not comparable, and not only by the tokens that {name}'s waiver accepts"
        is_accepted = tokens in {each.tokens for each in valid}
        return "" if is_accepted else f"the waiver of {name} accepts other tokens than these"
    limits = [limit for each in valid for limit in each.limits]
    past = [
        _name_limit(each)
        for each in _signals_past_limits(verdict)
        if not _is_accepted(each, limits)
    ]
    if past:
        return f"no waiver of {name} accepts so much of {', '.join(past)}"
    rate = verdict.signal()
    low_pct = 100.0 * (math.prod(1.0 + (each.low_pct or 0.0) / 100.0 for each in valid) - 1.0)
    if rate is not None and rate.change_pct is not None and rate.change_pct >= low_pct:
        return ""
    slower = "unknown" if rate is None else f"{-(rate.change_pct or 0.0):.1f} %"
    accepts = "waiver accepts" if len(valid) == 1 else "waivers accept"
    accepted = f"{accepts} at most {-low_pct:.1f} % slower, and {slower} was measured"
    return "; ".join([*problems, f"{name}'s {accepted}"])


def read_waivers(directory: Path) -> tuple[Waiver, ...]:
    """Return the waivers in an artifact directory; UsageError ``E_BAD_WAIVER``, ``E_BAD_TOML``.

    A link is an error: who may change its target is not who may change a waiver. So is one that git
    does not track, or that the index has git skip (``E_UNCOMMITTED``): no reviewer sees it.
    """
    inside = directory / DIRECTORY
    paths = sorted(inside.glob("*.toml"))
    for path in (directory, inside, *paths):
        if path.is_symlink():
            raise UsageError(
                "E_BAD_WAIVER", f"{path.name} is a link, and waivers are files of their own."
            )
    listed = (query(inside, "ls-files", "-v", "-z", "--", ".") or "") if paths else ""
    tracked = {each[2:] for each in listed.split("\0") if each.startswith("H ")}
    if hidden := [path.name for path in paths if path.name not in tracked]:
        raise UsageError(
            "E_UNCOMMITTED",
            f"The waiver {hidden[0]!a} is in no commit: git does not track it, or the index has "
            "git skip it.",
            f"Commit it (git add -f {os.path.relpath(inside / hidden[0])}), or remove it.",
        )
    return tuple(map(read_waiver, paths))


def read_waiver(path: Path) -> Waiver:
    """Return the waiver in ``path``, whose name begins with that of the workload; UsageError."""
    document = parse_toml(path, read_toml_bytes(path))
    try:
        waiver = decode_plain(document, Waiver, subject=f"The waiver {path.name}")
        # Earlier versions wrote one file for each workload.
        is_named = path.stem in (waiver.workload, f"{waiver.workload}-{waiver.head[:12]}")
        problem = "" if is_named else f"{path.name} is of {waiver.workload!r}."
    except ReceiptError as error:
        problem = error.problem
    if problem:
        raise UsageError("E_BAD_WAIVER", problem)
    return waiver


def describe_debt(
    waivers: Sequence[Waiver],
    today: date,
    new: Collection[Waiver],
    gone: Collection[Waiver] = (),
) -> list[str]:
    """Return what is accepted as lines: the sum, the new ones, and those that ended.

    ``gone`` are ended ones whose slowdown a comparison with a commit before it no longer found.
    """
    if not waivers:
        return []
    slower = [each.change_pct for each in waivers if each.change_pct is not None]
    oldest = max(0, *((today - each.accepted).days for each in waivers))
    kinds = Counter(each.kind for each in waivers)
    counts = []
    if slower:
        counts.append(f"{plural(len(slower), 'accepted slowdown')}, {-sum(slower):.1f} % in sum")
    if others := kinds["other tokens"]:
        counts.append(f"{others} with other tokens, accepted and NOT COMPARED")
    if others := kinds["declaration"]:
        counts.append(f"{plural(others, 'accepted change')} of the policy")
    lines = [f"{', '.join(counts)}, oldest {plural(oldest, 'day')}"]
    for each in waivers:
        author = visible(each.author) or "unknown"
        about = f"{visible(each.workload)} {each.effect}, by {author}"
        if each in gone:
            lines.append(f"ended on {each.until}, gone, and may be deleted: {about}")
        elif each.is_expired(today):
            more = ""
            if each.kind == "slowdown":
                name, base = visible(each.workload), visible(each.base[:12])
                more = f". See if it is still there: flamegate run {name} --against={base}"
            lines.append(f"ended on {each.until}: {about}{more}")
        elif each in new:
            about += f"{each.limit} until {each.until}: {visible(each.reason)}"
            lines.append(f"new in this change: {about}")
    return lines


def today_utc() -> date:
    """Return the date by which waivers expire: the same in every time zone."""
    return datetime.now(UTC).date()
