"""Which functions and changed lines are named as the cause of a change, and in which words.

A function whose cost certainly changed is named first. If there is none, the likeliest one is
named as such, in the headline of a verdict, in its table and in the picture of the difference.
"""

from collections.abc import Iterable, Sequence

from pytest_flamegate.core.text import significant
from pytest_flamegate.gate.costs import OTHER, WAITING, CostChange
from pytest_flamegate.gate.lines import LineChange

ALL_OF_IT = 0.9
MOST_OF_IT = 0.5
_WORTH_NAMING = 0.1
_LIKELY_CERTAINTY = 0.5
"""The part of half its interval from which an uncertain change is called likely."""
_SMALLEST_US = 0.01


def is_likely(part: float, certainty: float) -> bool:
    """Whether an uncertain change may be called the likely cause of the change of the whole.

    Args:
        part: What it makes up of the change of the whole: 1 is all of it.
        certainty: Its size in half-widths of its interval: 1 excludes 0.
    """
    return part >= MOST_OF_IT and certainty >= _LIKELY_CERTAINTY


def likeliest(costs: Iterable[CostChange]) -> CostChange | None:
    """Return the function that most likely caused the change, None if none stands out.

    Only functions that did not certainly change are considered.
    """
    found = [
        cost
        for cost in costs
        if cost.explains is not None and cost.name != OTHER and not cost.is_certain
        if is_likely(cost.explains, cost.certainty)
    ]
    return max(found, key=lambda cost: cost.explains or 0.0, default=None)


def describe_cause(costs: Sequence[CostChange], lines: Sequence[LineChange]) -> str:
    """Name the changed line and the functions that explain a change, each after a comma.

    For example ``, 98 % of it at run.c:30-32 (changed here, 0 → 90.3 µs/token), most of it in
    __powf_fma (70 %)``. The result is empty if no function and no line can be named.
    """
    return _describe_line(lines) + _describe_functions(costs)


def micros(value_us: float) -> str:
    """Return a cost in µs with three significant digits; what is no cost at all is 0."""
    return significant(value_us) if abs(value_us) >= _SMALLEST_US else "0"


def _describe_line(lines: Sequence[LineChange]) -> str:
    for line in lines:
        cost = line.cost
        if line.place.is_changed and (cost.explains or 0.0) >= _WORTH_NAMING:
            figures = f"{micros(cost.baseline_us)} → {micros(cost.current_us)} µs/token"
            part = f"{cost.explains_pct or 0.0:.0f} % of it"
            return f", {part} at {line.place} (changed here, {figures})"
    return ""


def _describe_functions(costs: Sequence[CostChange]) -> str:
    certain = [
        (cost.explains, cost)
        for cost in costs
        if cost.explains is not None and cost.explains > 0.0
        if cost.is_certain and cost.name != OTHER
    ]
    if not certain:
        guess = likeliest(costs)
        if guess is None:
            return ""
        return f", most likely {_name(guess)}"  # its figures say less than the table's ±
    part, first = max(certain, key=lambda each: each[0])
    if part >= ALL_OF_IT:
        return f", all of it in {_name(first)}"
    if part >= MOST_OF_IT:
        return f", most of it in {_name(first)} ({first.explains_pct or 0.0:.0f} %)"
    named = [cost for part, cost in certain if part >= _WORTH_NAMING][:3]
    return "".join(f", {cost.explains_pct or 0.0:.0f} % of it in {_name(cost)}" for cost in named)


def _name(cost: CostChange) -> str:
    return "waiting, off the CPU" if cost.name == WAITING else cost.name
