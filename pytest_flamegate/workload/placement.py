"""Where a process runs and how its stack begins: what two sides must have in common.

The processes of a pair take turns on one core. Two cores of a shared machine are
seldom equally fast (another tenant works beside one of them), and left to the
scheduler each side keeps the core it got: pairs of the same code then differed by
5.8 % (standard deviation), on one core by 1.1 to 2.4 %.

The environment and the arguments lie at the top of the stack, and their size shifts
all that is below: it changes the alignment of what a program keeps there. So they
are filled up to whole pages.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

FILLER = "FLAMEGATE_FILLER"
_PAGE_BYTES = 4096


def some_cpu(rng: random.Random) -> int | None:
    """Return one of the cores this process may use; None where it cannot be bound to one."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return rng.choice(sorted(os.sched_getaffinity(0)))


@contextlib.contextmanager
def on_cpu(cpu: int | None) -> Iterator[None]:
    """Bind this thread, and what it starts meanwhile, to one core; None binds to nothing."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def filled(argv: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` with a filler, so that it takes whole pages together with ``argv``."""
    rest = {name: value for name, value in env.items() if name != FILLER}
    # Each string ends in a NUL, and the program's name stands there once more.
    strings = [argv[0], *argv, *(f"{name}={value}" for name, value in rest.items()), f"{FILLER}="]
    used = sum(len(os.fsencode(text)) + 1 for text in strings)
    return {**rest, FILLER: "." * (-used % _PAGE_BYTES)}
