"""The identity of this machine, and the rate at which its memory can be read.

The identity is everything that must be equal before two rates are compared. The read bandwidth is
measured in STREAM's way, over an array of four times the last-level cache, and stored for a week.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import psutil

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.files import read_cached, write_cached

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_INSTRUCTIONS = {"avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON", "neon": "NEON"}
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

CACHE_MULTIPLE = 4
"""The array's size in last-level caches."""
ASSUMED_CACHE_BYTES = 64 << 20
"""The last-level cache if the kernel does not report it: larger than most."""
MEASURE_S = 1.2
_TIMEOUT_S = 30.0
_VALID_FOR = timedelta(days=7)
_METHOD_VERSION = "2"
_FILE = "bandwidth-2"
_LINE = re.compile(r"([0-9a-f]{64}) ([0-9T:.+,-]{20,200})", re.ASCII)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1"
)


def read_identity() -> Mapping[str, str]:
    """Return this machine's properties by name; unknown ones are left out."""
    model, flags = _cpu()
    found = {
        "arch": platform.machine(),
        "blas": _read_blas(),
        "cgroup_cpu": _read_line(_CGROUP_QUOTA),
        "cpu_cores": str(len(os.sched_getaffinity(0))),
        "cpu_flags_sha256": hashlib.sha256(flags.encode()).hexdigest() if flags else "",
        "cpu_model": model,
        # "always [madvise] never": the brackets mark the setting.
        "huge_pages": _read_line(_HUGE_PAGES).partition("[")[2].partition("]")[0],
        "kernel": platform.release(),
        "memory_gib": str(round(psutil.virtual_memory().total / 2**30)),
        "os": platform.system().lower(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    return MappingProxyType({name: value for name, value in found.items() if value})


def find_instruction_set() -> str:
    """Return the widest vector instructions that the CPU offers, whether used or not.

    ``AVX-512``, ``AVX2``, ``NEON`` or ``scalar``; empty if the CPU's flags are not known.
    """
    flags = set(_cpu()[1].lower().split())
    if not flags:
        # On 64-bit Arm every CPU has NEON.
        return "NEON" if platform.machine() in ("arm64", "aarch64") else ""
    for name, instructions in _INSTRUCTIONS.items():
        if name in flags:
            return instructions
    return "scalar"


def _cpu() -> tuple[str, str]:
    """Return the CPU's model name and its sorted feature flags."""
    model, flags = platform.processor(), ""
    for line in _read_line(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            model = value.strip()
        elif name.strip().lower() in ("flags", "features") and not flags:
            flags = " ".join(sorted(value.split()))
    return model or platform.machine(), flags


def _read_blas() -> str:
    import numpy as np

    try:
        built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{built['name']} {built.get('version', '')}".strip()
    except (KeyError, TypeError):
        return ""


def _read_line(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second that ``threads`` threads together read from memory.

    ``fastest`` of ``passes`` over ``array_bytes`` is the figure; ``median`` and ``slowest`` show
    how much other processes took. ``cache_bytes`` are the last-level caches of the cores that
    read, None if they are not known and ``ASSUMED_CACHE_BYTES`` was used. ``measured_at`` is
    RFC 3339.
    """

    fastest: float
    median: float
    slowest: float
    array_bytes: int
    passes: int
    threads: int
    measured_at: str
    cache_bytes: int | None = None

    def describe(self) -> str:
        """``31.7 GB/s by 1 thread (median 29.4, slowest 17.2 of 120 passes over 134 MB, …)``."""
        cache = "an assumed cache" if self.cache_bytes is None else "its cache"
        return (
            f"{self.fastest / 1e9:.1f} GB/s by {format_threads(self.threads)} (median "
            f"{self.median / 1e9:.1f}, slowest {self.slowest / 1e9:.1f} of {self.passes} passes "
            f"over {self.array_bytes / 1e6:,.0f} MB, {CACHE_MULTIPLE} × {cache})"
        )


def format_threads(threads: int) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{threads} thread{'s' * (threads != 1)}"


def measure_bandwidth(threads: int = 1) -> Bandwidth:
    """Return the bandwidth measured here in the last seven days; else measure it, in about 2 s.

    Hold the machine's lock. More ``threads`` than usable cores count as one per core.

    Raises:
        ToolError: ``E_BANDWIDTH`` if the array is more than half of the available memory, or the
            process that measures fails.
    """
    cpus = _list_cpus(threads)
    known = _read_known(cpus)
    if known is not None:
        return known
    cache_bytes = find_cache_bytes(cpus)
    array_bytes = CACHE_MULTIPLE * (cache_bytes or ASSUMED_CACHE_BYTES)
    slice_bytes = -(-array_bytes // len(cpus)) // 64 * 64 + 64
    rates = _measure(cpus, slice_bytes)
    measured = Bandwidth(
        fastest=max(rates),
        median=statistics.median(rates),
        slowest=min(rates),
        array_bytes=slice_bytes * len(cpus),
        passes=len(rates),
        threads=len(cpus),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        cache_bytes=cache_bytes,
    )
    _write_known(cpus, measured)
    return measured


def find_known_bandwidth(threads: int = 1) -> Bandwidth | None:
    """Return the bandwidth measured here in the last seven days, without measuring."""
    return _read_known(_list_cpus(threads))


def _list_cpus(threads: int) -> list[int]:
    """Return the core of each thread, the lowest ones."""
    return sorted(os.sched_getaffinity(0))[: max(threads, 1)]


def _measure(cpus: Sequence[int], slice_bytes: int) -> list[float]:
    """Return the bytes per second of each pass, measured in a process of its own."""
    needed, available = slice_bytes * len(cpus), find_available_bytes()
    if needed > available // 2:
        raise ToolError(
            "E_BANDWIDTH",
            f"The read bandwidth was not measured: it takes {needed >> 20} MiB "
            f"({CACHE_MULTIPLE} times the last-level cache), more than half of the "
            f"{available >> 20} MiB available.",
            "End other processes or raise the memory limit; a smaller array would fit into the "
            "cache.",
        )
    argv = [sys.executable, "-P", "-m", "pytest_flamegate.child.machine"]
    argv += [str(slice_bytes), str(MEASURE_S), ",".join(map(str, cpus))]
    done = process.run(argv, timeout_s=_TIMEOUT_S, env={**os.environ, **_ONE_THREAD})
    rates = [] if done.timed_out or done.returncode else _parse_rates(done.stdout)
    if not rates:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = f"ran for more than {_TIMEOUT_S:g} s" if done.timed_out else "failed"
        raise ToolError(
            "E_BANDWIDTH",
            f"The process that measures the read bandwidth {why}"
            f"{f': {ascii(lines[-1])[1:200]}' if lines else ''}.",
            "Run it again when the machine is less busy; nothing is gated on it.",
        )
    return rates


def _parse_rates(output: bytes) -> list[float]:
    try:
        pass_bytes, *seconds = map(float, output.split())
    except ValueError:
        return []
    is_valid = all(0 < each < math.inf for each in (pass_bytes, *seconds))
    return [pass_bytes / each for each in seconds] if is_valid else []


def _cache_key(cpus: Sequence[int]) -> str:
    """Return a key of everything that a figure holds for: machine, cores and method."""
    parts = [_METHOD_VERSION, repr(cpus), *(f"{name}={v}" for name, v in read_identity().items())]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _write_known(cpus: Sequence[int], it: Bandwidth) -> None:
    rates = (f"{rate:.0f}" for rate in (it.fastest, it.median, it.slowest))
    counts = (str(count) for count in (it.array_bytes, it.passes, it.cache_bytes or 0))
    write_cached(_FILE, _LINE, _cache_key(cpus), ",".join([it.measured_at, *rates, *counts]))


def _read_known(cpus: Sequence[int]) -> Bandwidth | None:
    """Return the stored figure if it is valid and recent: a virtual machine may move."""
    try:
        at, *figures = (read_cached(_FILE, _LINE, _cache_key(cpus)) or "").split(",")
        age = datetime.now(UTC) - datetime.fromisoformat(at)
        fastest, median, slowest, array_bytes, passes, cache_bytes = map(int, figures)
    except (ValueError, TypeError):
        return None
    is_valid = 0 < slowest <= median <= fastest and array_bytes > 0 and passes > 0
    if not is_valid or not timedelta(0) <= age <= _VALID_FOR:
        return None
    return Bandwidth(
        fastest, median, slowest, array_bytes, passes, len(cpus), at, cache_bytes or None
    )


def find_cache_bytes(cpus: Iterable[int], root: Path = Path("/sys")) -> int | None:
    """Return the bytes of the last-level caches of ``cpus``, each shared one counted once.

    None unless the kernel reports them for all. A hypervisor may report less than there is.
    """
    found: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        levels = []
        for index in (root / f"devices/system/cpu/cpu{cpu}/cache").glob("index[0-9]*"):
            size = _parse_size(_read_line(index / "size"))
            level = _read_line(index / "level")
            if size and level.isdecimal() and _read_line(index / "type") in ("Data", "Unified"):
                shared = _read_line(index / "shared_cpu_list") or str(cpu)
                levels.append((int(level), shared, size))
        if not levels:
            return None
        level_number, shared, size = max(levels)
        found[level_number, shared] = size
    return sum(found.values()) or None


def find_available_bytes(root: Path = Path("/")) -> int:
    """Return the memory that can be allocated without swapping.

    That is the kernel's own figure, limited by the control groups of this process.
    """
    available = [int(psutil.virtual_memory().available)]
    path = _read_line(root / "proc/self/cgroup").removeprefix("0::/")
    base = root / "sys/fs/cgroup"
    for group in (base / path, *(base / path).parents):
        limit, used = (_read_line(group / name) for name in ("memory.max", "memory.current"))
        if limit.isdecimal() and used.isdecimal():
            available.append(max(0, int(limit) - int(used)))
    return min(available)


def _parse_size(text: str) -> int:
    digits, unit = text[:-1], text[-1:].upper()
    return int(digits) * _UNITS[unit] if digits.isdecimal() and unit in _UNITS else 0
