"""The bench: what it holds, what it lets go of, and what it does without."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.core.locks import LOCK_DIRECTORY, machine_lock
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.run.selftest import ask, open_bench

PROGRAM = Workload("prog", "command", "p", 4, "flamegate.toml", command=("true",))


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK_DIRECTORY, str(tmp_path))


def settings(root: Path, profiler: str) -> Settings:
    return Settings(root, root / ".flamegate", profiler=profiler)


def absent(_: Workload) -> NoReturn:
    raise ToolError("E_NO_PROFILER", "No profiler sees it.", "Install one.")


def test_what_needs_no_profiler_is_tried_where_there_is_none(tmp_path: Path) -> None:
    given = settings(tmp_path, "auto")
    with open_bench(ask(PROGRAM, "25%"), given, Progress(), absent) as bench:
        assert bench.profiler is None
        assert "E_NO_PROFILER" in (bench.lacking("profile") or "")
    with open_bench(ask(PROGRAM, "25%"), given, Progress(), lambda _: None) as bench:
        assert "Profiling is off" in (bench.lacking("profile") or "")


def test_a_profiler_asked_for_by_name_has_to_be_there(tmp_path: Path) -> None:
    given = settings(tmp_path, "perf")
    with (
        pytest.raises(ToolError) as caught,
        open_bench(ask(PROGRAM, "25%"), given, Progress(), absent),
    ):
        pass
    assert caught.value.code == "E_NO_PROFILER"


def test_a_workload_that_lacks_something_is_refused(tmp_path: Path) -> None:
    given = settings(tmp_path, "none")
    nothing = Workload("toy", "python", "p", 4, "flamegate.toml")
    with (
        pytest.raises(UsageError) as caught,
        open_bench(ask(nothing, "25%", "f"), given, Progress(), lambda _: None),
    ):
        pass
    assert caught.value.code == "E_NO_TARGET"


def test_the_machine_is_held_and_the_directory_removed(tmp_path: Path) -> None:
    given = settings(tmp_path, "none")
    held: list[Path] = []

    def work() -> NoReturn:
        with open_bench(ask(PROGRAM, "25%"), given, Progress(), lambda _: None) as bench:
            assert bench.directory.is_dir()
            held.append(bench.directory)
            with pytest.raises(ToolError) as caught, machine_lock(print, 0.05):
                pass
            assert caught.value.code == "E_LOCK_TIMEOUT"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not held[0].exists()
    with machine_lock(print, 0.05):
        pass
