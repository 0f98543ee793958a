"""What an engine says of itself: figures by its own clocks, kernels by its own count.

None of it was observed. It is kept beside what was, with the name of who said it, and where
the two can be compared they have to agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pytest_flamegate.errors import ToolError

_LONGEST = 256
_MOST = 4096
_MOST_FACTS = 64


@dataclass(frozen=True, slots=True)
class Report:
    """What one source said of one run, or of one sequence of it.

    ``source`` names who said it and how it was read, such as ``llama.cpp:perf``. ``figures``
    carry their unit in their name: ``tokens``, ``prompt_tokens``, ``decode_tokens`` (counts;
    the last is of what came in ``decode_ms``, which the first token may not have), ``load_ms``,
    ``prefill_ms``, ``decode_ms``, ``total_ms``, ``embed_us``, ``forward_us``, ``logits_us``,
    ``sample_us``, ``tokens_per_second``, ``prefill_tokens_per_second``. ``kernels`` maps the
    name of a kernel to how often the engine says it ran.
    """

    source: str
    figures: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    kernels: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


def read_report(told: object) -> Report:
    """Return the report that plain data describes: ``source``, ``figures`` and ``kernels``.

    ``ToolError`` ``E_BAD_REPORT`` for another shape, and for what ``report`` refuses.
    """
    if not isinstance(told, Mapping) or not told.keys() <= {"source", "figures", "kernels"}:
        raise _bad("it is no object of source, figures and kernels")
    return report(told.get("source"), told.get("figures"), told.get("kernels"))


def report(source: object, figures: object = None, kernels: object = None) -> Report:
    """Return what ``source`` said; whoever reads an engine's word makes its report here.

    ``ToolError`` ``E_BAD_REPORT`` for a nameless source, a figure that is no finite number from
    0 up, a count that is no whole one, and for more names or longer ones than any engine has.
    """
    if not _is_name(source):
        raise _bad(f"its source is {_shown(source)}")
    figures, kernels = figures or {}, kernels or {}
    for part in (figures, kernels):
        if not isinstance(part, Mapping) or len(part) > _MOST or not all(map(_is_name, part)):
            raise _bad("its figures and kernels are not values by name")
    assert isinstance(figures, Mapping)
    assert isinstance(kernels, Mapping)
    for name, value in figures.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value <= 2**63:
            raise _bad(f"the figure {_shown(name)} is {_shown(value)}")
    for name, value in kernels.items():
        if type(value) is not int or not 0 <= value <= 2**63:
            raise _bad(f"the kernel {_shown(name)} ran {_shown(value)} times")
    return Report(
        str(source),
        MappingProxyType({name: float(value) for name, value in figures.items()}),
        MappingProxyType(dict(kernels)),
    )


def read_facts(told: object) -> Mapping[str, str]:
    """Return what an engine says that it is: texts by name. ``ToolError`` ``E_BAD_FACTS``."""
    if (
        not isinstance(told, Mapping)
        or len(told) > _MOST_FACTS
        or not all(map(_is_name, told))
        or not all(isinstance(value, str) and len(value) <= _MOST for value in told.values())
    ):
        raise ToolError(
            "E_BAD_FACTS",
            f"What the engine says that it is cannot be read: {_shown(told)}.",
            "Have its facts be a mapping of short names to texts, such as the library's version.",
        )
    return MappingProxyType(dict(told))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= _LONGEST


def _shown(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "not finite"
    return ascii(value)[:80]


def _bad(why: str) -> ToolError:
    return ToolError(
        "E_BAD_REPORT",
        f"What the engine reports of itself cannot be read: {why}.",
        "Have it report a source, figures that are finite numbers from 0 up, and whole counts.",
    )
