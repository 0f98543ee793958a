"""What this machine lets a profiler do: two sysctls, capabilities, seccomp. Only read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
CAPABILITIES = {"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38}
"""Those that profilers ask for, by their bit in ``CapEff``."""
_SECCOMP = {"0": "no seccomp", "1": "strict seccomp", "2": "a seccomp filter"}
_EFFECTIVE = re.compile(r"^CapEff:\s+([0-9a-f]{1,16})$", re.MULTILINE)
_MODE = re.compile(r"^Seccomp:\s+(\d)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the kernel says of this process; None where it does not say.

    ``perf_event_paranoid`` and ``ptrace_scope`` are the sysctls' own text; the second
    exists under Yama alone. ``capabilities`` are those of ``CAPABILITIES`` that are held.
    """

    perf_event_paranoid: str | None
    ptrace_scope: str | None
    capabilities: frozenset[str] | None
    seccomp: str | None

    @property
    def words(self) -> str:
        """All of it in one line, ready to be read."""
        told = []
        if self.perf_event_paranoid is not None:
            told.append(f"kernel.perf_event_paranoid is {self.perf_event_paranoid}")
        if self.ptrace_scope is not None:
            told.append(f"kernel.yama.ptrace_scope is {self.ptrace_scope}")
        if self.capabilities is not None:
            told += [
                f"{name} is {'held' if name in self.capabilities else 'not held'}"
                for name in CAPABILITIES
            ]
        if self.seccomp is not None:
            told.append(f"{self.seccomp} is in force")
        return ", ".join(told) or "the kernel does not say"


def read(proc: Path = PROC) -> Permissions:
    """Read what ``proc`` tells of this process; never raises."""
    status = _text(proc / "self/status") or ""
    effective, mode = _EFFECTIVE.search(status), _MODE.search(status)
    held = None
    if effective:
        bits = int(effective[1], 16)
        held = frozenset(name for name, bit in CAPABILITIES.items() if bits >> bit & 1)
    return Permissions(
        perf_event_paranoid=_text(proc / "sys/kernel/perf_event_paranoid"),
        ptrace_scope=_text(proc / "sys/kernel/yama/ptrace_scope"),
        capabilities=held,
        seccomp=_SECCOMP.get(mode[1]) if mode else None,
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
