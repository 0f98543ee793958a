"""By how much pairs of the same code differ here: measured, stored, and what it supports."""

import hashlib
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pytest_flamegate.config.options import (
    COMPARE_BUDGET_S,
    FINE_COMPARE_BUDGET_S,
    compare_budget_s,
)
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import __version__, clocks, limit
from pytest_flamegate.core.errors import FlamegateError, UndecidedError
from pytest_flamegate.core.files import read_beneath
from pytest_flamegate.core.json import Timestamp, decode_json, encode_json, encode_plain
from pytest_flamegate.core.json_parser import Limits
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.gate.analyses import plan_pair_counts
from pytest_flamegate.gate.calibration import (
    DRAWS,
    FEW_POOL,
    MIN_POOL,
    AnalysisPlan,
    ReplayedRates,
    ResampledPairs,
    check_pool,
)
from pytest_flamegate.gate.comparability import machine_id
from pytest_flamegate.gate.pairs import others_pct, pair_differences
from pytest_flamegate.gate.rule import ReportedRates
from pytest_flamegate.observe.pairs import PairObserver
from pytest_flamegate.receipt.artifacts import ArtifactStore, StoredPath
from pytest_flamegate.receipt.compose import recipe
from pytest_flamegate.receipt.rerun import NOT_RUN
from pytest_flamegate.run.processes import SideProcesses
from pytest_flamegate.run.schedule import PAIRS_SHARE, Budget, should_run_alone
from pytest_flamegate.run.stages import PreparedSide

SCHEMA_VERSION = "1.0.0"
_MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Calibration:
    """By how much A/A pairs of one workload differed on one machine.

    ``differences`` are log time per token, in the order of measuring; ``pair_s`` is the mean
    duration of a pair in seconds. ``shares_core`` says whether both sides of a pair ran on one core
    at the same time; calibrations of versions in which they took turns lack it, and do not count.
    """

    created: Timestamp
    machine_id: str
    machine: Mapping[str, str]
    flamegate_version: str
    workload: str
    recipe_sha256: str
    engine: str
    differences: tuple[float, ...]
    pair_s: Annotated[float, limit(ge=1e-3, le=86_400)]
    shares_core: bool
    schema_version: str = SCHEMA_VERSION


def recipe_sha256(workload: Workload) -> str:
    """Return a digest of everything that decides how the workload runs, thresholds apart."""
    ignored = {*NOT_RUN, "build"}
    decisive = {name: value for name, value in recipe(workload).items() if name not in ignored}
    return hashlib.sha256(encode_json(encode_plain(decisive))).hexdigest()


def _read(artifacts: ArtifactStore, path: Path) -> Calibration:
    # Committed like a baseline, so no link below the root is followed.
    below = path.relative_to(artifacts.root).parts
    data = read_beneath(artifacts.root, *below, limit=_MAX_BYTES)
    found = decode_json(data, Calibration, Limits(_MAX_BYTES), subject="The calibration")
    check_pool(found.differences)
    return found


def load(
    artifacts: ArtifactStore, machine_id: str, workload: Workload, warn: Callable[[str], None]
) -> Calibration | None:
    """Return the calibration of ``workload`` on this class of machine; None without one.

    One that cannot be read, or belongs to something else, is reported to ``warn`` and ignored: a
    verdict does not need it.
    """
    path = artifacts.calibration_path(machine_id, workload.name)
    if not os.path.lexists(path):
        return None
    try:
        found = _read(artifacts, path)
    except FlamegateError as error:
        problem = error.problem
    else:
        if (found.machine_id, found.workload) != (machine_id, workload.name):
            problem = f"It is of {found.workload!a} on {found.machine_id!a}."
        elif found.recipe_sha256 != recipe_sha256(workload):
            problem = f"{workload.name} ran differently when it was made."
        else:
            return found
    warn(f"The calibration {path} does not count: {problem} Calibrate again.")
    return None


def store(artifacts: ArtifactStore, calibration: Calibration) -> StoredPath:
    """Store ``calibration`` as the one of its workload; a corrupt one there is set aside."""
    machine_id, workload = calibration.machine_id, calibration.workload
    path = artifacts.calibration_path(machine_id, workload)
    corrupt = False
    try:
        if os.path.lexists(path):
            _read(artifacts, path)
    except FlamegateError:
        corrupt = True
    data = encode_json(encode_plain(calibration))
    return artifacts.write_calibration(machine_id, workload, data, set_aside=corrupt)


def plan_for(budget_s: float, pair_s: float, pairs_share: float) -> AnalysisPlan:
    """Return the analyses that a comparison plans for a budget, and the pairs it has time for.

    ``pairs_share`` is the part of the budget that pairs may take. The first analysis waits for
    its pairs, however long they take.
    """
    analyses = plan_pair_counts(budget_s)
    in_time = math.floor(pairs_share * budget_s / pair_s)
    return AnalysisPlan(analyses, min(analyses[-1], max(analyses[0], in_time)))


def find_known_rates(
    artifacts: ArtifactStore,
    machine_id: str,
    workload: Workload,
    budget_s: float,
    warn: Callable[[str], None],
) -> ReportedRates | None:
    """Return upper bounds of the rule's error rates in a comparison that profiles both sides.

    They are replayed on the calibration of the workload here; None without one. ``warn`` gets
    the reason why one that there is does not count.
    """
    found = load(artifacts, machine_id, workload, warn)
    if found is None:
        return None
    plan = plan_for(budget_s, found.pair_s, PAIRS_SHARE)
    drop_pct = workload.thresholds.tokens_per_second_pct
    rates = ResampledPairs.draw(found.differences, plan.pairs).rates(drop_pct, plan)
    basis = (
        f"calibrated here on {len(found.differences)} A/A pairs ({found.created[:10]}): "
        f"{rates.false_alarm.words} false alarms and {rates.miss.words} misses in {DRAWS:,} "
        f"replays of the whole rule, within {plan.pairs} pairs"
    )
    if len(found.differences) < FEW_POOL:
        basis += f". Fewer than {FEW_POOL} pairs flatter a machine"
    return ReportedRates(rates.false_alarm.upper, rates.miss.upper, basis)


PAIRS = 40
BUDGET_S, LONGEST_S = 52.0, 180.0
"""Seconds of measuring by default, and the most until there are pairs enough."""


def calibrate(
    side: PreparedSide, progress: Progress, *, pairs: int = PAIRS, budget_s: float | None = None
) -> Calibration:
    """Measure a side in pairs with itself; return the calibration of its workload.

    ``budget_s`` is ``BUDGET_S`` by default, or longer if ``MIN_POOL`` pairs take longer. The
    caller holds the machine's lock. Nothing is written. Raises ``UndecidedError``:
    ``E_FEW_PROCESSES`` if the first pair shows that there is no time for enough of them,
    ``E_TOKENS_DIFFER`` if the same code gave other tokens.
    """
    workload, machine = side.workload, side.subject.machine
    budget, most_s = Budget(budget_s or BUDGET_S), budget_s or LONGEST_S
    least = 1 if budget_s else MIN_POOL
    base, head = (SideProcesses(side, budget).observer for _ in range(2))
    progress.begin(workload.name)
    progress.update("warming up")
    for observer in (base, head):
        observer.warm_up()
    observers = PairObserver(base, head)
    began_s, pair_s = time.monotonic(), 0.0
    # One pair at least: it shows how long they take, whatever the warming up took.
    while observers.pairs < pairs and (observers.pairs < least or budget.spent < 1.0):
        is_first = observers.pairs == 0
        others = None if is_first else others_pct(base.observation(), head.observation())
        alone = should_run_alone(workload.thresholds.tokens_per_second_pct, others)
        observers.pair(1 if alone else pairs - observers.pairs)
        pair_s = (time.monotonic() - began_s) / observers.pairs
        seen = base.observation()
        if seen.differs_at is not None or seen.has_other_tokens(head.observation()):
            raise UndecidedError(
                "E_TOKENS_DIFFER",
                f"{workload.name} answered the same prompt differently, and runs that generate "
                "other tokens cannot be compared.",
            )
        if is_first and pair_s * MIN_POOL > most_s:
            raise UndecidedError(
                "E_FEW_PROCESSES",
                f"A pair of {workload.name} takes {pair_s:.1f} s, and a calibration needs "
                f"{MIN_POOL}.",
                f"Give it at least {1.5 * pair_s * MIN_POOL:.0f} s (--budget), or take a shorter "
                "workload.",
            )
        progress.update("pairs", f"pair {observers.pairs} of ≤ {pairs}", budget.left_s)
    found = pair_differences(base.observation(), head.observation())
    differences = check_pool([pair.quiet for pair in found])
    progress.end()
    return Calibration(
        created=clocks.utc_now(),
        machine_id=machine_id(machine),
        machine=machine,
        flamegate_version=__version__,
        workload=workload.name,
        recipe_sha256=recipe_sha256(workload),
        engine=workload.engine,
        differences=differences,
        pair_s=pair_s,
        shares_core=observers.shares_core,
    )


BUDGETS_S = (15.0, 30.0, COMPARE_BUDGET_S, FINE_COMPARE_BUDGET_S, 300.0)


@dataclass(frozen=True, slots=True)
class BudgetThreshold:
    """The smallest threshold that holds in a budget; ``drop_pct`` is None if none does.

    There is time for ``pairs``; unchanged code takes ``median_pairs``.
    """

    budget_s: float
    pairs: int
    drop_pct: float | None = None
    median_pairs: int | None = None


@dataclass(frozen=True, slots=True)
class SupportedThresholds:
    """The thresholds that the machine holds, and whether the workload's own is one of them.

    ``rows`` are for budgets of increasing length, ``budget_s`` among them.
    """

    drop_pct: float
    budget_s: float
    rates: ReplayedRates
    rows: tuple[BudgetThreshold, ...]


def find_supported_thresholds(
    calibration: Calibration,
    drop_pct: float,
    budget_s: float,
    pairs_share: float,
) -> SupportedThresholds:
    """Replay the rule for every budget, and at ``drop_pct`` in ``budget_s``."""
    plans = {
        seconds: plan_for(seconds, calibration.pair_s, pairs_share)
        for seconds in sorted({*BUDGETS_S, budget_s})
    }
    most = max(plan.pairs for plan in plans.values())
    replayed = ResampledPairs.draw(calibration.differences, most)
    rows = []
    for seconds, plan in plans.items():
        found = replayed.find_smallest(plan)
        smallest = (found[0], found[1].median_pairs) if found else ()
        rows.append(BudgetThreshold(seconds, plan.pairs, *smallest))
    rates = replayed.rates(drop_pct, plans[budget_s])
    return SupportedThresholds(drop_pct, budget_s, rates, tuple(rows))


def threshold_error(workload: str, found: SupportedThresholds) -> UndecidedError | None:
    """Return the error of a threshold that is too small for this machine; None if it holds."""
    if found.rates.holds:
        return None
    can = [
        f"set tokens_per_second to {row.drop_pct:g} %"
        + f" with flamegate_budget = {row.budget_s:g} in pytest's file"
        * (row.budget_s > compare_budget_s(row.drop_pct))
        for row in found.rows
        if row.budget_s == found.budget_s and row.drop_pct is not None
    ]
    for row in found.rows:
        if row.drop_pct is not None and row.drop_pct <= found.drop_pct:
            can.append(f"give it {row.budget_s:g} s (flamegate_budget in pytest's file)")
            break
    remedy = " or ".join(can) or "use a quieter machine, or a workload that varies less"
    rates = found.rates
    return UndecidedError(
        "E_THRESHOLD_TOO_SMALL",
        f"This machine cannot hold {workload} to {found.drop_pct:g} % within "
        f"{found.budget_s:g} s: of the replays {100 * rates.false_alarm.rate:.1f} % raised a false "
        f"alarm, {100 * rates.miss.rate:.1f} % missed a drop of that size, and "
        f"{100 * max(rates.inconclusive_unchanged.rate, rates.inconclusive_twice.rate):.1f} % "
        "stayed undecided.",
        f"{remedy[0].upper()}{remedy[1:]}.",
    )
