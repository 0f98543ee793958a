"""What the kernel itself shows of NVIDIA devices: nodes with its own numbers, and its driver."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.workload.device import Node

if TYPE_CHECKING:
    from collections.abc import Callable

_CONTROL = "nvidiactl"
_NODE = re.compile(r"nvidia[0-9]{1,4}")
_DRIVERS = frozenset({"nvidia", "nvidia-frontend", _CONTROL})
"""What the driver calls itself in ``/proc/devices``, over the years."""
_VERSION = re.compile(r"\bKernel Module(?: for \S+)?\s+([0-9]+(?:\.[0-9]+)+)")
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's own constant: outside of it, process ids are not those that NVML tells."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Where the kernel is asked, and how a file is looked at."""

    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    look: Callable[[Path], os.stat_result] = os.lstat

    def nodes(self) -> tuple[Node, ...]:
        """Return the device nodes that are the driver's, one for each minor number."""
        try:
            names = sorted(each.name for each in self.dev.iterdir() if _NODE.fullmatch(each.name))
        except OSError:
            return ()
        majors = self._majors() if names else frozenset()
        found: dict[int, Node] = {}
        for name in names:
            minor = self._minor(name, majors)
            if minor is not None:
                found.setdefault(minor, Node(f"/dev/{name}", minor))
        return tuple(found.values())

    def control(self) -> bool:
        """Whether the control node is there."""
        return self._minor(_CONTROL, self._majors()) is not None

    def driver(self) -> str | None:
        """Return the version of the driver that is loaded, None where none is."""
        found = _VERSION.search(self._text("driver/nvidia/version"))
        return found[1] if found is not None else None

    def pids_are_nvmls(self) -> bool:
        """Whether process ids here are those of the machine, as NVML tells them."""
        try:
            return str((self.proc / "self/ns/pid").readlink()) == _FIRST_NAMESPACE
        except OSError:
            return False

    def _minor(self, name: str, majors: frozenset[int]) -> int | None:
        # A plain file or a link of that name is not a device, whoever made it.
        try:
            found = self.look(self.dev / name)
        except OSError:
            return None
        if not stat.S_ISCHR(found.st_mode) or os.major(found.st_rdev) not in majors:
            return None
        return os.minor(found.st_rdev)

    def _majors(self) -> frozenset[int]:
        rows = (line.split() for line in self._text("devices").splitlines())
        return frozenset(
            int(row[0]) for row in rows if len(row) == 2 and row[1] in _DRIVERS and row[0].isdigit()
        )

    def _text(self, name: str) -> str:
        try:
            return (self.proc / name).read_text("utf-8", "replace")[:65536]
        except OSError:
            return ""
