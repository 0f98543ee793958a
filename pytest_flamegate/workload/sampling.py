"""How a workload asks to be profiled: its table ``[workloads.NAME.profile]``."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_flamegate.errors import UsageError
from pytest_flamegate.workload.spec import Sampling
from pytest_flamegate.workload.toml_file import known, told

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def sampling(table: Mapping[str, Any], where: str) -> Sampling:
    """Return what ``table`` asks for; ``where`` names the workload.

    ``UsageError``: ``E_UNKNOWN_KEY``, ``E_BAD_VALUE``.
    """
    where = f"{where}, profile"
    known(table, {field.name for field in fields(Sampling)}, where)
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


def _refuse(where: str, key: str, value: object, todo: str) -> NoReturn:
    raise UsageError("E_BAD_VALUE", f"{where}: {key} is {told(value)}.", todo)
