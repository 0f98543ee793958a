"""Read declared workloads from ``flamegate.toml`` or from ``[tool.flamegate]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_flamegate.config.thresholds import DEFAULT_THRESHOLDS, parse_sampling, parse_thresholds
from pytest_flamegate.config.toml import (
    format_value,
    freeze,
    parse_toml,
    read_toml_bytes,
    require_known_keys,
)
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.paths import is_file
from pytest_flamegate.engines import ENGINES, OPTIONS, engine
from pytest_flamegate.engines.base import ENGINE_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_flamegate.config.workload import Thresholds
    from pytest_flamegate.engines.base import Engine


VARIANTS = "variants"
_LAID_OVER = ("env", "hotspots", "bricks", "profile")


@dataclass(frozen=True, slots=True)
class Declaration:
    """One workload to read: its name, its whole table, and whose variant it is, if any.

    ``own`` is what stands under its own heading: for a variant the part that it changes.
    """

    name: str
    table: Mapping[str, Any]
    own: object
    family: str | None = None
    variant: str | None = None


def variant_name(family: str, variant: str) -> str:
    """Return the name of the workload that one variant is: ``decode[i2s]``.

    No declaration can be called so, as brackets are no part of a name that people give.
    """
    return f"{family}[{variant}]"


def split_variant_name(name: str) -> tuple[str | None, str | None]:
    """Return family and variant of a workload's name, None twice where it is no variant's."""
    family, bracket, variant = name.removesuffix("]").partition("[")
    return (family, variant) if bracket else (None, None)


def expand_variants(name: str, table: Mapping[str, Any], where: str) -> tuple[Declaration, ...]:
    """Return the workloads that ``table`` declares: itself, or in its place its variants.

    ``UsageError`` ``E_BAD_VALUE``, at the place ``where``, for variants that are none.
    """
    if VARIANTS not in table:
        return (Declaration(name, table, table),)
    variants = table[VARIANTS]
    if not isinstance(variants, dict) or not variants:
        raise UsageError(
            "E_BAD_VALUE",
            f"{where}: {VARIANTS} holds no variant.",
            f"Declare each under its own heading, [workloads.{name}.{VARIANTS}.NAME].",
        )
    template = {key: value for key, value in table.items() if key != VARIANTS}
    return tuple(
        Declaration(variant_name(name, variant), _merged(template, own), own, name, variant)
        for variant, own in variants.items()
    )


def find_workloads(known: Sequence[Workload], name: str) -> list[Workload]:
    """Return the workload called ``name``, or the variants of the template called so."""
    return [each for each in known if name in (each.name, each.family)]


def _merged(template: Mapping[str, Any], own: object) -> dict[str, Any]:
    merged = dict(template)
    for key, value in own.items() if isinstance(own, dict) else ():
        below = template.get(key)
        if key in _LAID_OVER and isinstance(below, dict) and isinstance(value, dict):
            merged[key] = {**below, **value}
        else:
            merged[key] = value
    return merged


FILE_NAME = "flamegate.toml"
PROJECT_NAME = "pyproject.toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What can name a workload or a variant: it becomes the name of a directory, or part of it."""
_OURS = re.compile(rb"(?<![\w-])flamegate(?![\w-])")
"""The name as a key of its own: not a dependency on pytest-flamegate, nor ``flamegate_budget``."""
_MAX_TOKENS = 1_000_000
_KINDS: dict[str, tuple[type, ...]] = {
    "engine": (str,),
    "command": (list,),
    "build": (list,),
    "target": (str,),
    "model": (str,),
    "tokenizer": (str,),
    "prompt": (str,),
    "max_tokens": (int,),
    "token_unit": (str,),
    "env": (dict,),
    "seed": (int,),
    "threads": (int,),
    "timeout": (int, float),
    "tokens_per_second": (str,),
    "hotspots": (dict,),
    "bricks": (dict,),
    "profile": (dict,),
    "decode_profile": (bool,),
    **OPTIONS,
}
_FOR_THE_SYSTEM = ("command", "build", "target", "model", "tokenizer")
_REQUIRED = ("prompt", "max_tokens")


def find_file(root: Path) -> Path | None:
    """Return the workload file of ``root``: ``flamegate.toml``, else a pyproject that has one.

    ``UsageError`` ``E_BAD_TOML`` where a pyproject that cannot be understood speaks of
    flamegate; one that does not is for others to complain about.
    """
    own = root / FILE_NAME
    if own.exists():
        return own
    project = root / PROJECT_NAME
    if not is_file(project):
        return None
    data = read_toml_bytes(project)
    try:
        tool = parse_toml(project, data).get("tool")
    except UsageError:
        if _OURS.search(data):
            raise
        return None
    return project if isinstance(tool, dict) and "flamegate" in tool else None


def read_file(path: Path, below: Thresholds = DEFAULT_THRESHOLDS) -> tuple[Workload, ...]:
    """Return the workloads declared in ``path``, in order; their thresholds over those ``below``.

    ``UsageError``: ``E_BAD_TOML`` with line and column, ``E_UNKNOWN_KEY``,
    ``E_MISSING_KEY``, ``E_BAD_VALUE``, ``E_BAD_NAME``, and what the engine refuses.
    """
    document = parse_toml(path, read_toml_bytes(path))
    if path.name == PROJECT_NAME:
        document = _table(_table(document, "tool", path.name), "flamegate", path.name)
    require_known_keys(document, {"workloads"}, path.name)
    tables = _table(document, "workloads", path.name)
    return tuple(
        _workload(declared, path, below)
        for name, table in tables.items()
        for declared in _declared(name, table, path)
    )


def from_table(name: str, table: Mapping[str, Any], path: Path) -> Workload:
    """Return the one workload that ``table`` declares, as if it stood in the file ``path``.

    ``name`` may be a variant's, as in ``decode[i2s]``. ``UsageError`` as of ``read_file``.
    """
    where = f"{path.name}: workload {format_value(name)}"
    family, variant = split_variant_name(name)
    for part in (name,) if family is None else (family, variant or ""):
        _can_name(part, where)
    require_known_keys(table, set(_KINDS), where)
    _kinds(table, where)
    return _workload(Declaration(name, table, table, family, variant), path, DEFAULT_THRESHOLDS)


def find_line(path: Path, name: str) -> int | None:
    """Return the line of the heading that declares ``name``, for annotations.

    For a variant without a heading of its own it is its template's.
    """
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    family, variant = split_variant_name(name)
    own = ["workloads", family or name, VARIANTS, variant or ""]
    for keys in (own, own[:2]) if variant else (own[:2],):
        told = r"\.".join(rf"[\"']?{re.escape(key)}[\"']?" for key in keys)
        heading = re.compile(rf"\s*\[(?:tool\.flamegate\.)?{told}\]")
        for number, line in enumerate(lines, 1):
            if heading.match(line):
                return number
    return None


def _table(document: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise UsageError(
            "E_BAD_VALUE",
            f"{where}: {key} is no table.",
            "Declare each workload under its own heading, [workloads.NAME], which is "
            f"[tool.flamegate.workloads.NAME] in {PROJECT_NAME}.",
        )
    return table


def _declared(name: str, table: object, path: Path) -> tuple[Declaration, ...]:
    """Return what stands under one heading: a workload, or the variants of a template."""
    where = f"{path.name}: workload {name!r}"
    _can_name(name, where)
    if not isinstance(table, dict):
        raise UsageError("E_BAD_VALUE", f"{where} is no table.", f"Write [workloads.{name}].")
    require_known_keys(table, {*_KINDS, VARIANTS}, where)
    _kinds({key: value for key, value in table.items() if key != VARIANTS}, where)
    found = expand_variants(name, table, where)
    for each in found:
        if each.variant is not None:
            _variant(each, path.name)
    return found


def _variant(declared: Declaration, file: str) -> None:
    """Refuse what no variant can be called or can say."""
    where = f"{file}: variant {declared.variant!r} of workload {declared.family!r}"
    _can_name(declared.variant or "", where)
    if not isinstance(declared.own, dict):
        remedy = f"Write [workloads.{declared.family}.{VARIANTS}.{declared.variant}]."
        raise UsageError("E_BAD_VALUE", f"{where} is no table.", remedy)
    require_known_keys(declared.own, set(_KINDS), where)
    _kinds(declared.own, where)


def _can_name(name: str, where: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(
            "E_BAD_NAME",
            f"{where} has a name that cannot be a directory.",
            "Use letters, digits, dot, dash and underscore, beginning with a letter or digit.",
        )


def _workload(declared: Declaration, path: Path, below: Thresholds) -> Workload:
    name, table = declared.name, declared.table
    where = f"{path.name}: workload {name!r}"
    for key in _REQUIRED:
        if key not in table:
            raise UsageError("E_MISSING_KEY", f"{where} has no {key}.", f"Add {key} = ….")
    chosen = engine(table.get("engine", _engine_of(table)))
    _suits(table, chosen, where)
    workload = Workload(
        name=name,
        engine=chosen.name,
        prompt=table["prompt"],
        max_tokens=table["max_tokens"],
        source=path.name,
        directory=path.parent,
        command=_strings(table, "command", where),
        build=_strings(table, "build", where),
        target=table.get("target"),
        model=table.get("model"),
        tokenizer=table.get("tokenizer"),
        token_unit=table.get("token_unit", "byte"),
        env=_environment(table.get("env", {}), where),
        seed=table.get("seed", 42),
        threads=table.get("threads", 1),
        timeout_s=float(table.get("timeout", 120.0)),
        thresholds=parse_thresholds(
            table.get("tokens_per_second"),
            table.get("hotspots"),
            f"{where} ",
            below,
            table.get("bricks"),
        ),
        sampling=parse_sampling(table.get("profile", {}), where),
        decode_profile=_decode_profile(table, where),
        options=_options(table, chosen),
        family=declared.family,
        variant=declared.variant,
    )
    chosen.validate(workload)
    return workload


def _options(table: Mapping[str, Any], chosen: Engine) -> Mapping[str, object]:
    return MappingProxyType({key: freeze(table[key]) for key in chosen.options if key in table})


def _decode_profile(table: Mapping[str, Any], where: str) -> bool:
    asked = bool(table.get("decode_profile", False))
    if asked and table["max_tokens"] == 1:
        raise UsageError(
            "E_BAD_VALUE",
            f"{where}: decode_profile is true, and one token leaves nothing to subtract.",
            "Ask for more than one token in max_tokens, or leave decode_profile out.",
        )
    return asked


def _engine_of(table: Mapping[str, Any]) -> str:
    if "command" in table:
        return "command"
    return "python" if "target" in table else "embedded"


def _kinds(table: Mapping[str, Any], where: str) -> None:
    for key, value in table.items():
        # To Python true is an int too.
        if not isinstance(value, _KINDS[key]) or isinstance(value, bool) != (bool in _KINDS[key]):
            kinds = " or ".join(kind.__name__ for kind in _KINDS[key])
            raise UsageError(
                "E_BAD_VALUE",
                f"{where}: {key} is {format_value(value)}.",
                f"It takes a value of type {kinds}.",
            )
    for key in _FOR_THE_SYSTEM:
        if "\0" in "".join(map(str, table.get(key, ""))):
            raise UsageError(
                "E_BAD_VALUE",
                f"{where}: {key} holds a NUL character.",
                "Neither a path nor an argument can; take it out.",
            )
    for key, low, high in (
        ("max_tokens", 1, _MAX_TOKENS),
        ("threads", 1, 4096),
        ("timeout", 0.1, 86_400),
        ("seed", 0, 2**63 - 1),
    ):
        if key in table and not low <= table[key] <= high:
            raise UsageError(
                "E_BAD_VALUE",
                f"{where}: {key} is {format_value(table[key])}.",
                f"It takes a figure from {low} to {high}.",
            )


def _suits(table: Mapping[str, Any], chosen: Engine, where: str) -> None:
    """Refuse a key that the engine would silently ignore."""
    for key in table:
        if key in {*ENGINE_KEYS, *OPTIONS} - chosen.keys - chosen.options.keys():
            takers = " or ".join(
                name for name, each in ENGINES.items() if key in {*each.keys, *each.options}
            )
            raise UsageError(
                "E_WRONG_KEY",
                f"{where} has the engine {chosen.name}, which takes no {key}.",
                f"Drop it, or choose the engine that takes it: {takers}.",
            )


def _strings(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = table.get(key, [])
    if not all(isinstance(value, str) for value in values):
        raise UsageError(
            "E_BAD_VALUE",
            f"{where}: {key} holds something that is no string.",
            f'Write {key} = ["program", "argument"]: one string for each argument, no shell.',
        )
    return tuple(values)


def _environment(table: dict[str, Any], where: str) -> MappingProxyType[str, str]:
    for name, value in table.items():
        if not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise UsageError(
                "E_BAD_VALUE",
                f"{where}: env.{name} is {format_value(value)}.",
                'Environment variables are strings: { BITNET_SEED = "42" }.',
            )
    return MappingProxyType(dict(table))
