"""The colours of a difference: orange is dearer, blue cheaper, grey unchanged.

Orange and blue are told apart by every kind of sight. The tint of a box says how much its
function changed, relative to the whole; what it costs more now is solid, and what it no
longer costs is an empty outline, so that neither is told by colour alone.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.report.theme import FLOOR, Shade

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.profile.difference import State

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
