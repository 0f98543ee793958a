"""What programs say of themselves: one file a source, read when the run is over.

A new source is one file here and one line in ``SOURCES``. Nothing of it is gated alone: it
is shown beside what was observed, and where two say different things that is a refusal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload.sources.base import bad_figure
from pytest_flamegate.workload.sources.llama_cpp import LlamaCpp
from pytest_flamegate.workload.sources.quant_dispatch import QuantDispatch
from pytest_flamegate.workload.sources.receipt import Receipt
from pytest_flamegate.workload.sources.timing import Timing

if TYPE_CHECKING:
    from pytest_flamegate.workload.sources.base import Heard, Source, Told

SOURCES: dict[str, tuple[Source, ...]] = {
    "timing": (Timing(), QuantDispatch()),
    "llama.cpp": (LlamaCpp(),),
    "receipt": (Receipt(),),
}
"""What can be asked for by name in ``figures``, and the sources that are read then."""
WITHOUT_ASKING = ("timing", "llama.cpp")
"""Read wherever they are; the others take an option that says where or how."""

_NO_RATE = re.compile(
    r"(?<![\w.])([-+]?(?:inf(?:inity)?|nan))\s*(?:tokens?|tok|t)\s*(?:per second|/\s*s)", re.I
)


@dataclass(frozen=True, slots=True)
class Hearing:
    """Which sources a run is read with.

    ``named`` are those that were asked for, by an option or by name: one of them that says
    nothing is a refusal. ``receipt`` is the file that the program writes, relative to the
    directory it runs in.
    """

    sources: tuple[Source, ...] = ()
    named: frozenset[str] = frozenset()
    receipt: str | None = None

    @property
    def markers(self) -> tuple[bytes, ...]:
        """How lines on standard output begin that are no part of the answer."""
        return tuple(marker for source in self.sources for marker in source.markers)

    def hear(self, heard: Heard) -> tuple[Told, ...]:
        """Return what each source says.

        ``ToolError``: ``E_SOURCE_MISSING`` where one was asked for and says nothing,
        ``E_BAD_FIGURE`` for a figure that cannot be, ``E_BAD_SOURCE`` for what cannot be read.
        """
        said = {source.name: source.read(heard) for source in self.sources}
        for name in sorted(self.named):
            if said[name] is None:
                raise ToolError(
                    "E_SOURCE_MISSING",
                    f"The program was to report on itself ({name}), and did not in this run.",
                    "Run it by itself to see what it prints or writes; timing lines may have "
                    "to be turned on (BITNET_TRACE_TIMING=1).",
                )
        if self.sources and (endless := _NO_RATE.search(f"{heard.stderr}\n{heard.stdout}")):
            raise bad_figure("its output", f"{endless[0]!r}")
        return tuple(each for each in said.values() if each is not None)


SILENT = Hearing()
