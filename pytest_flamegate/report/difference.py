"""The colours of a difference: orange is dearer, blue cheaper, grey unchanged.

Orange and blue are told apart by every kind of sight. The tint of a box says how much its
function changed, relative to the whole; what it costs more now is solid, and what it no
longer costs is an empty outline, so that neither is told by colour alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.report import text
from pytest_flamegate.report.svg import FLOOR, Shade
from pytest_flamegate.report.text import columns, paint, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flamegate.profile.difference import (
        Change,
        FunctionChange,
        Measure,
        ProfileDifference,
        ProfileSide,
        State,
    )


STEPS = (0.01, 0.03)
"""Parts of the whole at which a tint gets stronger."""
_DARK, _WHITE = "#14171A", "#FFFFFF"

SHADES: Mapping[str, Shade] = MappingProxyType(
    {
        "floor": FLOOR,
        "same": Shade("#EDEFF2", "#262C33", "#57606A", "#A3ADB8"),
        "came": Shade("#EDEFF2", "#262C33", "#57606A", "#A3ADB8", edge=("#D55E00", "#E0731C")),
        "went": Shade("#FFFFFF", "#0D1117", "#57606A", "#A3ADB8", edge=("#0072B2", "#5CB3EE")),
        "up1": Shade("#FCE3D3", "#4A2A17", _DARK, _WHITE),
        "up2": Shade("#F9C9A6", "#65371B", _DARK, _WHITE),
        "up3": Shade("#F4A873", "#85451D", _DARK, _WHITE),
        "down1": Shade("#DCEBF7", "#16303F", _DARK, _WHITE),
        "down2": Shade("#B5D7F0", "#184562", _DARK, _WHITE),
        "down3": Shade("#84BDE8", "#195C86", _DARK, _WHITE),
        "more": Shade("#D55E00", "#C24E00", _DARK, _WHITE),
        "less": Shade("#FFFFFF", "#0D1117", _DARK, _WHITE, edge=("#0072B2", "#5CB3EE")),
        "loud": Shade("#FFE66A", "#5A4A00", _DARK, _WHITE),
    }
)
"""By class. ``more`` and ``less`` are a cost that came or went; ``came`` and ``went`` are callers
on one side alone, whose own cost did not change."""


def alone(side: Literal["new", "vanished"] | None) -> str:
    """Return the class of a box that did not change itself, by the one side that it is on."""
    return "came" if side == "new" else "went" if side == "vanished" else "same"


def kind(state: State, part_of_whole: float) -> str:
    """Return the class of a box whose function changed by that part of the whole, 0 to 1."""
    if state == "unchanged":
        return "same"
    if state == "vanished":
        return "less"
    if state == "new":
        return "more"
    return f"{state}{1 + sum(part_of_whole >= step for step in STEPS)}"


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
    def of(cls, difference: ProfileDifference) -> Scale:
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
            return text.count(round(scaled))
        return text.tidy(scaled, 0 if abs(scaled) >= 99.5 else 1)

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


def answer(difference: ProfileDifference) -> str:
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


def _of_the_whole(difference: ProfileDifference) -> str:
    """Return what is to be said where no function certainly changed: the whole still may have."""
    total = difference.total
    if difference.measure == "share" or abs(total.z) < difference.certain_z:
        return f"{NOTHING}: {whole(difference)} in all"
    likeliest = _sentence(difference, difference.functions[0], in_full=True)
    verb = _VERBS[difference.measure]
    return f"the whole {verb} {whole(difference)}, no function certainly; most likely {likeliest}"


def whole(difference: ProfileDifference) -> str:
    """Return what both sides are in all: ``2,800 → 2,867 µs/token (+66.6 ± 16)``."""
    if difference.measure == "share":
        base, head = difference.base.samples, difference.head.samples
        return f"{text.count(base)} and {text.plural(head, unit_of(difference))}"
    return Scale.of(difference).told(difference.total)


def z_words(z: float) -> str:
    """Return ``+3.1``; a dash where something exact changed, which no noise is measured in."""
    return "–" if abs(z) > _MOST_Z else f"{z:+.1f}".replace("-", "−")


def told_z(z: float) -> float:
    """Return a ``z`` that a page can hold and sort by: finite, to one decimal."""
    return round(max(-_MOST_Z, min(_MOST_Z, z)), 1)


def unit_of(difference: ProfileDifference) -> str:
    """Return one of what both profiles count: ``sample``, ``nanosecond``; ``count`` of neither."""
    base, head = (side.profile.unit for side in (difference.base, difference.head))
    return base.removesuffix("s") if base == head else "count"


def state_words(difference: ProfileDifference, state: State) -> str:
    """Return a state in one word; a share is larger and not dearer."""
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
    return f"{name} {verb} {scale.told(own)}"


def rows(difference: ProfileDifference, most: int = MOST_ROWS) -> list[Row]:
    """Return the ``most`` largest certain changes, and everything else as the last row."""
    changed = difference.changed
    shown = [
        _row(difference, f"{rank}", visible(each.frame.name), each.state, each.own)
        for rank, each in enumerate(changed[:most], 1)
    ]
    return [*shown, _rest(difference, changed[:most])]


def _row(difference: ProfileDifference, rank: str, name: str, state: State, change: Change) -> Row:
    scale = Scale.of(difference)
    return Row(
        rank=rank,
        name=name,
        state=state,
        said=state_words(difference, state),
        before=scale.bare(change.base) if state != "new" else "–",
        after=scale.bare(change.head) if state != "vanished" else "–",
        change=scale.signed(change.change),
        share=f"{text.share(change.base_share)} → {text.share(change.head_share)}",
        shift=f"{change.shift_pp:+.1f} pp".replace("-", "−"),
        z="–" if state == "unchanged" else z_words(change.z),
    )


def _rest(difference: ProfileDifference, shown: Sequence[FunctionChange]) -> Row:
    total = difference.total
    old = total.base_samples - sum(each.own.base_samples for each in shown)
    new = total.head_samples - sum(each.own.head_samples for each in shown)
    left = len(difference.changed) - len(shown)
    also = f" ({left} more changed)" if left else ""
    name = f"everything else{also}" if shown else "everything"
    return _row(difference, "", name, "unchanged", difference.change(old, new))


_LONG = 2000


def difference_text(difference: ProfileDifference, *, colour: bool = False) -> str:
    """Return the answer, what warns of it, and a table, without a line break at the end."""
    said = visible(answer(difference), _LONG)
    lines = [paint(said, "yellow" if difference.changed else "green") if colour else said]
    lines += _warnings(difference)
    for role, side in (("before", difference.base), ("after", difference.head)):
        samples = text.plural(side.profile.samples, side.profile.unit.removesuffix("s"))
        lines.append(f"  {role:<6}  {visible(side.name)} · {samples}")
    own = f"own part in {Scale.of(difference).unit}"
    table = [("", own, "", "before", "after", "change", "share", "moved", "z")]
    table += [
        (row.rank, row.name, row.said, row.before, row.after, row.change, row.share, row.shift,
         row.z)
        for row in rows(difference)
    ]  # fmt: skip
    lines += columns(table, right=(0, 3, 4, 5, 6, 7, 8), indent=2, gap=2)
    lines.append(f"  in all  {whole(difference)}")
    lines.append(
        f"  changed means |z| ≥ {difference.certain_z:.1f}: of two profiles of one program one in "
        "a hundred shows any change; ± is two standard errors"
    )
    return "\n".join(lines)


def _warnings(difference: ProfileDifference) -> Iterator[str]:
    if difference.mismatches:
        told = "; ".join(visible(str(each)) for each in difference.mismatches)
        yield f"  NOT COMPARABLE  the two profiles were not taken alike: {told}"
    if difference.measure == "share":
        yield f"  shares only  {SHARES_ONLY}"


def difference_document(difference: ProfileDifference) -> dict[str, object]:
    """Return all of it as plain data; every function, the largest change first.

    Values are in ``unit``: seconds per token, shares of 0 to 1, or instructions. ``z`` is
    null where something exact changed.
    """
    units = {"cost": "s/token", "share": "share", "count": "instructions"}
    return {
        "answer": answer(difference),
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


def _side(side: ProfileSide) -> dict[str, object]:
    profile = side.profile
    return {
        "name": side.name,
        "samples": profile.samples,
        "profiler": profile.profiler,
        "event": profile.event,
        "rate_hz": profile.rate_hz,
        "call_graph": profile.call_graph,
        "python": profile.python,
        "covers": profile.covers,
        "cpu_s_per_token": side.cpu_s_per_token,
    }


def _change(change: Change) -> dict[str, object]:
    return {
        "base": change.base,
        "head": change.head,
        "change": change.change,
        "error": change.error,
        "z": change.z if math.isfinite(change.z) else None,
        "base_samples": change.base_samples,
        "head_samples": change.head_samples,
        "base_share": change.base_share,
        "head_share": change.head_share,
        "shift_pp": change.shift_pp,
    }
