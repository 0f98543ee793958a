"""The prompts of a workload that declares several: an order for each process, taken one by one.

An engine can remember an answer, or prepare it as soon as it knows the prompt. So a process is
given each prompt only when its answer is timed, and is never timed with the same one again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import cycle, islice

from pytest_flamegate.config.workload import Workload

MANY = 1 << 30
"""The prompts that are left of a single one: it may be answered any number of times."""


@dataclass(slots=True)
class PromptDeck:
    """Draws the order in which a process is asked ``count`` prompts, by their numbers.

    The least used come first, because answers can be remembered in files too. The very first
    answer is that to prompt 0: the evidence lists its tokens.
    """

    count: int
    rng: random.Random = field(default_factory=random.SystemRandom)
    _used: Counter[int] = field(default_factory=Counter)

    def draw(self) -> tuple[int, ...]:
        """Return an order for one process, or for both sides of a pair."""
        order = self.rng.sample(range(self.count), self.count)
        if self._used[0] == 0:
            order.remove(0)
            order.insert(0, 0)
        return tuple(sorted(order, key=lambda each: self._used[each]))

    def deal(self, processes: int) -> list[tuple[int, ...]]:
        """Return an order for each of several that run at once: each begins with other prompts."""
        order = self.draw()
        hands = [order[each::processes] for each in range(processes)]
        return [(*hand, *(each for each in order if each not in hand)) for hand in hands]

    def note_used(self, numbers: Iterable[int]) -> None:
        """Note the prompts that a process has answered."""
        self._used.update(numbers)


class PromptQueue:
    """The prompts of one process in their order, the last of which is for warming up.

    ``measured`` are the numbers of those that were asked in measured sequences.
    """

    def __init__(self, workload: Workload, order: tuple[int, ...] = (0,)) -> None:
        self._texts = workload.all_prompts
        self._order = order
        self.warm_up = order[-1]
        self.measured: list[int] = []

    @property
    def left(self) -> int:
        """How many measured sequences can follow without a prompt that was asked before."""
        return MANY if len(self._order) == 1 else len(self._order) - 1 - len(self.measured)

    def take(self, count: int, *, again: bool = False) -> list[int]:
        """Return the next prompts, at most ``count``; ``again`` begins anew at the end."""
        before, own = len(self.measured), self._order[:-1] or self._order
        taken = list(islice(cycle(own), before, before + count))
        taken = taken if again else taken[: self.left]
        self.measured += taken
        return taken

    def texts(self, numbers: Iterable[int]) -> list[str]:
        """Return the prompts with these numbers."""
        return [self._texts[each] for each in numbers]
