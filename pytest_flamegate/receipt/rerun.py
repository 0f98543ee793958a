"""Read the recipe in an evidence as a workload, and find the declared workload that equals it.

A recipe is foreign text: it is parsed by the rules for declarations, and nothing here runs it. A
value matches any value in place of what was redacted, if the evidence lists its place.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_flamegate.config.workload import Workload, parse_injection, require_known_keys
from pytest_flamegate.core.errors import ReceiptError, UsageError
from pytest_flamegate.core.json import encode_plain
from pytest_flamegate.engines import OPTIONS, engine
from pytest_flamegate.engines.base import ENGINE_KEYS
from pytest_flamegate.engines.declare import from_table
from pytest_flamegate.observe.redact import REDACTED
from pytest_flamegate.receipt.compose import recipe

RUNS = (
    *("engine", "command", "target", "build", "env", "prompt", "prompts", "max_tokens", "seed"),
    *("threads", "token_unit", "tokenizer", *OPTIONS),
)
"""The parts of a recipe that decide which program runs, and how.

The model is known by its digest, not its place.
"""
_PLACE = "evidence.workload."
"""How the places of a recipe begin in the evidence's list of redacted ones."""
_MAY_BE_EMPTY = ("command", "build", "env")
NOT_RUN = frozenset({"name", "source", "timeout_s", "injection"})
"""The parts that do not decide how the unchanged code runs."""
_KNOWN = frozenset({*RUNS, *NOT_RUN, "model"})


def parse_recipe(stated: Mapping[str, Any], directory: Path) -> Workload:
    """Return the workload that a recipe describes, as of the project ``directory``.

    It equals the measured one in everything that decides how it runs; a recipe has neither
    thresholds nor options of the profiler. ReceiptError ``E_REPLAY_RECIPE`` if it could not have
    been declared.
    """
    plain = encode_plain(stated)
    try:
        require_known_keys(plain, _KNOWN, "recipe")
        name, source = (_read_text(plain, key) or "" for key in ("name", "source"))
        table = {
            key: value
            for key, value in plain.items()
            if key not in NOT_RUN and (value or key not in _MAY_BE_EMPTY)
        }
        if "timeout_s" in plain:
            table["timeout"] = plain["timeout_s"]
        chosen = engine(_read_text(plain, "engine") or "")
        if "token_unit" in ENGINE_KEYS - chosen.keys and table.get("token_unit") == "byte":
            del table["token_unit"]
        injection = _read_text(plain, "injection")
        return replace(
            from_table(name, table, directory / "recipe"),
            source=source,
            injection=None if injection is None else parse_injection(injection),
        )
    except UsageError as error:
        raise ReceiptError(
            "E_REPLAY_RECIPE",
            f"The recipe in the evidence cannot be run: {error.code}: {error.problem}",
        ) from None


def _read_text(stated: Mapping[str, Any], key: str) -> str | None:
    value = stated.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError("E_BAD_VALUE", f"The recipe's {key} is not text.")
    return value


def find_declared(
    stated: Mapping[str, Any], declared: Sequence[Workload], redacted: Collection[str] = ()
) -> Workload | None:
    """Return the declared workload that runs as the recipe states, first one of the same name.

    ``redacted`` are the places that the evidence lists.
    """
    found = [each for each in declared if not find_differences(stated, each, redacted)]
    same = (each for each in found if each.name == stated.get("name"))
    return next(same, next(iter(found), None))


def find_differences(
    stated: Mapping[str, Any], declared: Workload, redacted: Collection[str] = ()
) -> list[str]:
    """Return the parts of the recipe in which the declared workload differs."""
    compared = compare_recipes(stated, recipe(declared), redacted)
    return [name for name, *_ in compared if name not in {*NOT_RUN, "model"}]


def compare_recipes(
    stated: Mapping[str, Any], here: Mapping[str, Any], redacted: Collection[str] = ()
) -> Iterator[tuple[str, object, object]]:
    """Yield name and both values of each part in which two recipes differ, by name.

    ``redacted`` are the places that the evidence of ``stated`` lists: a text there matches any
    text in place of each redacted part.
    """
    for name in sorted({*stated, *here}, key=str):
        old, new = stated.get(name), here.get(name)
        is_equal = _matches(old, new, f"{_PLACE}{name}", redacted)
        if not is_equal or (name not in here and name not in _KNOWN):
            yield str(name), old, new


def find_redacted(stated: Mapping[str, Any]) -> list[str]:
    """Return the parts of the recipe whose values were redacted."""
    return [
        name + (f".{key}" if key else "")
        for name in (*RUNS, "model")
        for key, value in _list_texts(stated.get(name))
        if REDACTED in value
    ]


def _list_texts(value: object) -> Iterable[tuple[str, str]]:
    if isinstance(value, str):
        yield "", value
    elif isinstance(value, Mapping):
        yield from ((str(key), each) for key, each in value.items() if isinstance(each, str))
    elif isinstance(value, (list, tuple)):
        yield from (("", each) for each in value if isinstance(each, str))


def _matches(stated: object, here: object, place: str, redacted: Collection[str]) -> bool:
    if isinstance(stated, str) and isinstance(here, str):
        return stated == here or (place in redacted and _matches_text(stated, here))
    if isinstance(stated, (list, tuple)) and isinstance(here, (list, tuple)):
        return len(stated) == len(here) and all(
            _matches(old, new, f"{place}[{index}]", redacted)
            for index, (old, new) in enumerate(zip(stated, here, strict=True))
        )
    if isinstance(stated, Mapping) and isinstance(here, Mapping):
        return stated.keys() == here.keys() and all(
            _matches(stated[key], here[key], f"{place}.{key}", redacted) for key in stated
        )
    return type(stated) is type(here) and stated == here


def _matches_text(stated: str, here: str) -> bool:
    """Whether the texts are equal, with any text in place of each redacted part."""
    pieces = stated.split(REDACTED)
    if len(pieces) == 1:
        return stated == here
    # Each middle piece is taken at its first place: plain ".*" can take forever.
    first, *between, last = map(re.escape, pieces)
    middle = "".join(f"(?>.*?{piece})" for piece in between)
    return re.fullmatch(f"{first}{middle}.*{last}", here, re.DOTALL) is not None
