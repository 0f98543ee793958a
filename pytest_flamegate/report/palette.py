"""The colour of each frame category.

Every two fills differ by at least 20 in CIE L*a*b* for normal sight, protanopia,
deuteranopia and tritanopia, and each ink reaches a contrast of 4.5 to 1 on its fill;
the tests hold both. Frames of the interpreter and of unnamed native code are greys, so
that the work of the model stands out.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_DARK = "#14171A"
_WHITE = "#FFFFFF"


@dataclass(frozen=True, slots=True)
class Tone:
    """A category's fill, the ink that reads on it, and what belongs to it in a few words."""

    fill: str
    ink: str
    meaning: str


PALETTE: Mapping[str, Tone] = MappingProxyType(
    {
        "matmul": Tone("#E8971A", _DARK, "matrix multiplication: gemm, gemv, dot products"),
        "quantisation": Tone("#DC6239", _DARK, "packing, unpacking and scaling quantised values"),
        "attention": Tone("#69C6FA", _DARK, "attention, softmax, rotary embedding, KV cache"),
        "norm": Tone("#349874", _DARK, "RMS norm and layer norm"),
        "memory": Tone("#5348D0", _WHITE, "allocating, copying and moving memory"),
        "system": Tone("#FFE66A", _DARK, "the operating system's kernel"),
        "python": Tone("#E4ECF0", _DARK, "Python code and the interpreter"),
        "native": Tone("#AEABBE", _DARK, "other compiled code"),
    }
)

UNKNOWN = Tone("#F7F7F7", _DARK, "a category that this version does not know")


def tone(category: str) -> Tone:
    """Return the tone of ``category``; one that is not in the palette gets ``UNKNOWN``."""
    return PALETTE.get(category, UNKNOWN)
