"""Read declared workloads from ``flamegate.toml`` or from ``[tool.flamegate]``."""

from __future__ import annotations

import difflib
import re
import tomllib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_flamegate.errors import UsageError
from pytest_flamegate.workload.engines import engine
from pytest_flamegate.workload.spec import Workload
from pytest_flamegate.workload.thresholds import thresholds

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = "flamegate.toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What can name a workload: it becomes the name of a directory."""
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
}
_REQUIRED = ("prompt", "max_tokens")


def find_file(root: Path) -> Path | None:
    """Return the workload file of ``root``: ``flamegate.toml``, else a pyproject that has one."""
    own = root / FILE_NAME
    if own.is_file():
        return own
    project = root / "pyproject.toml"
    if project.is_file() and "tool.flamegate" in project.read_text("utf-8", "replace"):
        return project
    return None


def read_file(path: Path) -> tuple[Workload, ...]:
    """Return the workloads declared in ``path``, in order.

    ``UsageError``: ``E_BAD_TOML`` with line and column, ``E_UNKNOWN_KEY``,
    ``E_MISSING_KEY``, ``E_BAD_VALUE``, ``E_BAD_NAME``, and what the engine refuses.
    """
    document = _parse(path)
    if path.name == "pyproject.toml":
        document = document.get("tool", {}).get("flamegate", {})
    _known(document, {"workloads"}, f"{path.name}")
    tables = document.get("workloads", {})
    if not isinstance(tables, dict):
        raise UsageError(
            "E_BAD_VALUE",
            f"{path.name}: workloads is no table.",
            "Declare each workload under its own heading, [workloads.NAME].",
        )
    return tuple(_workload(name, table, path) for name, table in tables.items())


def line_of(path: Path, name: str) -> int | None:
    """Return the line of the heading that declares ``name``, for annotations."""
    heading = re.compile(rf"\s*\[(?:tool\.flamegate\.)?workloads\.[\"']?{re.escape(name)}[\"']?\]")
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        if heading.match(line):
            return number
    return None


def _parse(path: Path) -> dict[str, Any]:
    text = ""
    try:
        text = path.read_bytes().decode("utf-8")
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The parser gives line and column except where the document simply ends too early.
        last = text.rstrip("\n").splitlines() or [""]
        end = f"at line {len(last)}, column {len(last[-1]) + 1}, the end of the document"
        what = f"{path} is no valid TOML: {str(error).replace('at end of document', end)}."
    except UnicodeDecodeError as error:
        what = f"{path} is not UTF-8: byte {error.start} cannot be read."
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror}."
    raise UsageError("E_BAD_TOML", what, "Mend the file at that place.")


def _workload(name: str, table: object, path: Path) -> Workload:
    where = f"{path.name}: workload {name!r}"
    if not NAME.fullmatch(name):
        raise UsageError(
            "E_BAD_NAME",
            f"{where} has a name that cannot be a directory.",
            "Use letters, digits, dot, dash and underscore, beginning with a letter or digit.",
        )
    if not isinstance(table, dict):
        raise UsageError("E_BAD_VALUE", f"{where} is no table.", f"Write [workloads.{name}].")
    _known(table, set(_KINDS), where)
    _kinds(table, where)
    workload = Workload(
        name=name,
        engine=table.get("engine") or _engine_of(table),
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
        thresholds=thresholds(table.get("tokens_per_second"), table.get("hotspots"), where),
    )
    engine(workload.engine).validate(workload)
    return workload


def _engine_of(table: dict[str, Any]) -> str:
    if "command" in table:
        return "command"
    return "python" if "target" in table else "embedded"


def _known(table: dict[str, Any], known: set[str], where: str) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(sorted(known))}."
            raise UsageError("E_UNKNOWN_KEY", f"{where} has the unknown key {key!r}.", hint)


def _kinds(table: dict[str, Any], where: str) -> None:
    for key in _REQUIRED:
        if key not in table:
            raise UsageError("E_MISSING_KEY", f"{where} has no {key}.", f"Add {key} = ….")
    for key, value in table.items():
        if not isinstance(value, _KINDS[key]) or isinstance(value, bool):
            kinds = " or ".join(kind.__name__ for kind in _KINDS[key])
            raise UsageError(
                "E_BAD_VALUE", f"{where}: {key} is {value!r}.", f"It takes a value of type {kinds}."
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
                f"{where}: {key} is {table[key]}.",
                f"It takes a figure from {low} to {high}.",
            )


def _strings(table: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
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
                f"{where}: env.{name} is {value!r}.",
                'Environment variables are strings: { BITNET_SEED = "42" }.',
            )
    return MappingProxyType(dict(table))
