"""The identity of this machine, and the rate at which its memory can be read.

The identity is everything that must be equal before two rates are compared. The read bandwidth is
measured in STREAM's way, over an array that no cache holds, and stored for a week.
"""

import hashlib
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec
import psutil

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.core.files import read_cached, read_system_text, write_cached
from pytest_flamegate.core.json import decode_json
from pytest_flamegate.core.process_system import count_cores

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_INSTRUCTIONS = {"avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON", "neon": "NEON"}
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

MEASURE_S = 1.2
_TIMEOUT_S = 30.0
_VALID_S = 7 * 86_400
_CACHE = "bandwidth"


def read_identity() -> Mapping[str, str]:
    """Return this machine's properties by name; unknown ones are left out."""
    model, flags = _cpu()
    quota = read_cpu_quota()
    found = {
        "arch": platform.machine(),
        "blas": _read_blas(),
        "cgroup_cpu": f"{quota.quota_us} {quota.period_us}"
        if quota
        else read_system_text(_CGROUP_QUOTA),
        "cpu_cores": str(len(os.sched_getaffinity(0))),
        "cpu_flags_sha256": hashlib.sha256(flags.encode()).hexdigest() if flags else "",
        "cpu_model": model,
        # "always [madvise] never": the brackets mark the setting.
        "huge_pages": read_system_text(_HUGE_PAGES).partition("[")[2].partition("]")[0],
        "kernel": platform.release(),
        "memory_gib": str(round(psutil.virtual_memory().total / 2**30)),
        "os": platform.system().lower(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    return MappingProxyType({name: value for name, value in found.items() if value})


def find_instruction_set() -> str:
    """Return ``AVX-512``, ``AVX2``, ``NEON`` or ``scalar``: the widest; empty if not known."""
    flags = set(_cpu()[1].lower().split())
    offered = (name for flag, name in _INSTRUCTIONS.items() if flag in flags)
    return next(offered, "scalar" if flags else "")


def _cpu() -> tuple[str, str]:
    """Return the CPU's model name and its sorted feature flags."""
    model, flags = platform.processor(), ""
    for line in read_system_text(Path("/proc/cpuinfo")).splitlines():
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


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second that ``threads`` threads together read from memory: the fastest pass.

    ``cache_bytes`` are the last-level caches of as many cores, None if they are not known.
    ``measured_at_s`` is in seconds since the epoch.
    """

    bytes_per_second: float
    array_bytes: int
    passes: int
    threads: int
    measured_at_s: float
    cache_bytes: int | None = None

    def describe(self) -> str:
        """``31.7 GB/s by 1 thread, the fastest of 80 passes over 537 MB``."""
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        passes = f"the fastest of {self.passes} passes over {self.array_bytes / 1e6:,.0f} MB"
        return f"{self.bytes_per_second / 1e9:.1f} GB/s by {threads}, {passes}"


def measure_bandwidth(threads: int = 1) -> Bandwidth:
    """Return the bandwidth measured here in the last seven days; else measure it, in about 2 s.

    Hold the machine's lock. More ``threads`` than usable cores count as one per core.

    Raises:
        ToolError: ``E_BANDWIDTH`` if the array is more than half of the available memory, or the
            process that measures fails.
    """
    known = find_known_bandwidth(threads)
    if known is not None:
        return known
    threads, cache_bytes = count_cores(threads), find_cache_bytes(threads)
    array_bytes, available = find_array_bytes(cache_bytes), find_available_bytes()
    if array_bytes > available // 2:
        raise ToolError(
            "E_BANDWIDTH",
            f"The read bandwidth was not measured: it takes {array_bytes >> 20} MiB, more than "
            f"half of the {available >> 20} MiB available.",
        )
    argv = [sys.executable, "-P", "-m", "pytest_flamegate.child.machine"]
    argv += [str(array_bytes), str(threads), str(MEASURE_S)]
    blas = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
    env = {**os.environ, **dict.fromkeys(blas, "1")}
    done = process.run(argv, timeout_s=_TIMEOUT_S, env=env)
    figures = done.stdout.split()
    if done.timed_out or done.returncode or len(figures) != 2:
        why = f"ran for more than {_TIMEOUT_S:g} s" if done.timed_out else "failed"
        raise ToolError("E_BANDWIDTH", f"The process that measures the read bandwidth {why}.")
    rate, passes = figures
    found = Bandwidth(float(rate), array_bytes, int(passes), threads, time.time(), cache_bytes)
    write_cached(_CACHE, _cache_key(threads), msgspec.json.encode(found).decode("ascii"))
    return found


def find_known_bandwidth(threads: int = 1) -> Bandwidth | None:
    """Return the bandwidth measured here in the last seven days, without measuring."""
    stored = read_cached(_CACHE, _cache_key(count_cores(threads))) or ""
    try:
        found = decode_json(stored.encode(), Bandwidth)
    except FlamegateError:
        return None
    # A virtual machine may move, so a figure does not hold for ever.
    is_recent = 0 <= time.time() - found.measured_at_s <= _VALID_S
    return found if is_recent and found.bytes_per_second > 0 else None


def _cache_key(threads: int) -> str:
    """Return a key of everything that a figure holds for: machine, cores and threads."""
    return ascii((threads, sorted(os.sched_getaffinity(0)), sorted(read_identity().items())))


def find_array_bytes(cache_bytes: int | None) -> int:
    """Return the size of an array that no cache holds: 512 MiB, or four times the caches."""
    return max(512 << 20, 4 * (cache_bytes or 0))


def find_cache_bytes(threads: int, root: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Return the last-level caches of the first ``threads`` usable cores, a shared one once.

    None unless the kernel reports them for all. A hypervisor may report less than there is.
    """
    found: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0))[:threads]:
        last = max((root / f"cpu{cpu}/cache").glob("index[0-9]"), default=root)
        size = read_system_text(last / "size").removesuffix("K")
        if not size.isdecimal():
            return None
        found[read_system_text(last / "shared_cpu_list")] = int(size) << 10
    return sum(found.values()) or None


def find_available_bytes(root: Path = Path("/")) -> int:
    """Return the memory that the kernel and the control groups allow without swapping."""
    available = [int(psutil.virtual_memory().available)]
    for group in _find_groups("memory", root):
        limit, used = (read_system_text(group / name) for name in ("memory.max", "memory.current"))
        if limit.isdecimal() and used.isdecimal():
            available.append(max(0, int(limit) - int(used)))
    return min(available)


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """The CPU time that a control group may use in each period, and how often it was used up.

    ``throttled`` and ``throttled_s`` count since the group was made, in all of its processes.
    """

    quota_us: int
    period_us: int
    throttled: int = 0
    throttled_s: float = 0.0

    @property
    def cores(self) -> float:
        """The number of cores that it may use on average."""
        return self.quota_us / self.period_us


def read_cpu_quota(root: Path = Path("/")) -> CpuQuota | None:
    """Return the tightest CPU quota of this process, as containers have one; None without one."""
    quotas = []
    for group in _find_groups("cpu", root):
        limit = read_system_text(group / "cpu.max").split() or [
            read_system_text(group / "cpu.cfs_quota_us"),
            read_system_text(group / "cpu.cfs_period_us"),
        ]
        if all(each.isdecimal() and int(each) > 0 for each in limit):
            pairs = (line.split() for line in read_system_text(group / "cpu.stat").splitlines())
            counts = {name: int(value) for name, value in pairs if value.isdecimal()}
            throttled_ns = counts.get("throttled_time", 1000 * counts.get("throttled_usec", 0))
            throttled = counts.get("nr_throttled", 0)
            quotas.append(CpuQuota(int(limit[0]), int(limit[1]), throttled, throttled_ns / 1e9))
    return min(quotas, key=lambda quota: quota.cores, default=None)


def _find_groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the control groups of this process, its own before those above it.

    Each controller has a hierarchy of its own in version 1; version 2 has one without a name.
    """
    for line in read_system_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        top = root / "sys/fs/cgroup" / controllers
        if controllers and controller not in controllers.split(","):
            continue
        if not controllers and (top / "unified").is_dir():
            top /= "unified"
        own = top / path.strip("/")
        yield from (group for group in (own, *own.parents) if group.is_relative_to(top))
