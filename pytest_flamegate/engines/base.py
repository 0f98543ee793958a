"""The interface of an engine: whether a workload suits it, and how to run it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines.figure_sources import NO_SOURCES, SourceSelection
from pytest_flamegate.models.discover import find_model, find_tokenizer

UNIT = "engine"
"""The token unit of a program whose own count of tokens is used."""
ROUND = "round"
"""The token unit of a benchmark: some calls of a function."""
ENGINE_KEYS = frozenset({"command", "target", "model", "tokenizer", "token_unit"})
"""The keys of a declaration that only some engines accept.

Keys that one engine alone accepts are in its ``options``.
"""


@dataclass(frozen=True, slots=True)
class Served:
    """A process that loads once and then generates on command.

    Attributes:
        load: The JSON that names what the child loads.
        call: Set instead for a callable of this very process; it is measured in forks of it.
        token_unit: ``byte`` if a token's id is the byte that it stands for.
        python: The interpreter of an environment of its own; None is the running one.
    """

    load: Mapping[str, Any]
    call: Callable[[str, int], Iterable[Any]] | None = None
    token_unit: str = "token"
    python: str | None = None


MAX_TOKENS, PROMPT = "\ufdd0", "\ufdd1"
"""Stand for both in a planned command line: no text holds these characters."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A program that loads, writes its answer to standard output, and ends.

    ``argv`` has ``MAX_TOKENS`` in the places of the number of tokens, ``PROMPT`` in those of the
    prompt. ``tokenizer`` is the file that tokens are counted with, set for the unit ``tokenizer``
    alone. ``sources`` are the figures that are read from the program's messages. ``executable`` is
    the file that is run instead of ``argv[0]``: a copy of it.
    """

    argv: tuple[str, ...]
    token_unit: str
    tokenizer: Path | None = None
    sources: SourceSelection = NO_SOURCES
    executable: str | None = None

    def command_line(self, prompt: str, max_tokens: int) -> tuple[str, ...]:
        """Return the command line for a prompt and so many tokens."""
        with_count = (part.replace(MAX_TOKENS, str(max_tokens)) for part in self.argv)
        return tuple(part.replace(PROMPT, prompt) for part in with_count)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server with OpenAI's HTTP API.

    Attributes:
        argv: The command line that starts one, with ``{host}`` and ``{port}`` still to be
            filled in; empty if ``url`` names one that runs already and is left running.
        chat: Whether it is asked by messages instead of a bare prompt.
        served_model: The name that a request gives; None takes the first that it lists.
        request: Further fields of each request.
        health: The path that answers 200 once the server is ready; None tries the common ones.
        key_variable: The environment variable that holds the key.
        executable: The file that is run instead of ``argv[0]``: a copy of it.
    """

    argv: tuple[str, ...] = ()
    url: str | None = None
    chat: bool = False
    served_model: str | None = None
    request: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    health: str | None = None
    key_variable: str | None = None
    executable: str | None = None


_VARIABLES = tomllib.loads(Path(__file__).with_name("variables.toml").read_text("utf-8"))
THREAD_VARIABLES: Mapping[str, str] = _VARIABLES["threads"]
LIBRARY_VARIABLES: Mapping[str, str] = {**THREAD_VARIABLES, **_VARIABLES["libraries"]}
PYTHON_VARIABLES: Mapping[str, str] = {**LIBRARY_VARIABLES, **_VARIABLES["python"]}
PROGRAM_VARIABLES: Mapping[str, str] = {**LIBRARY_VARIABLES, **_VARIABLES["programs"]}

Lasting = Served | Endpoint
"""Plans of a process that generates again and again, and is clocked from outside."""
Plan = Lasting | Streamed


class DeclarationError(UsageError):
    """An error in the ``key`` of one declaration, without the name of file and workload."""

    def __init__(self, problem: str, remedy: str, key: str, code: str = "E_BAD_VALUE") -> None:
        super().__init__(code, problem, remedy)
        self.key = key


class NoOptions:
    """The options of an engine without any."""


class Engine:
    """One way to run a model. Implementations hold no state."""

    name: str
    keys: frozenset[str]
    """The ``ENGINE_KEYS`` that a declaration for it may have."""
    options: type[Any] = NoOptions
    """A class whose annotations are further keys of a declaration: ``Workload.options``."""
    runs_python = False
    """Whether the work is done in Python."""
    clock_scope = "sequence"
    """The phase that its clocks cover: each ``sequence``, or the whole ``process``."""
    origin_keys: tuple[str, ...] = ()
    """The keys of a recipe of which one is needed to run again."""
    kernel_policy = "generic"
    """The kernel policy that knows its kernels' names: a file of ``receipt/kernel_policies``."""
    variables: Mapping[str, str] = LIBRARY_VARIABLES
    """The environment that makes it repeatable; docs/engines.md gives each one's purpose.

    ``{threads}`` and ``{seed}`` are the workload's. Its own ``env`` overrides them.
    """

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Return how to run it."""
        raise NotImplementedError

    def validate(self, workload: Workload) -> None:
        """Raise ``UsageError`` if the declaration lacks or contradicts something.

        Its sentence continues ``flamegate.toml:3: workload 'decode': …``.
        """

    def model(self, workload: Workload) -> Path | None:
        """Return the declared model file; None if there is none, and nothing is discovered."""
        return find_model(workload.model, workload.directory) if workload.model else None

    def prompt_tokens(self, workload: Workload) -> int | None:
        """Return the tokens of the prompt, if they are known without the engine."""
        return None

    def sees_python(self, workload: Workload) -> bool:
        """Return whether the profile should show Python frames."""
        return self.runs_python

    def check_profiler(self, workload: Workload, profiler: str) -> None:
        """Raise ``ToolError`` if the profiler of that name would see nothing of its work."""

    def needs_facts(self, workload: Workload) -> bool:
        """Return whether a process has to be asked how the workload is measured."""
        return False

    def complete(
        self, workload: Workload, facts: Mapping[str, str], known: Mapping[str, object] | None
    ) -> Workload:
        """Return ``workload`` completed from that process's ``facts``, or as ``known`` says."""
        return workload


PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_BRACED = re.compile(r"(?:--?[\w-]+=)?\{([A-Za-z_-]+)\}")
"""An argument that may be a misspelt placeholder, as ``{Prompt}`` or ``{max-tokens}``."""


def find_placeholders(argv: Sequence[str]) -> set[str]:
    """Return the names of the placeholders in a command line."""
    return set(PLACEHOLDER.findall(" ".join(argv)))


def check_placeholders(argv: Sequence[str], known: Sequence[str], key: str) -> None:
    """Raise ``UsageError`` ``E_BAD_VALUE`` for a placeholder that is not ``known``."""
    found = find_placeholders(argv)
    braced = {match[1] for match in map(_BRACED.fullmatch, argv) if match}
    found |= {each for each in braced if each.lower().replace("-", "_") in known}
    if unknown := sorted(found - set(known)):
        raise DeclarationError(
            f"{key} has the unknown placeholder {{{unknown[0]}}}.",
            f"Known placeholders: {', '.join('{' + name + '}' for name in known)}. "
            f"If {{{unknown[0]}}} is no placeholder, write it into a script file and run that.",
            key,
        )


def check_tokenizer(workload: Workload, argv: Sequence[str], key: str) -> None:
    """Raise ``UsageError`` ``E_BAD_VALUE`` for a tokenizer that nothing uses.

    ``argv`` is the command line that ``key`` declares.
    """
    if workload.tokenizer is None or workload.token_unit == "tokenizer":
        return
    if "tokenizer" not in find_placeholders(argv):
        counts = ', or count by it: token_unit = "tokenizer"' if key == "command" else ""
        raise DeclarationError(
            f"tokenizer is {workload.tokenizer!r}, and nothing uses it.",
            f"Remove it, or pass it on in {key} as {{tokenizer}}{counts}.",
            "tokenizer",
        )


def find_model_of(workload: Workload, argv: Sequence[str]) -> Path | None:
    """Return the declared model, or discover one if the command line has {model}."""
    if workload.model is None and "model" not in find_placeholders(argv):
        return None
    return find_model(workload.model, workload.directory)


def placeholder_values(
    workload: Workload, argv: Sequence[str], model: Path | None
) -> dict[str, str]:
    """Return the values of model, tokenizer, seed and threads.

    A tokenizer is discovered if the command line has {tokenizer} and none is declared;
    ``ToolError`` if there is none, or more than one.
    """
    tokenizer = workload.tokenizer
    if tokenizer is None and "tokenizer" in find_placeholders(argv):
        tokenizer = str(find_tokenizer(workload.directory, model))
    return {
        "model": str(model or ""),
        "tokenizer": tokenizer or "",
        "seed": str(workload.seed),
        "threads": str(workload.threads),
    }


def fill_placeholders(argv: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command line with ``values``; placeholders within a value stay as they are."""
    return tuple(PLACEHOLDER.sub(lambda match: values[match.group(1)], part) for part in argv)
