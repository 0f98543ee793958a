"""Fixed work that measures the machine: memory read as fast as possible, and a reference kernel.

``python -P -m pytest_flamegate.child.machine SLICE_BYTES SECONDS CPU[,CPU…]`` prints the bytes
of one pass over the memory and the seconds that each pass took.

Each CPU has a thread bound to it, with a slice of the array that the thread itself has filled: so
the pages are real and near. A single thread is timed by its CPU time, because reading memory waits
for nothing else; this is the wall time without other processes. Several threads are timed by wall
time, from the first that begins to the last that ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Slice = npt.NDArray[np.float32]
    Read = Callable[[Slice], Any]


MIN_PASSES = 5
_MAX_PASSES = 200
_PASS_BYTES = 128 << 20
"""The least that a thread reads in a pass: starting threads together takes some 0.1 ms."""


def read_slice(values: Slice) -> Any:
    """Read every byte once: the inner product of the slice's halves, two streams, by BLAS.

    The fastest of ten methods in ``benchmarks.roofline``.
    """
    half = values.size // 2
    return values[:half].dot(values[half : 2 * half])


def time_passes(
    read: Read, cpus: Sequence[int], slice_bytes: int, seconds: float
) -> tuple[int, list[float]]:
    """Return the bytes of one pass and the seconds of each, after one that does not count.

    Passes are made for ``seconds``, at least ``MIN_PASSES``. Raises the exception of a thread, such
    as ``MemoryError``.
    """
    repeats = max(1, -(-_PASS_BYTES // slice_bytes))
    numbers, ends_s = count(), list[float]()

    def end_if_over() -> None:
        # Called before each pass, when all threads wait for it; first when all slices are filled.
        ends_s.append(time.monotonic() + seconds)
        number = next(numbers)
        if number > _MAX_PASSES or (number > MIN_PASSES and time.monotonic() > ends_s[0]):
            raise threading.BrokenBarrierError

    def run_passes(cpu: int) -> list[tuple[int, int, int]]:
        """Return when each pass of one thread began and ended, and its CPU time."""
        passes = []
        try:
            os.sched_setaffinity(0, {cpu})  # of this thread alone
            values = np.full(slice_bytes // 4, 1.0, np.float32)
            while True:
                barrier.wait()
                began_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
                for _ in range(repeats):
                    read(values)
                took_cpu_ns = time.thread_time_ns() - cpu_ns
                passes.append((began_ns, time.perf_counter_ns(), took_cpu_ns))
        except threading.BrokenBarrierError:
            return passes
        finally:
            barrier.abort()

    barrier = threading.Barrier(len(cpus), end_if_over)
    with ThreadPoolExecutor(len(cpus)) as pool:
        by_thread = list(pool.map(run_passes, cpus))
    elapsed_ns = [
        together[0][2]
        if len(cpus) == 1
        else max(ended for _, ended, _ in together) - min(began for began, _, _ in together)
        for together in zip(*by_thread, strict=True)
    ]
    return len(cpus) * slice_bytes * repeats, [each / 1e9 for each in elapsed_ns[1:]]


def main(arguments: list[str]) -> int:
    """Print a line of figures; return 1 if memory or a CPU is not available."""
    slice_bytes, seconds, cpus = int(arguments[0]), float(arguments[1]), arguments[2].split(",")
    try:
        pass_bytes, elapsed_s = time_passes(read_slice, list(map(int, cpus)), slice_bytes, seconds)
    except (MemoryError, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - a program
        return 1
    print(pass_bytes, *(f"{each:.9f}" for each in elapsed_s))  # noqa: T201
    return 0


_MATRICES = 4
_SIDE = 1536


class Reference:
    """Work whose cost follows the machine alone; its matrices take 38 MB.

    Its cost changes with the machine's clock, its neighbours' use of cache and memory, and the
    placement of a process, but never with the code under test. So workload time divided by
    reference time varies less than either. It resembles a decode: matrix-vector products over
    more memory than a core's own caches hold, with small vector operations between them.
    """

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._matrices = [
            rng.standard_normal((_SIDE, _SIDE), dtype=np.float32) for _ in range(_MATRICES)
        ]
        self._vector = rng.standard_normal(_SIDE, dtype=np.float32)

    def run(self, times: int) -> None:
        """Do the fixed work ``times`` times (about 2 ms each)."""
        for _ in range(times):
            vector = self._vector
            for matrix in self._matrices:
                vector = matrix @ vector
                for _ in range(8):
                    scale = np.float32(1.0) / np.sqrt(vector.dot(vector) / _SIDE + 1e-5)
                    vector = vector * scale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
