"""A workload: what is run and measured, and how its file may declare it."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.errors import UsageError, reason_of
from pytest_flamegate.core.text import suggest

with suppress(ImportError):
    # Child processes import this module too, and may run in an interpreter without msgspec.
    from msgspec import Meta

MAX_FILE_BYTES = 4 << 20
BENCHMARK_ENGINE = "benchmark"
"""The engine of a test that uses pytest-benchmark's fixture."""
MAX_STACK_BYTES = 65528
"""The kernel copies no more of a stack than this."""
CALL_GRAPHS = f"fp, none, or dwarf,BYTES with BYTES from 8 to {MAX_STACK_BYTES} (a multiple of 8)"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 90
_DWARF = re.compile(r"dwarf,([1-9]\d{0,5})")


@dataclass(frozen=True, slots=True)
class Injection:
    """Fake extra work: ``frame`` does ``extra_pct`` percent more of its own work."""

    frame: str
    extra_pct: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the profiler samples; None leaves the choice to the profiler.

    Attributes:
        rate_hz: Samples a second. (At 0 py-spy would wait for ever.)
        call_graph: How perf walks stacks: ``fp``, ``dwarf,BYTES`` or ``none``.
        native: py-spy shows native frames among Python's.
        nonblocking: py-spy does not pause the process that it samples.
    """

    rate_hz: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    call_graph: str | None = None
    native: bool | None = None
    nonblocking: bool | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """One deterministic inference workload.

    The annotations of the fields that a workload file can set are also the checks of its values.

    Attributes:
        prompt: The prompt, the first one of ``prompts`` if there are several.
        prompts: A set of prompts, of which a process is asked each at most once while it is timed;
            empty if there is one.
        source: Where it was declared: a file's name, ``embedded``, or a test's node id.
        directory: Where commands run, and where paths and patterns start.
        target: ``module:function`` for the python engine, a test for the benchmark engine.
        options: The keys that only its engine understands, frozen.
        family: The template that this workload is the ``variant`` of; both None if it is none.
    """

    name: str
    engine: str
    prompt: str
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000)]
    source: str
    directory: Path = field(default_factory=Path)
    command: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    target: str | None = None
    model: str | None = None
    tokenizer: str | None = None
    token_unit: str = "byte"
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 42
    threads: Annotated[int, Meta(ge=1, le=4096)] = 1
    timeout_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 120.0
    thresholds: Thresholds = field(default_factory=Thresholds)
    injection: Injection | None = None
    sampling: Sampling = field(default_factory=Sampling)
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    family: str | None = None
    variant: str | None = None
    prompts: Annotated[tuple[str, ...], Meta(min_length=2, max_length=10_000)] = ()

    @property
    def all_prompts(self) -> tuple[str, ...]:
        """The set of prompts, or the one prompt."""
        return self.prompts or (self.prompt,)

    @property
    def node_name(self) -> str:
        """The name that people see and type: ``embedded::1tok``, ``flamegate.toml::decode``.

        For a callable that a test measures it is the test's node id.
        """
        return self.source if "::" in self.source else f"{self.source}::{self.name}"


def name_of_test(nodeid: str) -> str:
    """Return a name that can be a directory: ``tests.test_a.TestB.test_c-2`` and the like.

    Parameters that hold anything unsafe, and long names, end in a digest, so that no
    two tests share one.
    """
    path, _, test = nodeid.partition("::")
    test, _, parameters = test.partition("[")
    parameters = parameters.removesuffix("]")
    dotted = f"{path.removesuffix('.py')}.{test}".replace("::", ".").replace("/", ".")
    whole = f"{dotted}-{parameters}" if parameters else dotted
    name = _UNSAFE.sub("-", whole).lstrip("-._")
    if name == whole and len(name) <= _LONGEST_NAME:
        return name
    import hashlib

    digest = hashlib.sha256(nodeid.encode()).hexdigest()
    return f"{name[: _LONGEST_NAME - 9] or 'test'}-{digest[:8]}"


def is_call_graph(text: str) -> bool:
    """Whether perf can walk stacks in this way."""
    if text in ("fp", "none"):
        return True
    match = _DWARF.fullmatch(text)
    return match is not None and int(match[1]) <= MAX_STACK_BYTES and int(match[1]) % 8 == 0


_INJECTION = re.compile(r"(.+):\+(\d+(?:\.\d+)?)%")


def parse_injection(text: str) -> Injection:
    """Return the frame and percentage of ``"rms_norm:+10%"``.

    Raises ``UsageError`` ``E_BAD_INJECTION`` for any other text, or a percentage of 0.
    """
    match = _INJECTION.fullmatch(text)
    if match is None or not 0 < float(match[2]) < math.inf:
        raise UsageError(
            "E_BAD_INJECTION", f"The injection {text!r} names no frame and percentage above 0."
        )
    return Injection(match[1], float(match[2]))


# --- Workload files ----------------------------------------------------------------------------


def read_toml_bytes(path: Path) -> bytes:
    """Return the content of ``path``, of which no more than ``MAX_FILE_BYTES`` are read.

    A pipe is not waited for. Raises ``UsageError`` ``E_BAD_TOML`` if the file cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError("it is no regular file")
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise OSError(f"it has more than {MAX_FILE_BYTES:,} bytes")
    except (OSError, ValueError) as error:
        raise UsageError(
            "E_BAD_TOML",
            f"{path} cannot be read: {reason_of(error)}.",
            "Give the path of a file that this user may read.",
        ) from None
    return data


def parse_toml(path: Path, data: bytes) -> dict[str, Any]:
    """Return the document in ``data``, the content of ``path``.

    Raises ``UsageError`` ``E_BAD_TOML``, with line and column if the parser reports them.
    """
    import tomllib  # not for children, which import this module too

    text = ""
    try:
        text = data.decode("utf-8")
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The parser reports line and column unless the document ends too early.
        last = text.rstrip("\n").splitlines() or [""]
        end = f"at line {len(last)}, column {len(last[-1]) + 1}, the end of the document"
        problem = f"{path} is not valid TOML: {str(error).replace('at end of document', end)}."
    except UnicodeDecodeError as error:
        problem = f"{path} is not UTF-8: byte {error.start} cannot be decoded."
    except RecursionError:
        problem = f"{path} is not usable: its values are nested too deeply."
    except ValueError as error:
        # Python limits the digits of a number.
        problem = f"{path} is not usable: {error}."
    raise UsageError("E_BAD_TOML", problem)


def freeze(value: object) -> object:
    """Return ``value`` with lists as tuples and tables as read-only views, all the way down."""
    if isinstance(value, list):
        return tuple(map(freeze, value))
    if isinstance(value, dict):
        return MappingProxyType({key: freeze(each) for key, each in value.items()})
    return value


def require_known_keys(table: Mapping[str, Any], names: Collection[str], place: str) -> None:
    """Raise ``UsageError`` ``E_UNKNOWN_KEY`` for a key of ``table`` that is not in ``names``."""
    for key in table:
        if key not in names:
            raise UsageError(
                "E_UNKNOWN_KEY",
                f"{place} has the unknown key {key!r}.",
                suggest(key, sorted(names)),
            )
