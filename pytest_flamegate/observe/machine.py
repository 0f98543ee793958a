"""What machine this is: everything that must be equal before two numbers are compared."""

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
    """Return this machine's identity as names and strings; what is unknown is left out."""
    model, flags = _cpu()
    found = {
        "arch": platform.machine(),
        "blas": _blas(),
        "cgroup_cpu": _line(_CGROUP_QUOTA),
        "cpu_cores": str(_usable_cores()),
        "cpu_flags_sha256": hashlib.sha256(flags.encode()).hexdigest() if flags else "",
        "cpu_model": model,
        "huge_pages": _chosen(_line(_HUGE_PAGES)),
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


def _usable_cores() -> int:
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


def _blas() -> str:
    import numpy as np

    try:
        built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{built['name']} {built.get('version', '')}".strip()
    except (KeyError, TypeError):
        return ""


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _chosen(options: str) -> str:
    """Return the bracketed word of ``always [madvise] never``."""
    return options.partition("[")[2].partition("]")[0]
