"""From the recipe in an evidence back to the workload, and whether one declared here is it.

A recipe is foreign text: it is read by the very rules for declarations, and nothing here
runs it. What was taken out of it as a secret matches anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_flamegate.config.toml import require_known_keys
from pytest_flamegate.config.workload import parse_injection
from pytest_flamegate.core.errors import ReceiptError, UsageError
from pytest_flamegate.core.json import encode_plain
from pytest_flamegate.engines import OPTIONS, engine
from pytest_flamegate.engines.base import ENGINE_KEYS
from pytest_flamegate.engines.declare import from_table
from pytest_flamegate.observe.redact import REDACTED
from pytest_flamegate.receipt.compose import recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_flamegate.config.workload import Workload


RUNS = (
    "engine",
    "command",
    "target",
    "build",
    "env",
    "prompt",
    "max_tokens",
    "seed",
    "threads",
    "token_unit",
    "tokenizer",
    *OPTIONS,
)
"""The parts of a recipe that decide what runs and what it is told.

The model is not among them: it is known by its digest, wherever it lies.
"""
_ALWAYS_TOLD = ("command", "build", "env")
_SAID_ELSEWHERE = frozenset({"name", "source", "timeout_s", "injection"})
_KNOWN = frozenset({*RUNS, *_SAID_ELSEWHERE, "model"})


def workload_of(told: Mapping[str, Any], directory: Path) -> Workload:
    """Return the workload that the recipe ``told`` describes, as of the project ``directory``.

    Equal to the one that was measured in all that decides how it runs; thresholds and
    how it was profiled are no part of a recipe. ``ReceiptError`` ``E_REPLAY_RECIPE`` where
    it is none that could have been declared.
    """
    try:
        return _workload_of(encode_plain(told), directory)
    except UsageError as error:
        raise ReceiptError(
            "E_REPLAY_RECIPE",
            f"The evidence's recipe cannot be run: {error.code}: {error.problem}",
            "Measure again with this version, which writes recipes that can be run.",
        ) from None


def _workload_of(told: Mapping[str, Any], directory: Path) -> Workload:
    require_known_keys(told, _KNOWN, "recipe")
    name, source = (_text(told, key) or "" for key in ("name", "source"))
    table = {key: value for key, value in told.items() if key not in _SAID_ELSEWHERE}
    for key in _ALWAYS_TOLD:
        if not table.get(key):
            table.pop(key, None)
    if "timeout_s" in told:
        table["timeout"] = told["timeout_s"]
    chosen = engine(_text(told, "engine") or "")
    if "token_unit" in ENGINE_KEYS - chosen.keys and table.get("token_unit") == "byte":
        del table["token_unit"]
    injection = _text(told, "injection")
    return replace(
        from_table(name, table, directory / "recipe"),
        source=source,
        injection=None if injection is None else parse_injection(injection),
    )


def _text(told: Mapping[str, Any], key: str) -> str | None:
    value = told.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError("E_BAD_VALUE", f"The recipe's {key} is no text.", "Write it as text.")
    return value


def same_run(told: Mapping[str, Any], declared: Sequence[Workload]) -> Workload | None:
    """Return the declared workload that runs the same as the recipe ``told``; None for none.

    The one of the same name goes before the others.
    """
    found = [each for each in declared if not differing(told, each)]
    return next((each for each in found if each.name == told.get("name")), next(iter(found), None))


def differing(told: Mapping[str, Any], declared: Workload) -> list[str]:
    """Return the parts of the recipe ``told`` in which the workload declared here differs."""
    here = recipe(declared)
    unknown = sorted(map(str, set(told) - _KNOWN))
    return [*(name for name in RUNS if not _alike(told.get(name), here.get(name))), *unknown]


def redacted_parts(told: Mapping[str, Any]) -> list[str]:
    """Return the parts of the recipe ``told`` whose values were not written down."""
    return [
        name + (f".{key}" if key else "")
        for name in (*RUNS, "model")
        for key, value in _texts(told.get(name))
        if REDACTED in value
    ]


def _texts(value: object) -> Iterable[tuple[str, str]]:
    if isinstance(value, str):
        yield "", value
    elif isinstance(value, Mapping):
        yield from ((str(key), each) for key, each in value.items() if isinstance(each, str))
    elif isinstance(value, (list, tuple)):
        yield from (("", each) for each in value if isinstance(each, str))


def _alike(told: object, here: object) -> bool:
    if isinstance(told, str) and isinstance(here, str):
        return _fits(told.split(REDACTED), here)
    if isinstance(told, (list, tuple)) and isinstance(here, (list, tuple)):
        return len(told) == len(here) and all(map(_alike, told, here))
    if isinstance(told, Mapping) and isinstance(here, Mapping):
        return told.keys() == here.keys() and all(_alike(told[key], here[key]) for key in told)
    return type(told) is type(here) and told == here


def _fits(pieces: Sequence[str], text: str) -> bool:
    """Whether ``text`` is made of ``pieces`` with anything at all between each two of them."""
    first, *between = pieces
    if not between:
        return text == first
    last = between.pop()
    at, end = len(first), len(text) - len(last)
    if end < at or not (text.startswith(first) and text.endswith(last)):
        return False
    for piece in between:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True
