"""Build what a workload runs, before it runs."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.files import is_file, real_path
from pytest_flamegate.core.json import Count, NonEmpty, Sha256
from pytest_flamegate.engines.base import Served
from pytest_flamegate.observe.environment import make_environment
from pytest_flamegate.observe.redact import redact_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Plan


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


def build_workload(workload: Workload, *, always: bool = False) -> Build | None:
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
        hint = explain_no_shell(argv) if error.code == "E_CANNOT_START" else ""
        what = f"The build of workload {workload.name!r}: {error.problem}"
        raise ToolError(error.code, what, hint or error.remedy) from None
    if result.returncode != 0:
        output = (result.stdout + result.stderr).decode("utf-8", "replace").splitlines()
        told = [line.strip() for line in output if line.strip()][-_LAST_LINES:]
        last = " | ".join(told) or "none"
        ended = "timed out" if result.timed_out else f"ended with status {result.returncode}"
        raise ToolError(
            "E_BUILD_FAILED",
            f"The build of workload {workload.name!r} {ended}. Its last lines: {last}",
            explain_no_shell(argv) or f"Run it by hand: {' '.join(argv)}",
        )
    changing = {name: value for name, value in env.items() if _CHANGES_CODE.fullmatch(name)}
    told_environment = MappingProxyType(dict(sorted(redact_environment(changing).items())))
    return Build(argv, ran=True, environment=told_environment)


def explain_no_shell(argv: Sequence[str]) -> str:
    """Return what to do where ``argv`` was written for a shell; empty where it was not."""
    joined = len(argv) == 1 and re.search(r"\s", argv[0])
    if not joined and not any(_SHELL.fullmatch(word) for word in argv):
        return ""
    return (
        "No shell reads it: give the program and each of its arguments as a word of the list, "
        'or say ["sh", "-c", "…"].'
    )


_SHEBANG_BYTES = 256
_Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """One executable file: its path inside the project, else its bare name, and its content."""

    path: NonEmpty
    sha256: Sha256
    size_bytes: Count


@dataclass(frozen=True, slots=True)
class Program:
    """The program that was measured, every link followed.

    ``inside`` says that it lies in the project. ``interpreter`` is what runs it where it is a
    script; ``build`` is what was done to make it, None where the workload declares none.
    Libraries that it loads are no part of it.
    """

    path: NonEmpty
    sha256: Sha256
    size_bytes: Count
    inside: bool
    interpreter: ProgramFile | None = None
    build: Build | None = None


@dataclass(frozen=True, slots=True)
class InspectedProgram:
    """A program as it was before it was measured, and what tells whether it is the same still."""

    program: Program
    files: tuple[tuple[Path, str, _Stamp], ...]

    @property
    def path(self) -> Path:
        """Where the program lies."""
        return self.files[0][0]

    def told(self, seen: Path, told: Path) -> InspectedProgram:
        """Return it with the paths of its build below ``seen`` told as below ``told``."""
        made = self.program.build and self.program.build.moved(seen, told)
        return replace(self, program=replace(self.program, build=made))

    def require_unchanged(self) -> None:
        """Raise ``ToolError`` ``E_PROGRAM_CHANGED`` where other bytes stand there by now."""
        for path, sha256, stamp in self.files:
            try:
                if _stamp(path) == stamp or _sha256(path) == sha256:
                    continue
                what = "holds other bytes than when measuring began"
            except OSError as error:
                what = f"cannot be read any more ({error.strerror})"
            raise ToolError(
                "E_PROGRAM_CHANGED",
                f"The program {path} {what}: its runs are of two programs.",
                "Measure again when nothing builds into that place; two sides need a place each "
                "(CARGO_TARGET_DIR may name one for both).",
            )


def inspect_program(plan: Plan, workload: Workload, built: Build | None) -> InspectedProgram | None:
    """Find and digest the program that ``plan`` starts; None where it is Python or unknown.

    It is looked for as its process will be started: by the ``PATH`` that this gets, from the
    workload's directory. ``ToolError`` ``E_CANNOT_START`` where a build was to make it and it
    is not there; elsewhere starting it tells more.
    """
    argv = () if isinstance(plan, Served) else plan.argv
    if not argv:
        return None
    env = make_environment(workload)
    path = find_executable(argv[0], env, workload.directory)
    if path is None:
        if built is not None or explain_no_shell(argv):
            raise _missing(argv, built)
        return None
    project = real_path(workload.directory)
    found = [path]
    if (name := _interpreter(path)) is not None:
        runs_it = find_executable(name, env, workload.directory)
        found += [runs_it] if runs_it is not None else []
    try:
        files = tuple((each, _sha256(each), _stamp(each)) for each in found)
    except OSError:
        return None  # it may be executed and not read
    told = [ProgramFile(_told(each, project), sha256, stamp[2]) for each, sha256, stamp in files]
    program = Program(
        path=told[0].path,
        sha256=told[0].sha256,
        size_bytes=told[0].size_bytes,
        inside=path.is_relative_to(project),
        interpreter=told[1] if len(told) > 1 else None,
        build=built,
    )
    return InspectedProgram(program, files)


def find_executable(name: str, env: Mapping[str, str], directory: Path) -> Path | None:
    """Return the file that a process in ``directory`` with ``env`` starts as ``name``."""
    places = [""] if os.sep in name else os.get_exec_path(env)
    for place in places:
        path = real_path(directory / place / name)
        if is_file(path) and os.access(path, os.X_OK):
            return path
    return None


def _interpreter(path: Path) -> str | None:
    """Return what a script's first line names; for ``env`` what that starts."""
    try:
        with path.open("rb") as file:
            line, _, _ = file.read(_SHEBANG_BYTES).partition(b"\n")
    except OSError:
        return None
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return words[0] if words else None


def _told(path: Path, project: Path) -> str:
    return path.relative_to(project).as_posix() if path.is_relative_to(project) else path.name


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(path: Path) -> _Stamp:
    seen = path.stat()
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _missing(argv: Sequence[str], built: Build | None) -> ToolError:
    what, remedy = f"Cannot start {argv[0]!r}: no such program.", explain_no_shell(argv)
    if built is not None and built.ran:
        what = f"The build ran, and {argv[0]!r} is not there."
        remedy = (
            remedy
            or "In command, name what the build makes (CARGO_TARGET_DIR may lead it elsewhere)."
        )
    elif built is not None:
        what = f"{argv[0]!r} is not there, and {SKIP}=1 skipped the build that makes it."
        remedy = f"Unset {SKIP}, or build by hand first: {' '.join(built.argv)}"
    return ToolError("E_CANNOT_START", what, remedy)
