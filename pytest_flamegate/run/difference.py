"""Compare two runs by their profiles: the cost of each function per token, before and after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_flamegate.core.files import is_file
from pytest_flamegate.gate import Verdict
from pytest_flamegate.gate.costs import estimate_cpu_cost
from pytest_flamegate.profile.difference import (
    SPREAD,
    ProfileDifference,
    ProfileSide,
    compare_profiles,
)
from pytest_flamegate.receipt.baseline import BASE_FOLDED, DIFFERENCE, FOLDED
from pytest_flamegate.receipt.metrics import cost_of, spread_of
from pytest_flamegate.report.evidence import revision_note
from pytest_flamegate.run.open import OpenedProfile, open_profile
from pytest_flamegate.run.seal import ComposedRun, ComposedSide

_NOTHING_TO_COMPARE = frozenset({"not_comparable", "dishonest", "error"})
"""The cost of a token on another machine, or by a false claim, is no difference of the code."""


def compare_opened(
    base: OpenedProfile, head: OpenedProfile, *, paired: bool = False
) -> ProfileDifference:
    """Compare two profiles, by the cost of a token if both have evidence, else by shares.

    Args:
        base: The profile before.
        head: The profile after.
        paired: Whether the two were measured in pairs with each other.

    Raises:
        UndecidedError: ``E_NO_SAMPLES`` if one holds no sample.
    """
    costs: tuple[float | None, float | None] = (None, None)
    error = 0.0
    if base.evidence is not None and head.evidence is not None:
        cost = estimate_cpu_cost(base.evidence, head.evidence, paired=paired)
        if cost is not None:
            # The phase that was sampled may be more than the one that is timed.
            whole = base.cpu_s_per_token or cost.base_s
            costs = whole, whole * cost.head_s / cost.base_s
            error = cost.error
            if other_work(base, head) is not None:
                # A faster machine and less work look the same: each side by its own clock.
                costs = costs[0], head.cpu_s_per_token
    return compare_profiles(
        ProfileSide(base.title, base.profile, costs[0], 0.0, _spread(base)),
        ProfileSide(head.title, head.profile, costs[1], error, _spread(head)),
    )


def other_work(base: OpenedProfile, head: OpenedProfile) -> str | None:
    """Return a note if the two runs generated different tokens, else None."""
    if base.evidence is None or head.evidence is None:
        return None
    if base.evidence.tokens == head.evidence.tokens:
        return None
    return (
        "the two runs generated different tokens, so a difference may come from their work: costs "
        "are those that each run measured"
    )


def named(opened: OpenedProfile, role: str) -> OpenedProfile:
    """Return a profile titled by role and revision: ``head 4f2c91a + 2 uncommitted files``."""
    if opened.evidence is None:
        return replace(opened, title=role)
    injected = opened.evidence.workload.get("injection")
    more = [f"with {injected} injected"] if injected else []
    return replace(
        opened, title=" ".join(filter(None, [role, revision_note(opened.evidence), *more]))
    )


def difference_of(run: ComposedRun, verdict: Verdict) -> ProfileDifference | None:
    """Compare a run with its base or its baseline; None if there is nothing to compare with.

    Raises:
        UndecidedError: ``E_NO_SAMPLES``.
        ReceiptError: The baseline's profile cannot be read.
    """
    if verdict.verdict in _NOTHING_TO_COMPARE:
        return None
    if run.base is not None:
        base, head = _opened(run.base, "base"), _opened(run.head, "head")
        return compare_opened(base, head, paired=True) if base and head else None
    baseline, head = run.measured.prepared.baseline, _opened(run.head, "now")
    if baseline is None or baseline.evidence.profile is None or head is None:
        return None
    stored = open_profile(baseline.directory / FOLDED)
    return compare_opened(named(stored, "baseline"), head)


def read_difference(directory: Path, *, paired: bool) -> ProfileDifference | None:
    """Compare a published run with the files of its other side; None if it has none.

    Raises:
        FlamegateError: As ``open_profile`` does.
    """
    if not is_file(directory / DIFFERENCE):
        return None
    roles = ("base", "head") if paired else ("baseline", "now")
    base, head = (open_profile(directory / name) for name in (BASE_FOLDED, FOLDED))
    if base.evidence is None or head.evidence is None:
        return None
    return compare_opened(named(base, roles[0]), named(head, roles[1]), paired=paired)


def _opened(side: ComposedSide, role: str) -> OpenedProfile | None:
    if side.profile is None:
        return None
    cost_s = cost_of(side.profile.covers, side.evidence.metrics)
    return named(OpenedProfile(side.profile, role, cost_s, side.evidence), role)


def _spread(side: OpenedProfile) -> float:
    record = side.evidence.profile if side.evidence is not None else None
    return spread_of(record.processes) if record is not None else SPREAD
