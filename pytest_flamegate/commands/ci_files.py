"""Read the configuration of a CI service, with the line of each value, and name its traps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.core.files import read_bounded, relative
from pytest_flamegate.core.text import Finding

MAX_BYTES = 1 << 19
_MAX_COMMAND = 10_000
CHECK = re.compile(r"\b(?:flamegate|pytest_flamegate)[\"']?\s+check\b")
"""The command that decides: it measures, or with ``--receipts`` judges the runs of another job."""
_MEASURES = re.compile(
    rf"{CHECK.pattern}(?!.*--receipts)|\bflamegate\s+run\b|\bpytest\b.*--flamegate(?![\w-])"
)
FETCHES = re.compile(r"\bgit\b.*\bfetch\b")
_PLAIN = re.compile(
    r"(?:(?:uvx|(?:uv|poetry|pdm|hatch|pipenv|pixi) run) "
    r"(?:--(?:extra|group|only-group|with|python|package|project|directory|env-file) \S+ |-\S+ )*)?"
    r"(?:(?:\S*/)?python[\d.]* -m )?"
    r"(?:\S*/)?(?:pytest_)?flamegate check(?: |$)"
)
"""The words of a command that is nothing but the check, after its variables."""
_HELP = frozenset({"-h", "--help", "--hel"})
"""Options that print the help and end with 0; argparse takes an abbreviation."""
_PRINTED = re.compile(r"(?:echo|printf)\b(?!.*(?:\$\(|[`;&|<]))")
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}")
_OPERATOR = re.compile(r"[();<>|&]+")
_REDIRECTION = re.compile(r"&?[<>]{1,2}&?")
_BLOCKS = (
    ({"if"}, "fi"),
    ({"case"}, "esac"),
    ({"for", "select", "while", "until"}, "done"),
    ({"do"}, "done"),
    ({"{"}, "}"),
)
_COMMAND = r"(?:^|[;&|({]|\b(?:then|do|else)\b)\s*"
_NO_ERREXIT = re.compile(rf"{_COMMAND}(?:set\s.*\+(?:\w*e|o\s+errexit)|shopt\s.*-\w*u.*\berrexit)")
_ERREXIT = re.compile(r"set\s+-\w*e|set\s+-o\s+errexit")
_ERREXIT_SHELL = re.compile(r"|bash|sh|(?:bash|sh)\s.*(?<=\s)-[a-z]*e[a-z]*\s.*")
"""GitHub starts the shells that it knows with -e, and others as they are written."""
_LEAVES = re.compile(
    rf"{_COMMAND}(?:trap\b|(?:exit|return)\b(?!\s+[1-9]))"
    # Not in a subshell, in quotes or in the background.
    r"|^(?:[^'\"(]*[;&|])?\s*(?:exec\s+(?:--\s+)?(?=[^\s-])(?!\S*[<>]|.*&\s*$)|kill\s+(?:-(?!0\s)\S+\s+)*\$\$(?:[\s;]|$)"
    r"|(?:function\s+)?flamegate\s*\(|function\s+flamegate\b|alias\s.*\bflamegate=)"
)
"""A line after which the check does not run, is another command, or does not give the exit code."""
_COMMENT = re.compile(r"(?:^|\s)#.*")
MOVES = "Anyone with push access changes what this job runs."
_IN_COMMANDS = (
    (
        re.compile(
            r"--flamegate-update|\bflamegate\s+run\b.*--update|\bflamegate\s+baseline\s+accept\b"
        ),
        "E_CI_UPDATE",
        "The run accepts its own figures as the baseline, so it compares with itself.",
    ),
    (
        re.compile(r"\bHOST/PATH/|pytest-flamegate@COMMIT\b"),
        "E_CI_NOT_PINNED",
        "flamegate is installed from a placeholder, so the job cannot run.",
    ),
    (
        re.compile(
            r"git\+\S+?pytest-flamegate(?:\.git)?(?:@(?:main|master|HEAD|trunk|dev|develop))?"
            r"(?=[\"'\s#]|$)"
        ),
        "E_CI_NOT_PINNED",
        f"flamegate is installed from a branch. {MOVES}",
    ),
)
"""Patterns of commands that are traps anywhere; the placeholder is that of the documentation."""


class YamlText(str):
    """A value as it is written, so that ``on``, ``true`` and ``0`` stay text, and its line."""

    line = 0
    is_block = False

    def commands(self) -> list[tuple[int, str]]:
        """Return line and text of each command of a script, continued lines joined."""
        found: list[tuple[int, str]] = []
        is_continued = False
        for number, text in enumerate(self.splitlines()):
            line = self.line + 1 + number if self.is_block else self.line
            text = _COMMENT.sub("", text).strip()
            if is_continued:
                line, text = found[-1][0], f"{found.pop()[1]} {text}"
            is_continued = text.endswith("\\")
            # Cut, because a search in a very long line takes very long.
            found.append((line, text.removesuffix("\\").rstrip()[:_MAX_COMMAND]))
        return found


class YamlList(list[Any]):
    """A sequence and its line; GitLab's ``!reference`` is one as well."""

    line = 0
    is_reference = False


class YamlTable(dict[str, Any]):
    """A mapping, its line, and the line of each key."""

    line = 0

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}

    def table(self, key: str) -> YamlTable:
        """Return the mapping under ``key``, an empty one if there is none."""
        value = self.get(key)
        return value if isinstance(value, YamlTable) else YamlTable()

    def text(self, key: str, default: str = "") -> str:
        """Return the scalar under ``key``."""
        value = self.get(key)
        return value if isinstance(value, YamlText) else default

    def tables(self, key: str) -> list[YamlTable]:
        """Return the mappings in the sequence under ``key``."""
        value = self.get(key)
        items = value if isinstance(value, YamlList) else ()
        return [each for each in items if isinstance(each, YamlTable)]

    def line_of(self, key: str) -> int:
        """Return the line of ``key``, else that of the mapping."""
        return self.lines.get(key, self.line)


@dataclass(frozen=True, slots=True)
class Trap(Finding):
    """A place in the configuration that lets a slower commit pass, or lets its code act.

    ``line`` is 0 if the trap is something that is missing in the whole file.
    """

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.code}\n  {self.message}\n  {self.remedy}"


@dataclass(frozen=True, slots=True)
class CiFile:
    """One file of the configuration; an empty ``content`` with a trap if it cannot be read."""

    name: str
    content: YamlTable
    unreadable: tuple[Trap, ...] = ()

    def trap(self, code: str, line: int, message: str, remedy: str = "") -> Trap:
        """Return a trap at ``line`` of this file."""
        return Trap(code, message, remedy, self.name, line)


@dataclass(frozen=True, slots=True)
class CiJob:
    """One job of a workflow or of a pipeline, with its keys."""

    document: CiFile
    name: str
    table: YamlTable

    def trap(self, code: str, line: int, message: str, remedy: str = "") -> Trap:
        """Return a trap of this job."""
        return self.document.trap(code, line, f"Job {self.name}: {message}", remedy)


def read_document(path: Path, root: Path) -> CiFile:
    """Return the YAML file ``path``; ``ToolError`` ``E_NO_YAML`` if PyYAML is not installed."""
    try:
        import yaml  # noqa: TID251 - composes nodes, makes no objects
    except ImportError:
        raise ToolError(
            "E_NO_YAML", "The files of a CI service are YAML, and PyYAML is not installed."
        ) from None
    name = relative(path, root)

    def unreadable(line: int, reason: str) -> CiFile:
        problem = f"The file is not checked: {reason}."
        trap = Trap("E_CI_NOT_READ", problem, file=name, line=line)
        return CiFile(name, YamlTable(), (trap,))

    try:
        text = read_bounded(path, MAX_BYTES).decode("utf-8")
        # Of several documents the last holds the jobs. The loader in C crashes on deep nesting.
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        content = _located(nodes[-1], {}) if nodes else None
    except FlamegateError as error:
        return unreadable(0, error.problem.rstrip("."))
    except UnicodeDecodeError:
        return unreadable(0, "it is not UTF-8")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        return unreadable(mark.line + 1 if mark else 0, "it is not valid YAML")
    except RecursionError:
        return unreadable(0, "its values are nested too deeply")
    if not isinstance(content, YamlTable):
        return unreadable(1, "it is no mapping")
    return CiFile(name, content)


def _located(node: Any, known: dict[int, Any]) -> Any:
    """Return the values of a YAML node; a node that has several aliases is converted once."""
    if node is None or id(node) in known:
        return known.get(id(node))
    line = node.start_mark.line + 1
    value: YamlText | YamlList | YamlTable
    if node.id == "scalar":
        value = YamlText(node.value)
        value.is_block = node.style == "|"
    else:
        value = YamlList() if node.id == "sequence" else YamlTable()
    known[id(node)] = value
    value.line = line
    if isinstance(value, YamlList):
        value.is_reference = node.tag == "!reference"
        value += [_located(each, known) for each in node.value]
    elif isinstance(value, YamlTable):
        for key, each in node.value:
            found = _located(each, known)
            if key.value == "<<":
                merged = found if isinstance(found, YamlList) else [found]
                for one in merged:
                    for name in one.keys() - value.keys() if isinstance(one, YamlTable) else ():
                        value[name], value.lines[name] = one[name], one.lines[name]
            elif isinstance(key.value, str):
                value[key.value], value.lines[key.value] = found, key.start_mark.line + 1
    return value


def scalars(value: object, seen: set[int] | None = None) -> Iterator[YamlText]:
    """Yield every scalar in ``value``, those with several aliases once."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, YamlText):
        yield value
    elif isinstance(value, YamlTable | YamlList):
        for each in value.values() if isinstance(value, YamlTable) else value:
            yield from scalars(each, seen)


def runs_check(text: str) -> bool:
    """Whether a command seems to run ``flamegate check``, and does not only print these words."""
    return CHECK.search(text) is not None and _PRINTED.match(text) is None


def measures(text: str) -> bool:
    """Whether a command measures the commit that is checked out."""
    return _MEASURES.search(text) is not None and _PRINTED.match(text) is None


def has_check(script: object) -> bool:
    """Whether a command of ``script`` seems to run ``flamegate check``."""
    return isinstance(script, YamlText) and any(runs_check(text) for _, text in script.commands())


def find_ignored(
    document: CiFile, scripts: Sequence[YamlText], *, shell: str = ""
) -> Iterator[Trap]:
    """Yield the commands that run the check and cannot be seen to fail the job.

    A check is seen to fail it if it is a plain command on a line of its own, no line before it in
    its script belongs to a block, and nothing before it changes the exit code of the shell.

    Args:
        document: The file that the traps name.
        scripts: What one shell runs, in this order.
        shell: The command of the shell; empty for the one that the service chooses.
    """
    leaves, has_errexit = False, _ERREXIT_SHELL.fullmatch(shell) is not None
    for script in scripts:
        is_open = False
        for line, text in script.commands():
            is_seen = has_errexit and not leaves and not is_open and _is_plain_check(text)
            if runs_check(text) and not is_seen:
                yield document.trap(
                    "E_CI_IGNORED",
                    line,
                    "This command cannot be seen to fail the job, so a slower commit may pass.",
                )
            leaves = leaves or _LEAVES.search(text) is not None
            is_open = is_open or not _is_closed(text)
            if _NO_ERREXIT.search(text):
                has_errexit = False
            elif _ERREXIT.match(text):
                has_errexit = True


def _split_words(text: str) -> list[str] | None:
    """Return the words and operators of a line of shell; None if a quote stays open."""
    lexer = shlex.shlex(_EXPRESSION.sub("_", text), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        return None


def _is_plain_check(text: str) -> bool:
    words = _split_words(text) or []
    if any(_OPERATOR.fullmatch(each) and not _REDIRECTION.fullmatch(each) for each in words):
        return False
    command = [*dropwhile(lambda word: re.match(r"\w+=", word), words)]
    return _PLAIN.match(" ".join(command)) is not None and _HELP.isdisjoint(command)


def _is_closed(text: str) -> bool:
    """Whether the next line begins a new command."""
    words = _split_words(text)
    if words is None or _PRINTED.match(text):
        return words is not None
    operators = [each for each in words if _OPERATOR.fullmatch(each)]
    joined = "".join(operators)
    return (
        all(sum(map(words.count, first)) == words.count(last) for first, last in _BLOCKS)
        and joined.count("(") == joined.count(")")
        and not any("<<" in each for each in operators)
        and not (words and words[-1] in ("|", "||", "&&", "|&"))
    )


def find_in_commands(document: CiFile, content: object) -> Iterator[Trap]:
    """Yield the commands that accept a baseline in CI, or install what no commit here names."""
    for each in scalars(content):
        for line, text in each.commands():
            for pattern, code, message in _IN_COMMANDS:
                if pattern.search(text):
                    yield document.trap(code, line, message)


def shallow_trap(document: CiFile, line: int) -> Trap:
    """Return the trap of a clone that lacks the base revision."""
    message = "The clone is shallow, so the base revision may be missing."
    return document.trap("E_CI_SHALLOW", line, message)
