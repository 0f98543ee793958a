"""Fixed work that measures the machine: memory read as fast as possible, and a reference kernel.

``python -P -m pytest_flamegate.child.machine ARRAY_BYTES THREADS SECONDS`` prints the bytes per
second of the fastest pass over an array, and the number of passes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Slice = npt.NDArray[np.float32]
    Read = Callable[[Slice], Any]


MIN_PASSES = 5


def read_slice(values: Slice) -> Any:
    """Read every byte once: the inner product of the slice's halves, two streams, by BLAS.

    The fastest of ten methods in ``benchmarks.roofline``.
    """
    half = values.size // 2
    return values[:half].dot(values[half : 2 * half])


def measure_rates(read: Read, array_bytes: int, threads: int, seconds: float) -> list[float]:
    """Return the bytes per second of each pass, after one that does not count.

    Each thread fills and reads a part of the array. There are passes for ``seconds``, at least
    ``MIN_PASSES``.
    """
    size, rates = array_bytes // threads // 4, list[float]()
    with ThreadPoolExecutor(threads) as pool:
        slices = list(pool.map(lambda _: np.full(size, 1.0, np.float32), range(threads)))
        end_s = time.monotonic() + seconds
        while len(rates) <= MIN_PASSES or time.monotonic() < end_s:
            began_s = time.perf_counter()
            list(pool.map(read, slices))
            rates.append(4 * size * threads / (time.perf_counter() - began_s))
    return rates[1:]


def main(arguments: list[str]) -> int:
    """Print the figures."""
    array_bytes, threads, seconds = int(arguments[0]), int(arguments[1]), float(arguments[2])
    rates = measure_rates(read_slice, array_bytes, threads, seconds)
    print(max(rates), len(rates))  # noqa: T201 - a program
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
