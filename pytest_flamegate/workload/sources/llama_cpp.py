"""The performance lines of llama.cpp's programs, of all the versions that print them.

``llama_print_timings:``, ``llama_perf_context_print:`` and ``common_perf_print:`` say the same
in the same words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_flamegate.workload.sources.base import bad_figure, figure, told

if TYPE_CHECKING:
    from pytest_flamegate.workload.sources.base import Heard, Told

_LINE = re.compile(
    r"\b(?:llama_print_timings|llama_perf_context_print|common_perf_print):\s*"
    r"(load|prompt eval|eval|total) time\s*=\s*(\S+)\s*ms(.*)"
)
_COUNTED = re.compile(r"/\s*(\S+)\s*(?:tokens|runs)")
_RATE = re.compile(r",\s*(\S+)\s*tokens per second")


class LlamaCpp:
    """Load, prompt evaluation, evaluation and total.

    The first token comes of the prompt's evaluation, so an answer has one token more than
    ``eval time`` has runs; where the model ended its answer itself, the last of them is the
    one that ends it, which is not printed.
    """

    name = "llama.cpp"
    markers = (
        b"llama_print_timings:",
        b"llama_perf_context_print:",
        b"llama_perf_sampler_print:",
        b"common_perf_print:",
    )
    source = "llama.cpp:perf"

    def read(self, heard: Heard) -> Told | None:
        """Return what the last performance lines say."""
        figures: dict[str, float] = {}
        for line in heard.lines:
            if (found := _LINE.search(line)) is not None:
                figures |= self._figures(found[1], found[2], found[3])
        return told(self.source, figures, extra_tokens=1) if figures else None

    def _figures(self, phase: str, took_ms: str, rest: str) -> dict[str, float]:
        if phase in ("load", "total"):
            return {f"{phase}_ms": figure(self.source, f"{phase}_ms", took_ms)}
        prefill = phase == "prompt eval"
        names = (
            ("prefill_ms", "prompt_tokens", "prefill_tokens_per_second")
            if prefill
            else ("decode_ms", "tokens", "tokens_per_second")
        )
        figures = {names[0]: figure(self.source, names[0], took_ms)}
        if (counted := _COUNTED.search(rest)) is not None:
            runs = figure(self.source, names[1], counted[1])
            figures |= {names[1]: runs} if prefill else {"tokens": runs + 1, "decode_tokens": runs}
        if (rate := _RATE.search(rest)) is not None:
            figures[names[2]] = figure(self.source, names[2], rate[1])
            self._adds_up(figures, names, 0 if prefill else 1)
        return figures

    def _adds_up(self, figures: dict[str, float], names: tuple[str, str, str], less: int) -> None:
        """Refuse a line whose rate is not its count by its time."""
        took_ms, counted = figures[names[0]], figures.get(names[1], 0.0) - less
        if took_ms < 10.0 or counted <= 0:
            return
        rate = counted * 1e3 / took_ms
        if abs(figures[names[2]] - rate) > 0.01 * rate + 0.01:
            raise bad_figure(
                self.source,
                f"{figures[names[2]]:g} for {names[2]}, where {counted:g} in {took_ms:g} ms "
                f"are {rate:.2f}",
            )
