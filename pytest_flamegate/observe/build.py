"""Build a workload, and identify the program that it runs, before it is measured."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError, reason_of
from pytest_flamegate.core.files import real_path
from pytest_flamegate.core.json import Count, NonEmpty, Sha256
from pytest_flamegate.core.process_system import find_executable, read_interpreter
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.models.files import FileStamp
from pytest_flamegate.observe.engine_process import make_environment
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.redact import redact_environment

SKIP = "FLAMEGATE_SKIP_BUILD"
_TIMEOUT_S = 3600.0
_LAST_LINES = 8
_CHANGES_CODE = re.compile(
    r"CC|CXX|LD|AR|CUDACXX|NVCC_(?:PREPEND|APPEND)_FLAGS|[A-Z]{0,16}FLAGS|RUSTC|RUSTC_WRAPPER|"
    r"RUSTUP_TOOLCHAIN|CMAKE_[A-Z0-9_]{1,64}|"
    r"CARGO_(?:BUILD|ENCODED|INCREMENTAL|PROFILE|TARGET)(?:_[A-Z0-9_]{1,64})?"
)
"""Variables that change the code that a build makes. No others of its environment are recorded."""


def without_build_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``env`` that a build does not read (``CFLAGS`` and similar)."""
    return {name: value for name, value in env.items() if not _CHANGES_CODE.fullmatch(name)}


_SHELL = re.compile(r"&&|\|\|?|;|[<>]{1,2}|&")


def settle_workload(workload: Workload, known: Mapping[str, object] | None = None) -> Workload:
    """Return ``workload`` as it is measured; some engines need a process to find out how.

    ``known`` is the recipe of the run that it is compared with, None if there is none. Raises
    ``FlamegateError`` if that process fails, such as by a test that fails.
    """
    chosen = engine(workload.engine)
    if not chosen.needs_facts(workload):
        return workload
    plan = chosen.plan(workload, None)
    assert isinstance(plan, Served)
    with Observer(workload, plan).serve() as served:
        return chosen.complete(workload, served.facts, known)


@dataclass(frozen=True, slots=True)
class Build:
    """The command that built a program.

    ``ran`` is False if ``FLAMEGATE_SKIP_BUILD=1`` skipped it; then the existing file was measured.
    ``environment`` holds the variables that change code, without secrets; empty if it did not run.
    """

    argv: tuple[str, ...]
    ran: bool
    environment: Mapping[str, str]


def build_workload(workload: Workload, *, always: bool = False) -> Build | None:
    """Run the workload's ``build``; None if it has none.

    ``FLAMEGATE_SKIP_BUILD=1`` skips it, unless ``always``: a fresh checkout has no products yet.
    Raises ``ToolError`` ``E_BUILD_FAILED`` with the last lines of the output, ``E_CANNOT_START``
    if its program is missing.
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
        problem = f"The build of workload {workload.name!r}: {error.problem}"
        raise ToolError(error.code, problem, hint or error.remedy) from None
    if result.returncode != 0:
        output = (result.stdout + result.stderr).decode("utf-8", "replace").splitlines()
        lines = [line.strip() for line in output if line.strip()][-_LAST_LINES:]
        ended = "timed out" if result.timed_out else f"ended with status {result.returncode}"
        raise ToolError(
            "E_BUILD_FAILED",
            f"The build of workload {workload.name!r} {ended}. Its last lines: "
            f"{' | '.join(lines) or 'none'}",
            explain_no_shell(argv) or f"Run it by hand: {' '.join(argv)}",
        )
    changing = {name: value for name, value in env.items() if _CHANGES_CODE.fullmatch(name)}
    recorded = MappingProxyType(dict(sorted(redact_environment(changing).items())))
    return Build(argv, ran=True, environment=recorded)


def explain_no_shell(argv: Sequence[str]) -> str:
    """Return the remedy for an ``argv`` written for a shell; empty if it was not."""
    is_one_line = len(argv) == 1 and re.search(r"\s", argv[0])
    if not is_one_line and not any(_SHELL.fullmatch(word) for word in argv):
        return ""
    return (
        "No shell reads it: give the program and each of its arguments as a word of the list, "
        'or write ["sh", "-c", "…"].'
    )


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """One executable file: its path inside the project, else its bare name, and its digest."""

    path: NonEmpty
    sha256: Sha256
    size_bytes: Count


@dataclass(frozen=True, slots=True)
class Program(ProgramFile):
    """The program that was measured, with all links followed; its libraries are not part of it.

    ``inside`` says whether it lies in the project. ``interpreter`` runs it if it is a script.
    ``build`` is None if the workload declares none.
    """

    inside: bool
    interpreter: ProgramFile | None = None
    build: Build | None = None


@dataclass(frozen=True, slots=True)
class InspectedProgram:
    """A program before it was measured, with the stamps that show whether it is unchanged."""

    program: Program
    files: tuple[tuple[FileStamp, str], ...]

    def with_build_paths(self, checkout: Path, project: Path) -> InspectedProgram:
        """Return it with the paths of its build below ``checkout`` named as below ``project``."""
        build = self.program.build
        if build is None:
            return self
        old, new = str(checkout), str(project)
        environment = {name: value.replace(old, new) for name, value in build.environment.items()}
        moved = replace(
            build,
            argv=tuple(word.replace(old, new) for word in build.argv),
            environment=MappingProxyType(environment),
        )
        return replace(self, program=replace(self.program, build=moved))

    def require_unchanged(self) -> None:
        """Raise ``ToolError`` ``E_ENGINE_CHANGED`` if a file has other content now."""
        for stamp, sha256 in self.files:
            try:
                if _stamp(stamp.path) == stamp or _digest(stamp.path) == sha256:
                    continue
                problem = "has other content than when measuring began"
            except OSError as error:
                problem = f"cannot be read any more ({reason_of(error)})"
            raise ToolError(
                "E_ENGINE_CHANGED",
                f"The program {stamp.path} {problem}, so its runs are of two programs.",
            )


def inspect_program(plan: Plan, workload: Workload, built: Build | None) -> InspectedProgram | None:
    """Find and digest the program that ``plan`` starts; None if it is Python or not found.

    It is searched for as its process will be: by that process's ``PATH``, from the workload's
    directory. Raises ``ToolError`` ``E_CANNOT_START`` if a build should have made it and it is
    missing.
    """
    argv = () if isinstance(plan, Served) else plan.argv
    if not argv:
        return None
    env = make_environment(workload)
    path = find_executable(argv[0], env, workload.directory)
    if path is None:
        if built is not None or explain_no_shell(argv):
            raise _missing_program_error(argv, built)
        return None
    project = real_path(workload.directory)
    paths = [path]
    if (name := read_interpreter(path)) is not None:
        interpreter = find_executable(name, env, workload.directory)
        paths += [interpreter] if interpreter is not None else []
    try:
        files = tuple((_stamp(each), _digest(each)) for each in paths)
    except OSError:
        return None  # it may be executed and not read
    own, *others = (
        ProgramFile(
            each.relative_to(project).as_posix() if each.is_relative_to(project) else each.name,
            sha256,
            stamp.size_bytes,
        )
        for each, (stamp, sha256) in zip(paths, files, strict=True)
    )
    script_of, inside = others[0] if others else None, path.is_relative_to(project)
    program = Program(own.path, own.sha256, own.size_bytes, inside, script_of, built)
    return InspectedProgram(program, files)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(path: Path) -> FileStamp:
    return FileStamp.from_status(path, path.stat())


def _missing_program_error(argv: Sequence[str], built: Build | None) -> ToolError:
    problem, remedy = f"Cannot start {argv[0]!r}: no such program.", explain_no_shell(argv)
    if built is not None and built.ran:
        problem = f"The build ran, and {argv[0]!r} does not exist."
        remedy = remedy or (
            "Name the program that the build makes in command (CARGO_TARGET_DIR may put it "
            "elsewhere)."
        )
    elif built is not None:
        problem = f"{argv[0]!r} does not exist, and {SKIP}=1 skipped the build that makes it."
        remedy = f"Unset {SKIP}, or build by hand first: {' '.join(built.argv)}"
    return ToolError("E_CANNOT_START", problem, remedy)
