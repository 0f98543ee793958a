"""The program that really runs: found as its process is started, named, and held against itself."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.base import Served, Streamed
from pytest_flamegate.observe.build import (
    Build,
    InspectedProgram,
    build_workload,
    find_executable,
    inspect_program,
)

ECHO = '#!/bin/sh\necho "$0"\n'


def script(path: Path, text: str = ECHO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def workload(directory: Path, **changes: object) -> Workload:
    return Workload("w", "command", "p", 1, "test", directory=directory, **changes)  # type: ignore[arg-type]


def seen(
    directory: Path, *argv: str, built: Build | None = None, **changes: object
) -> InspectedProgram:
    found = inspect_program(Streamed(argv, "byte"), workload(directory, **changes), built)
    assert found is not None
    return found


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("./bin/tool", "nowhere"),
        ("bin/tool", "nowhere"),
        ("tool", "bin"),
        ("tool", "nowhere:bin"),
        ("tool", "unusable:bin"),
        ("linked", "bin"),
    ],
)
def test_it_is_found_as_the_system_finds_it(tmp_path: Path, name: str, path: str) -> None:
    tool = script(tmp_path / "bin" / "tool")
    script(tmp_path / "unusable" / "tool").chmod(0o644)
    (tmp_path / "bin" / "linked").symlink_to("tool")
    env = {"PATH": path}
    found = find_executable(name, env, tmp_path)
    assert found == tool
    ran = process.run((name,), timeout_s=60, env=env, cwd=tmp_path).stdout.decode().strip()
    assert (tmp_path / ran).resolve() == tool


def test_it_is_named_inside_the_project_and_by_its_bare_name_elsewhere(tmp_path: Path) -> None:
    project = tmp_path / "project"
    tool = script(project / "target" / "release" / "tool")
    other = script(tmp_path / "elsewhere" / "other")
    inside = seen(project, "target/release/tool").program
    assert (inside.path, inside.inside) == ("target/release/tool", True)
    assert (inside.sha256, inside.size_bytes) == (sha256(tool), len(ECHO))
    outside = seen(project, str(other)).program
    assert (outside.path, outside.inside) == ("other", False)


@pytest.mark.parametrize("line", ["{python}", "/usr/bin/env python", "/usr/bin/env -S python -u"])
def test_a_script_is_named_with_what_runs_it(tmp_path: Path, line: str) -> None:
    script(tmp_path / "python")
    script(tmp_path / "run", f"#!{line.format(python=tmp_path / 'python')}\n")
    env = MappingProxyType({"PATH": str(tmp_path)})
    program = seen(tmp_path, "run", env=env).program
    assert program.path == "run"
    assert program.interpreter is not None
    assert program.interpreter.path == "python"
    assert program.interpreter.sha256 == sha256(tmp_path / "python")


def test_a_binary_has_no_interpreter_and_python_is_no_program(tmp_path: Path) -> None:
    assert seen(tmp_path, sys.executable).program.interpreter is None
    assert inspect_program(Served({}), workload(tmp_path), None) is None
    assert inspect_program(Streamed(("no-such-program",), "byte"), workload(tmp_path), None) is None


def test_one_that_is_replaced_is_refused_and_one_that_is_touched_is_not(tmp_path: Path) -> None:
    tool = script(tmp_path / "tool")
    found = seen(tmp_path, "./tool")
    tool.touch()
    tool.chmod(0o700)
    found.require_unchanged()
    script(tool, ECHO + "# rebuilt\n")
    with pytest.raises(ToolError, match=r"E_PROGRAM_CHANGED: .*other content"):
        found.require_unchanged()
    tool.unlink()
    with pytest.raises(ToolError, match=r"E_PROGRAM_CHANGED: .*cannot be read"):
        found.require_unchanged()


@pytest.mark.parametrize(("ran", "words"), [(True, "The build ran"), (False, "skipped the build")])
def test_one_that_its_build_did_not_make(tmp_path: Path, ran: bool, words: str) -> None:
    built = Build(("make",), ran, MappingProxyType({}))
    with pytest.raises(ToolError, match=f"E_CANNOT_START: .*{words}") as refused:
        seen(tmp_path, "target/tool", built=built)
    assert ("FLAMEGATE_SKIP_BUILD" in str(refused.value)) is not ran


def test_a_command_for_a_shell_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"E_CANNOT_START: .*No shell reads it"):
        seen(tmp_path, "./tool --prompt x | cat")


def test_a_checkouts_paths_are_told_as_the_projects(tmp_path: Path) -> None:
    script(tmp_path / "tool")
    flags = MappingProxyType({"CFLAGS": f"-I{tmp_path}/include"})
    built = Build(("make", "-C", str(tmp_path)), True, flags)
    told = (
        seen(tmp_path, "./tool", built=built)
        .with_build_paths(tmp_path, Path("/project"))
        .program.build
    )
    assert told == Build(("make", "-C", "/project"), True, {"CFLAGS": "-I/project/include"})


def test_the_build_tells_what_changes_code_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RUSTFLAGS", "CFLAGS", "MAKEFLAGS", "SOME_OTHER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CARGO_BUILD_JOBS", "2")
    monkeypatch.setenv("CARGO_REGISTRY_TOKEN", "x7Gq2LmPz0")
    monkeypatch.setenv("SOME_OTHER", "1")
    env = MappingProxyType({"RUSTFLAGS": "-C opt-level=1", "CFLAGS": "-DTOKEN=ghp_" + "a1B2" * 9})
    made = build_workload(workload(tmp_path, build=(sys.executable, "-c", ""), env=env))
    assert made is not None
    assert made.ran
    assert made.environment["RUSTFLAGS"] == "-C opt-level=1"
    assert made.environment["CARGO_BUILD_JOBS"] == "2"
    assert "ghp_" not in made.environment["CFLAGS"]
    assert not {"CARGO_REGISTRY_TOKEN", "SOME_OTHER", "PATH"} & set(made.environment)
