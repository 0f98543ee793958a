"""A workload: what is run and measured, and how its file may declare it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.errors import UsageError

with suppress(ImportError):
    # Child processes import this module too, and may run in an interpreter without msgspec.
    from msgspec import Meta

BENCHMARK_ENGINE = "benchmark"
"""The engine of a test that uses pytest-benchmark's fixture."""
MAX_STACK_BYTES = 65528
"""The kernel copies no more of a stack than this."""
CALL_GRAPHS = f"fp, none, or dwarf,BYTES with BYTES from 8 to {MAX_STACK_BYTES} (a multiple of 8)"
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

    @property
    def node_name(self) -> str:
        """The name that people see and type: ``embedded::1tok``, ``flamegate.toml::decode``.

        For a callable that a test measures it is the test's node id.
        """
        return self.source if "::" in self.source else f"{self.source}::{self.name}"


def is_call_graph(text: str) -> bool:
    """Whether perf can walk stacks in this way."""
    if text in ("fp", "none"):
        return True
    match = _DWARF.fullmatch(text)
    return match is not None and int(match[1]) <= MAX_STACK_BYTES and int(match[1]) % 8 == 0


_INJECTION = re.compile(r"(.+):\+(\d+(?:\.\d+)?)%")


def parse_injection(text: str) -> Injection:
    """Return the frame and percentage of ``"rms_norm:+10%"``.

    Raises ``UsageError`` ``E_BAD_INJECTION`` for any other text.
    """
    match = _INJECTION.fullmatch(text)
    if match is None:
        raise UsageError(
            "E_BAD_INJECTION",
            f"The injection {text!r} names no frame and percentage.",
            "Write FRAME:+PERCENT%, for example ternary_gemv:+10%.",
        )
    injected_share(float(match[2]))
    return Injection(match[1], float(match[2]))


def injected_share(extra_pct: float) -> float:
    """Return ``extra_pct`` as a share of 1; ``UsageError`` ``E_BAD_INJECTION`` if not above 0."""
    if not 0 < extra_pct < math.inf:
        raise UsageError(
            "E_BAD_INJECTION",
            f"{extra_pct:g} percent of extra work cannot be injected.",
            "Use a percentage above 0, such as +10%.",
        )
    return extra_pct / 100.0
