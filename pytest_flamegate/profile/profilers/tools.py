"""Find the program of a profiler, its version, and the command that installs it."""

from __future__ import annotations

import platform
import re
import shutil
import sysconfig
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_flamegate.core import process
from pytest_flamegate.profile.profilers.errors import ABSENT, ProfilerError, timeout_error

if TYPE_CHECKING:
    from collections.abc import Mapping


INSTALL_COMMANDS: Mapping[str, Mapping[str, str]] = {
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
VERSION_TIMEOUT_S = 10.0
_VERSION = re.compile(rb"\d+\.\d+[\w.+-]*")


def install_hint(program: str) -> str:
    """Return the command that installs ``program`` on this distribution, as a sentence.

    On an unknown distribution the sentence lists the commands of all.
    """
    commands = INSTALL_COMMANDS[program]
    for name in _distribution_names():
        if name in commands:
            return f"Install it: {commands[name]}."
    every = ", ".join(f"{command} ({name.title()})" for name, command in commands.items())
    return f"Install it: {every}."


def _distribution_names() -> list[str]:
    """Return the name of the distribution, and then of those it is derived from."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return []
    return [release.get("ID", ""), *release.get("ID_LIKE", "").split()]


def find_program(program: str, remedy: str) -> str:
    """Return the path of ``program``: this environment's scripts first, then ``PATH``.

    Raises ``ProfilerError`` ``E_PROFILER_ABSENT`` with ``remedy`` if it is in neither.
    """
    scripts = sysconfig.get_path("scripts")
    path = shutil.which(program, path=scripts) or shutil.which(program)
    if path is None:
        reason = f"no program {program} in {scripts} or on PATH"
        raise ProfilerError(ABSENT, f"{program} is not installed: {reason}.", remedy, reason)
    return path


@lru_cache(maxsize=16)
def tool_version(path: str) -> str:
    """Return the number in the answer to ``--version``, or ``unknown``."""
    result = process.run([path, "--version"], timeout_s=VERSION_TIMEOUT_S)
    if result.timed_out:
        name = path.rsplit("/", 1)[-1]
        raise timeout_error(name, VERSION_TIMEOUT_S, "asked for its version")
    found = _VERSION.search(result.stdout)
    return found.group().decode("ascii", "replace") if found else "unknown"
