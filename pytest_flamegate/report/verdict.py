"""The sections of a verdict: the change, the functions behind it, and how sure it is."""

from collections.abc import Iterator, Mapping, Sequence

from pytest_flamegate.core.errors import find_cause
from pytest_flamegate.core.text import significant
from pytest_flamegate.gate import rule
from pytest_flamegate.gate.causes import likeliest
from pytest_flamegate.gate.costs import MOST, CostChange
from pytest_flamegate.gate.ungated import WALL_TOKENS_PER_SECOND
from pytest_flamegate.gate.verdict import PairMethod, Verdict, headline
from pytest_flamegate.report import text
from pytest_flamegate.report.markup import draw_pairs
from pytest_flamegate.report.sections import (
    NONE,
    Cell,
    Code,
    Items,
    Paragraph,
    Picture,
    Section,
    Table,
    list_names,
    make_section,
)

_CLOCKS = {rule.TOKENS_PER_SECOND: "quiet clock", WALL_TOKENS_PER_SECOND: "wall clock, not gated"}
_PREFIXES = {rule.SHARE: "share of", rule.BRICK: "brick", rule.CALLS: "calls of"}
_PHASES = {"prefill": "prefill, to the first token", "decode": "decode, each further token"}
_CERTAIN_ROWS, _OTHER_ROWS, _SIGNAL_ROWS, _LINE_ROWS, _CALL_ROWS, _CALLERS = 5, 2, 8, 6, 6, 2
_CALL_UNITS = {"prefill": "to the first token", "decode": "a token"}
_MOST_REASONS = 12
_SMALLEST_US = 0.01
"""Figures below it are shown as 0."""
_IN_FIGURES = ("SLOWER", "SHARE", "BRICK", "FASTER", "WITHIN")
"""How the codes begin, after ``E_`` or ``I_``, whose sentence repeats a figure of the tables."""


def cost_section(verdict: Verdict, *, brief: bool = False) -> Section:
    """Return the cost of each function before and after, the largest change first.

    So a function that cost little or nothing before comes before those that always cost most.
    A brief section keeps the certain changes (or the largest) and two more functions.
    """
    costs = list(verdict.attribution)
    if brief:
        certain = [cost for cost in costs if cost.is_certain][:_CERTAIN_ROWS] or costs[:1]
        others = [cost for cost in costs if cost not in certain and not cost.is_certain]
        costs = [*certain, *others[:_OTHER_ROWS]]
    head = ("function", "before", "after", "change", "part of the change", "share of the samples")
    table = Table(head, [_cost_cells(verdict, cost) for cost in costs], right=range(1, 4))
    names = verdict.explained_by
    # Of several functions the fewest are named that explain most of the change.
    explained = (f"{100 * MOST:.0f} % of the change is explained by ", *list_names(names), ".")
    return make_section(
        "Where it went (µs/token)", [table, Paragraph(explained) if len(names) > 1 else None]
    )


def _cost_cells(verdict: Verdict, cost: CostChange) -> tuple[Cell, ...]:
    share = verdict.signal(f"{rule.SHARE}{cost.name}")
    shares = () if share is None else (share.baseline, share.current)
    return (
        Code(cost.name),
        *_cost_figures(cost, is_likeliest=cost is likeliest(verdict.attribution)),
        " → ".join(NONE if each is None else f"{each:.1f} %" for each in shares) or NONE,
    )


def _cost_figures(cost: CostChange, *, is_likeliest: bool = False) -> tuple[str, str, str, str]:
    """Return the cost before and after, its change, and the part of the whole that it makes up.

    The last one says how sure that is: without a word it is certain over all rows together,
    ``probably`` if the interval of this row alone excludes 0.
    """
    half_us = 0.5 * (cost.ci_high_us - cost.ci_low_us)
    part = NONE if cost.explains_pct is None else f"{cost.explains_pct:.0f} %"
    if not cost.is_certain:
        probably = "probably" if cost.explains_pct is None else f"probably {part}"
        unsure = f"most likely {part}" if is_likeliest else "no certain change"
        part = probably if cost.excludes_zero else unsure
    return (
        _micros(cost.baseline_us),
        _micros(cost.current_us),
        f"{'+' if cost.change_us > 0 else ''}{_micros(cost.change_us)} ±{_micros(half_us)}",
        part,
    )


def line_section(verdict: Verdict) -> Section:
    """Return the lines that cost certainly more or less, those of the change first."""
    lines = verdict.lines or verdict.reported_lines
    rows = [
        (
            Code(str(line.place)),
            "changed here" if line.place.is_changed else "not in this diff",
            *_cost_figures(line.cost),
        )
        for line in lines[:_LINE_ROWS]
    ]
    head = ("line", "", "before", "after", "change", "part of the change")
    notes = []
    if rows and not any(line.place.is_changed for line in lines):
        notes.append(
            "No line of the change itself certainly costs more or less: look at data, at numbers "
            "of calls, and at where the code lies in memory."
        )
    if rows and not verdict.lines:
        notes.append("These lines are what the job that measured reports. They decide nothing.")
    table = Table(head, rows, right=range(2, 5))
    return make_section("Lines (µs/token)", [table, *map(Paragraph, notes)])


def call_section(verdict: Verdict) -> Section:
    """Return the functions that are called more or less often because of the change itself."""
    by_row: dict[tuple[Cell, ...], str] = {}
    for call in verdict.calls:
        if call.callers:
            name = f"{call.function} ({call.file})" if call.file else call.function
            figures = f"{call.baseline:g}", f"{call.current:g}"
            row = (Code(name), ", ".join(call.callers[:_CALLERS]), *figures)
            # The first token is mostly like every other one: decode, which is first, says it.
            by_row.setdefault(row, _CALL_UNITS[call.phase])
    rows = [(*row, unit) for row, unit in by_row.items()][:_CALL_ROWS]
    head = ("function", "called by", "before", "after", "calls")
    return make_section("Calls (exact)", [Table(head, rows, right=range(2, 4))])


def _micros(value_us: float) -> str:
    return text.micros(value_us * 1e-6) if abs(value_us) >= _SMALLEST_US else "0"


# Figures


def signal_section(verdict: Verdict, *, brief: bool = False) -> Section:
    """Return every figure that was compared: the gated clock first, then the wall clock.

    A brief section keeps the rates, and of the others those that regressed.
    """
    signals = [
        signal
        for signal in verdict.signals
        if not brief or signal.name in _CLOCKS or signal.decision == "regressed"
    ]
    shown = signals[:_SIGNAL_ROWS] if brief else signals
    head = ("figure", "before", "after", "change", "interval", "allowed", "could have seen",
            "decision")  # fmt: skip
    rows = [(_signal_label(signal.name), *signal_cells(signal)) for signal in shown]
    left = len(signals) - len(shown)
    notes = [f"and {text.plural(left, 'more figure')} in verdict.json"] if left else []
    reasons = [reason for signal in signals for reason in signal.reasons]
    notes += [each.message for each in reasons if each.code == "I_MACHINE_SPEED"]
    notes += _describe_layers(verdict, shown)
    return make_section("Compared", [Table(head, rows, right=range(1, 7)), *map(Paragraph, notes)])


def _signal_label(name: str) -> Cell:
    """Return a signal's name as users read it."""
    for prefix, word in _PREFIXES.items():
        if name.startswith(prefix):
            return f"{word} {text.visible(name.removeprefix(prefix), 80)}"
    return f"tokens/s, {_CLOCKS[name]}" if name in _CLOCKS else name.replace("_", " ")


def signal_cells(signal: rule.Signal) -> tuple[str, str, str, str, str, str, str]:
    """Return before, after, change, interval, allowed, smallest visible change and decision."""
    unit = "pp" if signal.unit == rule.SHARE_UNIT else "%"
    low, high, smallest = signal.ci_low_pct, signal.ci_high_pct, signal.smallest_detectable_pct
    if signal.unit == rule.SHARE_UNIT and signal.decision == "regressed":
        # It is often larger than the shift: luck made the shift certain with fewer samples.
        smallest = None
    return (
        _amount(signal, signal.baseline),
        _amount(signal, signal.current),
        NONE if signal.change_pct is None else f"{signal.change_pct:+.1f} {unit}",
        NONE if low is None or high is None else f"{low:+.1f} … {high:+.1f} {unit}",
        NONE if signal.threshold_pct is None else f"{signal.threshold_pct:g} {unit}",
        NONE if smallest is None else f"{text.tidy(smallest)} {unit}",
        signal.decision.replace("_", " "),
    )


def _amount(signal: rule.Signal, value: float | None) -> str:
    if value is None:
        return NONE
    if signal.unit == rule.SHARE_UNIT:
        return f"{value:.1f} %"
    unit = "" if signal.name in _CLOCKS else " " + signal.unit.replace("us/", "µs/")
    return f"{significant(value)}{unit}"


def _describe_layers(verdict: Verdict, signals: Sequence[rule.Signal]) -> Iterator[str]:
    """Name the layer that holds most of a brick's growth, if one does."""
    for change in verdict.bricks:
        grown = change.grown
        if grown is not None and any(signal in change.signals for signal in signals):
            before, after = significant(grown.baseline_us), significant(grown.current_us)
            yield f"{change.name}: most of it in layer {grown.layer} ({before} → {after} µs)"


def phase_section(verdict: Verdict) -> Section:
    """Return prefill and decode, which are measured on the wall clock and not gated."""
    rows = [
        (
            _PHASES[phase.name],
            f"{significant(phase.baseline_ms)} ms",
            f"{significant(phase.current_ms)} ms",
            rule.describe_rate_change(phase.change_pct) if phase.certain else "no certain change",
            rule.describe_interval(phase.ci_low_pct, phase.ci_high_pct)
            if phase.certain or (phase.ci_low_pct >= -50.0 and phase.ci_high_pct <= 100.0)
            else "too few pairs: a factor of 2 could not be seen",
        )
        for phase in verdict.phases
    ]
    head = ("phase", "before", "after", "change", "interval")
    title = "Phases (not gated)"
    return make_section(title, [Table(head, rows, right=(1, 2))])


def pair_section(verdict: Verdict, changes_pct: Sequence[float]) -> Section:
    """Return a plot of the change in each pair of processes, above the interval of them all."""
    rate = verdict.signal()
    if rate is None or len(changes_pct) < 2 or rate.ci_low_pct is None or rate.ci_high_pct is None:
        return Section("The pairs", ())
    low, high, threshold = rate.ci_low_pct, rate.ci_high_pct, rate.threshold_pct
    picture = draw_pairs(changes_pct, (low, high), -threshold if threshold else None)
    caption = (
        f"Each dot is one pair of processes, left is slower. The bar is the interval of all "
        f"{len(changes_pct)} together ({rule.describe_interval(low, high)})"
        + (f"; the line marks the {threshold:g} % allowed." if threshold else ".")
    )
    return Section("The pairs", (Picture(caption, markup=picture), Paragraph(caption, muted=True)))


# How sure


def reason_section(verdict: Verdict, *, brief: bool = False) -> Section:
    """Return the reasons by their codes.

    A brief section stands below the headline. Of a reason that the headline contains it shows the
    meaning of the code instead, of an error the code alone, and leaves out the reasons of a
    regression that other sections show as figures.
    """
    has_figures = brief and verdict.verdict == "regressed" and bool(verdict.signals)
    reasons = [
        reason
        for reason in verdict.reasons
        if not (has_figures and reason.code[2:].startswith(_IN_FIGURES))
    ]
    shown = headline(verdict) if brief else ""
    # The message of an error has its cause already, and what to do.
    is_error = verdict.verdict == "error"
    lines = [
        (Code(reason.code), " ", "" if is_error else find_cause(reason.code))
        if reason.message in shown
        else (Code(reason.code), " ", reason.message)
        for reason in reasons
    ]
    left = len(lines) - _MOST_REASONS
    more = [f"and {text.plural(left, 'more reason')}"] if left > 0 else []
    return make_section("Reasons", [Items((*lines[:_MOST_REASONS], *more))])


def sureness_section(verdict: Verdict) -> Section:
    """Return the grade, how much was measured, and the known error rates."""
    return make_section("How sure it is", [Items(tuple(describe_sureness(verdict)))], folded=True)


_PAIR_METHODS: Mapping[PairMethod, str] = {
    "shared core": ", both sides at the same time on one core",
    "one after the other": ", one side after the other",
}


def describe_sureness(verdict: Verdict) -> list[str]:
    """Return a sentence each on the grade, the processes and the error rates."""
    lines = [f"Receipt: {verdict.grade}."]
    if verdict.pairs is not None:
        against = f" against {verdict.against[:12]}" if verdict.against else ""
        pairs = f"{text.plural(verdict.pairs, 'pair')} of processes{against}"
        how = _PAIR_METHODS[verdict.pair_method] if verdict.pair_method else ""
        if verdict.current_processes > verdict.pairs:
            timed = f"in all {verdict.current_processes} processes of each side were timed."
            line = f"Decided after {pairs}{how}; {timed}"
        else:
            line = f"Measured in {pairs}{how}."
        lines.append(line)
    elif verdict.current_processes:
        lines.append(
            f"Timed processes: {verdict.baseline_processes} of the baseline, "
            f"{verdict.current_processes} now."
        )
    if verdict.smallest_detectable_pct is not None:
        lines.append(f"A drop of {text.percent(verdict.smallest_detectable_pct)} would have been "
                     "seen.")  # fmt: skip
    known = (("false alarms", verdict.false_alarm_rate), ("misses", verdict.miss_rate))
    rates = [f"{name} ≤ {text.tidy(100 * rate, 2)} %" for name, rate in known if rate is not None]
    basis = verdict.error_rate_basis
    if rates or basis:
        lines.append(f"Error rates: {', '.join(rates) or 'not known'}.")
    if basis:
        lines.append(f"{basis[0].upper()}{basis[1:]}.")
    return lines
