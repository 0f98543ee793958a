"""How a profiler's program is installed on this distribution."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OS_RELEASE = Path("/etc/os-release")
COMMANDS: Mapping[str, Mapping[str, str]] = {
    "perf": {
        "debian": "apt install linux-perf",
        "ubuntu": "apt install linux-tools-$(uname -r)",
        "fedora": "dnf install perf",
        "rhel": "dnf install perf",
        "arch": "pacman -S perf",
        "suse": "zypper install perf",
    },
    "valgrind": {
        "debian": "apt install valgrind",
        "ubuntu": "apt install valgrind",
        "fedora": "dnf install valgrind",
        "rhel": "dnf install valgrind",
        "arch": "pacman -S valgrind",
        "suse": "zypper install valgrind",
    },
}


def install(program: str, os_release: Path = OS_RELEASE) -> str:
    """Return the sentence that says what to type: every command where this system is unknown."""
    commands = COMMANDS[program]
    for name in _names(os_release):
        if name in commands:
            return f"Install it: {commands[name]}."
    every = ", ".join(f"{command} ({name.title()})" for name, command in commands.items())
    return f"Install it: {every}."


def _names(os_release: Path) -> list[str]:
    """Return what the distribution calls itself, and then what it is like."""
    try:
        lines = os_release.read_text(encoding="utf-8", errors="replace").splitlines()
        values = dict(line.partition("=")[::2] for line in lines)
        return [
            name
            for key in ("ID", "ID_LIKE")
            for name in " ".join(shlex.split(values.get(key, ""))).split()
        ]
    except (OSError, ValueError):
        return []
