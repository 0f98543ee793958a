"""Two sides of one workload, measured in pairs of fresh processes.

The machine's speed drifts within milliseconds (another tenant's cache misses) and within minutes,
so only two processes that meet the same disturbances show a few percent. Both sides of a pair are
therefore bound to one core and run at the same time: the kernel alternates between them every few
milliseconds, and each is charged for the time that it ran. Pairs of the same code then differ by
0.5 to 1.1 % on a busy machine.

Their wall times say nothing, because the scheduler makes both end together. They also load at the
same time: processes that loaded on cores of their own differed by 3 % all their lives, by where
their weights came to lie in memory.

Two pairs may run at the same time too, each on a core of its own.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from pytest_flamegate.core import process, process_system
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.engines.base import Endpoint, Lasting, Plan, Served
from pytest_flamegate.observe.engine_process import EngineProcess, RunPlace
from pytest_flamegate.observe.machine import CpuQuota, find_available_bytes, read_cpu_quota
from pytest_flamegate.observe.observation import MOST_AT_ONCE, Block
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.scratch import copy_program, scratch_prefix

PAIR_S, LONGEST_S = 0.5, 4.0
"""The time each side is measured in a pair by its own clock, and the most that takes."""
BLOCK_S = 0.25
"""The time of a side's block, roughly: what one side runs alone at its end is a small part."""
MAX_ROUNDS = 64
_UNBOUND = "this system does not let it be bound to a core"

T = TypeVar("T")


@dataclass(slots=True)
class PairObserver:
    """Runs pairs and gives each run to the observer of its side.

    Both sides share a core, drawn at random for each pair, if the workload uses one thread and
    mostly computes. Otherwise they alternate, in an order drawn at random: threads of both sides
    would wait for each other, and so would two clients of one device or server. ``in_turn`` has
    them alternate in any case.
    """

    base: Observer
    head: Observer
    rng: random.Random = field(default_factory=random.SystemRandom)
    in_turn: bool = False
    pairs: int = 0
    _quota: CpuQuota | None = field(default_factory=read_cpu_quota)
    _earlier: frozenset[int] = frozenset()
    _failure: BaseException | None = None
    _tried_at_once: FlamegateError | None = None

    @property
    def shares_core(self) -> bool:
        """Whether both sides of a pair run at the same time on one core."""
        alternates = self.in_turn or any(map(_waits, (self.base, self.head)))
        return self._uses_one_thread and not alternates

    @property
    def at_once(self) -> int:
        """How many pairs can run at the same time, each on a core of its own."""
        is_one = any(
            # A copy of this process may hold a lock that another thread had when it was made.
            side.devices.has_device or (isinstance(side.plan, Served) and side.plan.call)
            for side in (self.base, self.head)
        )
        if not self.shares_core or is_one or self._tried_at_once is not None:
            return 1
        needed = self.base.peak_rss_bytes + self.head.peak_rss_bytes
        fitting = find_available_bytes() // max(needed, 1)
        cores = len(process_system.choose_cpus(self.rng, MOST_AT_ONCE))
        allowed = int(self._quota.cores) if self._quota is not None else cores
        return max(1, min(cores, allowed, fitting))

    def pair(self, most: int = 1) -> None:
        """Measure a pair, or at most so many at once; if a process fails, so does the comparison.

        Raises the error of the process that failed first.
        """
        places = self._choose_places(self.pairs, most)
        if not places[0].shares_core and not self.in_turn:
            reason = "it waits for something else"
            if places[0].cpu is None:
                reason = _UNBOUND if self._uses_one_thread else "it declares several threads"
            self.head.notes["I_ALTERNATED"] = (
                f"Both sides ran in turn and not at the same time on one core, because {reason}. "
                "Pairs that alternate differ by several percent, so more of them are needed."
            )
        try:
            self._join([partial(self._measure, place) for place in places])
        except FlamegateError as error:
            if len(places) == 1 or self.pairs:
                raise
            # A port, a lock or a licence may suffice for one pair, as in the warm-up.
            self._tried_at_once = error
            self.pair()
            self.head.notes["I_ONE_AT_A_TIME"] = (
                f"Two pairs at once failed, and one at a time did not. {error.problem}"
            )
            return
        self.pairs += len(places)
        self._note_throttling()

    def _join(self, measure: Sequence[Callable[[], Sequence[Observer]]]) -> None:
        """Measure pairs at once, and take what the branches of base and head observed."""
        for base, head in self._call_at_once(measure):
            self.base.join(base)
            self.head.join(head)

    def _measure(self, place: RunPlace) -> list[Observer]:
        """Measure one pair; return the branches of base and head that observed it."""
        sides = dict[int, Observer]()
        with ExitStack() as stack:
            for each in self.rng.sample(range(2), 2):
                side = (self.base, self.head)[each]
                sides[each] = side.branch(stack.enter_context(_copied_files(side)))
            started = list(sides.values())
            if isinstance(self.base.plan, Lasting):
                self._measure_served(started, place)
            else:
                calls = [partial(_run_program, side, place) for side in started]
                self._measure_rounds(calls, place)
        return [sides[0], sides[1]]

    def _note_throttling(self) -> None:
        before, after = self._quota, read_cpu_quota()
        if before is None or after is None or after.throttled <= before.throttled:
            return
        self.head.notes["I_THROTTLED"] = (
            f"This container may use {after.cores:g} cores and was stopped "
            f"{after.throttled - before.throttled} times while pairs ran, for "
            f"{after.throttled_s - before.throttled_s:.1f} s in all. The quiet clock leaves that "
            "time out; wall times contain it, and pairs take longer."
        )

    def run_both(
        self, calls: Sequence[Callable[[Observer, RunPlace], object]], number: int, most: int = 1
    ) -> None:
        """Profile a process of each side, or clock its bricks, as pairs from ``number`` on.

        At most so many do so at once. Raises as ``pair``.
        """

        def measure(place: RunPlace) -> list[Observer]:
            sides = [self.base.branch(self.base.plan), self.head.branch(self.head.plan)]
            own = zip(calls, sides, strict=True)
            self._call([partial(call, side, place) for call, side in own], place)
            return sides

        self._join([partial(measure, place) for place in self._choose_places(number, most)])

    def _choose_places(self, number: int, most: int) -> list[RunPlace]:
        """Return the places of the pairs from ``number`` on that run next, at most so many."""
        self._earlier, self._failure = frozenset(process.running()), None
        cpus: list[int] = []
        if self._uses_one_thread:
            count = min(most, self.at_once) if most > 1 else 1
            cpus = process_system.choose_cpus(self.rng, count)
        shares_core = self.shares_core and bool(cpus)
        places: Sequence[int | None] = cpus or [None]
        hands = self.base.deck.deal(len(places))
        return [
            RunPlace(number + each, cpu, shares_core, hand)
            for each, (cpu, hand) in enumerate(zip(places, hands, strict=True))
        ]

    @property
    def _uses_one_thread(self) -> bool:
        return self.base.workload.threads == self.head.workload.threads == 1

    def _measure_served(self, sides: Sequence[Observer], place: RunPlace) -> None:
        with ExitStack() as stack:
            started = [(side, stack.enter_context(closing(side.start(place)))) for side in sides]
            self._call([partial(side.await_ready, served) for side, served in started], place)
            block_s = 2 * BLOCK_S if place.shares_core else BLOCK_S
            warm_ups = [
                partial(side.warm_up_for, served, block_s, place) for side, served in started
            ]
            sequences = max(self._call(warm_ups, place))

            def is_over(timed_s: float) -> bool:
                # Both sides are asked the same prompts, and notes are the head's.
                return True in [each.note_few_prompts(timed_s, PAIR_S) for _, each in started]

            blocks: list[list[Block]] = [[] for _ in started]

            def block(side: Observer, served: EngineProcess, done: list[Block]) -> Block:
                done.append(served.block(sequences))
                side.devices.inspect(served.pid)
                return done[-1]

            self._measure_rounds(
                [partial(block, *each, done) for each, done in zip(started, blocks, strict=True)],
                place,
                is_over,
            )
            for (side, served), done in zip(started, blocks, strict=True):
                done[-1] = done[-1].with_late_work(served.take_late_work())
                side.record("timed", served, done, served.counters(), place)

    def _measure_rounds(
        self,
        calls: Sequence[Callable[[], Block]],
        place: RunPlace,
        is_over: Callable[[float], bool] = lambda _: False,
    ) -> None:
        """Call both sides until each was measured for ``PAIR_S``, once at least.

        ``is_over`` of the seconds measured so far ends the rounds early.
        """
        end_s, measured_ns = time.monotonic() + LONGEST_S, [0] * len(calls)
        for _ in range(MAX_ROUNDS):
            for each, block in enumerate(self._call(calls, place)):
                measured_ns[each] += block.interval.quiet_ns
            timed_s = min(measured_ns) / 1e9
            if is_over(timed_s) or timed_s >= PAIR_S or time.monotonic() >= end_s:
                return

    def _call(self, calls: Sequence[Callable[[], T]], place: RunPlace) -> list[T]:
        order = self.rng.sample(range(len(calls)), len(calls))
        if place.shares_core:
            done = self._call_at_once([calls[each] for each in order])
            results = dict(zip(order, done, strict=True))
        else:
            results = {each: calls[each]() for each in order}
        return [results[each] for each in range(len(calls))]

    def _call_at_once(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Call each in a thread of its own, or in this one if it is alone; raise the first error.

        The threads wait for the processes of these pairs. If one fails or this thread is
        interrupted, all of these are killed, so that no thread waits any longer. Errors of
        killed processes are ignored.
        """
        if len(calls) == 1:
            return [calls[0]()]
        with ThreadPoolExecutor(len(calls)) as pool:
            futures = [pool.submit(call) for call in calls]
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            except BaseException as error:
                first = self._failure = self._failure or error
                while wait(futures, timeout=0.05).not_done:
                    for leader, marker in process.running().items():
                        if leader not in self._earlier:
                            for pid in process_system.find_tree(leader, marker):
                                process_system.kill(pid)
                if error is first:
                    raise
                raise first from None
        return [future.result() for future in futures]


@contextmanager
def _copied_files(side: Observer) -> Iterator[Plan]:
    """Return the side's plan with fresh copies of its program or libraries, within the block.

    Those that the project holds are copied.
    """
    plan = side.plan
    with ExitStack() as stack:
        if isinstance(plan, Served):
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix=scratch_prefix()))
            yield replace(plan, load={**plan.load, "copies": home})
        elif plan.argv:
            copied = copy_program(plan.argv[0], side.workload.directory)
            yield replace(plan, executable=stack.enter_context(copied))
        else:
            yield plan


def _run_program(side: Observer, place: RunPlace) -> Block:
    return side.run_program(place).blocks[0]


def _waits(side: Observer) -> bool:
    """Whether the engine mostly waits, or both sides would be clients of one running server."""
    return side.waits or (isinstance(side.plan, Endpoint) and side.plan.url is not None)
