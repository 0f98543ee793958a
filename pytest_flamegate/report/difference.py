"""A difference of two profiles in words, colours, rows and plain data.

Orange costs more, blue costs less, grey is unchanged; every kind of sight separates orange from
blue. The tint of a box grows with its own change, relative to the whole. Added cost is
solid and removed cost is an empty outline, so that neither depends on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pytest_flamegate.gate.causes import is_likely
from pytest_flamegate.profile.difference import (
    Change,
    FunctionChange,
    Measure,
    OneSided,
    PathChange,
    ProfileDifference,
    ProfileSide,
    State,
)
from pytest_flamegate.report import text
from pytest_flamegate.report.flame import Layout, place
from pytest_flamegate.report.markup import FLOOR, read_shades
from pytest_flamegate.report.text import MAX_SHOWN, clip, columns, paint, visible

STEPS = (0.01, 0.03)
"""Parts of the whole at which a tint gets stronger."""
SHADES = MappingProxyType({"floor": FLOOR, **read_shades("changes")})
"""The colours of boxes by class."""
CALL_SHADES: Mapping[OneSided, str] = MappingProxyType(
    {"new": "came", "vanished": "went", None: "same"}
)
"""The class of a box whose own cost is unchanged, by the one side that its call is on."""


def change_shade(state: State, part_of_whole: float) -> str:
    """Return the class of a box that changed by that part of the whole, 0 to 1."""
    fixed: dict[State, str] = {"unchanged": "same", "vanished": "less", "new": "more"}
    strength = 1 + sum(part_of_whole >= step for step in STEPS)
    return fixed.get(state, f"{state}{strength}")


BOX_FIGURE = "the change of its own cost, without its callees"
"""What the colour of a box and the figure in it are, in the SVG and on the page."""


def change_legend(difference: ProfileDifference) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Return the classes of boxes, and what they mean: one legend for the SVG and the page."""
    low, high = (f"{100 * step:.0f}" for step in STEPS)
    more, less = "costs more", "costs less"
    if difference.measure == "share":
        more, less = "a larger share", "a smaller share"
    return (
        (("same",), "unchanged"),
        (("up1", "up2", "up3"), f"{more} by < {low}, < {high}, ≥ {high} % of the whole"),
        (("more",), "added cost, or new"),
        (("down1", "down2", "down3"), f"{less} likewise"),
        (("less",), "removed cost, or gone"),
    )


NOTHING = "no difference beyond sampling noise"
MOST_ROWS = 12
"""Rows of certain changes in the table; a number in a box is one of them."""
_MOST_Z = 1e6
_NAMED = 3
_STATES: dict[State, str] = {
    "new": "new",
    "vanished": "gone",
    "up": "costs more",
    "down": "costs less",
    "unchanged": "unchanged",
}
_STATES_OF_SHARES: dict[State, str] = _STATES | {"up": "larger", "down": "smaller"}
_VERBS: dict[Measure, str] = {"cost": "costs", "share": "takes", "count": "executes"}
SHARES_ONLY = (
    "the cost per token is not known on both sides, so shares are compared: a share also moves "
    "when another function's cost does"
)


@dataclass(frozen=True, slots=True)
class Scale:
    """How all values of one difference are written: their unit, and the width of intervals."""

    unit: str
    factor: float
    certain_z: float

    @classmethod
    def of(cls, difference: ProfileDifference) -> Scale:
        """Return the scale that the whole profile reads best on."""
        is_large = difference.larger_total >= 0.1
        unit, factor = ("ms/token", 1e3) if is_large else ("µs/token", 1e6)
        if difference.measure == "share":
            unit, factor = f"% of the {unit_of(difference)}s", 100.0
        elif difference.measure == "count":
            unit, factor = "instructions", 1.0
        return cls(unit, factor, difference.certain_z)

    def bare(self, value: float) -> str:
        """Return ``value`` without its unit: ``181``, ``4.2``."""
        scaled = value * self.factor
        if self.unit == "instructions":
            return text.count(round(scaled))
        return text.tidy(scaled, 0 if abs(scaled) >= 99.5 else 1)

    def signed(self, value: float) -> str:
        """Return a change without its unit: ``+119``, ``−4.2``."""
        size = self.bare(abs(value))
        return size if size == "0" else ("+" if value > 0 else "−") + size

    def describe(self, change: Change) -> str:
        """Return ``62 → 181 µs/token (+119 ± 9)``: certain if the interval excludes 0."""
        return (
            f"{self.bare(change.base)} → {self.bare(change.head)} {self.unit} "
            f"({self.signed(change.change)} ± {self.bare(self.certain_z * change.error)})"
        )


def describe_difference(difference: ProfileDifference) -> str:
    """Return the changes in one sentence, the largest first."""
    changed = difference.changed
    if not changed:
        return _describe_whole(difference)
    sentences = [
        _sentence(difference, each, in_full=index == 0)
        for index, each in enumerate(changed[:_NAMED])
    ]
    if (left := len(changed) - _NAMED) > 0:
        sentences.append(f"{left} more changed")
    rest = _sum_others(difference, changed)
    if difference.measure != "share" and abs(rest.z) >= difference.certain_z:
        # A function that was split into new ones may be uncertain by itself.
        scale, verb = Scale.of(difference), _VERBS[difference.measure]
        less = "fewer" if difference.measure == "count" else "less"
        size = f"{scale.bare(abs(rest.change))} {scale.unit}"
        sentences.append(f"everything else {verb} {size} {'more' if rest.change > 0 else less}")
    elif left <= 0:
        sentences.append("nothing else changed beyond sampling noise")
    return "; ".join(sentences)


def _sum_others(difference: ProfileDifference, known: Sequence[FunctionChange]) -> Change:
    """Return the change of all functions together but the ``known`` ones."""
    total = difference.total
    if not known:
        return total
    rest = difference.change(
        total.base_samples - sum(each.own.base_samples for each in known),
        total.head_samples - sum(each.own.head_samples for each in known),
    )
    # It is what the known ones leave of the whole, so it is no more certain than they are.
    return replace(rest, error=max(rest.error, math.hypot(*(each.own.error for each in known))))


def _describe_whole(difference: ProfileDifference) -> str:
    """Return the sentence if no function certainly changed: the whole still may have."""
    total = difference.total
    if difference.measure == "share" or abs(total.z) < difference.certain_z:
        return f"{NOTHING}: {describe_total(difference)} in all"
    found = f"the whole {_VERBS[difference.measure]} {describe_total(difference)}"
    likeliest = max(difference.functions, key=lambda each: total.change * each.own.change)
    own = likeliest.own
    if not is_likely(own.change / total.change, abs(own.z) / difference.certain_z):
        return f"{found}, and the samples do not show in which function"
    sentence = _sentence(difference, likeliest, in_full=True)
    return f"{found}, no function certainly; most likely {sentence}"


def describe_total(difference: ProfileDifference) -> str:
    """Return the totals of both sides: ``2,800 → 2,867 µs/token (+66.6 ± 16)``."""
    if difference.measure == "share":
        base, head = difference.base.samples, difference.head.samples
        return f"{text.count(base)} and {text.plural(head, unit_of(difference))}"
    return Scale.of(difference).describe(difference.total)


def z_text(z: float) -> str:
    """Return ``+3.1``; a dash for an exact change, which has no noise."""
    return "–" if abs(z) > _MOST_Z else f"{z:+.1f}".replace("-", "−")


def finite_z(z: float) -> float:
    """Return a ``z`` that a page can store and sort by: finite, to one decimal."""
    return round(max(-_MOST_Z, min(_MOST_Z, z)), 1)


def unit_of(difference: ProfileDifference) -> str:
    """Return the unit of both profiles: ``sample``, ``nanosecond``; ``count`` if they differ."""
    base, head = (side.profile.unit for side in (difference.base, difference.head))
    return base.removesuffix("s") if base == head else "count"


def state_word(difference: ProfileDifference, state: State) -> str:
    """Return a state in one word; a share is larger and not slower."""
    return (_STATES_OF_SHARES if difference.measure == "share" else _STATES)[state]


def _sentence(difference: ProfileDifference, function: FunctionChange, *, in_full: bool) -> str:
    scale, own = Scale.of(difference), function.own
    name, verb = visible(function.frame.name, 80), _VERBS[difference.measure]
    if function.state == "new":
        return f"{name} is new and {verb} {scale.bare(own.head)} {scale.unit}"
    if function.state == "vanished":
        return f"{name} is gone ({scale.bare(own.base)} {scale.unit} before)"
    if not in_full:
        return f"{name} {scale.signed(own.change)}"
    return f"{name} {verb} {scale.describe(own)}"


def change_rows(difference: ProfileDifference) -> list[tuple[str, ...]]:
    """Return the cells of the largest certain changes, and of everything else, without a rank."""
    changed = difference.changed
    shown = changed[:MOST_ROWS]
    left = len(changed) - len(shown)
    rest = "everything else" if shown else "everything"
    rest += f" ({left} more changed)" if left else ""
    rows = [
        _row(difference, f"{rank}", visible(each.frame.name), each.state, each.own)
        for rank, each in enumerate(shown, 1)
    ]
    others = _sum_others(difference, shown)
    state: State = "unchanged"
    if abs(others.z) >= difference.certain_z:
        state = "up" if others.change > 0.0 else "down"
    left_over = _row(difference, "", rest, state, others)
    if not shown and state != "unchanged":
        left_over = (*left_over[:2], "changed somewhere", *left_over[3:])
    return [*rows, left_over]


def _row(
    difference: ProfileDifference, rank: str, name: str, state: State, change: Change
) -> tuple[str, ...]:
    scale = Scale.of(difference)
    return (
        rank,
        name,
        state_word(difference, state),
        scale.bare(change.base) if state != "new" else "–",
        scale.bare(change.head) if state != "vanished" else "–",
        f"{scale.signed(change.change)} ± {scale.bare(scale.certain_z * change.error)}",
        f"{text.share(change.base_share)} → {text.share(change.head_share)}",
        f"{change.shift_pp:+.1f} pp".replace("-", "−"),
        "–" if state == "unchanged" else z_text(change.z),
    )


def change_lines(difference: ProfileDifference, *, longest_name: int = MAX_SHOWN) -> list[str]:
    """Return the rows as aligned lines below a head; longer names are clipped."""
    own = f"own part in {Scale.of(difference).unit}"
    head = ("", own, "", "before", "after", "change", "share", "moved", "z")
    rows = [
        (rank, clip(name, longest_name), *others) for rank, name, *others in change_rows(difference)
    ]
    return columns([head, *rows], right=(0, 3, 4, 5, 6, 7, 8), gap=2)


# The answer of flamegate diff


def difference_text(difference: ProfileDifference, *, colour: bool = False) -> str:
    """Return the answer, its warnings and a table, without a line break at the end."""
    summary = visible(describe_difference(difference), 2000)
    lines = [paint(summary, "yellow" if difference.changed else "green") if colour else summary]
    if difference.mismatches:
        details = "; ".join(visible(str(each)) for each in difference.mismatches)
        lines.append(f"  NOT COMPARABLE  the profiles were taken differently: {details}")
    if difference.measure == "share":
        lines.append(f"  shares only  {SHARES_ONLY}")
    for role, side in (("before", difference.base), ("after", difference.head)):
        samples = text.plural(side.profile.samples, side.profile.unit.removesuffix("s"))
        lines.append(f"  {role:<6}  {visible(side.name)} · {samples}")
    lines += [f"  {line}" for line in change_lines(difference)]
    lines.append(f"  in all  {describe_total(difference)}")
    lines.append(
        f"  changed means |z| ≥ {difference.certain_z:.1f}: of two profiles of one program one in "
        "a hundred shows any change, and then ± excludes 0"
    )
    return "\n".join(lines)


def difference_document(difference: ProfileDifference) -> dict[str, object]:
    """Return the difference as plain data; every function, the largest change first.

    Values are in ``unit``: seconds per token, shares of 0 to 1, or instructions. ``z`` is null
    for an exact change.
    """
    units = {"cost": "s/token", "share": "share", "count": "instructions"}
    return {
        "answer": describe_difference(difference),
        "measure": difference.measure,
        "unit": units[difference.measure],
        "certain_z": difference.certain_z,
        "mismatches": [
            {"what": each.condition, "base": each.base, "head": each.head}
            for each in difference.mismatches
        ],
        "base": _side(difference.base),
        "head": _side(difference.head),
        "total": _change(difference.total),
        "functions": [
            {
                "name": each.frame.name,
                "module": each.frame.module,
                "kind": each.frame.kind,
                "state": each.state,
                "own": _change(each.own),
                "inclusive": _change(each.inclusive),
            }
            for each in difference.functions
        ],
    }


_CONDITIONS = ("profiler", "event", "rate_hz", "call_graph", "python", "covers")
_CHANGE = ("base", "head", "change", "error", "z", "base_samples", "head_samples", "base_share",
           "head_share", "shift_pp")  # fmt: skip


def _side(side: ProfileSide) -> dict[str, object]:
    return {
        "name": side.name,
        "samples": side.samples,
        **{name: getattr(side.profile, name) for name in _CONDITIONS},
        "cpu_s_per_token": side.cpu_s_per_token,
    }


def _change(change: Change) -> dict[str, object]:
    found = {name: getattr(change, name) for name in _CHANGE}
    return found if math.isfinite(change.z) else found | {"z": None}


# Layout


def difference_layout(
    difference: ProfileDifference, *, least_part: float, calm_part: float
) -> tuple[Layout[PathChange], float]:
    """Lay the merged tree out in the unit of the measure; return it with the width of the whole.

    A path is as wide as its callees and its own cost: the larger of the two sides' if it
    changed, their mean if it did not. So neither side is drawn narrower than it is, a function
    that is gone stays visible, and noise does not add up. Boxes below ``least_part`` of the whole
    are left out, and those below ``calm_part`` in which nothing changed.
    """
    heavy, moved = _weights(difference)
    total = difference.total
    stackless = difference.change(
        total.base_samples - sum(root.base_samples for root in difference.roots),
        total.head_samples - sum(root.head_samples for root in difference.roots),
    )
    width = sum(heavy[id(root)] for root in difference.roots)
    width += (stackless.base + stackless.head) / 2
    laid = place(
        difference.roots,
        weight=lambda path: heavy[id(path)],
        least=lambda path: width * (least_part if id(path) in moved else calm_part),
    )
    return laid, width


def _weights(difference: ProfileDifference) -> tuple[dict[int, float], set[int]]:
    """Return the width of every path, and the paths that changed or lead to one that did."""
    old_worth, new_worth = difference.worth_of_sample
    todo = list(difference.roots)
    entered: list[PathChange] = []
    while todo:
        path = todo.pop()
        entered.append(path)
        todo.extend(path.children)
    heavy: dict[int, float] = {}
    moved: set[int] = set()
    # Later entries are deeper, so that callees come before their callers.
    for path in reversed(entered):
        below = [id(each) for each in path.children]
        old, new = path.base_self * old_worth, path.head_self * new_worth
        is_calm = path.state == "unchanged"
        width = (old + new) / 2 if is_calm else max(old, new)
        heavy[id(path)] = width + sum(heavy[each] for each in below)
        if not is_calm or not moved.isdisjoint(below):
            moved.add(id(path))
    return heavy, moved
