"""What an engine says of itself: figures by its own clocks, kernels by its own count.

None of it was observed. It is kept beside what was, with the name of who said it, and where
the two can be compared they have to agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Report:
    """What one source said of one run, or of one sequence of it.

    ``source`` names who said it and how it was read, such as ``llama.cpp:perf``. ``figures``
    carry their unit in their name: ``tokens``, ``prompt_tokens`` (counts), ``load_ms``,
    ``prefill_ms``, ``decode_ms``, ``total_ms``, ``embed_us``, ``forward_us``, ``logits_us``,
    ``sample_us``, ``tokens_per_second``, ``prefill_tokens_per_second``. ``kernels`` maps the
    name of a kernel to how often the engine says it ran.
    """

    source: str
    figures: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    kernels: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
