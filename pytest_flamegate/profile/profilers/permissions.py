"""The limits that the kernel puts on profilers here: two sysctls, capabilities, seccomp."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
CAPABILITIES = {"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38}
"""The capabilities that profilers use, with their bit in ``CapEff``."""
_SECCOMP = {"0": "no seccomp", "1": "strict seccomp", "2": "a seccomp filter"}
_EFFECTIVE = re.compile(r"^CapEff:\s+([0-9a-f]{1,16})$", re.MULTILINE)
_MODE = re.compile(r"^Seccomp:\s+(\d)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Permissions:
    """The limits of this process; None if the kernel does not report one.

    ``perf_event_paranoid`` and ``ptrace_scope`` are the text of the sysctls (the second exists
    under Yama only), ``capabilities`` those of ``CAPABILITIES`` that this process has.
    """

    perf_event_paranoid: str | None
    ptrace_scope: str | None
    capabilities: frozenset[str] | None
    seccomp: str | None

    def describe(self) -> str:
        """Return all limits in one line."""
        parts = []
        if self.perf_event_paranoid is not None:
            parts.append(f"kernel.perf_event_paranoid is {self.perf_event_paranoid}")
        if self.ptrace_scope is not None:
            parts.append(f"kernel.yama.ptrace_scope is {self.ptrace_scope}")
        if self.capabilities is not None:
            parts += [
                f"{name} is {'held' if name in self.capabilities else 'not held'}"
                for name in CAPABILITIES
            ]
        if self.seccomp is not None:
            parts.append(f"{self.seccomp} is in force")
        return ", ".join(parts) or "the kernel does not report its limits"


def read_permissions(proc: Path = PROC) -> Permissions:
    """Read the limits of this process from ``proc``; never raises."""
    status = _read_text(proc / "self/status") or ""
    effective, mode = _EFFECTIVE.search(status), _MODE.search(status)
    capabilities = None
    if effective:
        bits = int(effective[1], 16)
        capabilities = frozenset(name for name, bit in CAPABILITIES.items() if bits >> bit & 1)
    return Permissions(
        perf_event_paranoid=_read_text(proc / "sys/kernel/perf_event_paranoid"),
        ptrace_scope=_read_text(proc / "sys/kernel/yama/ptrace_scope"),
        capabilities=capabilities,
        seccomp=_SECCOMP.get(mode[1]) if mode else None,
    )


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
