"""A workload is built before it is measured, and the program that runs is identified."""

import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.process_system import find_executable
from pytest_flamegate.engines.base import Served, Streamed
from pytest_flamegate.observe import build as observe_build
from pytest_flamegate.observe.build import (
    Build,
    InspectedProgram,
    build_workload,
    inspect_program,
)

LOUD = "import sys; [print('line', i) for i in range(40)]; sys.exit('error: borrow of moved')"
FLOOD = "import os\nwhile True: os.write(2, bytes(1 << 20))"
ECHO = '#!/bin/sh\necho "$0"\n'


def workload(directory: Path, code: str | None = None, **changes: Any) -> Workload:
    """A workload that is built by Python running ``code``."""
    if code is not None:
        changes |= {"build": (sys.executable, "-c", code)}
    return Workload("w", "command", "p", 1, "test", directory=directory, **changes)


def test_where_and_with_what_a_build_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMEGATE_SKIP_BUILD", "1")
    code = "import os; open('made-' + os.environ['MARK'], 'w').close()"
    declared = workload(tmp_path, code, env={"MARK": "7"})
    assert build_workload(declared) == Build(declared.build, False, {})
    assert not (tmp_path / "made-7").exists()
    always = build_workload(declared, always=True)
    assert always is not None
    assert always.ran
    assert (tmp_path / "made-7").exists()
    assert build_workload(replace(declared, build=())) is None


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (("no-such-builder",), "E_CANNOT_START: .*build of workload 'w'"),
        (("make && cp a b",), "E_CANNOT_START: .*No shell reads it"),
        ((sys.executable, "-c", "exit(2)", "&&", "x"), "E_BUILD_FAILED: .*No shell reads it"),
        ((sys.executable, "-c", LOUD), r"E_BUILD_FAILED: .*line 39.*error: borrow"),
        ((sys.executable, "-c", "import time; time.sleep(600)"), "E_BUILD_FAILED: .*timed out"),
        ((sys.executable, "-c", FLOOD), "E_OUTPUT_FLOOD: .*wrote more than 64 MiB"),
    ],
)
def test_a_build_that_cannot_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], problem: str
) -> None:
    if "timed out" in problem:
        monkeypatch.setattr(observe_build, "_TIMEOUT_S", 0.5)
    with pytest.raises(ToolError, match=problem) as caught:
        build_workload(workload(tmp_path, build=argv))
    assert "line 20" not in str(caught.value)


def test_an_interrupted_build_leaves_nothing_running(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('pids', 'w').write(f'{os.getpid()} {child.pid}')\n"
        f"os.kill({os.getpid()}, 2)\n"
        "child.wait()\n"
    )
    with pytest.raises(KeyboardInterrupt):
        build_workload(workload(tmp_path, code))
    pids = (tmp_path / "pids").read_text().split()
    assert not any(psutil.pid_exists(int(pid)) for pid in pids)


def test_variables_of_code_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUSTFLAGS", "CFLAGS", "MAKEFLAGS", "SOME_OTHER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CARGO_BUILD_JOBS", "2")
    monkeypatch.setenv("CARGO_REGISTRY_TOKEN", "x7Gq2LmPz0")
    monkeypatch.setenv("SOME_OTHER", "1")
    env = MappingProxyType({"RUSTFLAGS": "-C opt-level=1", "CFLAGS": "-DTOKEN=ghp_" + "a1B2" * 9})
    build = build_workload(workload(tmp_path, "", env=env))
    assert build is not None
    assert build.environment["RUSTFLAGS"] == "-C opt-level=1"
    assert build.environment["CARGO_BUILD_JOBS"] == "2"
    assert "ghp_" not in build.environment["CFLAGS"]
    assert not {"CARGO_REGISTRY_TOKEN", "SOME_OTHER", "PATH"} & set(build.environment)


# The program


def script(path: Path, text: str = ECHO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def inspect(
    directory: Path, *argv: str, build: Build | None = None, **changes: Any
) -> InspectedProgram:
    found = inspect_program(Streamed(argv, "byte"), workload(directory, **changes), build)
    assert found is not None
    return found


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("name", "path"),
    [("bin/tool", "nowhere"), ("tool", "nowhere:bin"), ("tool", "unusable:bin"), ("linked", "bin")],
)
def test_a_program_is_found_as_the_system_finds_it(tmp_path: Path, name: str, path: str) -> None:
    tool = script(tmp_path / "bin" / "tool")
    script(tmp_path / "unusable" / "tool").chmod(0o644)
    (tmp_path / "bin" / "linked").symlink_to("tool")
    env = {"PATH": path}
    assert find_executable(name, env, tmp_path) == tool
    ran = process.run((name,), timeout_s=60, env=env, cwd=tmp_path).stdout.decode().strip()
    assert (tmp_path / ran).resolve() == tool


def test_a_program_is_named_by_its_path_in_the_project_or_its_bare_name(tmp_path: Path) -> None:
    project = tmp_path / "project"
    tool = script(project / "target" / "release" / "tool")
    inside = inspect(project, "target/release/tool").program
    assert (inside.path, inside.inside) == ("target/release/tool", True)
    assert (inside.sha256, inside.size_bytes) == (sha256(tool), len(ECHO))
    outside = inspect(project, str(script(tmp_path / "elsewhere" / "other"))).program
    assert (outside.path, outside.inside) == ("other", False)
    assert inspect(tmp_path, sys.executable).program.interpreter is None
    assert inspect_program(Served({}), workload(tmp_path), None) is None
    assert inspect_program(Streamed(("no-such-program",), "byte"), workload(tmp_path), None) is None


@pytest.mark.parametrize("line", ["{python}", "/usr/bin/env python", "/usr/bin/env -S python -u"])
def test_a_script_is_named_with_its_interpreter(tmp_path: Path, line: str) -> None:
    script(tmp_path / "python")
    script(tmp_path / "run", f"#!{line.format(python=tmp_path / 'python')}\n")
    program = inspect(tmp_path, "run", env=MappingProxyType({"PATH": str(tmp_path)})).program
    assert program.path == "run"
    assert program.interpreter is not None
    assert program.interpreter.path == "python"
    assert program.interpreter.sha256 == sha256(tmp_path / "python")


def test_a_replaced_program_is_an_error_and_a_touched_one_is_not(tmp_path: Path) -> None:
    tool = script(tmp_path / "tool")
    program = inspect(tmp_path, "./tool")
    tool.touch()
    tool.chmod(0o700)
    program.require_unchanged()
    script(tool, ECHO + "# rebuilt\n")
    with pytest.raises(ToolError, match=r"E_ENGINE_CHANGED: .*other content"):
        program.require_unchanged()
    tool.unlink()
    with pytest.raises(ToolError, match=r"E_ENGINE_CHANGED: .*cannot be read"):
        program.require_unchanged()


def test_a_program_that_its_build_did_not_make(tmp_path: Path) -> None:
    for ran, words in ((True, "The build ran"), (False, "skipped the build")):
        build = Build(("make",), ran, MappingProxyType({}))
        with pytest.raises(ToolError, match=f"E_CANNOT_START: .*{words}") as caught:
            inspect(tmp_path, "target/tool", build=build)
        assert ("FLAMEGATE_SKIP_BUILD" in str(caught.value)) is not ran
    with pytest.raises(ToolError, match=r"E_CANNOT_START: .*No shell reads it"):
        inspect(tmp_path, "./tool --prompt x | cat")
    # Paths of a checkout are named as the project's.
    script(tmp_path / "tool")
    flags = MappingProxyType({"CFLAGS": f"-I{tmp_path}/include"})
    program = inspect(tmp_path, "./tool", build=Build(("make", "-C", str(tmp_path)), True, flags))
    moved = program.with_build_paths(tmp_path, Path("/project")).program.build
    assert moved == Build(("make", "-C", "/project"), True, {"CFLAGS": "-I/project/include"})
