"""The identity of this machine: everything that must be equal before two rates are compared."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping


_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_INSTRUCTIONS = {"avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON", "neon": "NEON"}
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def read_identity() -> Mapping[str, str]:
    """Return this machine's properties by name; unknown ones are left out."""
    model, flags = _cpu()
    found = {
        "arch": platform.machine(),
        "blas": _read_blas(),
        "cgroup_cpu": _read_line(_CGROUP_QUOTA),
        "cpu_cores": str(_count_cores()),
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


def _count_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu() -> tuple[str, str]:
    """Return the CPU's model name and its sorted feature flags."""
    model, flags = platform.processor(), ""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return model or platform.machine(), flags
    for line in lines:
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
        return path.read_text().strip()
    except OSError:
        return ""
