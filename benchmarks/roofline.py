"""How fast memory is read here, by method and number of threads.

    python -m benchmarks.roofline [--seconds 6]

Each thread has its own part of an array that no cache holds; the methods take turns. Bytes read
and bytes written count once each, as in STREAM. The method in use is marked with a star.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarks.tables import Table, as_markdown
from pytest_flamegate.child.machine import measure_rates, read_slice
from pytest_flamegate.observe.machine import find_array_bytes, find_cache_bytes

if TYPE_CHECKING:
    from pytest_flamegate.child.machine import Read, Slice

ROUNDS = 3


def methods() -> Mapping[str, Read]:
    """Return functions that read, or read and write, a whole slice."""
    import numpy as np

    libc = ctypes.CDLL(None)
    libc.memchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    libc.memchr.restype = ctypes.c_void_p
    libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    # Bytes of 1.0 as float32: 0, 0, 128 and 63, so there is no 7 to stop at.
    ones = np.ones(1024, np.float32)

    def memchr(values: Slice) -> Any:
        return libc.memchr(values.ctypes.data, 7, values.nbytes)

    def memcmp(values: Slice) -> Any:
        half = values.nbytes // 2
        return libc.memcmp(values.ctypes.data, values.ctypes.data + half, half)

    def dot_self(values: Slice) -> Any:
        return values.dot(values)

    def largest(values: Slice) -> Any:
        return np.maximum.reduce(values)

    def sum_floats(values: Slice) -> Any:
        return np.add.reduce(values)

    def product(values: Slice) -> Any:
        return values[: values.size // 1024 * 1024].reshape(-1, 1024).dot(ones)

    def copy(values: Slice) -> Any:
        half = values.size // 2
        np.copyto(values[half : 2 * half], values[:half])

    def triad(values: Slice) -> Any:
        # In STREAM's words a = b + 3 c; NumPy writes 3 c to a, and reads it again.
        third = values.size // 3
        a, b, c = (values[at * third : (at + 1) * third] for at in range(3))
        np.multiply(c, np.float32(0), out=a)
        np.add(a, b, out=a)

    def sum_integers(values: Slice) -> Any:
        return np.add.reduce(values.view(np.int64))

    return {
        "numpy dot of two halves, float32 *": read_slice,
        "numpy sum, int64": sum_integers,
        "memchr (libc)": memchr,
        "memcmp (libc), two streams": memcmp,
        "numpy dot with itself, float32": dot_self,
        "numpy maximum, float32": largest,
        "numpy sum, float32": sum_floats,
        "numpy matrix × vector, 1024 wide": product,
        "numpy copy (read + written)": copy,
        "numpy triad in two steps (two read + one written)": triad,
    }


def table(threads: int, seconds: float) -> Table:
    """Return fastest, median and slowest pass of every method; one row per method."""
    array_bytes = find_array_bytes(find_cache_bytes(threads))
    reads = methods()
    rates: dict[str, list[float]] = {name: [] for name in reads}
    for _ in range(ROUNDS):
        for name, read in reads.items():
            share_s = seconds / ROUNDS / len(reads)
            rates[name] += [r / 1e9 for r in measure_rates(read, array_bytes, threads, share_s)]
    rows = []
    for name, found in sorted(rates.items(), key=lambda item: -max(item[1])):
        figures = (max(found), statistics.median(found), min(found))
        rows.append((name, *(f"{each:.1f}" for each in figures), str(len(found))))
    title = f"{threads} thread{'s' * (threads != 1)}, {array_bytes / 1e6:.0f} MB"
    head = ("method", "fastest GB/s", "median", "slowest", "passes")
    return Table(title, head, tuple(rows))


def main(arguments: list[str]) -> None:
    """Print a table for one thread and one for all cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each table")
    seconds = parser.parse_args(arguments).seconds
    os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        print(as_markdown(table(threads, seconds)))
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
