"""An engine that alternates between flamegate's pipe and its own bare loop.

Loaded in the child as ``benchmarks.paired_loops:load_engine``. ``load["inner"]`` is passed to the
real factory. A sequence that is drawn as ``reported`` runs as usual. For another the
child clocks a loop that only collects the tokens, reports its wall and CPU time,
and reports the tokens after the clocks have stopped.
"""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pytest_flamegate.child.serve import Generate, measured_sequences

SOURCE = "bare loop"


def order(seed: int, pairs: int) -> list[bool]:
    """Return which sequences are reported as they run: one of each two, in random order."""
    rng = random.Random(seed)
    return [reported for _ in range(pairs) for reported in rng.sample((True, False), 2)]


def load_engine(load: dict[str, Any]) -> TakesTurns:
    """Load the real engine; ``load`` holds ``inner``, ``seed``, ``warm`` and ``pairs``."""
    module, _, function = load["inner"]["factory"].partition(":")
    generate = getattr(importlib.import_module(module), function)(load["inner"])
    return TakesTurns(generate, [True] * load["warm"] + order(load["seed"], load["pairs"]))


class TakesTurns:
    """Generates as the engine in it does."""

    def __init__(self, generate: Generate, reported: list[bool]) -> None:
        self._generate = generate
        self._told = iter(reported)
        self._reports: list[dict[str, Any]] = []

    def __call__(self, prompt: str, max_tokens: int) -> Iterator[Any]:
        """Yield the tokens of one sequence, all at its end."""
        tokens: list[Any] = []
        self.stream(prompt, max_tokens, tokens.append)
        return iter(tokens)

    def stream(self, prompt: str, max_tokens: int, token: Callable[[Any], None]) -> None:
        """Generate one sequence, and report its tokens as they come or at its end."""
        if next(self._told):
            self._sequence(prompt, max_tokens, token)
            return
        kept: list[Any] = []
        delay, wall, cpu = _run_delay_ns(), time.perf_counter_ns(), time.process_time_ns()
        self._sequence(prompt, max_tokens, kept.append)
        wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
        figures = {"wall_ns": wall, "cpu_ns": cpu, "delay_ns": _run_delay_ns() - delay}
        self._reports.append({"source": SOURCE, "figures": figures})
        for each in kept:
            token(each)

    def reports(self) -> list[dict[str, Any]]:
        """Return the clocks of the collected sequences; the engine's own are dropped."""
        getattr(self._generate, "reports", list)()
        reports, self._reports = self._reports, []
        return reports

    def _sequence(self, prompt: str, max_tokens: int, token: Callable[[Any], None]) -> None:
        measured_sequences(self._generate, prompt, max_tokens, 1, lambda: None, token)


def _run_delay_ns() -> int:
    tasks = Path("/proc/self/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks)
