"""What an engine has to say: whether a workload suits it, and how to run it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines.figure_sources import SILENT, Hearing
from pytest_flamegate.models.discover import find_model, find_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_flamegate.config.workload import Workload


UNIT = "engine"


ENGINE_KEYS = frozenset({"command", "target", "model", "tokenizer", "token_unit"})
"""The keys of a declaration that mean something to some engines only.

What one engine alone understands stands in its ``options``.
"""

Kinds = tuple[type, ...]


@dataclass(frozen=True, slots=True)
class Served:
    """A process that loads once and then generates on command.

    ``load`` is the JSON that tells the child what to load; ``call`` is set instead
    for a callable of this very process, which is then measured in forks of it.
    ``token_unit`` is ``byte`` where a token's id is the byte it stands for.
    ``python`` is the interpreter of an environment of its own; None is the one that runs
    this. ``stands_still`` says that nothing goes on between two tokens, no thread and no
    device, so that a sequence may be paused anywhere without hiding work.
    """

    load: Mapping[str, Any]
    call: Callable[[str, int], Iterable[Any]] | None = None
    token_unit: str = "token"
    stands_still: bool = False
    python: str | None = None


@dataclass(frozen=True, slots=True)
class Streamed:
    """A program that loads, writes its answer to standard output, and ends.

    ``tokenizer`` is the file that tokens are counted with, set for the unit ``tokenizer``
    alone. ``hearing`` says what is read of what the program says of itself.
    """

    argv: tuple[str, ...]
    token_unit: str
    tokenizer: Path | None = None
    hearing: Hearing = SILENT


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that is driven over HTTP, as OpenAI's is.

    ``argv`` starts one, with ``{host}`` and ``{port}`` still to be filled in; it is empty where
    ``url`` names one that runs already and is left running. ``chat`` asks by messages instead
    of a bare prompt. ``served_model`` is the name that a request gives; None takes the first
    that the server lists. ``request`` holds further fields of each request. ``health`` is the
    path that answers 200 once the server is ready; None tries the common ones. ``key_variable``
    names the environment variable that holds the key.
    """

    argv: tuple[str, ...] = ()
    url: str | None = None
    chat: bool = False
    served_model: str | None = None
    request: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    health: str | None = None
    key_variable: str | None = None


Lasting = Served | Endpoint
"""Plans of a process that generates again and again, and is clocked from outside."""
Plan = Lasting | Streamed


class Engine(Protocol):
    """One way to run a model. Implementations hold no state."""

    name: str
    keys: frozenset[str]
    """Which of ``ENGINE_KEYS`` a declaration for it may hold."""
    options: Mapping[str, Kinds]
    """Further keys of a declaration, with the types of their values: ``Workload.options``."""

    def sees_python(self, workload: Workload) -> bool:
        """Return whether the frames worth seeing are Python's."""

    def validate(self, workload: Workload) -> None:
        """Raise ``UsageError`` where the declaration lacks or contradicts something."""

    def model(self, workload: Workload) -> Path | None:
        """Return the model file that runs; None where the engine has no such file."""

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Return how to run it."""

    def prompt_tokens(self, workload: Workload) -> int | None:
        """Return how many tokens the prompt is, where that can be known without the engine."""


@runtime_checkable
class Choosy(Protocol):
    """An engine of which some profilers see nothing, though they see its process."""

    def check_profiler(self, workload: Workload, profiler: str) -> None:
        """Raise ``ToolError`` where the profiler of that name would be blind."""


@runtime_checkable
class NeedsFacts(Protocol):
    """An engine that learns from a process of its own how a workload is measured."""

    def needs_facts(self, workload: Workload) -> bool:
        """Return whether a process has to be asked."""

    def complete(
        self, workload: Workload, facts: Mapping[str, str], known: Mapping[str, object] | None
    ) -> Workload:
        """Return ``workload`` completed from the ``facts`` of that process.

        ``known`` is the recipe of the run that it is compared with, None if there is none.
        """


ROUND = "round"
"""The unit of what such a process tells: no token of a text."""

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def used(argv: Sequence[str]) -> set[str]:
    """Return the names of the placeholders in a command line."""
    return set(PLACEHOLDER.findall(" ".join(argv)))


def check(workload: Workload, argv: Sequence[str], known: Sequence[str], where: str) -> None:
    """Refuse one that is not ``known``: ``UsageError`` ``E_UNKNOWN_PLACEHOLDER``."""
    if unknown := sorted(used(argv) - set(known)):
        raise UsageError(
            "E_UNKNOWN_PLACEHOLDER",
            f"Workload {workload.name!r} uses {{{unknown[0]}}} in {where}.",
            f"Known placeholders: {', '.join('{' + name + '}' for name in known)}.",
        )


def model_of(workload: Workload, argv: Sequence[str]) -> Path | None:
    """Return the model that is declared, or found where the command line asks for one."""
    if workload.model is None and "model" not in used(argv):
        return None
    return find_model(workload.model, workload.directory)


def common(workload: Workload, argv: Sequence[str], model: Path | None) -> dict[str, str]:
    """Return what stands for model, tokenizer, seed and threads.

    A tokenizer that is asked for and not declared is looked for. ``ToolError`` where there is
    none, or more than one.
    """
    tokenizer = workload.tokenizer
    if tokenizer is None and "tokenizer" in used(argv):
        tokenizer = str(find_tokenizer(workload.directory, model))
    return {
        "model": str(model or ""),
        "tokenizer": tokenizer or "",
        "seed": str(workload.seed),
        "threads": str(workload.threads),
    }


def filled(argv: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command line with ``values`` in it; what they hold is not looked at again."""
    return tuple(PLACEHOLDER.sub(lambda match: values[match.group(1)], part) for part in argv)
