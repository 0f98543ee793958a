"""Thresholds as people write them: "5%" of tokens per second, "3pp" of a share, "1.5us" a call.

They are declared in layers: the project's configuration, then the workload's own
declaration, then a test's marker. What a layer says wins over the layers below it, frame
by frame and brick by brick; what it does not say stays as it was.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, NoReturn

from pytest_flamegate.config.toml import format_value, require_known_keys
from pytest_flamegate.config.workload import BrickBudget, Sampling, Thresholds
from pytest_flamegate.core.errors import UsageError

MAX_RATE_HZ = 100_000
MAX_STACK_BYTES = 65528
CALL_GRAPHS = f"fp, none, or dwarf,BYTES with BYTES from 8 to {MAX_STACK_BYTES} (a multiple of 8)"
_DWARF = re.compile(r"dwarf,([1-9]\d{0,5})")


def is_call_graph(text: str) -> bool:
    """Whether perf can walk stacks so: the kernel copies 65528 bytes of a stack at most."""
    if text in ("fp", "none"):
        return True
    found = _DWARF.fullmatch(text)
    return found is not None and int(found[1]) <= MAX_STACK_BYTES and int(found[1]) % 8 == 0


def parse_sampling(table: Mapping[str, Any], where: str) -> Sampling:
    """Return what ``table`` asks for; ``where`` names the workload.

    ``UsageError``: ``E_UNKNOWN_KEY``, ``E_BAD_VALUE``.
    """
    where = f"{where}, profile"
    require_known_keys(table, {field.name for field in fields(Sampling)}, where)
    rate = table.get("rate_hz")
    # A rate of 0 would have py-spy wait for ever.
    if rate is not None and (type(rate) is not int or not 1 <= rate <= MAX_RATE_HZ):
        _refuse(where, "rate_hz", rate, f"It takes a whole number from 1 to {MAX_RATE_HZ}.")
    graph = table.get("call_graph")
    if graph is not None and not (isinstance(graph, str) and is_call_graph(graph)):
        _refuse(where, "call_graph", graph, f"It takes {CALL_GRAPHS}.")
    for key in ("native", "nonblocking"):
        if not isinstance(table.get(key, False), bool):
            _refuse(where, key, table[key], "It takes true or false.")
    asked = Sampling(**table)
    if asked.native and asked.nonblocking:
        raise UsageError(
            "E_BAD_VALUE",
            f"{where} asks for native and nonblocking together.",
            "Native stacks can be read from a paused process only: drop one of the two.",
        )
    return asked


def _refuse(where: str, key: str, value: object, remedy: str) -> NoReturn:
    raise UsageError("E_BAD_VALUE", f"{where}: {key} is {format_value(value)}.", remedy)


DEFAULT_THRESHOLDS = Thresholds()
_FIGURE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%|pp)\s*")
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|μs|ms)\s*")
_US = {"ns": 1e-3, "ms": 1e3}
_BETWEEN_ENTRIES = re.compile(r"\n|,(?![^<(\[]*[>)\]])")


def parse_thresholds(
    tokens_per_second: object,
    hotspots: object,
    prefix: str,
    below: Thresholds = DEFAULT_THRESHOLDS,
    bricks: object = None,
) -> Thresholds:
    """Return the thresholds of one layer over those of the layers ``below`` it.

    What is None and the frames and bricks that are not named stay as they are below. ``prefix``
    is what stands before the name of a wrong key in the ``UsageError`` ``E_BAD_THRESHOLD``.
    """
    drop_pct, shares_pp = below.tokens_per_second_pct, below.hotspots_pp
    if tokens_per_second is not None:
        drop_pct = _figure(tokens_per_second, "%", f"{prefix}tokens_per_second")
    if hotspots is not None:
        if not isinstance(hotspots, Mapping):
            raise UsageError(
                "E_BAD_THRESHOLD",
                f"{prefix}hotspots is {format_value(hotspots)}, not a table of frames.",
                'Write hotspots = { "rms_norm" = "3pp", "*" = "5pp" }.',
            )
        named = {str(k): _figure(v, "pp", f"{prefix}hotspots.{k}") for k, v in hotspots.items()}
        shares_pp = MappingProxyType({**shares_pp, **named})
    budgets = below.bricks if bricks is None else _budgets(bricks, prefix, below.bricks)
    return Thresholds(drop_pct, shares_pp, budgets)


def parse_hotspots(text: str | list[str], key: str) -> dict[str, str]:
    """Return the table that ``"rms_norm=3pp, *=5pp"`` writes in one text, or one line a frame.

    A comma within brackets belongs to the frame: ``std::map<int, int>::at = 3pp``.
    ``UsageError`` ``E_BAD_THRESHOLD`` names ``key``.
    """
    table: dict[str, str] = {}
    for entry in _BETWEEN_ENTRIES.split(text) if isinstance(text, str) else text:
        frame, _, figure = (part.strip() for part in entry.rpartition("="))
        if frame and frame not in table:
            table[frame] = figure
        elif entry.strip():
            raise UsageError(
                "E_BAD_THRESHOLD",
                f"{key} is {format_value(text)}.",
                "Write each frame once, with what is allowed: rms_norm=3pp, *=5pp.",
            )
    return table


def _budgets(
    table: object, prefix: str, below: Mapping[str, BrickBudget]
) -> Mapping[str, BrickBudget]:
    if not isinstance(table, Mapping):
        raise UsageError(
            "E_BAD_THRESHOLD",
            f"{prefix}bricks is {format_value(table)}, not a table of bricks.",
            'Write bricks = { RmsNorm = "1.5us", "*" = "15%" }.',
        )
    named = {str(name): _budget(value, str(name), prefix) for name, value in table.items()}
    # Under another name a brick may stand below too: what is said last is what counts.
    rest = {name: budget for name, budget in below.items() if name not in named}
    return MappingProxyType({**rest, **named})


def _budget(value: object, name: str, prefix: str) -> BrickBudget:
    where = f"{prefix}bricks.{name}"
    figures = value if isinstance(value, list | tuple) else [value]
    times = [match for each in figures if (match := _time(each))]
    others = [each for each in figures if not _time(each)]
    most = 0 if name == "*" else 1
    understood = all(isinstance(each, str) and "%" in each for each in others)
    if not (figures and understood and name.strip()) or len(times) > most or len(others) > 1:
        raise UsageError(
            "E_BAD_THRESHOLD",
            f"{where} is {format_value(value)}.",
            'Write what every other brick may grow by: "15%".'
            if name == "*"
            else 'Name a brick, and write what one call may cost, "1.5us", how much its cost per '
            'token may grow, "10%", or both: ["1.5us", "10%"].',
        )
    return BrickBudget(
        times[0] if times else None, _figure(others[0], "%", where) if others else None
    )


def _time(value: object) -> float | None:
    """Return a time above zero in microseconds, None for anything else."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    found = float(match[1]) * _US.get(match[2], 1.0) if match else 0.0
    return found if 0.0 < found < math.inf else None


def _figure(value: object, unit: str, where: str) -> float:
    match = _FIGURE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2] != unit or not 0 < float(match[1]) < 100:
        raise UsageError(
            "E_BAD_THRESHOLD",
            f"{where} is {format_value(value)}.",
            f'Write a figure above 0 and below 100 with its unit: "5{unit}".',
        )
    return float(match[1])
