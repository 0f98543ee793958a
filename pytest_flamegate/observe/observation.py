"""What was seen: runs of a workload as the observer clocked them.

Every time is in nanoseconds of the observer's own monotonic clock. Nothing in here was
reported by the engine, except the tokens themselves and what stands under ``reported``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.json import Count, NonNegative, Positive, Sha256, Timestamp
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.observe.gpu import ObservedDevices

Role = Literal["timed", "profiled", "traced", "bricks"]
ClockScope = Literal["sequence", "process"]


@dataclass(frozen=True, slots=True)
class Block:
    """Some sequences run back to back, and the reference kernel that ran around them.

    ``sequences_ns`` holds one tuple a sequence: the time from request to first
    token, then the gap before each further token. ``reference`` is the cost of
    one fixed piece of work in the same process, None for a program and in profiled
    runs. ``decode`` is the part of ``interval`` between the first token and the last:
    for a program, whose ``interval`` holds its start and load as well. It is None where
    it was not told apart, as in a program of one token or of output in one piece.
    ``decode_tokens`` is how many tokens came after the look at which ``decode`` begins; where
    it is None, in older evidence, all but the first of each sequence are taken to have.
    """

    interval: Interval
    sequences_ns: tuple[tuple[Count, ...], ...]
    reference: Interval | None = None
    decode: Interval | None = None
    decode_tokens: Count | None = None

    @property
    def tokens(self) -> int:
        """Tokens generated in this block."""
        return sum(map(len, self.sequences_ns))

    @property
    def judged(self) -> Interval:
        """The interval that figures per token are made of: decode where it is known."""
        return self.interval if self.decode is None else self.decode

    @property
    def judged_tokens(self) -> int:
        """Tokens that ``judged`` covers: what the first look saw is no part of the decode."""
        if self.decode is None:
            return self.tokens
        if self.decode_tokens is not None:
            return self.decode_tokens
        return self.tokens - len(self.sequences_ns)

    def undivided(self) -> Block:
        """Return the block with no decode told apart."""
        return replace(self, decode=None, decode_tokens=None)


@dataclass(frozen=True, slots=True)
class Run:
    """One process from start to end.

    ``started_ticks`` is the kernel's start time of the process in clock ticks since
    boot: with ``pid`` it names the process for as long as the machine is up.
    ``load_ns`` is the time from start to ready, imports included; None for a program,
    which does not tell when it has loaded: its first token waits for start, load and
    prefill together. ``peak_rss_bytes`` is the peak of a served process before the
    reference kernel allocates its matrices, of a program up to its first token.
    ``pair`` is the number, from 0, of the pair it ran in beside a process of the other
    side; ``cpu`` the one core that it was bound to. ``reported`` is what the engine said of
    itself, one entry for each source and sequence that said something.
    """

    role: Role
    pid: Positive
    started_ticks: Count | None
    started_at: Timestamp
    load_ns: Count | None
    blocks: tuple[Block, ...]
    token_digest: Sha256
    tokens_per_sequence: Count
    peak_rss_bytes: Count | None
    read_bytes: Count | None
    threads: Count | None
    voluntary_switches: Count | None
    involuntary_switches: Count | None
    cpu_pressure_pct: NonNegative | None
    pair: int | None = None
    cpu: int | None = None
    reported: tuple[Report, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens generated in all measured blocks."""
        return sum(block.tokens for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Observation:
    """All runs of one workload, and what they ran on.

    ``tokens`` is the output of the first sequence, each token as text (a byte-level
    token as its byte value); ``differs_at`` is the index of the first token in which
    a later sequence differed, None where all were equal, and ``differs_to`` what that one
    had there, None where it had ended. ``clock_scope`` says what an interval covers:
    ``sequence`` (prefill and decode only) or ``process`` (a program with its start and load;
    its decode apart in ``Block.decode``). ``engine`` is what the engine says that it is, the
    same in each of its processes.
    """

    nonce: str
    runs: tuple[Run, ...]
    tokens: tuple[str, ...]
    token_digest: str
    token_source: str
    differs_at: int | None
    clock_scope: ClockScope
    requested_environment: Mapping[str, str]
    effective_environment: Mapping[str, str]
    device: ObservedDevices | None = None
    differs_to: str | None = None
    engine: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def timed(self) -> tuple[Run, ...]:
        """The runs that no profiler touched."""
        return tuple(run for run in self.runs if run.role == "timed")

    @property
    def profiled(self) -> tuple[Run, ...]:
        """The runs that were sampled; they never supply tokens per second."""
        return tuple(run for run in self.runs if run.role == "profiled")


def uses_running_server(recipe: Mapping[str, object]) -> bool:
    """Whether the recipe asks a server that was not started for each run."""
    url = recipe.get("url")
    named = isinstance(url, str) and bool(url.strip())
    return recipe.get("engine") == "openai" and named and not recipe.get("serve")
