"""A difference of two profiles in words: the answer first, then one row for each function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.report import figures
from pytest_flamegate.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.profile.difference import (
        Change,
        Difference,
        FunctionChange,
        Measure,
        State,
    )

NOTHING = "no difference beyond sampling noise"
MOST_ROWS = 12
_MOST_Z = 1e6
_NAMED = 3
_STATES: dict[State, str] = {
    "new": "new",
    "vanished": "gone",
    "up": "dearer",
    "down": "cheaper",
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
    """How the values of one difference are written: all in one unit."""

    unit: str
    factor: float
    spaced: str = " "

    @classmethod
    def of(cls, difference: Difference) -> Scale:
        """Return the scale that the whole profile reads best on."""
        if difference.measure == "share":
            return cls(f"% of the {unit_of(difference)}s", 100.0)
        if difference.measure == "count":
            return cls("instructions", 1.0)
        largest = max(difference.total.base, difference.total.head)
        return cls("ms/token", 1e3) if largest >= 0.1 else cls("µs/token", 1e6)

    def bare(self, value: float) -> str:
        """Return ``value`` without its unit: ``181``, ``4.2``."""
        scaled = value * self.factor
        if self.unit == "instructions":
            return figures.count(round(scaled))
        return figures.tidy(scaled, 0 if abs(scaled) >= 99.5 else 1)

    def signed(self, value: float) -> str:
        """Return a change without its unit: ``+119``, ``−4.2``."""
        text = self.bare(abs(value))
        return text if text == "0" else ("+" if value > 0 else "−") + text

    def told(self, change: Change) -> str:
        """Return ``62 → 181 µs/token (+119 ± 9)``; the error is two standard errors."""
        return (
            f"{self.bare(change.base)} → {self.bare(change.head)} {self.unit} "
            f"({self.signed(change.change)} ± {self.bare(2 * change.error)})"
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One function, or what is left of them, as it is shown; ``rank`` is empty for the rest."""

    rank: str
    name: str
    state: State
    said: str
    before: str
    after: str
    change: str
    share: str
    shift: str
    z: str


def answer(difference: Difference) -> str:
    """Return what changed in one sentence, the largest change first."""
    changed = difference.changed
    if not changed:
        return _of_the_whole(difference)
    told = [
        _sentence(difference, each, in_full=index == 0)
        for index, each in enumerate(changed[:_NAMED])
    ]
    left = len(changed) - _NAMED
    rest = f"{left} more changed" if left > 0 else "nothing else changed beyond sampling noise"
    return "; ".join([*told, rest])


def _of_the_whole(difference: Difference) -> str:
    """Return what is to be said where no function certainly changed: the whole still may have."""
    total = difference.total
    if difference.measure == "share" or abs(total.z) < difference.certain_z:
        return f"{NOTHING}: {whole(difference)} in all"
    likeliest = _sentence(difference, difference.functions[0], in_full=True)
    verb = _VERBS[difference.measure]
    return f"the whole {verb} {whole(difference)}, no function certainly; most likely {likeliest}"


def whole(difference: Difference) -> str:
    """Return what both sides are in all: ``2,800 → 2,867 µs/token (+66.6 ± 16)``."""
    if difference.measure == "share":
        base, head = difference.base.samples, difference.head.samples
        return f"{figures.count(base)} and {figures.plural(head, unit_of(difference))}"
    return Scale.of(difference).told(difference.total)


def z_words(z: float) -> str:
    """Return ``+3.1``; a dash where something exact changed, which no noise is measured in."""
    return "–" if abs(z) > _MOST_Z else f"{z:+.1f}".replace("-", "−")


def told_z(z: float) -> float:
    """Return a ``z`` that a page can hold and sort by: finite, to one decimal."""
    return round(max(-_MOST_Z, min(_MOST_Z, z)), 1)


def unit_of(difference: Difference) -> str:
    """Return one of what both profiles count: ``sample``, ``nanosecond``; ``count`` of neither."""
    base, head = (side.profile.unit for side in (difference.base, difference.head))
    return base.removesuffix("s") if base == head else "count"


def state_words(difference: Difference, state: State) -> str:
    """Return a state in one word; a share is larger and not dearer."""
    return (_STATES_OF_SHARES if difference.measure == "share" else _STATES)[state]


def _sentence(difference: Difference, function: FunctionChange, *, in_full: bool) -> str:
    scale, own = Scale.of(difference), function.own
    name, verb = visible(function.frame.name, 80), _VERBS[difference.measure]
    if function.state == "new":
        return f"{name} is new and {verb} {scale.bare(own.head)} {scale.unit}"
    if function.state == "vanished":
        return f"{name} is gone ({scale.bare(own.base)} {scale.unit} before)"
    if not in_full:
        return f"{name} {scale.signed(own.change)}"
    return f"{name} {verb} {scale.told(own)}"


def rows(difference: Difference, most: int = MOST_ROWS) -> list[Row]:
    """Return the ``most`` largest certain changes, and everything else as the last row."""
    changed = difference.changed
    shown = [
        _row(difference, f"{rank}", visible(each.frame.name), each.state, each.own)
        for rank, each in enumerate(changed[:most], 1)
    ]
    return [*shown, _rest(difference, changed[:most])]


def _row(difference: Difference, rank: str, name: str, state: State, change: Change) -> Row:
    scale = Scale.of(difference)
    return Row(
        rank=rank,
        name=name,
        state=state,
        said=state_words(difference, state),
        before=scale.bare(change.base) if state != "new" else "–",
        after=scale.bare(change.head) if state != "vanished" else "–",
        change=scale.signed(change.change),
        share=f"{figures.share(change.base_share)} → {figures.share(change.head_share)}",
        shift=f"{change.shift_pp:+.1f} pp".replace("-", "−"),
        z="–" if state == "unchanged" else z_words(change.z),
    )


def _rest(difference: Difference, shown: Sequence[FunctionChange]) -> Row:
    total = difference.total
    old = total.base_samples - sum(each.own.base_samples for each in shown)
    new = total.head_samples - sum(each.own.head_samples for each in shown)
    left = len(difference.changed) - len(shown)
    also = f" ({left} more changed)" if left else ""
    name = f"everything else{also}" if shown else "everything"
    return _row(difference, "", name, "unchanged", difference.change(old, new))
