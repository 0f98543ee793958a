"""Build what a workload runs, before it runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload import process
from pytest_flamegate.workload.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_flamegate.workload.spec import Workload

SKIP = "FLAMEGATE_SKIP_BUILD"
_TIMEOUT_S = 3600.0
_LAST_LINES = 8
_CHANGES_CODE = re.compile(
    r"CC|CXX|LD|AR|CUDACXX|NVCC_(?:PREPEND|APPEND)_FLAGS|[A-Z]{0,16}FLAGS|RUSTC|RUSTC_WRAPPER|"
    r"RUSTUP_TOOLCHAIN|CMAKE_[A-Z0-9_]{1,64}|"
    r"CARGO_(?:BUILD|ENCODED|INCREMENTAL|PROFILE|TARGET)(?:_[A-Z0-9_]{1,64})?"
)
"""Names that change what a build makes. No other variable of its environment is recorded."""
_SHELL = re.compile(r"&&|\|\|?|;|[<>]{1,2}|&")


@dataclass(frozen=True, slots=True)
class Build:
    """What was done to make a program.

    ``ran`` is False where ``FLAMEGATE_SKIP_BUILD=1`` skipped it: then what was found there was
    measured. ``environment`` is what the build got of the variables that change code, without
    secrets; empty where it did not run.
    """

    argv: tuple[str, ...]
    ran: bool
    environment: Mapping[str, str]

    def moved(self, seen: Path, told: Path) -> Build:
        """Return it with the paths below ``seen`` as below ``told``: a checkout's as its own."""
        old, new = str(seen), str(told)
        return replace(
            self,
            argv=tuple(word.replace(old, new) for word in self.argv),
            environment=MappingProxyType(
                {name: value.replace(old, new) for name, value in self.environment.items()}
            ),
        )


def build(workload: Workload, *, always: bool = False) -> Build | None:
    """Run the workload's ``build``, unless ``FLAMEGATE_SKIP_BUILD=1``; None where it has none.

    ``always`` builds all the same: a fresh checkout holds nothing that was built before.
    ``ToolError`` ``E_BUILD_FAILED`` carries the last lines the build wrote,
    ``E_CANNOT_START`` says that its program is missing.
    """
    argv = workload.build
    if not argv:
        return None
    if os.environ.get(SKIP) == "1" and not always:
        return Build(argv, ran=False, environment=MappingProxyType({}))
    env = {**os.environ, **workload.env}
    try:
        result = process.run(argv, timeout_s=_TIMEOUT_S, env=env, cwd=workload.directory)
    except ToolError as error:
        hint = shell_hint(argv) if error.code == "E_CANNOT_START" else ""
        what = f"The build of workload {workload.name!r}: {error.what}"
        raise ToolError(error.code, what, hint or error.todo) from None
    if result.returncode != 0:
        output = (result.stdout + result.stderr).decode("utf-8", "replace").splitlines()
        told = [line.strip() for line in output if line.strip()][-_LAST_LINES:]
        last = " | ".join(told) or "none"
        ended = "timed out" if result.timed_out else f"ended with status {result.returncode}"
        raise ToolError(
            "E_BUILD_FAILED",
            f"The build of workload {workload.name!r} {ended}. Its last lines: {last}",
            shell_hint(argv) or f"Run it by hand: {' '.join(argv)}",
        )
    changing = {name: value for name, value in env.items() if _CHANGES_CODE.fullmatch(name)}
    told_environment = MappingProxyType(dict(sorted(redacted(changing).items())))
    return Build(argv, ran=True, environment=told_environment)


def shell_hint(argv: Sequence[str]) -> str:
    """Return what to do where ``argv`` was written for a shell; empty where it was not."""
    joined = len(argv) == 1 and re.search(r"\s", argv[0])
    if not joined and not any(_SHELL.fullmatch(word) for word in argv):
        return ""
    return (
        "No shell reads it: give the program and each of its arguments as a word of the list, "
        'or say ["sh", "-c", "…"].'
    )
