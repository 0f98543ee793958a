"""A test that uses pytest-benchmark's fixture: ``target = "tests/test_kernels.py::test_gemv[64]"``.

A fresh process runs pytest on that one test and, where the test calls ``benchmark(f)``, calls
``f`` on command instead: what stands for a token is a round of ``calls`` calls.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


NAME = "benchmark"

MIN_PROCESSES = 3
"""Fewer independent processes than this give no interval worth the name."""
SAMPLE_FLOOR = 200
"""Fewer samples than this name no hotspot: the share of one of 50 % would be off by 7 points."""
STACK_FLOOR = 0.5
"""Where fewer stacks come by the workload, the profile is mostly of something else."""
MAX_CPU_PRESSURE_PCT = 50.0
"""Above this the CPUs were contended; measured spread of fresh processes doubles there."""
MAX_WAITING = 0.25
"""Beyond this part of its time spent waiting for a CPU, a process tells the machine's load."""
MIN_BRICK_PASSES = 5
"""Fewer processes whose bricks were clocked hold no brick to its budget."""
MIN_BRICK_COVERAGE = 0.5
"""Where the marks cover less of the wall time, they tell nothing of what a token costs."""

DEFAULT_DROP_PCT = 5.0
DEFAULT_SHARE_PP = 5.0


@dataclass(frozen=True, slots=True)
class BrickBudget:
    """What one brick may cost: ``per_call_us`` one call, in microseconds of its own time.

    ``growth_pct`` is how much more it may cost per token than it did, in percent. Either may
    be None: it is not asked.
    """

    per_call_us: float | None = None
    growth_pct: float | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How much worse is allowed.

    ``tokens_per_second_pct`` is the allowed drop of tokens per second in percent;
    ``hotspots_pp`` maps a frame name (``*`` for every other) to the allowed drift
    of its share of the profile in percentage points. ``bricks`` maps a brick's name (``*``
    for every other) to what it may cost; where it is empty no brick is gated.
    """

    tokens_per_second_pct: float = DEFAULT_DROP_PCT
    hotspots_pp: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({"*": DEFAULT_SHARE_PP})
    )
    bricks: Mapping[str, BrickBudget] = field(default_factory=lambda: MappingProxyType({}))

    def share_pp(self, frame: str) -> float:
        """Return the allowed drift of ``frame``'s share in percentage points."""
        return self.hotspots_pp.get(frame, self.hotspots_pp.get("*", DEFAULT_SHARE_PP))


@dataclass(frozen=True, slots=True)
class Injection:
    """Extra work for falsification: ``frame`` does ``extra_pct`` percent more of what it does."""

    frame: str
    extra_pct: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the profiler is asked to sample; None leaves it to the profiler.

    ``rate_hz``: samples a second. ``call_graph``: how perf walks stacks, ``fp``,
    ``dwarf,BYTES`` or ``none``. ``native``: py-spy shows native frames among Python's.
    ``nonblocking``: py-spy does not pause what it samples.
    """

    rate_hz: int | None = None
    call_graph: str | None = None
    native: bool | None = None
    nonblocking: bool | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """One deterministic inference workload.

    ``source`` says where it was declared (a file's name, ``embedded``, or a test's
    node id); ``directory`` is where commands run and patterns are resolved.
    ``target`` is ``module:function`` for the python engine. ``decode_profile`` asks for
    a profile of decode alone, by subtraction. ``options`` are the keys that its engine alone
    understands, as they were declared: immutable, lists as tuples. ``family`` is the template
    that it is the ``variant`` of, both None where it is declared by itself.
    """

    name: str
    engine: str
    prompt: str
    max_tokens: int
    source: str
    directory: Path = field(default_factory=Path)
    command: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    target: str | None = None
    model: str | None = None
    tokenizer: str | None = None
    token_unit: str = "byte"
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    seed: int = 42
    threads: int = 1
    timeout_s: float = 120.0
    thresholds: Thresholds = field(default_factory=Thresholds)
    injection: Injection | None = None
    sampling: Sampling = field(default_factory=Sampling)
    decode_profile: bool = False
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    family: str | None = None
    variant: str | None = None

    @property
    def node_name(self) -> str:
        """The name people see and type: ``embedded::1tok``, ``flamegate.toml::decode``.

        A callable measured by a test goes by the test's node id.
        """
        return self.source if "::" in self.source else f"{self.source}::{self.name}"


_WRITTEN = re.compile(r"(.+):\+(\d+(?:\.\d+)?)%")


def parse_injection(text: str) -> Injection:
    """Return frame and percent of ``"rms_norm:+10%"``; ``UsageError`` ``E_BAD_INJECTION``."""
    match = _WRITTEN.fullmatch(text)
    if match is None or not 0 < float(match[2]) < math.inf:
        raise UsageError(
            "E_BAD_INJECTION",
            f"{text!r} says no frame and extra work.",
            "Write FRAME:+PERCENT%, for example ternary_gemv:+10%.",
        )
    return Injection(match[1], float(match[2]))


def extra_share(extra_pct: float) -> float:
    """Return ``extra_pct`` percent as a share; ``UsageError`` ``E_INJECTION`` if not above 0."""
    if not 0 < extra_pct < math.inf:
        raise UsageError(
            "E_INJECTION",
            f"{extra_pct} percent of extra work cannot be injected.",
            "Give a percentage above 0, such as +10%.",
        )
    return extra_pct / 100.0
