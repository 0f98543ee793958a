"""The colour of each frame category.

Every two fills differ by at least 20 in CIE L*a*b* for normal sight, protanopia,
deuteranopia and tritanopia, on light paper and on dark, and each ink reaches a contrast of
4.5 to 1 on its fill; the tests hold both. Frames of the interpreter and of unnamed native
code are greys, so that the work of the model stands out; these alone are darker on dark
paper, where they would glare.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.report.theme import FLOOR, Shade

if TYPE_CHECKING:
    from collections.abc import Mapping

_DARK = "#14171A"
_WHITE = "#FFFFFF"


@dataclass(frozen=True, slots=True)
class Tone:
    """A category's colours, and what belongs to it in a few words; ``name`` is its class."""

    name: str
    shade: Shade
    meaning: str

    @property
    def fill(self) -> str:
        """The fill on light paper."""
        return self.shade.light

    @property
    def ink(self) -> str:
        """The ink that reads on it."""
        return self.shade.light_ink


def _same(name: str, fill: str, meaning: str, ink: str = _DARK) -> Tone:
    return Tone(name, Shade(fill, fill, ink, ink), meaning)


_TONES = (
    _same("matmul", "#E8971A", "matrix multiplication: gemm, gemv, dot products"),
    _same("quantisation", "#DC6239", "packing, unpacking and scaling quantised values"),
    _same("attention", "#69C6FA", "attention, softmax, rotary embedding, KV cache"),
    _same("norm", "#349874", "RMS norm and layer norm"),
    _same("memory", "#5348D0", "allocating, copying and moving memory", _WHITE),
    _same("system", "#FFE66A", "the operating system's kernel"),
    Tone("python", Shade("#E4ECF0", "#3A444D", _DARK, _WHITE), "Python code and the interpreter"),
    _same("native", "#AEABBE", "other compiled code"),
)
PALETTE: Mapping[str, Tone] = MappingProxyType({each.name: each for each in _TONES})

UNKNOWN = Tone(
    "unknown",
    Shade("#F7F7F7", "#161B22", _DARK, _WHITE),
    "a category that this version does not know",
)


def tone(category: str) -> Tone:
    """Return the tone of ``category``; one that is not in the palette gets ``UNKNOWN``."""
    return PALETTE.get(category, UNKNOWN)


def shades() -> dict[str, Shade]:
    """Return the colours of every class of box in a flame graph."""
    return {each.name: each.shade for each in (*_TONES, UNKNOWN)} | {"floor": FLOOR}
