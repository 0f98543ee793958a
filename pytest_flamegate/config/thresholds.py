"""Thresholds: how much worse is allowed, and how much evidence a verdict needs.

People write thresholds with their units: ``"5%"`` of tokens per second, ``"3pp"`` (percentage
points) of a share, ``"1.5us"`` a call. They are declared in layers: the project's configuration,
then the workload's own declaration, then a test's marker. A layer overrides the layers below it,
frame by frame and brick by brick; anything it leaves out stays as it was.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.text import format_value

MIN_PROCESSES = 3
"""Fewer independent processes than this give no useful interval."""
SAMPLE_FLOOR = 200
"""With fewer samples no hotspot is named: a share of 50 % would be off by 7 points."""
STACK_FLOOR = 0.5
"""If the workload is in a smaller part of the stacks, the profile shows mostly other work."""
MAX_CPU_PRESSURE_PCT = 50.0
"""Above this the CPUs were contended; the measured spread of fresh processes doubles there."""
MAX_WAITING = 0.25
"""A process that waits for a CPU for a larger part of its time measures the machine's load."""
MIN_BRICK_PASSES = 5
"""With fewer bricks runs no brick is held to its budget."""
MIN_BRICK_COVERAGE = 0.5
"""If the marks cover less of the wall time, no cost per token is derived from them."""

DEFAULT_SHARE_PP = 5.0
THRESHOLD_TABLES = ("hotspots", "bricks", "counts")
"""The keys whose values are tables, which a layer overrides entry by entry."""
THRESHOLD_KEYS = ("tokens_per_second", *THRESHOLD_TABLES)


@dataclass(frozen=True, slots=True)
class BrickBudget:
    """The allowed cost of one brick; None if that cost is not limited.

    Attributes:
        per_call_us: The most that one call may take, in microseconds of its own time.
        growth_pct: How much its cost per token may grow, in percent.
    """

    per_call_us: float | None = None
    growth_pct: float | None = None


@dataclass(frozen=True, slots=True)
class CallLimit:
    """How much more often the functions that match ``pattern`` may be called.

    ``rise`` is in calls per token, or in percent of the calls before.
    """

    pattern: str
    rise: float
    is_percent: bool = False

    def matches(self, function: str) -> bool:
        """Whether the limit is of that function."""
        return self.pattern == function or fnmatchcase(function, self.pattern)

    def highest(self, before: float) -> float:
        """Return the most calls that are allowed after ``before``."""
        return before * (1.0 + self.rise / 100.0) if self.is_percent else before + self.rise


def find_call_limit(limits: Mapping[str, CallLimit], function: str) -> CallLimit | None:
    """Return the limit of a function: its own, else that of the longest pattern."""
    found = [limit for limit in limits.values() if limit.matches(function)]
    return max(found, key=lambda each: (each.pattern == function, len(each.pattern)), default=None)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How much worse is allowed.

    Attributes:
        tokens_per_second_pct: The allowed drop of tokens per second, in percent.
        hotspots_pp: The allowed drift of each frame's share of the profile, in percentage points;
            ``*`` stands for every other frame.
        bricks: The budgets by brick, ``*`` for every other one. Empty: no brick is gated.
        counts: The limits of calls per token by pattern. Empty: no calls are gated.
    """

    tokens_per_second_pct: float = 5.0
    hotspots_pp: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({"*": DEFAULT_SHARE_PP})
    )
    bricks: Mapping[str, BrickBudget] = field(default_factory=lambda: MappingProxyType({}))
    counts: Mapping[str, CallLimit] = field(default_factory=lambda: MappingProxyType({}))

    def share_pp(self, frame: str) -> float:
        """Return the allowed drift of ``frame``'s share, in percentage points."""
        return self.hotspots_pp.get(frame, self.hotspots_pp.get("*", DEFAULT_SHARE_PP))


DEFAULT_THRESHOLDS = Thresholds()
_FIGURE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%|pp)\s*")
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|μs|ms)\s*")
_RISE = re.compile(r"\s*\+?(\d{1,9}(?:\.\d{1,9})?)\s*(%?)\s*")
_US = {"ns": 1e-3, "ms": 1e3}
# A comma within brackets belongs to the frame: std::map<int, int>::at.
_BETWEEN_ENTRIES = re.compile(r"\n|,(?![^<(\[]*[>)\]])")


def parse_thresholds(
    given: Mapping[str, Any], prefix: str, below: Thresholds = DEFAULT_THRESHOLDS
) -> Thresholds:
    """Return the thresholds of one layer over those of the layers ``below`` it.

    Of ``given``, ``THRESHOLD_KEYS`` are read: ``tokens_per_second`` is ``"5%"``, ``hotspots`` a
    table of ``"3pp"`` by frame, ``bricks`` one of ``"1.5us"``, ``"10%"`` or both in a list,
    ``counts`` one of ``"+1"`` or ``"10%"`` by pattern; None sets none. Raises ``UsageError``
    ``E_BAD_THRESHOLD``, which names ``prefix``, the key and the value.
    """
    drop, hotspots, bricks, counts = (given.get(key) for key in THRESHOLD_KEYS)
    drop_pct, shares_pp = below.tokens_per_second_pct, below.hotspots_pp
    if drop is not None:
        drop_pct = _figure(drop, "%", f"{prefix}tokens_per_second")
    if hotspots is not None:
        table = _table(hotspots, f"{prefix}hotspots", '{ "rms_norm" = "3pp", "*" = "5pp" }')
        layer = {str(k): _figure(v, "pp", f"{prefix}hotspots.{k}") for k, v in table.items()}
        shares_pp = MappingProxyType({**shares_pp, **layer})
    budgets = below.bricks
    if bricks is not None:
        table = _table(bricks, f"{prefix}bricks", '{ RmsNorm = "1.5us", "*" = "15%" }')
        ours = {str(name): _budget(value, str(name), prefix) for name, value in table.items()}
        # The gate resolves aliases of bricks, and takes the last: so this layer goes last.
        rest = {name: budget for name, budget in budgets.items() if name not in ours}
        budgets = MappingProxyType({**rest, **ours})
    limits = below.counts
    if counts is not None:
        table = _table(counts, f"{prefix}counts", '{ "project" = "0", "*" = "+1" }')
        parsed = {str(name): _limit(str(name), value, prefix) for name, value in table.items()}
        limits = MappingProxyType({**limits, **parsed})
    return Thresholds(drop_pct, shares_pp, budgets, limits)


def parse_hotspots(text: str | list[str], key: str) -> dict[str, str]:
    """Return the table that ``"rms_norm=3pp, *=5pp"`` holds, in one text or one line a frame.

    Raises ``UsageError`` ``E_BAD_THRESHOLD``, which names ``key``.
    """
    table: dict[str, str] = {}
    for entry in map(str, _BETWEEN_ENTRIES.split(text) if isinstance(text, str) else text):
        frame, _, figure = (part.strip() for part in entry.rpartition("="))
        if frame and frame not in table:
            table[frame] = figure
        elif entry.strip():
            raise _error(key, text, "Write each frame once, with its limit: rms_norm=3pp, *=5pp.")
    return table


def _error(key: str, value: object, remedy: str) -> UsageError:
    return UsageError("E_BAD_THRESHOLD", f"{key} is {format_value(value)}.", remedy)


def _table(value: object, key: str, example: str) -> Mapping[object, object]:
    if not isinstance(value, Mapping):
        name = key.split()[-1].removeprefix("flamegate_")
        raise _error(key, value, f"Write a table: {name} = {example}.")
    return value


def _budget(value: object, name: str, prefix: str) -> BrickBudget:
    key = f"{prefix}bricks.{name}"
    entries = value if isinstance(value, list | tuple) else [value]
    times = [time for each in entries if (time := _time(each))]
    growths = [each for each in entries if not _time(each)]
    max_times = 0 if name == "*" else 1
    readable = all(isinstance(each, str) and "%" in each for each in growths)
    if not (entries and readable and name.strip()) or len(times) > max_times or len(growths) > 1:
        remedy = (
            'Write how much any other brick may grow: "15%".'
            if name == "*"
            else 'Name a brick, and write the limit of one call, "1.5us", of the growth of its '
            'cost per token, "10%", or both: ["1.5us", "10%"].'
        )
        raise _error(key, value, remedy)
    growth_pct = _figure(growths[0], "%", key) if growths else None
    return BrickBudget(times[0] if times else None, growth_pct)


def _limit(pattern: str, value: object, prefix: str) -> CallLimit:
    match = _RISE.fullmatch(value) if isinstance(value, str) else None
    if match is None or not pattern.strip():
        remedy = 'Name a function, and how much more often it may be called: "0", "+1" or "+10%".'
        raise _error(f"{prefix}counts.{pattern}", value, remedy)
    return CallLimit(pattern, float(match[1]), is_percent=bool(match[2]))


def _time(value: object) -> float | None:
    """Return a time above zero in microseconds, None for anything else."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    time_us = float(match[1]) * _US.get(match[2], 1.0) if match else 0.0
    return time_us if 0.0 < time_us < math.inf else None


def _figure(value: object, unit: str, key: str) -> float:
    match = _FIGURE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2] != unit or not 0 < float(match[1]) < 100:
        remedy = f'Write a number above 0 and below 100 with its unit: "5{unit}".'
        raise _error(key, value, remedy)
    return float(match[1])
