"""Read declared workloads from ``flamegate.toml`` or from ``[tool.flamegate]``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_flamegate.config.thresholds import (
    DEFAULT_THRESHOLDS,
    THRESHOLD_KEYS,
    THRESHOLD_TABLES,
    Thresholds,
    parse_thresholds,
)
from pytest_flamegate.config.workload import (
    Workload,
    parse_toml,
    read_toml_bytes,
    require_known_keys,
)
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.files import is_file
from pytest_flamegate.core.text import format_value
from pytest_flamegate.engines import OPTIONS, engine, keys
from pytest_flamegate.engines.base import DeclarationError, Engine

FILE_NAME = "flamegate.toml"
PROJECT_NAME = "pyproject.toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""The name of a workload or a variant: it becomes the name of a directory, or a part of it."""
VARIANTS = "variants"
_MERGED = ("env", *THRESHOLD_TABLES, "profile")
"""Tables of a variant that are laid over its template's; anything else replaces it."""
_FLAMEGATE_KEY = re.compile(rb"(?<![\w-])flamegate(?![\w-])")
"""The name as a key of its own, unlike ``pytest-flamegate`` and ``flamegate_budget``."""


@dataclass(frozen=True, slots=True)
class InvalidWorkload:
    """A declaration with an error. The other workloads of its file are not affected.

    Attributes:
        name: The name of the workload; the family's if the error is in a template.
        line: The line of the key or the heading, None if it is not known.
    """

    name: str
    error: UsageError
    line: int | None


@dataclass(frozen=True, slots=True)
class WorkloadDeclarations:
    """The workloads that a file declares, in order, and the declarations with an error."""

    entries: tuple[Workload | InvalidWorkload, ...] = ()

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The valid ones."""
        return tuple(each for each in self.entries if isinstance(each, Workload))

    @property
    def invalid(self) -> tuple[InvalidWorkload, ...]:
        """The ones with an error."""
        return tuple(each for each in self.entries if isinstance(each, InvalidWorkload))


def find_file(root: Path) -> Path | None:
    """Return the workload file of ``root``: ``flamegate.toml``, else a pyproject that has one.

    Raises ``UsageError`` ``E_BAD_TOML`` for a malformed pyproject only if it mentions flamegate:
    otherwise the error is for other tools to report.
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
        if _FLAMEGATE_KEY.search(data):
            raise
        return None
    return project if isinstance(tool, dict) and "flamegate" in tool else None


def read_declarations(path: Path, below: Thresholds = DEFAULT_THRESHOLDS) -> WorkloadDeclarations:
    """Return the workloads declared in ``path``, their thresholds over those ``below``.

    A workload with an error becomes an ``InvalidWorkload``; the others are returned as usual.

    Raises:
        UsageError: The file as a whole cannot be used: ``E_BAD_TOML`` with line and column, or an
            ``E_UNKNOWN_KEY`` or ``E_BAD_VALUE`` above the workloads.
    """
    document = parse_toml(path, read_toml_bytes(path))
    if path.name == PROJECT_NAME:
        document = _table(_table(document, "tool", path), "flamegate", path)
    require_known_keys(document, {"workloads"}, path.name)
    tables = _table(document, "workloads", path)
    return WorkloadDeclarations(
        tuple(
            entry
            for name, table in tables.items()
            for entry in _read_entry(name, table, path, below)
        )
    )


def from_table(name: str, table: Mapping[str, Any], path: Path) -> Workload:
    """Return the workload, or variant ``decode[i2s]``, that ``table`` declares; UsageError."""
    family, variant = split_variant_name(name)
    try:
        for part in (name,) if family is None else (family, variant or ""):
            _check_name(part)
        return _workload(name, table, path, DEFAULT_THRESHOLDS)
    except UsageError as error:
        raise _locate(error, path, name).error from None


def split_variant_name(name: str) -> tuple[str | None, str | None]:
    """Return family and variant of a workload's name, or None twice if it is no variant's."""
    family, bracket, variant = name.removesuffix("]").partition("[")
    return (family, variant) if bracket else (None, None)


def find_line(path: Path, name: str, key: str | None = None) -> int | None:
    """Return the line of ``key`` in the declaration of ``name``, else that of its heading.

    For a variant without a heading of its own it is its template's. None if there is neither.
    """
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    family, variant = split_variant_name(name)
    headings = [["workloads", family or name, VARIANTS, variant or ""]] if variant else []
    headings.append(["workloads", family or name])
    found = [(each, number) for each in headings if (number := _heading_line(lines, each))]
    in_sections = (
        _key_line(lines, number, key) or _heading_line(lines, [*heading, key])
        for heading, number in found
        if key is not None
    )
    return next((number for number in in_sections if number), found[0][1] if found else None)


def _key_line(lines: Sequence[str], heading: int, key: str) -> int | None:
    for number, line in enumerate(lines[heading:], heading + 1):
        if line.lstrip().startswith("["):
            return None
        if re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]", line):
            return number
    return None


def _heading_line(lines: Sequence[str], names: Sequence[str]) -> int | None:
    path = r"\.".join(rf"[\"']?{re.escape(name)}[\"']?" for name in names)
    heading = re.compile(rf"\s*\[(?:tool\.flamegate\.)?{path}\]")
    return next((number for number, line in enumerate(lines, 1) if heading.match(line)), None)


def _locate(error: UsageError, path: Path, name: str) -> InvalidWorkload:
    """Return the error with file, line and workload: ``flamegate.toml:3: workload 'w': …``."""
    line = find_line(path, name, getattr(error, "key", None))
    place = path.name if line is None else f"{path.name}:{line}"
    problem = f"{place}: workload {format_value(name)}: {error.problem}"
    return InvalidWorkload(name, UsageError(error.code, problem, error.remedy), line)


def _table(document: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise UsageError(
            "E_BAD_VALUE",
            f"{path.name}: {key} is {format_value(table)}.",
            f"Write a table [{key}].",
        )
    return table


def _read_entry(
    name: str, table: object, path: Path, below: Thresholds
) -> Iterator[Workload | InvalidWorkload]:
    """Yield the workload of one heading, or the variants of a template."""
    try:
        declarations = list(_expand(name, table))
    except UsageError as error:
        yield _locate(error, path, name)
        return
    for own_name, own in declarations:
        try:
            yield _workload(own_name, own, path, below)
        except UsageError as error:
            yield _locate(error, path, own_name)


def _expand(name: str, table: object) -> Iterator[tuple[str, object]]:
    """Yield name and table of the workload, or of each variant with its template's values."""
    _check_name(name)
    if not isinstance(table, dict):
        problem = f"it is {format_value(table)}, not a table."
        raise UsageError("E_BAD_VALUE", problem, f"Write [workloads.{name}].")
    template = {key: value for key, value in table.items() if key != VARIANTS}
    if VARIANTS not in table:
        yield name, table
        return
    variants = table[VARIANTS]
    if not isinstance(variants, dict) or not variants:
        raise DeclarationError(
            f"{VARIANTS} is {format_value(variants)}, not a table of variants.",
            f"Write each under its own heading, [workloads.{name}.{VARIANTS}.NAME].",
            VARIANTS,
        )
    keys.check_keys(template)
    for variant, own in variants.items():
        _check_name(variant)
        # No declared name can be equal to this one, because names contain no brackets.
        yield f"{name}[{variant}]", _merge(template, own)


def _merge(template: Mapping[str, Any], own: object) -> object:
    if not isinstance(own, dict):
        return own
    merged = {
        key: {**template[key], **own[key]}
        for key in _MERGED
        if isinstance(template.get(key), dict) and isinstance(own.get(key), dict)
    }
    return {**template, **own, **merged}


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError("E_BAD_NAME", f"the name {format_value(name)} cannot name a directory.")


def _workload(name: str, table: object, path: Path, below: Thresholds) -> Workload:
    family, variant = split_variant_name(name)
    if not isinstance(table, Mapping):
        heading = f"[workloads.{family}.{VARIANTS}.{variant}]"
        problem = f"it is {format_value(table)}, not a table."
        raise UsageError("E_BAD_VALUE", problem, f"Write {heading}.")
    keys.check_keys(table)
    values = keys.convert_values(table)
    chosen = _engine(values)
    keys.check_combinations(values)
    if "prompts" in values:
        values["prompt"] = values["prompts"][0]
    for key in keys.REQUIRED:
        if key not in values:
            raise UsageError("E_BAD_VALUE", f"{key} is missing.", f"Add {key} = ….")
    keys.check_accepted(table, chosen)
    keys.check_system_texts(values)
    thresholds = below
    for key in THRESHOLD_KEYS:
        with keys.name_key(key):
            thresholds = parse_thresholds({key: table.get(key)}, "", thresholds)
    options = {key: values.pop(key) for key in OPTIONS if key in values}
    values["engine"] = chosen.name
    workload = Workload(
        **{keys.FIELDS.get(key, key): value for key, value in values.items()},
        name=name,
        source=path.name,
        directory=path.parent,
        thresholds=thresholds,
        options=MappingProxyType(options),
        family=family,
        variant=variant,
    )
    chosen.validate(workload)
    return workload


def _engine(values: Mapping[str, Any]) -> Engine:
    """Return the engine that is named, else the one that the other keys imply."""
    implied = "command" if "command" in values else "python" if "target" in values else "embedded"
    with keys.name_key("engine"):
        return engine(values.get("engine", implied))
