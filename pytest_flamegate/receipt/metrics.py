"""Figures that are computed from observed times, and figures of one name whose formulas differ.

Tools use one name for different formulas: one tool's ITL is the mean gap of a request, another's
is each gap by itself. Two figures are comparable by name only if formula, unit, clock and direction
are equal. ``formulas.toml`` explains each formula. "Decode" is the time after the first read of a
program's output, whose first token waits for start and load. On an idle machine each read has
one piece of output, mostly of one token.
"""

import math
import statistics
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

from msgspec.structs import replace

from pytest_flamegate.config.workload import BENCHMARK_ENGINE
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.observe.observation import Block, ClockScope, Role, Run
from pytest_flamegate.profile.difference import SPREAD
from pytest_flamegate.profile.model import Covers
from pytest_flamegate.receipt.reported import engine_metrics
from pytest_flamegate.receipt.types import Clock, Direction, Metric, ProcessProfile

_KERNEL_RATES = (
    ("kernel_calls_per_second", "calls*rounds/total", None, "calls/s", 1.0),
    ("kernel_elements_per_second", "elements*calls*rounds/total", "elements", "elements/s", 1.0),
    ("kernel_bytes_per_second", "bytes*calls*rounds/total", "bytes", "B/s", 1.0),
    ("kernel_gflops", "flops*calls*rounds/total", "flops", "GFLOP/s", 1e-9),
)
"""Name, formula, the recipe's key of the work in one call, unit, and the factor to that unit."""
KERNEL_RATE_NAMES = tuple(name for name, *_ in _KERNEL_RATES)
_MAX_WORK = 1 << 62
_S = 1e9
_MS = 1e6

_CostClock = Literal["quiet", "cpu", "process-cpu"]

_NOT_SHARED = ("load_", "time_to_first_", "prefill_", "inter_token_")
"""Figures that cannot be stated of a process that shared its core, by how they begin."""


class Rate(NamedTuple):
    """Tokens per second, the formula, and the number of tokens."""

    tokens_per_second: float
    formula: str
    tokens: int


def kernel_rates(recipe: Mapping[str, object], found: Sequence[Metric]) -> tuple[Metric, ...]:
    """Return the rates of a kernel benchmark by its figures ``found``; none for other recipes."""
    rate = next((metric for metric in found if metric.name == "tokens_per_second"), None)
    calls = _read_work(recipe, "calls")
    if rate is None or calls is None or recipe.get("engine") != BENCHMARK_ENGINE:
        return ()
    derived = (
        _metric(name, rate.value * calls * work * factor, formula, unit, rate.samples, derived=True)
        for name, formula, key, unit, factor in _KERNEL_RATES
        if (work := 1 if key is None else _read_work(recipe, key)) is not None
    )
    return tuple(replace(metric, clock=rate.clock) for metric in derived)


def _read_work(recipe: Mapping[str, object], key: str) -> int | None:
    """Return a count of the recipe, which may be foreign and contain anything."""
    value = recipe.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_WORK:
        return value
    return None


def rate_of(runs: Iterable[Run]) -> Rate | None:
    """Return the rate of the timed ``runs``; None if their token times give none.

    If every block has a decode, its tokens ÷ (last token − first read). Otherwise all tokens ÷
    the time from the request, or from the start of the program, to the last token. Of a run that
    shared its core, the time of the other side does not count.
    """
    timed = [run.own for run in runs if run.role == "timed"]
    blocks = [block for run in timed for block in run.blocks]
    decode = bool(blocks) and None not in [block.decode for block in blocks]
    tokens = sum([run.judged_tokens if decode else run.tokens for run in timed])
    elapsed_ns = sum([each.later_tokens_ns if decode else each.tokens_ns for each in blocks])
    if tokens <= 0 or elapsed_ns <= 0:
        return None
    formula = "decode-tokens/decode-time" if decode else "tokens/total"
    return Rate(tokens / elapsed_ns * _S, formula, tokens)


def tokens_per_second(runs: Sequence[Run], rate: Rate | None = None) -> Metric:
    """Return the rate (of ``runs``) that a receipt claims; ToolError ``E_NO_RATE`` without one."""
    rate = rate or rate_of(runs)
    if rate is None:
        raise ToolError(
            "E_NO_RATE", "All tokens came at one instant, so there is no rate to report."
        )
    clock: Clock = "quiet" if any(run.shares_core for run in runs) else "wall"
    value, formula = rate.tokens_per_second, rate.formula
    return _metric("tokens_per_second", value, formula, "tokens/s", rate.tokens, clock=clock)


def figures(
    timed: Sequence[Run],
    clock_scope: ClockScope,
    prompt_tokens: int | None,
    *,
    with_zero_times: bool = False,
    rate: Rate | None = None,
    prefill_rate: float | None = None,
) -> tuple[Metric, ...]:
    """Return every figure of the ``timed`` runs, the observed ones first, then the reported ones.

    ``with_zero_times`` includes times whose median is 0, as older evidence does. Most of those
    tokens were read together with the one before, so their time was not observed. ToolError
    ``E_NO_RATE`` if all tokens came at one instant. ``rate`` is that of the runs, if it is known
    already. Without ``prompt_tokens`` their number follows from a stated ``prefill_rate``, because
    it is whole.
    """
    timed = [run.own for run in timed]
    blocks = [block for run in timed for block in run.blocks]
    sequences = [gaps for block in blocks for gaps in block.sequences_ns]
    first = [gaps[0] for gaps in sequences]
    found = [
        tokens_per_second(timed, rate),
        _cost("quiet_s_per_token", "quiet", timed),
        _cost("cpu_s_per_token", "cpu", timed),
    ]
    first_ns = statistics.median(first)
    if prefill_rate is not None:
        prompt_tokens = max(1, round(min(prefill_rate / (1 / max(first_ns, 1.0) * _S), 1e15)))
    if saw_first := with_zero_times or first_ns > 0:
        found.append(_time("time_to_first_token_ms", "first-token-request", first_ns, len(first)))
    if loads := [run.load_ns for run in timed if run.load_ns is not None]:
        found.append(_time("load_ms", "ready-start", statistics.median(loads), len(loads)))
    if clock_scope == "process":
        found.append(_cost("process_cpu_s_per_token", "process-cpu", timed))
    if prompt_tokens is not None and saw_first:
        name = "prefill_tokens_per_second"
        found.append(_rate(name, "prompt-tokens/ttft", prompt_tokens, first_ns, len(first)))
    if gaps := sorted(chain(*[sequence[1:] for sequence in sequences])):
        per_token = [each for block in blocks for each in _per_token(block)]
        token_ns, gap_ns, count = statistics.median(per_token), statistics.median(gaps), len(gaps)
        if with_zero_times or token_ns > 0:
            tokens = len(per_token)
            found += [
                _time("time_per_output_token_ms", "(latency-ttft)/(n-1)", token_ns, tokens),
                _rate("decode_tokens_per_second", "1/tpot", 1, token_ns, tokens),
            ]
        if with_zero_times or gap_ns > 0:
            # The nearest rank: the smallest gap that 95 % do not exceed.
            p95_ns = gaps[math.ceil(count * 0.95) - 1]
            found += [
                _time("inter_token_latency_ms", "token-gap", gap_ns, count),
                _time("inter_token_latency_p95_ms", "token-gap-p95", p95_ns, count),
            ]
    if any(run.shares_core for run in timed):
        # Loading and single gaps include slices of the other side; other times are adjusted.
        shared = (each for each in found if not each.name.startswith(_NOT_SHARED))
        found = [replace(each, clock="quiet") if each.clock == "wall" else each for each in shared]
    return (*found, *engine_metrics(timed))


def value_of(found: Sequence[Metric], name: str) -> float | None:
    """Return the value of the metric called ``name``, None if there is none."""
    return next((metric.value for metric in found if metric.name == name), None)


def cost_of(covers: Covers, found: Sequence[Metric]) -> float | None:
    """Return the CPU seconds per token of the phase that a profile covers.

    None for a figure that no process can have: others may have written it.
    """
    whole = value_of(found, "process_cpu_s_per_token") if covers == "process" else None
    cost_s = value_of(found, "cpu_s_per_token") if whole is None else whole
    is_known = cost_s is not None and (cost_s == 0.0 or 1e-12 <= cost_s <= 1e6)
    return cost_s if is_known else None


def overhead_pct(runs: Iterable[Run], clock_scope: ClockScope) -> float | None:
    """Return the extra CPU time per token of profiled runs over timed ones, in percent.

    None if the program's time cannot be separated from its profiler's, or if there is no CPU time.
    """
    by_role: dict[Role, list[float]] = {"timed": [], "profiled": [], "traced": [], "bricks": []}
    for run in runs:
        tokens = run.judged_tokens
        whole = clock_scope == "process" and any(block.decode is None for block in run.blocks)
        if whole or tokens <= 0:
            return None
        by_role[run.role].append(sum(block.judged.cpu_ns for block in run.blocks) / tokens)
    if not by_role["timed"] or not by_role["profiled"]:
        return None
    timed = statistics.median(by_role["timed"])
    return 100.0 * (statistics.median(by_role["profiled"]) / timed - 1.0) if timed > 0 else None


def _per_token(block: Block) -> list[float]:
    """Return the mean time of the later tokens of each sequence that has any."""
    if block.decode is not None and block.decode_tokens:
        return [block.later_tokens_ns / block.decode_tokens]
    return [(sum(gaps) - gaps[0]) / (len(gaps) - 1) for gaps in block.sequences_ns if len(gaps) > 1]


def _cost(name: str, clock: _CostClock, runs: Sequence[Run]) -> Metric:
    per_run = []
    for run in runs:
        if clock == "quiet":
            spent_ns = sum([block.judged.quiet_ns for block in run.blocks])
        elif clock == "cpu":
            spent_ns = sum([block.judged.cpu_ns for block in run.blocks])
        else:
            spent_ns = sum([block.interval.cpu_ns for block in run.blocks])
        tokens = run.tokens if clock == "process-cpu" else run.judged_tokens
        per_run.append(spent_ns / tokens / _S)
    value, formula = statistics.median(per_run), f"{clock}-time/tokens"
    known: Clock = "quiet" if clock == "quiet" else "cpu"
    return _metric(name, value, formula, "s", len(per_run), clock=known)


def _time(name: str, formula: str, value_ns: float, samples: int) -> Metric:
    return _metric(name, value_ns / _MS, formula, "ms", samples)


def _rate(name: str, formula: str, count: int, time_ns: float, samples: int) -> Metric:
    return _metric(name, count / max(time_ns, 1.0) * _S, formula, "tokens/s", samples)


def _metric(
    name: str,
    value: float,
    formula: str,
    unit: str,
    samples: int,
    *,
    clock: Clock = "wall",
    derived: bool = False,
) -> Metric:
    direction: Direction = "lower_is_better" if unit in ("s", "ms") else "higher_is_better"
    provenance: Literal["derived", "measured"] = "derived" if derived else "measured"
    return Metric(name, value, formula, unit, direction, clock, samples, provenance)


_MIN_EXPECTED = 5.0
"""The share of a function says nothing about the spread if a process has fewer samples of it."""


def spread_of(processes: Sequence[ProcessProfile]) -> float:
    """Return the standard deviation of a share between processes, in binomial ones.

    At least the value for profiles of one program on a quiet machine. A busy machine stops a
    process anywhere, and a profiler by the wall clock then counts that place.
    """
    total = sum(process.samples for process in processes)
    if total <= 0:  # a foreign file may still name samples in functions
        return SPREAD
    pooled: Counter[str] = Counter()
    for process in processes:
        pooled.update(process.self_samples)
    squares, freedom = 0.0, 0
    for name, count in pooled.items():
        share = count / total
        fewest = min(process.samples for process in processes)
        if min(share, 1.0 - share) * fewest < _MIN_EXPECTED:
            continue
        squares += sum(
            (process.self_samples.get(name, 0) - process.samples * share) ** 2
            / (process.samples * share * (1.0 - share))
            for process in processes
        )
        freedom += len(processes) - 1
    return max(SPREAD, math.sqrt(squares / freedom)) if freedom else SPREAD


# Formulas

MEANINGS: Mapping[str, str] = MappingProxyType(
    tomllib.loads(Path(__file__).with_name("formulas.toml").read_text("utf-8"))
)
"""Each formula id in words."""

_COMPARED = ("direction", "formula", "unit", "clock")
_SAME_QUANTITY = {"output_tokens_per_second": "tokens_per_second"}
"""Names under which flamegate and imported results have one quantity."""


@dataclass(frozen=True, slots=True)
class FormulaDifference:
    """The ``field`` in which two figures of one quantity differ, its values and their names."""

    quantity: str
    field: str
    names: tuple[str, str]
    values: tuple[str, str]

    code: ClassVar[str] = "E_FORMULA_DIFFERS"

    @property
    def message(self) -> str:
        """One sentence that names the quantity and both sides."""
        (name, other_name), (value, other_value) = self.names, self.values
        return (
            f"{self.quantity} is not the same figure on both sides: the {self.field} of "
            f"{name} is {value}, that of {other_name} is {other_value}."
        )


def meaning_of(formula: str) -> str | None:
    """Return a formula id (of an engine: ``SOURCE:FORMULA/median``) in words; None if unknown."""
    reported = formula.rpartition(":")[2].removesuffix("/median")
    return MEANINGS.get(formula) or MEANINGS.get(reported)


def _quantity(name: str) -> str:
    """Return the quantity that a figure called ``name`` measures, without the unit of a time."""
    return _SAME_QUANTITY.get(name, name).removesuffix("_ms")


def differing_formulas(a: Sequence[Metric], b: Sequence[Metric]) -> list[FormulaDifference]:
    """Return each figure of ``b`` that has a namesake in ``a`` but is another figure.

    A figure agrees if one of the same quantity has equal direction, formula, unit and clock. A
    figure without a namesake differs from nothing.
    """
    found = []
    for metric in b:
        quantity = _quantity(metric.name)
        rivals = [each for each in a if _quantity(each.name) == quantity]
        differences = [[*_compare_formulas(quantity, each, metric)] for each in rivals]
        if differences and all(differences):
            found += differences[0]
    return found


def _compare_formulas(quantity: str, one: Metric, other: Metric) -> Iterator[FormulaDifference]:
    for field in _COMPARED:
        values = (getattr(one, field), getattr(other, field))
        if values[0] != values[1]:
            yield FormulaDifference(quantity, field, (one.name, other.name), values)
