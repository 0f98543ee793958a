"""Options, settings, workloads and output that several commands share."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.config import settings
from pytest_flamegate.config.options import OPTIONS, shorten_options
from pytest_flamegate.config.settings import Settings, resolve_path
from pytest_flamegate.config.workload import Workload, name_of_test
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.progress import ignore_closed_pipe
from pytest_flamegate.report.text import visible

if TYPE_CHECKING:
    from pytest_flamegate.engines.declare import InvalidWorkload

_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LINE = re.compile(r"(\n)")
_LINE_OR_COLOUR = re.compile(r"(\n|\x1b\[(?:0|1|[0-9;]{0,2}3[0-9])m)")
"""The end of a line, and the colours that reports use."""


def add_arguments(parser: argparse.ArgumentParser, row: Mapping[str, Any]) -> None:
    """Add the arguments of a row of ``commands.toml``, which explains its keys."""
    groups: dict[str, Any] = {}
    for flags, given in row.get("arguments", {}).items():
        words = dict(given)
        place: Any = parser
        if (group := words.pop("group", None)) is not None:
            if group not in groups:
                groups[group] = parser.add_mutually_exclusive_group(required=group == "required")
            place = groups[group]
        if words.pop("hidden", False):
            words["help"] = argparse.SUPPRESS
        if "type" in words:
            words["type"] = {"path": Path, "number": int}[words["type"]]
        place.add_argument(*flags.split(), **words)
    if "requirements" in row:
        add_requirements(parser, row["requirements"])
    add_options(parser, *row.get("options", ()))


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the options ``names`` to ``parser``, without their ``flamegate`` prefix."""
    for option in OPTIONS:
        if option.name in names:
            text = shorten_options(option.help)
            parser.add_argument(shorten_options(option.flag), **{**option.arguments, "help": text})


def add_requirements(parser: argparse.ArgumentParser, condition: str) -> None:
    """Add the options by which a reader of receipts rejects some; ``condition`` begins their help.

    ``read_requirements`` returns their values.
    """
    add = parser.add_argument
    add("--require-grade", metavar="GRADE", help="reject a lower grade")
    add("--max-age", metavar="24h", help=f"{condition}reject an older receipt (s, m, h, d)")
    add("--kernel-policy", metavar="NAME", help=f"{condition}read kernel names by this policy")
    add(
        "--key",
        type=Path,
        action="append",
        default=[],
        metavar="PUB",
        help=f"{condition}reject a receipt that was not signed with this key (or one of several)",
    )


def read_requirements(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of ``verify_receipt`` that the options of ``add_requirements`` give.

    Raises ``UsageError``: ``E_BAD_OPTION``, ``E_BAD_KEY``.
    """
    # Imported here: most commands need neither.
    from pytest_flamegate.receipt.policies import policy_for
    from pytest_flamegate.receipt.types import Grade

    grade = None if parsed.require_grade is None else Grade.parse(parsed.require_grade)
    # An unknown policy is a mistake of the caller, not of the receipt.
    policy_for(parsed.kernel_policy)
    if grade is Grade.ATTESTED and not parsed.key:
        raise UsageError(
            "E_BAD_KEY",
            "The grade ATTESTED needs a signature, and no key was given to check it.",
            "Give the signer's public key: --key PUB.",
        )
    return {
        "policy": parsed.kernel_policy,
        "require_grade": grade,
        "max_age_s": parse_age_s(parsed.max_age),
        "keys": [_read_public_key(path) for path in parsed.key],
    }


def _read_public_key(path: Path) -> bytes:
    """Return the content of a key file; raises ``E_BAD_KEY`` if it holds no public key."""
    from pytest_flamegate.receipt import keys

    pem = keys.read_key_file(path)
    keys.load_public_key(pem)
    return pem


def read_settings(
    parsed: argparse.Namespace, file: tuple[Path, dict[str, Any]] | None = None
) -> Settings:
    """Return the settings of the arguments, the environment and pytest's file, in this order.

    As under pytest, a path among the arguments starts at the current directory, and a path in
    the file at its root. An empty argument overrides the other two. ``file`` is root and values
    of another file than that of this directory.
    """
    root, values = file or settings.read_ini(Path.cwd())
    for option in OPTIONS:
        given = getattr(parsed, option.name, None)
        if given and option.name in ("config", "dir", "report"):
            given = str(resolve_path(Path.cwd(), given, option.name))
        if given in (None, False):
            given = os.environ.get(option.env) or None if option.env else None
        if given is not None:
            values[option.name] = given
    return Settings.from_values(values, root=root)


def read_declarations(
    settings: Settings,
) -> tuple[Path | None, tuple[Workload | InvalidWorkload, ...]]:
    """Return the workload file and its declarations; None and nothing if there is no file."""
    # Imported here: a command that only verifies receipts needs no engine.
    from pytest_flamegate.engines import declare

    file = settings.config or declare.find_file(settings.root)
    return file, declare.read_declarations(file, settings.thresholds).entries if file else ()


def get_workload_name(node: str) -> str:
    """Return the name of a workload: ``decode`` of the node ``flamegate.toml::decode``.

    A measurement of a test has a name of its own: ``test_a.test_b`` of ``test_a.py::test_b``.
    """
    is_test = node.partition("::")[0].endswith(".py")
    return name_of_test(node) if is_test else node.rpartition("::")[2]


def parse_age_s(text: str | None) -> float | None:
    """Return the seconds of ``24h``, None if no age is given; UsageError ``E_BAD_OPTION``."""
    if text is None:
        return None
    match = _AGE.fullmatch(text)
    if match is None:
        raise UsageError(
            "E_BAD_OPTION",
            f"--max-age is {text!r}.",
            "Write a number and a unit: 90s, 15m, 24h, 7d.",
        )
    return float(match[1]) * _SECONDS[match[2]]


def git_add(*paths: Path) -> str:
    """Return the command that adds ``paths``, as it is typed in the working directory."""
    return shlex.join(["git", "add", *map(os.path.relpath, paths)])


def print_text(text: str) -> None:
    """Print to standard output; nothing if its reader (head, less) has closed the pipe.

    Control characters are escaped: names and messages may come from files of other people.
    """
    with ignore_closed_pipe(sys.stdout):
        print(escape_controls(text, colour=sys.stdout.isatty()), flush=True)  # noqa: T201


def print_document(document: object) -> None:
    """Print a document as JSON."""
    print_text(json.dumps(document, indent=2, allow_nan=False))


def escape_controls(text: str, *, colour: bool = False) -> str:
    """Return ``text`` with control characters escaped, except line ends and, if asked, colours."""
    if text.replace("\n", "").isprintable():
        return text

    allowed = _LINE_OR_COLOUR if colour else _LINE
    parts = allowed.split(text)
    return "".join(part if allowed.fullmatch(part) else visible(part, len(part)) for part in parts)


def print_bytes(data: bytes) -> None:
    """Write ``data`` to standard output; nothing if its reader has closed the pipe."""
    with ignore_closed_pipe(sys.stdout):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def terminal_width() -> int:
    """Return the width of the terminal, or 100 without one."""
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
