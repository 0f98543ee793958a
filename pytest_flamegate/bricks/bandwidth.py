"""How fast this machine reads memory: the ceiling of an engine that reads its weights once a token.

STREAM's way, for reading alone: arrays of four times the last-level cache, filled before they
are read, threads bound to cores, and of many passes the fastest is the figure, with the median
and the slowest beside it. Every byte of the array counts once and nothing is written, for a
decoder hardly writes either; STREAM's own copy and triad count what they write and are slower.

What reads is NumPy: a sum of 64-bit integers and a BLAS inner product take turns, and the faster
one is the method. Beside ``memchr``, ``memcmp``, maxima and matrix products these were the
fastest for one thread, and ``memchr`` and ``memcmp`` came within a tenth of them: it is the
memory that was measured, not what reads. The work is done in a library that was compiled before,
which no compiler can leave out. ``python -m benchmarks.roofline`` shows all of them.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import statistics
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pytest_flamegate.bricks.hardware import available_bytes, last_level_cache_bytes
from pytest_flamegate.bricks.reading import READS
from pytest_flamegate.errors import ToolError, UsageError
from pytest_flamegate.workload import process, user_cache
from pytest_flamegate.workload.machine import identity

CACHES = 4
"""How many times the last-level caches an array is."""
ASSUMED_CACHE_BYTES = 64 << 20
"""The last-level cache of a machine that does not tell it: larger than most."""
MEASURE_S = 1.2
_TIMEOUT_S = 30.0
_KEPT_FOR = timedelta(days=7)
_VERSION = "1"
_FILE = "bandwidth-1"
_LINE = re.compile(r"([0-9a-f]{64}) ([0-9a-zT:.+,-]{20,300})", re.ASCII)
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1"
)


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes that ``threads`` threads together read from memory in a second.

    ``bytes_per_second`` is of the fastest of ``repeats`` passes over ``array_bytes``, as STREAM
    has it; ``median`` and ``low`` (the slowest) are bytes per second too, and what lies between
    is other processes' doing. ``cache_bytes`` are the last-level caches of the cores that read,
    None where nothing told and ``ASSUMED_CACHE_BYTES`` was taken. ``measured_at`` is RFC 3339;
    ``cached`` says that it was measured in an earlier run.
    """

    bytes_per_second: float
    low: float
    median: float
    method: str
    array_bytes: int
    repeats: int
    threads: int
    measured_at: str
    cached: bool
    cache_bytes: int | None = None

    @property
    def words(self) -> str:
        """``31.7 GB/s by 1 thread (median 29.4, slowest 17.2 of 120 passes over 134 MB …)``."""
        cache = "an assumed cache" if self.cache_bytes is None else "its cache"
        return (
            f"{self.bytes_per_second / 1e9:.1f} GB/s by {threads_told(self.threads)} (median "
            f"{self.median / 1e9:.1f}, slowest {self.low / 1e9:.1f} of {self.repeats} passes over "
            f"{self.array_bytes / 1e6:,.0f} MB, {CACHES} × {cache}; {self.method})"
        )


def threads_told(threads: int) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{threads} thread{'s' * (threads != 1)}"


def machine_bandwidth(threads: int = 1, *, fresh: bool = False) -> Bandwidth:
    """Return what was measured here in the last seven days, else measure it, in about 2 s.

    More ``threads`` than there are cores to use count as one for each core. ``fresh`` measures
    in any case. Raises ``UsageError`` E_BANDWIDTH_THREADS for less than one thread; ``ToolError``
    E_BANDWIDTH_MEMORY where the array is more than half of the memory that is available, for a
    smaller one would lie in the cache, E_BANDWIDTH_FAILED where the process that measures fails.
    """
    cpus = _cpus(threads)
    if not fresh and (kept := _kept(cpus)) is not None:
        return kept
    caches = None if cpus[0] is None else last_level_cache_bytes(cpu or 0 for cpu in cpus)
    slice_bytes = -(-CACHES * (caches or ASSUMED_CACHE_BYTES) // len(cpus)) // 64 * 64 + 64
    _require_memory(slice_bytes * len(cpus))
    measured = _measured(cpus, slice_bytes, caches)
    _keep(cpus, measured)
    return measured


def known_bandwidth(threads: int = 1) -> Bandwidth | None:
    """Return what was measured here in the last seven days; nothing is measured."""
    return _kept(_cpus(threads))


def _cpus(threads: int) -> list[int | None]:
    """Return the core of each thread, the lowest ones; None where none can be chosen."""
    if threads < 1:
        raise UsageError(
            "E_BANDWIDTH_THREADS",
            f"The read bandwidth of {threads} threads was asked for.",
            "Ask for one thread or more.",
        )
    if not hasattr(os, "sched_getaffinity"):
        return [None] * min(threads, os.cpu_count() or 1)
    return list(sorted(os.sched_getaffinity(0))[:threads])


def _require_memory(needed_bytes: int) -> None:
    there = available_bytes()
    if needed_bytes > there // 2:
        raise ToolError(
            "E_BANDWIDTH_MEMORY",
            f"The read bandwidth was not measured: that takes {needed_bytes >> 20} MiB ({CACHES} "
            f"times the last-level cache), more than half of the {there >> 20} MiB available.",
            "End other processes or raise the memory limit; a smaller array would lie in the "
            "cache.",
        )


def _measured(cpus: list[int | None], slice_bytes: int, caches: int | None) -> Bandwidth:
    cores = ",".join("-" if cpu is None else str(cpu) for cpu in cpus)
    argv = [sys.executable, "-P", "-m", "pytest_flamegate.bricks.reading"]
    argv += [str(slice_bytes), str(MEASURE_S), cores]
    done = process.run(argv, timeout_s=_TIMEOUT_S, env={**os.environ, **_ONE_THREAD})
    passes = {} if done.timed_out else _passes(done.stdout.decode("ascii", "replace"))
    if done.returncode or not passes:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = f"ran for more than {_TIMEOUT_S:g} s" if done.timed_out else "failed"
        raise ToolError(
            "E_BANDWIDTH_FAILED",
            f"The process that measures the read bandwidth {why}"
            f"{f': {ascii(said[-1])[1:200]}' if said else ''}.",
            "Run it again when the machine is less busy; nothing is gated on it.",
        )
    method = max(passes, key=lambda name: max(passes[name]))
    rates = passes[method]
    return Bandwidth(
        bytes_per_second=max(rates),
        low=min(rates),
        median=statistics.median(rates),
        method=method,
        array_bytes=slice_bytes * len(cpus),
        repeats=len(rates),
        threads=len(cpus),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        cached=False,
        cache_bytes=caches,
    )


def _passes(text: str) -> dict[str, list[float]]:
    """Return the bytes per second of every pass by method; nothing of a line that is none."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        name, _, figures = line.partition(" ")
        try:
            pass_bytes, *seconds = map(float, figures.split())
        except ValueError:
            continue
        sound = all(0 < each < math.inf for each in (pass_bytes, *seconds))
        if name in READS and seconds and sound:
            found[name] = [pass_bytes / each for each in seconds]
    return found


def _key(cpus: list[int | None]) -> str:
    """Return what a figure holds for: this machine as it stands, these cores, this method."""
    told = [_VERSION, repr(cpus), *(f"{name}={value}" for name, value in identity().items())]
    return hashlib.sha256("\n".join(told).encode("utf-8", "surrogateescape")).hexdigest()


def _keep(cpus: list[int | None], it: Bandwidth) -> None:
    rates = (f"{rate:.0f}" for rate in (it.bytes_per_second, it.low, it.median))
    counts = (str(n) for n in (it.array_bytes, it.repeats, it.cache_bytes or 0))
    told = ",".join([it.measured_at, it.method, *rates, *counts])
    user_cache.keep(_FILE, _LINE, _key(cpus), told)


def _kept(cpus: list[int | None]) -> Bandwidth | None:
    """Return what is kept, if it is sound and not too old: a virtual machine may move."""
    try:
        told = (user_cache.find(_FILE, _LINE, _key(cpus)) or "").split(",")
        at, method, *figures = told
        age = datetime.now(UTC) - datetime.fromisoformat(at)
        best, low, median, array_bytes, repeats, caches = map(int, figures)
    except (ValueError, TypeError):
        return None
    sound = method in READS and 0 < low <= median <= best and array_bytes > 0 and repeats > 0
    if not sound or not timedelta(0) <= age <= _KEPT_FOR:
        return None
    return Bandwidth(
        best, low, median, method, array_bytes, repeats, len(cpus), at, True, caches or None
    )
