"""What stands out in a run, said in sentences: every figure is one of the evidence.

A sentence is written only where its figures are there and worth a reader's time.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pytest_flamegate.core import text as core_text
from pytest_flamegate.receipt.formulas import meaning_of
from pytest_flamegate.receipt.metrics import KERNEL_RATE_NAMES, value_of
from pytest_flamegate.receipt.reported import observed_as, of_engine, source_of
from pytest_flamegate.report import text
from pytest_flamegate.report.markup import code
from pytest_flamegate.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flamegate.gate.costs import CostChange
    from pytest_flamegate.gate.signals import Signal
    from pytest_flamegate.observe.build import Program
    from pytest_flamegate.profile.model import Hotspot, Profile
    from pytest_flamegate.receipt.types import Evidence, Metric, ProfileRecord, Receipt


# Normal quantiles of a two-sided 1 % test with 95 % power, and the shift asked about.
_Z_SUM = 2.576 + 1.645
_SHIFT = 0.02

_SLOW_TAIL = 1.5
_CONTENDED_PCT = 20.0
_OFF_CPU = 0.05
_OVERHEAD_PCT = 3.0
_COMPLETE = 0.95


def insights(evidence: Evidence) -> list[str]:
    """Return sentences in Markdown, the most telling first; none where nothing stands out."""
    found: list[str] = []
    if evidence.profile is not None and evidence.profile.samples:
        found.extend(_profile(evidence.profile))
    found.extend(_latency(evidence))
    found.extend(_clock(evidence))
    return found


def category_shares(hotspots: Sequence[Hotspot]) -> dict[str, float]:
    """Return the self share of each category in ``hotspots``, 0 to 1, largest first."""
    shares: dict[str, float] = {}
    for hotspot in hotspots:
        if hotspot.self_samples:
            shares[hotspot.category] = shares.get(hotspot.category, 0.0) + hotspot.self_share
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def by_self_share(hotspots: Sequence[Hotspot]) -> list[Hotspot]:
    """Return ``hotspots`` hottest first: by self share, then inclusive share, then name."""
    return sorted(hotspots, key=lambda h: (-h.self_share, -h.inclusive_share, h.name, h.module))


def samples_for_shift(share: float, shift: float = _SHIFT) -> int:
    """Return the samples a side that tell a shift of ``share`` (both 0 to 1) from chance.

    Binomial: two-sided 1 % false alarms, 95 % power. Real samples spread more.
    """
    return round(2 * share * (1 - share) * (_Z_SUM / shift) ** 2)


def _profile(profile: ProfileRecord) -> Iterator[str]:
    hottest = [each for each in by_self_share(profile.hotspots) if each.self_samples]
    if not hottest:
        return
    top = hottest[:3]
    covered = sum(each.self_share for each in top)
    yield (
        f"{_listed([code(each.name) for each in top])} {'covers' if len(top) == 1 else 'cover'} "
        f"{text.share(covered)} of all samples; everything else together is "
        f"{text.share(max(1 - covered, 0.0))}."
    )
    shares = category_shares(profile.hotspots)
    told = [f"{code(name)} {text.share(value)}" for name, value in shares.items()]
    yield f"By category: {', '.join(told)}."
    interpreter = [h for h in hottest if h.category == "python"]
    if interpreter:
        cost = [h.cpu_s_per_token for h in interpreter if h.cpu_s_per_token is not None]
        each = f", {text.per_token(sum(cost))}" if cost else ""
        yield (
            "Python code that is no kernel of the model takes "
            f"{text.share(sum(h.self_share for h in interpreter))} of the samples{each}."
        )
    needed = samples_for_shift(top[0].self_share)
    if 0 < top[0].self_share < 1:
        yield (
            f"To tell a shift of {100 * _SHIFT:g} percentage points of {code(top[0].name)} from "
            f"chance takes about {text.count(needed)} samples on each side (binomial, 1 % false "
            f"alarms, 5 % misses); this profile holds {text.count(profile.samples)}."
        )
    if profile.completeness < _COMPLETE:
        yield (
            f"Only {text.share(profile.completeness)} of the stacks reach the workload's root: "
            "self shares hold, inclusive shares are too small."
        )
    if profile.overhead_pct is not None and profile.overhead_pct > _OVERHEAD_PCT:
        yield (
            f"Profiling cost {text.percent(profile.overhead_pct)} more CPU for each token; "
            "tokens per second come from processes that were not profiled."
        )


def _latency(evidence: Evidence) -> Iterator[str]:
    middle = value_of(evidence.metrics, "inter_token_latency_ms")
    tail = value_of(evidence.metrics, "inter_token_latency_p95_ms")
    if middle and tail and tail / middle >= _SLOW_TAIL:
        yield (
            f"One gap between tokens in twenty is {tail / middle:.1f} times the median or more "
            f"({text.seconds(tail / 1e3)} against {text.seconds(middle / 1e3)}): "
            "something pauses the decode."
        )
    first = value_of(evidence.metrics, "time_to_first_token_ms")
    each = value_of(evidence.metrics, "time_per_output_token_ms")
    if first and each and evidence.clock_scope == "sequence":
        yield (
            f"The first token takes {text.seconds(first / 1e3)}, "
            f"{first / each:.1f} times as long as each further one "
            f"({text.seconds(each / 1e3)})."
        )


def _clock(evidence: Evidence) -> Iterator[str]:
    quiet = value_of(evidence.metrics, "quiet_s_per_token")
    cpu = value_of(evidence.metrics, "cpu_s_per_token")
    if quiet and cpu and (quiet - cpu) / quiet >= _OFF_CPU:
        yield (
            f"{text.share((quiet - cpu) / quiet)} of the quiet time was not spent on a CPU "
            f"({text.per_token(quiet - cpu)}): sleeps, locks, input and output."
        )
    pressure = [
        run.cpu_pressure_pct
        for run in evidence.runs
        if run.role == "timed" and run.cpu_pressure_pct is not None
    ]
    if pressure and statistics.median(pressure) >= _CONTENDED_PCT:
        yield (
            f"Something waited for a CPU {text.percent(statistics.median(pressure))} of the "
            "time: wall tokens per second suffer from it, the quiet clock does not."
        )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


HOTTEST = 3
TOP_FUNCTIONS = 10
_NAME = "name"
_WORK = ("prompt", "max_tokens")
_TAKEN = {
    "profiler": "profiler",
    "event": "event",
    "rate_hz": "rate",
    "call_graph": "call graph",
    "python": "Python",
    "covers": "phase",
}
"""What two profiles must share before their shares mean the same."""


class Gated(Protocol):
    """One gated workload; ``family`` and ``variant`` are None where it is no variant."""

    @property
    def workload(self) -> str:
        """Its name."""

    @property
    def family(self) -> str | None:
        """The name of its template."""

    @property
    def variant(self) -> str | None:
        """What it is called within its family."""

    @property
    def receipt(self) -> Receipt | None:
        """What is claimed."""

    @property
    def evidence(self) -> Evidence | None:
        """What was seen."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant: times are seconds per token, shares are 0 to 1, None is not measured.

    ``of_fastest`` is its speed by the quiet clock over that of the fastest variant.
    ``categories`` are self shares, ``hottest`` the first few functions by self share.
    """

    name: str
    tokens_per_second: float | None
    quiet_s_per_token: float | None
    of_fastest: float | None
    categories: Mapping[str, float]
    hottest: tuple[Hotspot, ...]


@dataclass(frozen=True, slots=True)
class FunctionCosts:
    """One function's own CPU seconds per token, for each variant in the order of the family.

    None where the variant has no profile or no cost, 0 where no sample was in the function.
    """

    name: str
    category: str
    cpu_s_per_token: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """The variants of one template, their costliest functions, and what was not alike.

    ``categories`` are those of any variant, the largest first.
    """

    name: str
    variants: tuple[Variant, ...]
    categories: tuple[str, ...]
    functions: tuple[FunctionCosts, ...]
    notes: tuple[str, ...]


def family_tables(outcomes: Sequence[Gated]) -> tuple[Family, ...]:
    """Return each family of which at least two variants were gated, in the order gated."""
    families: dict[str, list[Gated]] = {}
    for outcome in outcomes:
        if outcome.family is not None:
            families.setdefault(outcome.family, []).append(outcome)
    return tuple(_family(name, found) for name, found in families.items() if len(found) > 1)


def _family(name: str, outcomes: Sequence[Gated]) -> Family:
    quiet = [
        value_of(each.evidence.metrics, "quiet_s_per_token") if each.evidence else None
        for each in outcomes
    ]
    fastest = min((spent for spent in quiet if spent), default=None)
    variants = tuple(
        Variant(
            name=each.variant or each.workload,
            tokens_per_second=each.receipt.tokens_per_second if each.receipt else None,
            quiet_s_per_token=spent or None,
            of_fastest=fastest / spent if spent and fastest else None,
            categories=category_shares(_hotspots(each)),
            hottest=tuple(s for s in by_self_share(_hotspots(each))[:HOTTEST] if s.self_samples),
        )
        for each, spent in zip(outcomes, quiet, strict=True)
    )
    highest: dict[str, float] = {}
    for variant in variants:
        for category, share in variant.categories.items():
            highest[category] = max(share, highest.get(category, 0.0))
    seen = [each.evidence for each in outcomes if each.evidence is not None]
    return Family(
        name=name,
        variants=variants,
        categories=tuple(sorted(highest, key=lambda each: (-highest[each], each))),
        functions=_functions(outcomes),
        notes=tuple(_notes(seen)),
    )


def _hotspots(outcome: Gated) -> tuple[Hotspot, ...]:
    profile = outcome.evidence.profile if outcome.evidence is not None else None
    return profile.hotspots if profile is not None else ()


def _functions(outcomes: Sequence[Gated]) -> tuple[FunctionCosts, ...]:
    columns = [{each.name: each for each in _hotspots(outcome)} for outcome in outcomes]
    categories = {name: each.category for column in columns for name, each in column.items()}
    found = []
    for name, category in categories.items():
        costs = tuple(_cost(column, name) for column in columns)
        if any(costs):
            found.append(FunctionCosts(name, category, costs))
    found.sort(key=lambda each: (-max(cost or 0.0 for cost in each.cpu_s_per_token), each.name))
    return tuple(found[:TOP_FUNCTIONS])


def _cost(column: Mapping[str, Hotspot], name: str) -> float | None:
    if all(each.cpu_s_per_token is None for each in column.values()):
        return None
    return (column[name].cpu_s_per_token if name in column else None) or 0.0


def _notes(seen: Sequence[Evidence]) -> Iterator[str]:
    """Say what the variants differ in, and what that does to a comparison."""
    keys = dict.fromkeys(key for each in seen for key in each.workload if key != _NAME)
    different = [key for key in keys if _differs([each.workload.get(key) for each in seen])]
    if different:
        yield f"Declared otherwise: {', '.join(different)}."
    if work := [key for key in different if key in _WORK]:
        yield (f"Not the same work ({', '.join(work)}): a token of one is no token of the other.")
    elif _differs([each.token_digest for each in seen]):
        yield "The same prompt was answered with different tokens."
    if _differs([each.clock_scope for each in seen]):
        yield "Some clocks cover a whole program and others its sequences alone."
    if _differs([dict(each.machine) for each in seen]):
        yield "They ran on different machines: no figure compares."
    profiles = [each.profile for each in seen if each.profile is not None]
    taken = [
        words for key, words in _TAKEN.items() if _differs([getattr(p, key) for p in profiles])
    ]
    if taken:
        yield (
            f"Their profiles were not taken alike ({', '.join(taken)}): shares and costs of "
            "functions compare roughly at best."
        )


def _differs(values: Sequence[object]) -> bool:
    return any(value != values[0] for value in values)


_CALLS = KERNEL_RATE_NAMES[0]
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def kernel_line(evidence: Evidence) -> str | None:
    """Return what was derived of the calls in one line; None where no benchmark was measured."""
    found = {metric.name: metric for metric in evidence.metrics if metric.name in KERNEL_RATE_NAMES}
    if not found:
        return None
    told = [
        f"{core_text.significant(metric.value)} {metric.unit}"
        if metric.unit[:1].isupper() and metric.unit != "B/s"
        else _prefixed(metric.value, metric.unit)
        for name in KERNEL_RATE_NAMES
        if (metric := found.get(name)) is not None
    ]
    calls = evidence.workload.get("calls")
    told.append(f"{text.plural(calls, 'call')} a round" if isinstance(calls, int) else "")
    if evidence.workload.get("setup"):
        told.append("its setup is measured with each call")
    return " · ".join(filter(None, told))


def call_cells(evidence: Evidence | None) -> tuple[str, str] | None:
    """Return calls per second and the quiet time of one; None where no benchmark was measured."""
    rate = value_of(evidence.metrics, _CALLS) if evidence is not None else None
    if evidence is None or rate is None:
        return None
    spent, calls = value_of(evidence.metrics, "quiet_s_per_token"), evidence.workload.get("calls")
    if not isinstance(calls, int) or calls < 1:  # a file that nobody verified may say anything
        return None
    each = "–" if spent is None else f"{text.seconds(spent / calls)}/call"
    return f"{core_text.significant(rate)} calls", each


def _prefixed(value: float, unit: str) -> str:
    for size, letter in _PREFIXES:
        if value >= size:
            between = "" if unit == "B/s" else " "
            return f"{core_text.significant(value / size)} {letter}{between}{unit}"
    return f"{core_text.significant(value)} {unit}"


def profile_notes(profile: Profile) -> list[str]:
    """Return short notes: profiler, event, rate, samples, completeness, what was lost.

    What was counted has no rate, and nothing of it can be lost; of a profile that another
    tool recorded, without a process, there is only what its file told.
    """
    if not profile.pids:
        return _imported_notes(profile)
    sampled = profile.unit != "instructions"
    notes = [
        f"{profile.profiler} {profile.profiler_version}".strip(),
        f"{profile.event} at {text.count(profile.rate_hz)} Hz"
        if sampled
        else f"{profile.event} counted",
        f"call graph {profile.call_graph}",
        f"{text.plural(profile.samples, profile.unit.removesuffix('s'))} from "
        f"{text.plural(len(profile.pids), 'process', 'processes')}",
        f"{text.share(profile.completeness)} of stacks complete",
    ]
    if sampled:
        notes += [f"{text.count(profile.lost)} lost", text.plural(profile.errors, "error")]
    return notes + [f"degraded: {reason}" for reason in profile.degraded]


def _imported_notes(profile: Profile) -> list[str]:
    notes = (
        [] if profile.profiler == "unknown" else [f"{profile.profiler} {profile.profiler_version}"]
    )
    if profile.rate_hz:
        notes.append(f"{text.count(profile.rate_hz)} Hz")
    notes.append(f"{text.count(profile.samples)} {profile.unit}")
    return notes + [visible(reason, 200) for reason in profile.degraded]


def what_ran(evidence: Evidence) -> list[str]:
    """Return short notes on the workload: engine, model, prompt, tokens."""
    recipe, model = evidence.workload, evidence.model
    notes = [f"{recipe['engine']} engine"] if recipe.get("engine") else []
    if model.get("path"):
        notes.append(str(model["path"]).rsplit("/", 1)[-1])
    if recipe.get("prompt"):
        notes.append(f"prompt “{visible(str(recipe['prompt']), 60)}”")
    if isinstance(tokens := recipe.get("max_tokens"), int):
        notes.append(text.plural(tokens, "token"))
    return notes


def hardware(evidence: Evidence) -> list[str]:
    """Return short notes on the machine: CPU and cores."""
    notes = [evidence.machine.get("cpu_model", "unknown CPU")]
    if cores := evidence.machine.get("cpu_cores"):
        notes.append(f"{cores} core" if cores == "1" else f"{cores} cores")
    return notes


def revision(evidence: Evidence) -> list[str]:
    """Return the short commit and how many files differ from it; nothing outside a repository."""
    commit = evidence.commit
    if commit is None:
        return []
    more = text.plural(commit.uncommitted, "uncommitted file")
    return [f"{commit.revision[:7]} + {more}" if commit.uncommitted else commit.revision[:7]]


def program_notes(program: Program) -> list[str]:
    """Return short notes on the program that ran: which file, and how it was built."""
    notes = [program.path, f"sha256 {program.sha256}", f"{text.count(program.size_bytes)} bytes"]
    if (runs_it := program.interpreter) is not None:
        notes.append(f"run by {runs_it.path}, sha256 {runs_it.sha256[:12]}")
    if (build := program.build) is not None:
        notes.append("built for this run" if build.ran else "build skipped")
        notes += [f"{name}={value}" for name, value in build.environment.items()]
    return notes


def picture_subtitle(evidence: Evidence, receipt: Receipt | None) -> str:
    """Return the line under a picture's title: what ran, how fast, on what, at which commit."""
    notes = what_ran(evidence)
    if receipt is not None:
        notes.append(f"{core_text.significant(receipt.tokens_per_second)} tokens/s")
    return " · ".join([*notes, ", ".join(hardware(evidence)), *revision(evidence)])


SHARE = "share_pct"
NONE = "–"

_TITLES_SIGNALS = {
    "tokens_per_second": "throughput",
    "quiet_s_per_token": "quiet time for each token",
    "cpu_s_per_token": "CPU time for each token",
    "time_to_first_token_ms": "time to first token (TTFT)",
    "time_per_output_token_ms": "time per output token (TPOT)",
    "inter_token_latency_ms": "inter-token latency (ITL), median",
    "inter_token_latency_p95_ms": "inter-token latency (ITL), 95th percentile",
    "prefill_tokens_per_second": "prefill",
    "decode_tokens_per_second": "decode",
    "load_ms": "load, start to ready",
}


def metric_title(metric: Metric) -> str:
    """Return what a metric is called by people; its own name where there is nothing better."""
    return _TITLES_SIGNALS.get(metric.name, metric.name.replace("_", " "))


def metric_value(metric: Metric) -> str:
    """Return a metric's value with its unit, times in the unit that reads best."""
    if metric.unit == "s":
        return text.seconds(metric.value)
    if metric.unit == "ms":
        return text.seconds(metric.value / 1e3)
    if metric.unit == "us":
        return text.seconds(metric.value / 1e6)
    if metric.unit == "tokens":
        return f"{text.tidy(metric.value)} tokens"
    return f"{core_text.significant(metric.value)} {metric.unit}"


def _amount(signal: Signal, value: float | None) -> str:
    if value is None:
        return NONE
    if signal.unit == SHARE:
        return f"{value:.1f} %"
    return f"{core_text.significant(value)} {signal.unit.replace('us/', 'µs/')}"


def amounts(signal: Signal) -> tuple[str, ...]:
    """Return a rate's figures without their unit: before and now, or now alone."""
    known = [value for value in (signal.baseline, signal.current) if value is not None]
    return tuple(core_text.significant(value) for value in known) or (NONE,)


def signal_cells(signal: Signal) -> tuple[str, str, str, str, str, str, str, str]:
    """Return eight cells.

    Name, baseline, now, change, interval, allowed, smallest visible, decision.
    """
    unit = "pp" if signal.unit == SHARE else "%"
    low, high, smallest = signal.ci_low_pct, signal.ci_high_pct, signal.smallest_detectable_pct
    return (
        signal.name,
        _amount(signal, signal.baseline),
        _amount(signal, signal.current),
        NONE if signal.change_pct is None else f"{signal.change_pct:+.1f} {unit}",
        NONE if low is None or high is None else f"{low:+.1f} … {high:+.1f} {unit}",
        NONE if signal.threshold_pct is None else f"{signal.threshold_pct:g} {unit}",
        NONE if smallest is None else f"{text.tidy(smallest)} {unit}",
        signal.decision.replace("_", " "),
    )


def cost_cells(cost: CostChange) -> tuple[str, str, str, str, str]:
    """Return five cells: name, before, after, change with half its interval, what it explains."""
    half_us = 0.5 * (cost.ci_high_us - cost.ci_low_us)
    return (
        cost.name,
        _micros(cost.baseline_us),
        _micros(cost.current_us),
        f"{'+' if cost.change_us > 0 else ''}{_micros(cost.change_us)} ±{_micros(half_us)}",
        NONE if cost.explains_pct is None else f"{cost.explains_pct:.0f} %",
    )


def _micros(value_us: float) -> str:
    return text.micros(value_us * 1e-6)


TITLE = "The engine's own figures"
HEAD = ("figure", "told by", "engine", "observer", "what the two are")
RIGHT = (2, 3)
_TOLD = ("engine_decode_tokens_per_second", "engine_tokens_per_second")
_KERNELS = 4
_ROWS = 60
_TITLES = {
    "engine_tokens": "tokens generated",
    "engine_prompt_tokens": "tokens of the prompt",
    "engine_load_ms": "load",
    "engine_prefill_ms": "prefill",
    "engine_decode_ms": "decode, in all",
    "engine_total_ms": "total",
    "engine_embed_us": "embedding",
    "engine_forward_us": "forward pass",
    "engine_logits_us": "logits",
    "engine_sample_us": "sampling",
    "engine_tokens_per_second": "throughput",
    "engine_prefill_tokens_per_second": "prefill rate",
    "engine_decode_tokens_per_second": "decode rate",
}


def observed(evidence: Evidence) -> list[Metric]:
    """Return the metrics that are not the engine's own word."""
    return [metric for metric in evidence.metrics if not of_engine(metric)]


def own_rows(evidence: Evidence) -> list[tuple[str, str, str, str, str]]:
    """Return five cells for each figure of the engine's own; no rows where it told none.

    Of very many the first are shown, and a last row says how many more there are.
    """
    told = [metric for metric in evidence.metrics if of_engine(metric)]
    rows = [
        (
            _TITLES.get(metric.name, metric_title(metric)),
            visible(source_of(metric), 80),
            metric_value(metric),
            NONE if beside is None else metric_value(beside),
            _what(metric, beside),
        )
        for metric in told[:_ROWS]
        for beside in [observed_as(metric, evidence.metrics)]
    ]
    if len(told) > _ROWS:
        rows.append((f"{len(told) - _ROWS:,} more, in evidence.json", NONE, NONE, NONE, ""))
    return rows


def own_lines(evidence: Evidence, receipt: Receipt | None) -> list[str]:
    """Return what a terminal says of the engine's own word: one line each of rate and kernels."""
    lines = []
    rates = [metric for name in _TOLD for metric in evidence.metrics if metric.name == name]
    if rates:
        beside = observed_as(rates[0], evidence.metrics)
        seen = f", observed {metric_value(beside)}" if beside is not None else ""
        what = _what(rates[0], beside)
        lines.append(
            f"the engine's own word ({visible(source_of(rates[0]), 80)}, not gated): "
            f"{metric_value(rates[0])}{seen}{f' ({what})' if what else ''}"
        )
    if alone := _by_word_alone(evidence, receipt):
        more = f" and {len(alone) - _KERNELS} more" if len(alone) > _KERNELS else ""
        named = ", ".join(visible(name, 40) for name in alone[:_KERNELS])
        lines.append(f"kernels by the engine's word alone, seen by no profiler: {named}{more}")
    return lines


def _by_word_alone(evidence: Evidence, receipt: Receipt | None) -> Sequence[str]:
    """Return the claimed kernels that no profile showed."""
    seen = {each.name for each in evidence.kernels if each.source == "profile"}
    claimed = receipt.kernels if receipt is not None else ()
    return [name for name in claimed if name not in seen]


def _what(metric: Metric, beside: Metric | None) -> str:
    told = meaning_of(metric.formula)
    seen = meaning_of(beside.formula) if beside is not None else None
    return "; ".join(
        f"{who}: {words}" for who, words in (("engine", told), ("observer", seen)) if words
    )
