"""Cross-checks over the hotspots: their samples, their shares and their cost.

Gates read the hotspots and the samples of each process, and people read the profile:
all three have to tell the same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.crosscheck_figures import FIGURE_AGREEMENT
from pytest_flamegate.receipt.findings import shown
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.metrics import cost_of
from pytest_flamegate.receipt.registry import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.case import Case

CHECKS: Rulebook[Case] = Rulebook()

_AGAIN = "Measure again; profile and evidence are written together and changed by nobody."


@CHECKS.rule(
    "E_HOTSPOT_UNSEEN",
    "Each function of the folded profile is one hotspot, with as many samples.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _hotspot_unseen(case: Case) -> Iterator[str]:
    # More samples than were seen blame a function, fewer or none acquit it.
    profile, folded = case.evidence.profile, case.folded
    if profile is None or folded is None:
        return
    told: set[str] = set()
    for hotspot in profile.hotspots:
        own = folded.self_samples.get(hotspot.name, 0)
        inclusive = folded.inclusive_samples.get(hotspot.name, 0)
        if (hotspot.self_samples, hotspot.inclusive_samples) != (own, inclusive):
            yield (
                f"The hotspot {shown(hotspot.name)} has {hotspot.self_samples:,} own and "
                f"{hotspot.inclusive_samples:,} inclusive samples, and the profile shows {own:,} "
                f"and {inclusive:,}."
            )
        if hotspot.name in told:
            yield f"The hotspot {shown(hotspot.name)} stands twice."
        told.add(hotspot.name)
    for name, inclusive in folded.inclusive_samples.items():
        if name not in told:
            yield f"The profile shows {inclusive:,} samples of {shown(name)}, which is no hotspot."


@CHECKS.rule(
    "E_HOTSPOT_SHARE",
    "A hotspot's shares are its samples by those of the profile.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _hotspot_share(case: Case) -> Iterator[str]:
    # Shares are gated, and samples are what they were counted from.
    profile = case.evidence.profile
    if profile is None or profile.samples == 0:
        return
    for hotspot in profile.hotspots:
        for what, share, samples in (
            ("own", hotspot.self_share, hotspot.self_samples),
            ("inclusive", hotspot.inclusive_share, hotspot.inclusive_samples),
        ):
            counted = samples / profile.samples
            if abs(share - counted) > FIGURE_AGREEMENT:
                yield (
                    f"The {what} share of {shown(hotspot.name)} is {share:.2%}, and {samples:,} of "
                    f"{profile.samples:,} samples are {counted:.2%}."
                )


@CHECKS.rule(
    "E_HOTSPOT_COST",
    "A hotspot costs its own share of the CPU time per token of the phase that was sampled.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _hotspot_cost(case: Case) -> Iterator[str]:
    # A share may grow because the rest became faster: only the cost tells.
    profile = case.evidence.profile
    if profile is None:
        return
    cost_s = cost_of(profile.covers, case.evidence.metrics)
    for hotspot in profile.hotspots:
        stated_s = hotspot.cpu_s_per_token
        if stated_s is None:
            continue
        if cost_s is None:
            yield f"{shown(hotspot.name)} has a cost, and there is no metric of CPU time."
        elif abs(stated_s - hotspot.self_share * cost_s) > FIGURE_AGREEMENT * cost_s:
            yield (
                f"{shown(hotspot.name)} costs {stated_s:.4g} CPU seconds a token, and "
                f"{hotspot.self_share:.2%} of {cost_s:.4g} are {hotspot.self_share * cost_s:.4g}."
            )


@CHECKS.rule(
    "E_PROCESS_SAMPLES",
    "The samples of all processes together are those of the folded profile, by function.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _process_samples(case: Case) -> Iterator[str]:
    # How far shares vary from process to process decides what counts as drift.
    profile, folded = case.evidence.profile, case.folded
    if profile is None or folded is None:
        return
    pooled: Counter[str] = Counter()
    for process in profile.processes:
        pooled.update(process.self_samples)
    for name in sorted(pooled.keys() | folded.self_samples.keys()):
        seen = folded.self_samples.get(name, 0)
        if pooled[name] != seen:
            yield (
                f"The processes have {pooled[name]:,} own samples of {shown(name)}, and the "
                f"profile shows {seen:,}."
            )
