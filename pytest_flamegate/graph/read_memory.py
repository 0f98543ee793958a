"""Read memory as fast as it goes, in a process of its own.

``python -P -m pytest_flamegate.graph.read_memory SLICE_BYTES SECONDS CPU[,CPU…]`` prints a line for
each method: its name, the bytes of one pass, and the seconds that each pass took.

Each CPU has a thread of its own, bound to it, with a slice of its own, which the thread itself
has filled: so no page is the kernel's shared page of zeros, and each lies in the memory that is
near. One thread is clocked by its CPU time: reading never waits for anything else, so this is
wall time without what other processes took. Several are clocked by wall time, from the first
that begins to the last that ends: only what was read side by side counts.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt


if TYPE_CHECKING:
    Slice = npt.NDArray[np.float32]
    Read = Callable[[Slice], Any]

LEAST_PASSES = 5
_MOST_PASSES = 200
_PASS_BYTES = 128 << 20
"""What a thread reads in one pass at the least: starting threads together takes some 0.1 ms."""
_S = 1e-9


def sum_of_integers(values: Slice) -> Any:
    """Read every byte once: the sum of the slice as 64-bit integers, one stream."""
    import numpy as np

    return np.add.reduce(values.view(np.int64))


def dot_of_halves(values: Slice) -> Any:
    """Read every byte once: the inner product of the slice's halves, two streams, by BLAS."""
    half = values.size // 2
    return values[:half].dot(values[half : 2 * half])


READS: Mapping[str, Read] = MappingProxyType(
    {"sum-int64": sum_of_integers, "dot-float32": dot_of_halves}
)
"""What reads each byte of a slice once and writes nothing."""


@dataclass
class _Turn:
    """What all threads do next; None ends them. ``failed`` is why one of them could not."""

    read: Read | None = None
    failed: BaseException | None = None
    begun_ns: list[int] = field(default_factory=list)
    ended_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)


def measure(
    reads: Mapping[str, Read], cpus: Sequence[int | None], slice_bytes: int, seconds: float
) -> tuple[int, dict[str, list[float]]]:
    """Return the bytes of one pass, and the seconds of every pass by method.

    The methods take turns until ``seconds`` are over, each with at least ``LEAST_PASSES``, after
    one that does not count. A CPU that is None binds its thread to nothing. Raises what a thread
    raises, such as ``MemoryError``.
    """
    turn, barrier = _Turn(), threading.Barrier(len(cpus) + 1)
    again = max(1, -(-_PASS_BYTES // slice_bytes))
    threads = [
        threading.Thread(target=_work, args=(turn, barrier, cpu, slice_bytes, again), daemon=True)
        for cpu in cpus
    ]
    for thread in threads:
        thread.start()
    took: dict[str, list[float]] = {name: [] for name in reads}
    try:
        barrier.wait()  # all slices are filled
        deadline = time.monotonic() + seconds
        for number in range(_MOST_PASSES):
            if number > LEAST_PASSES and time.monotonic() > deadline:
                break
            for name, read in reads.items():
                elapsed_s = _pass(turn, barrier, read)
                if number:
                    took[name].append(elapsed_s)
        turn.read = None
        barrier.wait()
    except threading.BrokenBarrierError:
        raise turn.failed or RuntimeError("a thread ended") from None
    for thread in threads:
        thread.join()
    return len(cpus) * slice_bytes * again, took


def _pass(turn: _Turn, barrier: threading.Barrier, read: Read) -> float:
    turn.read = read
    turn.begun_ns, turn.ended_ns, turn.cpu_ns = [], [], []
    barrier.wait()
    barrier.wait()
    if len(turn.cpu_ns) == 1:
        return turn.cpu_ns[0] * _S
    return (max(turn.ended_ns) - min(turn.begun_ns)) * _S


def _work(
    turn: _Turn, barrier: threading.Barrier, cpu: int | None, slice_bytes: int, again: int
) -> None:
    try:
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})  # of this thread alone
        values = _filled(slice_bytes)
        barrier.wait()
        while True:
            barrier.wait()
            if (read := turn.read) is None:
                return
            begun_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
            for _ in range(again):
                read(values)
            turn.cpu_ns.append(time.thread_time_ns() - cpu_ns)
            turn.ended_ns.append(time.perf_counter_ns())
            turn.begun_ns.append(begun_ns)
            barrier.wait()
    except threading.BrokenBarrierError:
        return
    except BaseException as error:
        turn.failed = error
        barrier.abort()


def _filled(slice_bytes: int) -> Slice:
    import numpy as np

    return np.full(slice_bytes // 4, 1.0, np.float32)


def main(arguments: list[str]) -> int:
    """Measure what the arguments name and print it; 1 where memory or a CPU was refused."""
    slice_bytes, seconds, cpus = int(arguments[0]), float(arguments[1]), arguments[2].split(",")
    bound: list[int | None] = [int(cpu) if cpu != "-" else None for cpu in cpus]
    try:
        pass_bytes, took = measure(READS, bound, slice_bytes, seconds)
    except (MemoryError, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - a program
        return 1
    for name, passes_s in took.items():
        print(name, pass_bytes, *(f"{each:.9f}" for each in passes_s))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
