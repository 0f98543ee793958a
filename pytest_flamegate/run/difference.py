"""Two runs compared by their profiles: what each function cost a token before and after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.core.files import read_bounded
from pytest_flamegate.core.json import EVIDENCE_MAX_BYTES
from pytest_flamegate.core.paths import is_file
from pytest_flamegate.gate.pairs import estimate_cpu_cost
from pytest_flamegate.profile.difference import (
    SPREAD,
    ProfileDifference,
    ProfileSide,
    compare_profiles,
)
from pytest_flamegate.receipt.artifacts import (
    BASE_EVIDENCE,
    BASE_FOLDED,
    DIFFERENCE,
    EVIDENCE,
    FOLDED,
)
from pytest_flamegate.receipt.metrics import cost_of, spread_of
from pytest_flamegate.report import difference_svg
from pytest_flamegate.report.sections import hardware, revision, what_ran
from pytest_flamegate.run.open import open_profile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.gate import Verdict
    from pytest_flamegate.profile.model import Profile
    from pytest_flamegate.receipt.artifacts import Baseline
    from pytest_flamegate.receipt.types import Evidence
    from pytest_flamegate.run.seal import Sealed


_NOTHING_TO_DRAW = frozenset({"not_comparable", "dishonest", "error"})
"""What a token costs on another machine, or by a false claim, is no difference of the code."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One side: a profile, what it is called, and its run's evidence where there is any."""

    name: str
    profile: Profile
    evidence: Evidence | None = None

    @classmethod
    def of(cls, role: str, profile: Profile, evidence: Evidence) -> Seen:
        """Call it by its role and revision: ``head 4f2c91a + 2 uncommitted files``."""
        injected = evidence.workload.get("injection")
        more = [f"with {injected} injected"] if injected else []
        return cls(" ".join([role, *revision(evidence), *more]), profile, evidence)


def compared(base: Seen, head: Seen, *, paired: bool = False) -> ProfileDifference:
    """Compare two profiles, by the cost of a token where evidence of both sides tells it.

    ``paired`` says that they were measured in pairs with each other. ``UndecidedError``
    ``E_NO_SAMPLES`` where one holds no sample.
    """
    costs: tuple[float | None, float | None] = (None, None)
    error = 0.0
    if base.evidence is not None and head.evidence is not None:
        cost = estimate_cpu_cost(base.evidence, head.evidence, paired=paired)
        if cost is not None:
            # The phase that was sampled may be more than the one that is timed.
            whole = cost_of(base.profile.covers, base.evidence.metrics) or cost.base_s
            costs = whole, whole * cost.head_s / cost.base_s
            error = cost.error
            if other_work(base, head) is not None:
                # The machine's speed cannot be told from that of the work: each on its own clock.
                costs = costs[0], cost_of(head.profile.covers, head.evidence.metrics)
    return compare_profiles(
        ProfileSide(base.name, base.profile, costs[0], 0.0, _spread(base)),
        ProfileSide(head.name, head.profile, costs[1], error, _spread(head)),
    )


def other_work(base: Seen, head: Seen) -> str | None:
    """Return what is to be said where the two runs did not do the same work, else None."""
    if base.evidence is None or head.evidence is None:
        return None
    if base.evidence.tokens == head.evidence.tokens:
        return None
    return (
        "the two runs did not make the same tokens, so what differs may be of their work: costs "
        "are those that each run measured"
    )


@dataclass(frozen=True, slots=True)
class Beside:
    """The files that stand beside a run that was compared, and what changed where it is known."""

    files: Mapping[str, bytes]
    difference: ProfileDifference | None = None

    def __or__(self, files: Mapping[str, bytes]) -> Beside:
        return replace(self, files={**self.files, **files})


NOTHING_BESIDE = Beside(MappingProxyType({}))


def beside_base(workload: Workload, base: Sealed, head: Sealed, verdict: Verdict) -> Beside:
    """Return what stands beside a run that was compared in pairs: the base and the difference."""
    files = _of_base(base.files)
    if base.profile is None or head.profile is None or verdict.verdict in _NOTHING_TO_DRAW:
        return Beside(files)
    before = Seen.of("base", base.profile, base.evidence)
    after = Seen.of("head", head.profile, head.evidence)
    return _drawn(workload, before, after, files, paired=True)


def beside_baseline(
    workload: Workload, baseline: Baseline | None, head: Sealed, verdict: Verdict
) -> Beside:
    """Return the same of a run that was judged by an accepted baseline, if it has a profile.

    Raises what opening a profile raises: a baseline that cannot be read is no baseline.
    """
    if baseline is None or baseline.evidence.profile is None or head.profile is None:
        return NOTHING_BESIDE
    if verdict.verdict in _NOTHING_TO_DRAW:
        return NOTHING_BESIDE
    opened = open_profile(baseline.directory / FOLDED)
    files = {
        name: read_bounded(baseline.directory / name, EVIDENCE_MAX_BYTES)
        for name in (EVIDENCE, FOLDED)
    }
    before = Seen.of("baseline", opened.profile, baseline.evidence)
    after = Seen.of("now", head.profile, head.evidence)
    return _drawn(workload, before, after, _of_base(files), paired=False)


def _of_base(files: Mapping[str, bytes]) -> dict[str, bytes]:
    names = {EVIDENCE: BASE_EVIDENCE, FOLDED: BASE_FOLDED}
    return {names[name]: data for name, data in files.items() if name in names}


def read_difference(directory: Path, *, paired: bool) -> ProfileDifference | None:
    """Compare a published run with what stands beside it; None where it was not compared.

    Raises what opening a profile raises.
    """
    if not is_file(directory / DIFFERENCE):
        return None
    roles = ("base", "head") if paired else ("baseline", "now")
    sides = []
    for name, role in zip((BASE_FOLDED, FOLDED), roles, strict=True):
        opened = open_profile(directory / name)
        if opened.evidence is None:
            return None
        sides.append(Seen.of(role, opened.profile, opened.evidence))
    return compared(*sides, paired=paired)


def _drawn(
    workload: Workload, base: Seen, head: Seen, files: Mapping[str, bytes], *, paired: bool
) -> Beside:
    told = []
    if head.evidence is not None:
        told = [*what_ran(head.evidence), ", ".join(hardware(head.evidence))]
    found = compared(base, head, paired=paired)
    picture = difference_svg(
        found,
        title=f"{workload.node_name}: what changed",
        subtitle=" · ".join(told),
    )
    return Beside({**files, DIFFERENCE: picture.encode()}, found)


def _spread(side: Seen) -> float:
    record = side.evidence.profile if side.evidence is not None else None
    return spread_of(record.processes) if record is not None else SPREAD
