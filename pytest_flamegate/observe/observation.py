"""The types of a measurement: processes of a workload as the observer clocked them.

Times are nanoseconds of the observer's monotonic clock. Only the tokens and ``reported`` come
from the engine; all other fields were observed from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pytest_flamegate.core.clocks import Interval, add_late_work
from pytest_flamegate.core.json import (
    Count,
    NonNegative,
    Positive,
    Sha256,
    Timestamp,
    computed_once,
)
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.observe.gpu import ObservedDevices

MOST_AT_ONCE = 2
"""Pairs that run at once, at most. More were not measured."""
Role = Literal["timed", "profiled", "traced", "bricks"]
ClockScope = Literal["sequence", "process"]


class Block(Struct, frozen=True, gc=False):
    """Sequences that were generated back to back, and the reference kernel that ran around them.

    Attributes:
        interval: Wall and CPU time of the whole block.
        sequences_ns: One tuple for each sequence: the time to its first token, then the gap
            before each further token.
        reference: The cost of one fixed piece of work in the same process. None for a program
            and in profiled runs.
        decode: The part of ``interval`` between the first and the last token of a program. None
            for served engines, and if the output came in too few pieces to separate it.
        decode_tokens: The tokens observed after ``decode`` began. None in older evidence: all but
            the first token of each sequence.
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
    def tokens_ns(self) -> int:
        """The time of all tokens."""
        return sum(chain.from_iterable(self.sequences_ns))

    @property
    def later_tokens_ns(self) -> int:
        """The time of all tokens but the first one of each sequence."""
        return sum([sum(gaps[1:]) for gaps in self.sequences_ns])

    @property
    def judged_tokens_ns(self) -> int:
        """The time of the tokens that were generated during ``judged``."""
        return self.tokens_ns if self.decode is None else self.later_tokens_ns

    @property
    def judged(self) -> Interval:
        """The interval behind figures per token: ``decode`` if it is known."""
        return self.interval if self.decode is None else self.decode

    @property
    def judged_tokens(self) -> int:
        """The tokens generated during ``judged``."""
        if self.decode is None:
            return self.tokens
        if self.decode_tokens is not None:
            return self.decode_tokens
        return self.tokens - len(self.sequences_ns)

    def adjust(self, clock: Callable[[Interval], int]) -> Block:
        """Return the block with its wall times as ``clock`` reads them, as if nothing else had run.

        Token times shrink in proportion. A single gap is then wrong, because the time of other
        processes fell into one of them; sums are right.
        """
        whole, decode = self.interval, self.decode
        first = rest = clock(whole) / max(whole.wall_ns, 1)
        if decode is not None:
            rest = clock(decode) / max(decode.wall_ns, 1)
            before_ns = max(clock(whole) - clock(decode), 0)
            first = before_ns / max(whole.wall_ns - decode.wall_ns, 1)
        return replace(
            self,
            interval=Interval(clock(whole), whole.cpu_ns, 0),
            sequences_ns=tuple(
                tuple(round(gap * (rest if at else first)) for at, gap in enumerate(gaps))
                for gaps in self.sequences_ns
            ),
            decode=None if decode is None else Interval(clock(decode), decode.cpu_ns, 0),
        )

    def with_late_work(self, cpu_ns: int) -> Block:
        """Return the block with work that was done after its last token."""
        return replace(self, interval=add_late_work(self.interval, cpu_ns))

    def without_decode(self) -> Block:
        """Return the block with its decode not separated."""
        return replace(self, decode=None, decode_tokens=None)


class Run(Struct, frozen=True, dict=True):
    """One process from start to end.

    Attributes:
        started_ticks: The process's start in clock ticks since boot. With ``pid`` it identifies
            the process until the machine reboots.
        load_ns: From start to ready, imports included. None for a program, which does not report
            when it has loaded: the time to its first token includes start and load.
        peak_rss_bytes: The peak before the reference kernel allocates its matrices; of a program
            up to its first token.
        pair: The number of its pair, from 0; None outside a comparison in pairs.
        cpu: The core that the process was bound to.
        shares_core: Whether the other side of its pair ran on that core at the same time. Then
            part of its wall time belongs to that side, and only its scheduler-adjusted and its CPU
            time say how fast it is.
        reported: Figures that the engine reports about itself, by source and sequence.
        prompts: The prompt of each sequence, by its place in the set; empty if there is one prompt.
    """

    role: Role
    pid: Positive
    started_ticks: Count | None
    started_at: Timestamp
    load_ns: Count | None
    blocks: tuple[Block, ...]
    token_digest: Sha256
    tokens_per_sequence: Count
    peak_rss_bytes: Positive | None
    read_bytes: Count | None
    threads: Count | None
    voluntary_switches: Count | None
    involuntary_switches: Count | None
    cpu_pressure_pct: NonNegative | None
    pair: int | None = None
    cpu: Count | None = None
    shares_core: bool = False
    reported: tuple[Report, ...] = ()
    prompts: tuple[Count, ...] = ()

    @property
    def sequence_lengths(self) -> list[int]:
        """The tokens of each sequence."""
        return [len(gaps) for block in self.blocks for gaps in block.sequences_ns]

    @property
    def own(self) -> Run:
        """The run without the time that the other side of its pair used on a shared core."""
        if not self.shares_core:
            return self
        return self._adjust(lambda interval: interval.quiet_ns)

    @property
    def judged(self) -> Run:
        """The run as comparisons in pairs judge it: by the time it would have taken alone.

        A process with several threads runs in turn with the other side and is bound to no core.
        """
        if self.pair is None or self.cpu is not None or (self.threads or 1) == 1:
            return self.own
        return self._adjust(lambda interval: interval.parallel_ns)

    def _adjust(self, clock: Callable[[Interval], int]) -> Run:
        return replace(self, blocks=tuple(block.adjust(clock) for block in self.blocks))

    @computed_once
    def intervals(self) -> list[Interval]:
        """The intervals of all blocks: the whole block, its reference, its decode."""
        found = [(block.interval, block.reference, block.decode) for block in self.blocks]
        return [each for every in found for each in every if each is not None]

    @computed_once
    def wall_ns(self) -> int:
        """Wall time of all measured blocks."""
        return sum([block.interval.wall_ns for block in self.blocks])

    @computed_once
    def lasted_s(self) -> float:
        """The shortest possible time from the dated start of the run to its end."""
        # The reference kernel runs once between two blocks and is recorded in both.
        reference_ns = sum([each.reference.wall_ns for each in self.blocks if each.reference])
        return (self.wall_ns + reference_ns / 2 + (self.load_ns or 0)) / 1e9

    @computed_once
    def lengths(self) -> frozenset[int]:
        """The numbers of tokens that its sequences have, mostly one for all of them."""
        return frozenset(chain(*[map(len, block.sequences_ns) for block in self.blocks]))

    @computed_once
    def tokens(self) -> int:
        """Tokens generated in all measured blocks."""
        if len(self.lengths) == 1:
            return min(self.lengths) * sum([len(block.sequences_ns) for block in self.blocks])
        return sum([block.tokens for block in self.blocks])

    @computed_once
    def judged_tokens(self) -> int:
        """The tokens behind figures per token."""
        if all(block.decode is None for block in self.blocks):
            return self.tokens
        return sum([block.judged_tokens for block in self.blocks])


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one of several prompts: its place in the set, tokens and their digest."""

    prompt: Count
    tokens: Positive
    digest: Sha256


def find_other_answers(
    one: Sequence[Answer], other: Sequence[Answer]
) -> list[tuple[Answer, Answer]]:
    """Return the answers of both to the same prompts if they differ."""
    others = {each.prompt: each for each in other}
    pairs = [(each, others.get(each.prompt, each)) for each in one]
    return [pair for pair in pairs if pair[0] != pair[1]]


@dataclass(frozen=True, slots=True)
class Observation:
    """All runs of one workload.

    Attributes:
        tokens: The answer to the first prompt as text; a byte-level token as its byte value.
        differs_at: Index of the first token in which a later sequence differed; None if all
            sequences were equal.
        differs_to: The later sequence's token at ``differs_at``; None if it had ended.
        clock_scope: ``sequence`` if intervals cover prefill and decode; ``process`` if they
            include start and load of a program (its decode is ``Block.decode``).
        engine: The identity that the engine reports, equal in all of its processes.
        answers: The first answer to each prompt that was asked; empty if there is one prompt.
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
    answers: tuple[Answer, ...] = ()

    def has_other_tokens(self, other: Observation) -> bool:
        """Whether both answered the same prompt with different tokens."""
        answers = find_other_answers(self.answers, other.answers)
        return self.tokens != other.tokens or bool(answers)

    @property
    def timed(self) -> tuple[Run, ...]:
        """The runs that no profiler touched."""
        return tuple(run for run in self.runs if run.role == "timed")


def uses_running_server(recipe: Mapping[str, object]) -> bool:
    """Return whether the recipe measures one server for all runs, not one process for each."""
    url = recipe.get("url")
    has_url = isinstance(url, str) and bool(url.strip())
    return recipe.get("engine") == "openai" and has_url and not recipe.get("serve")
