"""The keys of a declaration: their types, the engines that accept them, invalid combinations."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, get_type_hints

from pytest_flamegate.config import workload
from pytest_flamegate.config.thresholds import THRESHOLD_KEYS
from pytest_flamegate.core.errors import ReceiptError, UsageError
from pytest_flamegate.core.text import find_control_character, format_value, quote_toml
from pytest_flamegate.engines import ENGINES, OPTIONS
from pytest_flamegate.engines.base import ENGINE_KEYS, DeclarationError, Engine

FIELDS = {"timeout": "timeout_s", "profile": "sampling"}
"""The keys whose field of ``Workload`` has another name."""
_COMMON_KEYS = (
    *("engine", "command", "build", "target", "model", "tokenizer", "prompt", "prompts"),
    *("max_tokens", "token_unit", "env", "seed", "threads", "timeout", "profile"),
)
KEYS = frozenset({*_COMMON_KEYS, *THRESHOLD_KEYS, *OPTIONS})
_SYSTEM_TEXTS = ("command", "build", "target", "model", "tokenizer", "serve", "receipt")
REQUIRED = ("prompt", "max_tokens")
_COMMANDS = ("command", "build", "serve")
_OF_SHELL = re.compile(r"[$|&;<>`*?]|(?:^|\s)~|^\s*\w+=")
_EXAMPLES = {
    **{
        name: f'{name} = ["program", "argument"]: one string for each argument, no shell'
        for name in _COMMANDS
    },
    "prompts": 'prompts = ["2+2=", "3+4="]: two at least, no two of them equal',
    "env": 'env = { BITNET_SEED = "42" }: values are strings',
    "library": "no library: llama-cpp-python is a recipe of the engine python",
}


@contextmanager
def name_key(key: str) -> Iterator[None]:
    """Raise a ``UsageError`` of the block as the error of ``key``, which is found in the file."""
    try:
        yield
    except UsageError as error:
        raise DeclarationError(error.problem, error.remedy, key, error.code) from None


def check_keys(table: Mapping[str, Any]) -> None:
    """Raise an error for an unknown key."""
    for key in table:
        with name_key(key):
            workload.require_known_keys({key: None}, KEYS, "it")
    if isinstance(profile := table.get("profile"), dict):
        with name_key("profile"):
            workload.require_known_keys(profile, workload.Sampling.__dataclass_fields__, "profile")


def convert_values(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are given, each of the type that its key takes."""
    import msgspec

    from pytest_flamegate.core.json import decode_plain

    # Thresholds are read, and any error in them is reported, by parse_thresholds.
    given = {key: value for key, value in table.items() if key not in THRESHOLD_KEYS}
    try:
        values = decode_plain(given, _key_types(), subject="it")
    except ReceiptError as error:
        problem = error.problem.removeprefix("it is malformed: ")
        key = problem.split('"')[1]
        name = re.split(r"[.\[]", key)[0]
        remedy = f"Write {_EXAMPLES[name]}." if name in _EXAMPLES else "Correct the value."
        if key == name and name in _COMMANDS and (words := _split(given[name])):
            remedy = f"Write {name} = {quote_toml(words)}."
        raise DeclarationError(problem, remedy, name) from None
    converted = msgspec.structs.asdict(values)
    return {
        key: workload.freeze(each) for key, each in converted.items() if each is not msgspec.UNSET
    }


def _split(command: object) -> list[str]:
    """Return the words of a command line; none if it needs a shell."""
    if not isinstance(command, str) or _OF_SHELL.search(command):
        return []
    with suppress(ValueError):
        return shlex.split(command)
    return []


@cache
def _key_types() -> Any:
    """Return a type with a field for each key, as ``Workload`` or an engine annotates it."""
    import msgspec

    hints = get_type_hints(workload.Workload, include_extras=True)
    kinds = {key: hints[FIELDS.get(key, key)] for key in _COMMON_KEYS}
    for each in ENGINES.values():
        kinds |= get_type_hints(each.options, include_extras=True)
    return msgspec.defstruct(
        "WorkloadKeys", [(key, kind, msgspec.UNSET) for key, kind in kinds.items()]
    )


def check_accepted(table: Mapping[str, Any], chosen: Engine) -> None:
    """Raise an error for a key that the engine would silently ignore."""
    for key in table:
        if key in {*ENGINE_KEYS, *OPTIONS} - _accepted_keys(chosen):
            takers = [name for name, each in ENGINES.items() if key in _accepted_keys(each)]
            raise DeclarationError(
                f"the engine {chosen.name} takes no {key}.",
                f"Remove it, or choose the engine that takes it: {' or '.join(takers)}.",
                key,
                "E_UNKNOWN_KEY",
            )


def _accepted_keys(engine: Engine) -> set[str]:
    return {*engine.keys, *engine.options.__annotations__}


def check_system_texts(values: Mapping[str, Any]) -> None:
    """Raise an error for text that cannot be an argument, a path or an environment variable."""
    for key in ("target", "model", "tokenizer"):
        if values.get(key) == "":
            raise DeclarationError(f"{key} is empty.", "Write its value, or remove it.", key)
    env = values.get("env", {})
    texts = []
    for key in _SYSTEM_TEXTS:
        value = values.get(key)
        value = () if value is None else value  # a recipe may have null
        texts += [(key, text) for text in ((value,) if isinstance(value, str) else value)]
    texts += [(f"env.{name}", f"{name}{value}") for name, value in env.items()]
    for key, text in texts:
        if "\0" in text:
            raise DeclarationError(
                f"{key} contains a NUL character.",
                "Remove it: no argument, path or variable can hold one.",
                key.partition(".")[0],
            )
    for name in env:
        if not name or "=" in name or find_control_character(name):
            raise DeclarationError(
                f"env has the name {format_value(name)}.", "Correct the name.", "env"
            )


def check_combinations(values: Mapping[str, Any]) -> None:
    """Raise an error for values that contradict each other."""
    prompts = values.get("prompts", ())
    if "prompt" in values and prompts:
        raise DeclarationError(
            "it has both prompt and prompts.", "Remove one of the two.", "prompts"
        )
    if len(set(prompts)) < len(prompts):
        raise DeclarationError(
            f"prompts has {len(prompts) - len(set(prompts))} prompt(s) more than once.",
            "An engine could remember their answers: write each prompt once.",
            "prompts",
        )
    sampling = values.get("profile", workload.Sampling())
    if sampling.call_graph is not None and not workload.is_call_graph(sampling.call_graph):
        raise DeclarationError(
            f"profile.call_graph is {format_value(sampling.call_graph)}.",
            f"Use {workload.CALL_GRAPHS}.",
            "profile",
        )
    if sampling.native and sampling.nonblocking:
        raise DeclarationError(
            "profile asks for native and nonblocking together.",
            "Native stacks can be read from a paused process only: remove one of the two.",
            "profile",
        )
