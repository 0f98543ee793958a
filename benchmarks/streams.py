"""Measured pairs as ``pair_streams.py`` keeps them, read back in the order they were measured."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_flamegate.core.errors import UsageError, system_errors

Cell = tuple[str, float]
"""A load and the extra work beside it, in percent of the whole."""


@dataclass(frozen=True, slots=True)
class Process:
    """One side of a pair: seconds per token on two clocks, and wall seconds of each 16 tokens."""

    quiet_s: float
    cpu_s: float
    wall_s: tuple[float, ...]

    def scaled(self, factor: float) -> Process:
        """Return the process as if all had taken ``factor`` times as long."""
        wall_s = tuple(factor * each for each in self.wall_s)
        return Process(factor * self.quiet_s, factor * self.cpu_s, wall_s)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two fresh processes that shared a core: without and with ``effect_pct`` % more work.

    ``at_s`` is when they ended (seconds since 1970), ``took_s`` the duration of both together.
    """

    effect_pct: float
    load: str
    at_s: float
    took_s: float
    base: Process
    head: Process

    @property
    def difference(self) -> float:
        """How much longer head took per token, as natural logarithm: the gate's input."""
        return math.log(self.head.quiet_s / self.base.quiet_s)

    def swapped(self) -> Pair:
        """Return the pair with its sides exchanged."""
        return Pair(self.effect_pct, self.load, self.at_s, self.took_s, self.head, self.base)

    def slowed(self, factor: float, effect_pct: float) -> Pair:
        """Return the pair as if head had taken ``factor`` times as long: computed, not measured."""
        head = self.head.scaled(factor)
        return Pair(effect_pct, self.load, self.at_s, self.took_s, self.base, head)


def read(paths: Iterable[Path]) -> list[Pair]:
    """Return all pairs of some files (JSON lines, packed with gzip or not), in their order.

    Raises UsageError ``E_BAD_PAIRS`` for a line that is no pair and for no pairs at all,
    ToolError if a file cannot be read.
    """
    pairs: list[Pair] = []
    for path in paths:
        with system_errors():
            raw = path.read_bytes()
        try:
            text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
        except (EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
            raise _bad(f"{path.name} cannot be unpacked: {error}.") from error
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                pairs.append(_pair(line, f"{path.name}, line {number}"))
    if not pairs:
        raise _bad("The files hold no pairs.")
    return pairs


def cells(pairs: Iterable[Pair]) -> dict[Cell, list[Pair]]:
    """Return the pairs of each load and effect, each in the order of measurement."""
    found: dict[Cell, list[Pair]] = {}
    for pair in pairs:
        found.setdefault((pair.load, pair.effect_pct), []).append(pair)
    return found


def apart(pairs: Sequence[Pair]) -> tuple[list[Process], list[Process]]:
    """Return the base of every first pair and the head of every second: a process at a time.

    For methods that do not measure in pairs: the two of a pair shared a core, so most of the
    load on one was a load on the other. Two pairs give one process a side, and each of
    them costs half a pair.
    """
    return [pair.base for pair in pairs[::2]], [pair.head for pair in pairs[1::2]]


def _pair(line: str, where: str) -> Pair:
    try:
        record = json.loads(line)
        pair = Pair(
            float(record["effect_pct"]),
            str(record["load"]),
            float(record["at"]),
            float(record["took_s"]),
            _process(record["base"]),
            _process(record["head"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _bad(f"{where} is no pair ({type(error).__name__}: {error}).") from error
    numbers = [pair.took_s]
    for side in (pair.base, pair.head):
        numbers += [side.quiet_s, side.cpu_s, *side.wall_s]
    if not all(math.isfinite(n) and n > 0.0 for n in numbers):
        raise _bad(f"{where} holds a time that is not above zero.")
    if not (math.isfinite(pair.effect_pct) and pair.effect_pct >= 0.0):
        raise _bad(f"{where} has an effect of {pair.effect_pct:g} %.")
    return pair


def _process(record: Mapping[str, object]) -> Process:
    wall_s = record["wall_s"]
    if not isinstance(wall_s, list):
        raise TypeError("wall_s is no list")
    return Process(
        float(str(record["quiet_s"])), float(str(record["cpu_s"])), tuple(float(n) for n in wall_s)
    )


def _bad(what: str) -> UsageError:
    return UsageError("E_BAD_PAIRS", what, "Measure again with benchmarks/pair_streams.py.")
