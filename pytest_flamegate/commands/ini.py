"""The ``flamegate_…`` keys of pytest's configuration file, read without running pytest.

The file is the one that pytest takes when it is called here without arguments; what
``-c``, ``-o`` and ``addopts`` would say is not looked at.
"""

from __future__ import annotations

import configparser
import tomllib
from typing import TYPE_CHECKING, Any

from pytest_flamegate.errors import UsageError
from pytest_flamegate.knobs import KNOBS, Knob

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PYPROJECT = "pyproject.toml"
# In pytest's order; these are its files even where they say nothing.
_ALWAYS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
_FILES = (*_ALWAYS, _PYPROJECT, "tox.ini", "setup.cfg")
_YES = frozenset({"y", "yes", "t", "true", "on", "1"})
_NO = frozenset({"n", "no", "f", "false", "off", "0"})


def read(directory: Path) -> tuple[Path, dict[str, Any]]:
    """Return pytest's root for ``directory`` and what its file says, by the knobs' names.

    The root is ``directory`` itself where no file is found in it or above. Raises
    ``UsageError`` where the file cannot be read or a value is not understood.
    """
    root = None
    for base in (directory, *directory.parents):
        for name in _FILES:
            path = base / name
            if not path.is_file():
                continue
            table = _table(path)
            if table is not None:
                return base, _values(path, table)
            if name == _PYPROJECT and root is None:
                root = base
    return root or directory, {}


def _table(path: Path) -> Mapping[str, Any] | None:
    """Return what ``path`` holds for pytest; None where that is nothing."""
    try:
        text = path.read_text("utf-8")
        found = _toml(path, text) if path.suffix == ".toml" else _ini(path, text)
    except (OSError, ValueError, configparser.Error) as error:
        raise UsageError(
            "E_BAD_OPTION",
            f"{str(path)!a} cannot be read: {error}.",
            "Repair the file: pytest does not understand it either.",
        ) from None
    return {} if found is None and path.name in _ALWAYS else found


def _toml(path: Path, text: str) -> Mapping[str, Any] | None:
    document = tomllib.loads(text)
    if path.name != _PYPROJECT:
        found: Any = document.get("pytest")
    else:
        tool = document.get("tool")
        found = tool.get("pytest") if isinstance(tool, dict) else None
        if isinstance(found, dict):
            found = found.get("ini_options", found)
    return found if isinstance(found, dict) else None


def _ini(path: Path, text: str) -> Mapping[str, Any] | None:
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    section = "tool:pytest" if path.name == "setup.cfg" else "pytest"
    return dict(parser[section]) if parser.has_section(section) else None


def _values(path: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        knob.name: _value(path, knob, table[knob.ini_name])
        for knob in KNOBS
        if knob.ini and knob.ini_name in table
    }


def _value(path: Path, knob: Knob, given: object) -> object:
    word = str(given).lower()
    if knob.kind == "flag" and word in _YES | _NO:
        return word in _YES
    if knob.kind == "text" and isinstance(given, str):
        return given
    if knob.kind == "number" and isinstance(given, (str, int, float)):
        return given  # what is no figure is refused where all of them are checked
    todo = {"flag": "Say true or false.", "number": "Give a figure."}.get(knob.kind, "Give text.")
    raise UsageError(
        "E_BAD_OPTION", f"{knob.ini_name} in {str(path)!a} is not understood: {given!r}.", todo
    )
