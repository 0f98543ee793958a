"""What several commands share: their settings, their workloads, how they show an outcome."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.config import settings
from pytest_flamegate.config.options import OPTIONS
from pytest_flamegate.config.settings import Settings, resolve_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_flamegate.config.workload import Workload


_LINE = re.compile(r"(\n)")
_LINE_OR_COLOUR = re.compile(r"(\n|\x1b\[(?:0|1|[0-9;]{0,2}3[0-9])m)")
"""A line's end, and the colours that reports use."""
Subparsers = Any
"""What ``ArgumentParser.add_subparsers`` returns; argparse keeps the type to itself."""


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Give ``parser`` the knobs called ``names``, without their ``flamegate`` prefix."""
    for knob in OPTIONS:
        if knob.name not in names:
            continue
        flag = "--" + knob.name.replace("_", "-")
        words = knob.help.replace("--flamegate-", "--")
        if knob.kind == "flag":
            parser.add_argument(flag, action="store_true", help=words)
            continue
        optional = {} if knob.bare is None else {"nargs": "?", "const": knob.bare}
        parser.add_argument(flag, metavar=knob.metavar, help=words, **optional)


def read_settings(parsed: argparse.Namespace) -> Settings:
    """Return the settings that the arguments, the environment and pytest's file give.

    As under pytest an argument counts before the environment, and that before the file; a
    path among the arguments starts here, one in the file at its root.
    """
    root, values = settings.read_ini(Path.cwd())
    for knob in OPTIONS:
        given = getattr(parsed, knob.name, None)
        if given and knob.name in ("config", "dir", "report"):
            given = str(resolve_path(Path.cwd(), given, knob.name))
        if not given and knob.env:
            given = os.environ.get(knob.env)
        if given:
            values[knob.name] = given
    return Settings.from_values(values, root=root)


def read_workloads(settings: Settings) -> tuple[Workload, ...]:
    """Return the declared workloads; the embedded ones where none are declared."""
    from pytest_flamegate.engines.declare import find_file, read_file
    from pytest_flamegate.engines.embedded import embedded_workloads

    file = settings.config or find_file(settings.root)
    found = read_file(file, settings.thresholds) if file is not None else ()
    return found or embedded_workloads(settings.root, settings.thresholds)


def print_text(text: str) -> None:
    """Print to standard output; nothing where its reader (head, less) has seen enough.

    What the command does, and how it exits, is the same either way. What could steer the
    terminal is shown and not sent, whoever wrote it.
    """
    with _heard():
        print(escape_controls(text, colour=sys.stdout.isatty()), flush=True)  # noqa: T201 - a command's words are its result


def escape_controls(text: str, *, colour: bool = False) -> str:
    """Return ``text`` with its lines, ``colour`` or not, and nothing else that is hidden."""
    if text.replace("\n", "").isprintable():
        return text
    from pytest_flamegate.report.text import visible

    kept = _LINE_OR_COLOUR if colour else _LINE
    parts = kept.split(text)
    return "".join(each if kept.fullmatch(each) else visible(each, len(each)) for each in parts)


def print_bytes(data: bytes) -> None:
    """Write ``data`` to standard output as it is; as ``say`` where nobody reads on."""
    with _heard():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@contextmanager
def _heard() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def terminal_width() -> int:
    """Return the width of the terminal, 100 where there is none."""
    import shutil

    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
