"""What the kernel tells of caches, free memory and vector instructions of this machine."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_CGROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
_NEON = frozenset({"neon", "asimd"})


def last_level_cache_bytes(cpus: Iterable[int], root: Path = Path("/sys")) -> int | None:
    """Return the bytes of the last-level caches that ``cpus`` use, each cache counted once.

    None where the kernel does not tell it of each of them. A hypervisor may tell less than
    there is.
    """
    found: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        levels = []
        for index in (root / f"devices/system/cpu/cpu{cpu}/cache").glob("index[0-9]*"):
            size = _size_bytes(_line(index / "size"))
            level = _line(index / "level")
            if size and level.isdecimal() and _line(index / "type") in ("Data", "Unified"):
                levels.append((int(level), _line(index / "shared_cpu_list") or str(cpu), size))
        if not levels:
            return None
        level_number, shared, size = max(levels)
        found[level_number, shared] = size
    return sum(found.values()) or None


def available_bytes(root: Path = Path("/")) -> int:
    """Return the memory that may be taken without anybody being pushed out.

    It is what the kernel calls available, and no more than the control groups of this process,
    version 1 or 2, leave.
    """
    left = [int(psutil.virtual_memory().available)]
    for group in _groups(root):
        for limit_name, used_name in _CGROUP_FILES:
            limit, used = _line(group / limit_name), _line(group / used_name)
            if limit.isdecimal() and used.isdecimal():
                left.append(max(0, int(limit) - int(used)))
    return min(left)


def instruction_set(root: Path = Path("/")) -> str:
    """Return the widest vector instructions that the CPU offers, be they used or not.

    ``AVX-512``, ``AVX2``, ``NEON``, else ``scalar``; empty where nothing tells the CPU's flags.
    """
    flags: set[str] = set()
    for line in _text(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            flags |= set(value.lower().split())
    if not flags:
        # On Arm of 64 bits NEON is no option.
        return "NEON" if platform.machine() in ("arm64", "aarch64") else ""
    if "avx512f" in flags:
        return "AVX-512"
    if "avx2" in flags:
        return "AVX2"
    return "NEON" if flags & _NEON else "scalar"


def _groups(root: Path) -> Iterable[Path]:
    """Yield the control groups that may limit this process's memory, and those they are in."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        group = base / path.lstrip("/")
        yield from (each for each in (group, *group.parents) if each.is_relative_to(base))


def _size_bytes(text: str) -> int:
    digits, unit = text[:-1], text[-1:].upper()
    return int(digits) * _UNITS[unit] if digits.isdecimal() and unit in _UNITS else 0


def _line(path: Path) -> str:
    return _text(path).strip()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
