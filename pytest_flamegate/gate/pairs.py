"""Two sides measured in pairs: their differences, their phases, and what casts doubt on them.

The unit of evidence is the pair of fresh processes. Its difference is the mean over its blocks
of ln(time per token of head / that of base), so what slowed both cancels.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.rule import (
    FALSE_ALARM_RATE,
    FAVOURABLE,
    ErrorRates,
    RateVerdict,
    Reason,
    describe_rate_change,
    rate_change_pct,
)
from pytest_flamegate.gate.statistics import mean, trimmed_mean
from pytest_flamegate.observe.observation import Block, Observation
from pytest_flamegate.profile.calls import Phase
from pytest_flamegate.receipt.types import Evidence

MOST_DELAYED = 0.05
"""The part of the time that several threads may have waited for a CPU. Measured: beside other work
that takes 5 % a lock that makes tokens 22 % slower shows as 20 %, beside 10 % as 15 %."""
_WAITING_ERROR = 0.01
"""How often an analysis may stop a comparison for waiting that is not above ``MOST_DELAYED``."""

SLEEP_OUTSIDE = math.log(1.1)
"""How much longer a program may take by the quiet clock from its start to its end."""
_WHOLE_LOOKS = 2
"""How often a program is judged from its start to its end: when its rate is decided, and after the
pairs that are added if that leaves it open. They share the false-alarm rate, as both clocks do."""
DOUBTS = frozenset({"E_CLOCK_CONFLICT", "E_CORES_BUSY", "E_EARLIER_ATTEMPT", "E_WHOLE_SLOWER"})
"""Reasons why what pairs show does not decide; more pairs would not help."""

PairedSide: TypeAlias = Observation | Evidence
"""One side of a comparison in pairs: an observation, or the evidence made of it."""


@dataclass(frozen=True, slots=True)
class PairDifference:
    """One pair: how much longer head took per token than base, as natural logarithms.

    ``quiet``, ``cpu`` and ``wall`` are clocks; ``prefill`` is the time to the first token and
    ``decode`` that between further ones, both on the wall clock without the time that the other
    side used on a shared core. ``wall`` contains that time. A phase is None if it cannot be
    separated (a program's start and load are in its first token) or has no token. ``whole_cpu``,
    ``whole_quiet`` and ``whole_wall`` are of a program from its start to its end, of which the
    decode alone is judged; None if nothing is left out.
    """

    quiet: float
    cpu: float
    wall: float
    prefill: float | None
    decode: float | None
    whole_cpu: float | None = None
    whole_quiet: float | None = None
    whole_wall: float | None = None


def pair_differences(base: PairedSide, head: PairedSide) -> tuple[PairDifference, ...]:
    """Return the difference of every pair, in the order in which they ran.

    Raises ``UndecidedError`` ``E_UNPAIRED`` if the runs of the two sides do not belong together.
    """
    old, new = _blocks_by_pair(base), _blocks_by_pair(head)
    if old.keys() != new.keys():
        odd = sorted(old.keys() ^ new.keys())
        raise _unpaired(f"Pair {odd[0]} has a process on one side only.")
    cores = [{run.pair: run.cpu for run in side.timed if run.shares_core} for side in (base, head)]
    if apart := [pair for pair, cpu in cores[0].items() if cores[1].get(pair, cpu) != cpu]:
        raise _unpaired(f"The sides of pair {apart[0]} shared no core with each other.")
    phases = base.clock_scope == head.clock_scope == "sequence"
    return tuple(_difference(number, old[number], new[number], phases) for number in sorted(old))


def _blocks_by_pair(side: PairedSide) -> Mapping[int, list[tuple[Block, Block]]]:
    """Return the blocks of each pair as measured, each with its own time alone."""
    blocks: dict[int, list[tuple[Block, Block]]] = defaultdict(list)
    for run in side.timed:
        if run.pair is None:
            raise _unpaired(f"Process {run.pid} ran in no pair.")
        blocks[run.pair] += zip(run.blocks, run.judged.blocks, strict=True)
    return blocks


def _difference(
    number: int,
    old: Sequence[tuple[Block, Block]],
    new: Sequence[tuple[Block, Block]],
    phases: bool,
) -> PairDifference:
    if len(old) != len(new):
        raise _unpaired(f"Pair {number} has {len(old)} blocks at the base and {len(new)} now.")

    def log_ratio(value: Callable[[Block], float | None], *, own: bool = True) -> float | None:
        pairs = zip((each[own] for each in old), (each[own] for each in new), strict=True)
        logs = [
            math.log(after / before)
            for before, after in ((value(a), value(b)) for a, b in pairs)
            if before and after
        ]
        return mean(logs) if logs else None

    quiet = log_ratio(lambda block: block.judged.quiet_ns / block.judged_tokens)
    cpu = log_ratio(lambda block: block.judged.cpu_ns / block.judged_tokens)
    wall = log_ratio(lambda block: block.judged.wall_ns / block.judged_tokens, own=False)
    if quiet is None or cpu is None or wall is None:
        raise _unpaired(f"Pair {number} has no block with a time.")
    if not phases:
        whole: tuple[float | None, ...] = ()
        if all(block.decode and block.tokens for block, _ in (*old, *new)):
            whole = (
                log_ratio(lambda block: block.interval.cpu_ns / block.tokens, own=False),
                log_ratio(lambda block: block.interval.quiet_ns / block.tokens, own=False),
                log_ratio(lambda block: block.interval.wall_ns / block.tokens, own=False),
            )
        return PairDifference(quiet, cpu, wall, None, None, *whole)
    return PairDifference(quiet, cpu, wall, log_ratio(first_gap_ns), log_ratio(further_gap_ns))


def first_gap_ns(block: Block) -> float | None:
    """Return the mean time to the first token of the block's sequences; None without tokens."""
    firsts = [float(gaps[0]) for gaps in block.sequences_ns if gaps]
    return mean(firsts) if firsts else None


def further_gap_ns(block: Block) -> float | None:
    """Return the mean time between further tokens; None if there are none."""
    gaps = [float(gap) for sequence in block.sequences_ns for gap in sequence[1:]]
    return mean(gaps) if gaps else None


def _unpaired(problem: str) -> UndecidedError:
    return UndecidedError("E_UNPAIRED", problem)


def find_disagreement(
    pairs: Sequence[PairDifference], verdict: RateVerdict, rates: ErrorRates, head: PairedSide
) -> tuple[Reason, ...]:
    """Report a clock that shows head slower, and certainly by more than the quiet clock admits.

    Work can be hidden from the quiet clock: in processes whose time is lost, or by stopping the
    other side. On a shared core that lengthens the wall time of both, or head's CPU time. A program
    that starts faster decodes while the other one still starts, and is alone at no time: its decode
    takes longer by the wall clock then, and the whole does not.
    """
    if verdict.decision not in FAVOURABLE:
        return ()
    clocks = {"wall": [pair.wall for pair in pairs]}
    # Several threads, which run in turn, may use more CPU time and be faster.
    if any(run.shares_core for run in head.runs):
        clocks["CPU"] = [pair.cpu for pair in pairs]
        whole = [pair.whole_wall for pair in pairs if pair.whole_wall is not None]
        if len(whole) == len(pairs) and trimmed_mean(whole).upper(FALSE_ALARM_RATE) < 0.0:
            del clocks["wall"]
    for name, values in clocks.items():
        low = trimmed_mean(values).lower(rates.alpha)
        if low > max(verdict.high, 0.0):
            change = _describe(low)
            message = f"The {name} clock shows head at least {change}, the quiet clock does not."
            return (Reason.advise("E_CLOCK_CONFLICT", message),)
    return ()


def judge_whole(
    pairs: Sequence[PairDifference],
    decided: int,
    verdict: RateVerdict,
    head: PairedSide,
    threshold: float,
) -> Reason | None:
    """Report a program that is slower from its start to its end, and not in its decode.

    Work can be outside of a program's decode: before its first token, after the last one, or in
    its children. It can sleep there. The start of a program may vary, so that counts only beyond
    ``threshold``. Sleep counts beyond ``SLEEP_OUTSIDE`` too, because the delay of short children
    that the program waits for is lost, and looks like sleep. The first look is at the pairs that
    ``decided`` about the rate, the last one at all. What is not certain is a warning.
    """
    # Several threads may use more CPU time and be faster.
    is_parallel = any(run.cpu is None and (run.threads or 1) > 1 for run in head.timed)
    if verdict.decision not in FAVOURABLE or is_parallel:
        return None
    # Most of those that run in turn mostly wait. They may compute a little more: their quiet time
    # has that, too.
    in_turn = not any(run.shares_core for run in head.timed)
    least = max(verdict.high, threshold)
    reason = _look_at_whole(pairs[:decided], least, in_turn=in_turn)
    if decided < len(pairs) and (reason is None or not reason.leaves_open):
        reason = _look_at_whole(pairs, least, in_turn=in_turn)
    return reason


def _look_at_whole(
    pairs: Sequence[PairDifference], least: float, *, in_turn: bool
) -> Reason | None:
    warning = None
    looks = [
        ("CPU time", [pair.whole_cpu for pair in pairs], least),
        ("quiet clock", [pair.whole_quiet for pair in pairs], max(least, SLEEP_OUTSIDE)),
    ]
    for clock, each, limit in looks[in_turn:]:
        known = [value for value in each if value is not None]
        if not known or len(known) < len(pairs):
            continue
        change = trimmed_mean(known)
        low = change.lower(FALSE_ALARM_RATE / 2 / _WHOLE_LOOKS)
        begin = f"By its {clock} from start to end the program is"
        if low > limit:
            end = "between its first and last token it is not."
            return Reason.advise("E_WHOLE_SLOWER", f"{begin} at least {_describe(low)}, {end}")
        if change.mean_diff > limit:
            allowed_pct = -rate_change_pct(limit)
            seen = f"{_describe(change.mean_diff)} in {len(pairs)} pairs"
            message = f"{begin} {seen}, and not certainly by more than {allowed_pct:.1f} %."
            warning = warning or Reason.advise("W_WHOLE_UNCERTAIN", message)
    return warning


def _describe(log_time: float) -> str:
    return describe_rate_change(rate_change_pct(log_time))


def describe_size_alone(base: PairedSide, head: PairedSide) -> str | None:
    """State the size of a change by pairs that did not share a core; None if it is uncertain.

    It is unknown if the decode of one side alone is separated from its start.
    """
    blocks = [block for side in (base, head) for run in side.timed for block in run.blocks]
    if len({block.decode is None for block in blocks}) > 1:
        return None
    pairs = pair_differences(base, head)
    found = trimmed_mean([pair.quiet for pair in pairs])
    change_pct = rate_change_pct(found.mean_diff)
    error_pct = (100.0 + change_pct) * found.standard_error
    if error_pct > abs(change_pct):
        return None
    return (
        f"Alone, one side after the other: {describe_rate_change(change_pct)} "
        f"(± {error_pct:.1f}, one standard error, {len(pairs)} pairs). Nothing is judged by it. A "
        "change in the caches can look larger on a shared core."
    )


def delayed_part(base: PairedSide, head: PairedSide) -> float:
    """Return the part of the wall time of both sides that they did not need by themselves."""
    return _delayed_part(chain(*_blocks_by_pair(base).values(), *_blocks_by_pair(head).values()))


def others_pct(base: PairedSide, head: PairedSide) -> float | None:
    """Return the percentage of the shared core's time that other programs had.

    It is None if the sides did not run at the same time on one core.
    """
    if not any(run.shares_core for run in head.timed):
        return None
    # The wall time of both sides together is twice that of the core.
    return max(0.0, 100.0 * (2.0 * delayed_part(base, head) - 1.0))


def _delayed_part(blocks: Iterable[tuple[Block, Block]]) -> float:
    wall_ns = own_ns = 0
    for measured, own in blocks:
        wall_ns += measured.judged.wall_ns
        own_ns += own.judged.wall_ns
    return 1.0 - own_ns / wall_ns


def are_cores_busy(base: PairedSide, head: PairedSide, *, certainly: bool = False) -> bool:
    """Return whether several threads waited for a CPU for too much of the time.

    If ``certainly``, the lower bound of the mean over pairs decides: further ones would not help.
    """
    if not certainly:
        return delayed_part(base, head) > MOST_DELAYED
    old, new = _blocks_by_pair(base), _blocks_by_pair(head)
    parts = [_delayed_part((*old[pair], *new[pair])) for pair in old]
    return trimmed_mean(parts).lower(_WAITING_ERROR) > MOST_DELAYED


def find_busy_cores(base: PairedSide, head: Evidence) -> tuple[Reason, ...]:
    """Report that the threads of a workload did not have the cores that they share their work on.

    What threads lose by waiting for each other is hidden then: they would have waited anyway.
    """
    threads = head.workload.get("threads")
    if not isinstance(threads, int) or threads < 2:
        return ()
    part = delayed_part(base, head)
    if part <= MOST_DELAYED:
        return ()
    message = (
        f"Its {threads} threads waited for a CPU {100 * part:.0f} % of the time, and with more "
        f"than {100 * MOST_DELAYED:.0f} % a change in how they share their work does not show."
    )
    return (Reason.advise("E_CORES_BUSY", message),)


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """One phase, without the other side's time: ms to the first token or between further ones.

    ``change_pct`` is that of the rate (negative is slower), as for tokens per second; its
    interval errs with the false-alarm rate of one analysis. ``certain`` says that it excludes 0.
    """

    name: Phase
    baseline_ms: float
    current_ms: float
    change_pct: float
    ci_low_pct: float
    ci_high_pct: float
    certain: bool


def phase_changes(
    base: PairedSide, head: PairedSide, differences: Sequence[PairDifference], rates: ErrorRates
) -> tuple[PhaseChange, ...]:
    """Return the phases that every pair separates, prefill first."""
    changes = []
    phases: tuple[tuple[Phase, Callable[[Block], float | None]], ...] = (
        ("prefill", first_gap_ns),
        ("decode", further_gap_ns),
    )
    for name, gap_ns in phases:
        logs = [getattr(difference, name) for difference in differences]
        known = [value for value in logs if value is not None]
        if len(known) < max(2, len(logs)):
            continue
        estimate = trimmed_mean(known)
        low, high = estimate.lower(rates.alpha / 2), estimate.upper(rates.alpha / 2)
        changes.append(
            PhaseChange(
                name=name,
                baseline_ms=_mean_ms(base, gap_ns),
                current_ms=_mean_ms(head, gap_ns),
                change_pct=rate_change_pct(estimate.mean_diff),
                ci_low_pct=rate_change_pct(high),
                ci_high_pct=rate_change_pct(low),
                certain=low > 0.0 or high < 0.0,
            )
        )
    return tuple(changes)


def _mean_ms(side: PairedSide, gap_ns: Callable[[Block], float | None]) -> float:
    gaps = (gap_ns(block) for run in side.timed for block in run.judged.blocks)
    return mean([gap for gap in gaps if gap is not None]) / 1e6
