"""Two sides of one workload, measured in pairs: a fresh process of each, taking turns.

The machine's speed drifts within milliseconds (another tenant's cache misses) and within minutes.
Work on the same core a few milliseconds apart is slowed alike, so only the ratio of two
neighbours can show a few percent.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from pytest_flamegate.core.process_system import choose_cpu
from pytest_flamegate.engines.base import Lasting
from pytest_flamegate.observe import engine_process
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.served import SequenceParts, ServedProcess

TURN_S = 0.005
"""The length of a turn, if a sequence can be paused."""
PAIR_S = 0.5
"""The least time each side is measured in a pair."""
MIN_TURNS, MAX_TURNS = 4, 64


@dataclass(slots=True)
class PairObserver:
    """Runs pairs and gives each run to the observer of its side.

    Who starts, who takes the next turn and the core are drawn at random each time. Both sides
    are bound to that core if the workload uses one thread.
    """

    base: Observer
    head: Observer
    rng: random.Random = field(default_factory=random.SystemRandom)
    pairs: int = 0

    def pair(self) -> None:
        """Measure one pair; if a process fails, so does the comparison."""
        bound = self.base.workload.threads == self.head.workload.threads == 1
        place = engine_process.RunPlace(self.pairs, choose_cpu(self.rng) if bound else None)
        sides = self.rng.sample([self.base, self.head], 2)
        if isinstance(self.base.plan, Lasting):
            self._served(sides, place)
        else:
            self._take_turns([partial(side.run_program, place) for side in sides], least=1)
        self.pairs += 1

    def _served(self, sides: list[Observer], place: engine_process.RunPlace) -> None:
        with ExitStack() as stack:
            running = [(side, stack.enter_context(side.serve(place))) for side in sides]
            turns = [_Turns(side, served) for side, served in running]
            if all(turn.pauses for turn in turns):
                self._by_parts(turns)
            else:
                self._by_blocks(turns)
            counted = [served.counters() for _, served in running]
            for turn, counters in zip(turns, counted, strict=True):
                turn.side.record("timed", turn.served, turn.blocks, counters, place)

    def _by_parts(self, turns: list[_Turns]) -> None:
        tokens = max(turn.part_tokens for turn in turns)
        end_s = time.monotonic() + 2 * PAIR_S
        while not turns[0].blocks or time.monotonic() < end_s:
            sequences = [turn.begin_sequence() for turn in turns]
            while open_ := [sequence for sequence in sequences if not sequence.ended]:
                self.rng.shuffle(open_)
                for sequence in open_:
                    sequence.part(tokens)
            for turn, sequence in zip(turns, sequences, strict=True):
                turn.blocks.append(sequence.block())

    def _by_blocks(self, turns: list[_Turns]) -> None:
        sequences = max(turn.sequences for turn in turns)
        self._take_turns([partial(turn.block, sequences) for turn in turns], MIN_TURNS)

    def _take_turns(self, takes: Sequence[Callable[[], object]], least: int) -> None:
        """Call both sides in turns for 1 s, each at least ``least`` times and at most 64."""
        end_s = time.monotonic() + 2 * PAIR_S
        done = 0
        while done < least or (done < MAX_TURNS and time.monotonic() < end_s):
            for take in self.rng.sample(takes, len(takes)):
                take()
            done += 1


class _Turns:
    """One side of a pair of served processes."""

    def __init__(self, side: Observer, served: engine_process.EngineProcess) -> None:
        self.side = side
        self.served = served
        self.blocks: list[Block] = []
        warm_s = served.measure_warm_up_s()
        tokens = min(engine_process.WARM_TOKENS, side.workload.max_tokens)
        self.part_tokens = max(1, round(TURN_S * tokens / warm_s))
        self.sequences = max(1, round(TURN_S / warm_s))
        stands_still = isinstance(served, ServedProcess) and served.stands_still
        self.pauses = stands_still and side.workload.max_tokens > self.part_tokens

    def begin_sequence(self) -> SequenceParts:
        assert isinstance(self.served, ServedProcess)
        return self.served.begin_sequence()

    def block(self, sequences: int) -> None:
        self.blocks.append(self.served.block(sequences))
        self.side.devices.inspect(self.served.pid)
