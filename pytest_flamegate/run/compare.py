"""Compare two profiles: by the cost of a token if both sides were measured, else by shares."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_flamegate.core.files import is_file
from pytest_flamegate.gate.costs import WAITING, CostChange, estimate_cpu_cost
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.profile import difference
from pytest_flamegate.profile.difference import ProfileDifference, ProfileSide
from pytest_flamegate.receipt import baseline as run_files
from pytest_flamegate.receipt.metrics import cost_of, spread_of
from pytest_flamegate.report.evidence import revision_note
from pytest_flamegate.run.open import OpenedProfile, open_profile
from pytest_flamegate.run.seal import ComposedRun, ComposedSide

_NOTHING_TO_COMPARE = frozenset({"not_comparable", "dishonest", "error"})
"""The cost of a token on another machine, or by a false claim, is no difference of the code."""


def compare_opened(
    base: OpenedProfile,
    head: OpenedProfile,
    *,
    paired: bool = False,
    judged: Sequence[CostChange] = (),
) -> ProfileDifference:
    """Compare by the cost of a token if both have evidence, else by shares; ``E_NO_SAMPLES``.

    ``judged`` are the costs in the verdict on the two: their sums and their certainty count.
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
            if sampled := [each for each in judged if each.name != WAITING]:
                before = math.fsum(each.baseline_us for each in sampled)
                after = math.fsum(each.current_us for each in sampled)
                costs = before / 1e6, after / 1e6
            if find_other_work(base, head) is not None:
                # A faster machine and less work look the same: each side by its own clock.
                costs = costs[0], head.cpu_s_per_token
    return difference.compare_profiles(
        ProfileSide(base.title, base.profile, costs[0], 0.0, _spread(base)),
        ProfileSide(head.title, head.profile, costs[1], error, _spread(head)),
        {each.name: each.certainty for each in judged},
    )


def _spread(side: OpenedProfile) -> float:
    record = side.evidence.profile if side.evidence is not None else None
    return spread_of(record.processes) if record is not None else difference.SPREAD


def find_other_work(base: OpenedProfile, head: OpenedProfile) -> str | None:
    """Return a note if the two runs generated different tokens, else None."""
    sides = [side.evidence.tokens for side in (base, head) if side.evidence is not None]
    if len(sides) < 2 or sides[0] == sides[1]:
        return None
    return (
        "the two runs generated different tokens, so a difference may come from their work: costs "
        "are those that each run measured"
    )


def title_profile(opened: OpenedProfile, role: str) -> OpenedProfile:
    """Return a profile titled by role and revision: ``head 4f2c91a + 2 uncommitted files``."""
    if opened.evidence is None:
        return replace(opened, title=role)
    injected = opened.evidence.workload.get("injection")
    more = [f"with {injected} injected"] if injected else []
    return replace(
        opened, title=" ".join(filter(None, [role, revision_note(opened.evidence.commit), *more]))
    )


def compare_run(run: ComposedRun, verdict: Verdict) -> ProfileDifference | None:
    """Compare a run with its base or its baseline; None if there is nothing to compare with."""
    baseline = run.prepared.baseline
    if verdict.verdict in _NOTHING_TO_COMPARE:
        return None
    base = None
    if run.base is not None:
        base = _open_side(run.base)
    elif baseline is not None and baseline.evidence.profile is not None:
        base = open_profile(baseline.directory / run_files.FOLDED)
    return _compare_sides(base, _open_side(run.head), verdict, paired=run.base is not None)


def _open_side(side: ComposedSide) -> OpenedProfile | None:
    if side.profile is None:
        return None
    cost_s = cost_of(side.profile.covers, side.evidence.metrics)
    return OpenedProfile(side.profile, "", cost_s, side.evidence)


def compare_stored_run(directory: Path, verdict: Verdict) -> ProfileDifference | None:
    """Compare a published run with the files of its other side; None if it has none."""
    if not is_file(directory / run_files.DIFFERENCE):
        return None
    base = open_profile(directory / (run_files.BASE + run_files.EVIDENCE))
    head = open_profile(directory / run_files.EVIDENCE)
    return _compare_sides(base, head, verdict, paired=verdict.pairs is not None)


def _compare_sides(
    base: OpenedProfile | None, head: OpenedProfile | None, verdict: Verdict, *, paired: bool
) -> ProfileDifference | None:
    if base is None or head is None:
        return None
    roles = ("base", "head") if paired else ("baseline", "now")
    base, head = title_profile(base, roles[0]), title_profile(head, roles[1])
    return compare_opened(base, head, paired=paired, judged=verdict.attribution)
