"""Finding a profiler's program and asking it for its version."""

from __future__ import annotations

import re
import shutil
import sysconfig
from functools import lru_cache

from pytest_flamegate.profile.words import ABSENT, ProfilerError, hangs
from pytest_flamegate.workload import process

ASK_TIMEOUT_S = 10.0
_NUMBER = re.compile(rb"\d+\.\d+[\w.+-]*")


def find(program: str, todo: str) -> str:
    """Return the path of ``program``: this environment's scripts first, then ``PATH``.

    Raises ``ProfilerError`` ``E_PROFILER_ABSENT`` with ``todo`` when it is in neither.
    """
    scripts = sysconfig.get_path("scripts")
    path = shutil.which(program, path=scripts) or shutil.which(program)
    if path is None:
        reason = f"no program {program} in {scripts} or on PATH"
        raise ProfilerError(ABSENT, f"{program} is not installed: {reason}.", todo, reason)
    return path


@lru_cache(maxsize=16)
def version(path: str) -> str:
    """Return the number in the answer to ``--version``, or ``unknown``."""
    result = process.run([path, "--version"], timeout_s=ASK_TIMEOUT_S)
    if result.timed_out:
        raise hangs(path.rsplit("/", 1)[-1], ASK_TIMEOUT_S, "asked for its version")
    found = _NUMBER.search(result.stdout)
    return found.group().decode("ascii", "replace") if found else "unknown"
