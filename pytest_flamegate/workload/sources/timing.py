"""``timing: embed_us=12 forward_us=345``: how long the phases of a token took, in microseconds."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_flamegate.workload.sources.base import PHASES, figure, told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flamegate.workload.sources.base import Heard, Told

_LINE = re.compile(r"\btiming:\s*(.*)")
_FIGURE = re.compile(r"\b([a-z]+_us)\s*=\s*([^\s,;]+)")


def phases_us(lines: Iterable[str]) -> dict[str, list[float]]:
    """Return all that ``lines`` say of each phase, in microseconds, in the order of ``PHASES``."""
    said: dict[str, list[float]] = {}
    for line in lines:
        if (found := _LINE.search(line)) is None:
            continue
        for name, value in _FIGURE.findall(found[1]):
            if name in PHASES:
                said.setdefault(name, []).append(figure(Timing.name, name, value))
    return {name: said[name] for name in PHASES if name in said}


class Timing:
    """Any of the four phases, together on one line or one a line, once for each token.

    The figure of a run is the median of what its lines say.
    """

    name = "timing"
    markers = (b"timing:",)

    def read(self, heard: Heard) -> Told | None:
        """Return the median of each phase, in microseconds."""
        said = phases_us(heard.lines)
        if not said:
            return None
        medians = {name: statistics.median(values) for name, values in said.items()}
        spent_ms = sum(map(sum, said.values())) / 1e3
        return replace(told(self.name, medians), spent_ms=spent_ms)
