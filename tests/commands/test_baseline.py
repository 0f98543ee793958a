"""``flamegate baseline list|show|accept|prune``."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.commands.common import get_workload_name
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.run.publish import RunStore
from tests.commands.asked import Captured, Command, ask
from tests.doors.project import workload
from tests.run import fakes


@pytest.fixture
def latest(project: Path, world: fakes.World, capsys: Captured) -> Path:
    """Gate the workload once; return the directory of that run."""
    assert ask("run") == 4
    capsys.readouterr()
    return project / ".flamegate" / "latest" / "toy"


def test_without_any_baseline(project: Path, command: Command) -> None:
    assert command(0, "baseline", "list").out.startswith("no baselines")
    assert "E_NO_BASELINE" in command(4, "baseline", "show", "toy").err
    assert "nothing to prune" in command(0, "baseline", "prune").out
    assert "E_NO_RUN" in command(4, "baseline", "accept").err
    assert "E_NO_RUN" in command(2, "baseline", "accept", "toy").err


def test_the_latest_run_is_accepted_listed_and_shown(
    project: Path, latest: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    # It measures nothing, so a revision to compare with does not matter.
    (project / "pytest.ini").write_text("[pytest]\nflamegate_against = main\n")
    monkeypatch.setenv("CI", "true")
    assert "E_UPDATE_IN_CI" in command(2, "baseline", "accept", "toy").err
    assert ask("baseline", "accept", "toy", "--update-in-ci") == 0
    ((machine, name, directory),) = ArtifactStore(project / ".flamegate").list_baselines()
    assert name == "toy"
    place = f".flamegate/baselines/{machine}"
    assert command.read().out == (
        "toy: A doubtful baseline. F_NO_COMMIT: No commit names the measured code.\n"
        f"accepted 1 baseline in {place}: toy. Commit it: git add {place}\n"
    )
    for path in latest.iterdir():
        assert (directory / path.name).read_bytes() == path.read_bytes()
    (line,) = command(0, "baseline", "list").out.splitlines()
    assert line.split()[:2] == ["toy", machine]
    assert "tokens/s" in line
    printed = command(0, "baseline", "show", "toy").out
    assert f"toy on {machine}: " in printed
    assert "ternary_gemv" in printed
    assert ask("run", "--against=") == 0


def edit(path: Path, change: Callable[[Any], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_run_that_is_unusable_as_a_baseline_is_not_accepted(
    latest: Path, command: Command
) -> None:
    def assert_not_accepted(exit_code: int, *words: str) -> None:
        message = command(exit_code, "baseline", "accept").err
        assert all(word in message for word in words), message
        assert not (latest.parents[1] / "baselines").exists()

    receipt, evidence, page = (
        latest / name for name in ("receipt.json", "evidence.json", "flamegraph.md")
    )
    edit(evidence, lambda found: found["workload"].update(injection="norm:+10%"))
    assert_not_accepted(4, "E_NOT_ACCEPTED", "norm:+10%")
    edit(receipt, lambda found: found.update(tokens_per_second=1e6))
    assert_not_accepted(3, "E_NOT_ACCEPTED", "not honest")
    evidence.unlink()
    assert_not_accepted(3, "E_NOT_ACCEPTED", "evidence")
    page.unlink()
    page.mkdir()
    assert_not_accepted(3, "E_CANNOT_READ", "flamegraph.md")


def test_a_run_that_is_no_baseline_blocks_the_others_only_if_it_is_named(
    project: Path, latest: Path, command: Command
) -> None:
    faked = latest.with_name("faked")
    shutil.copytree(latest, faked)
    edit(faked / "evidence.json", lambda found: found["workload"].update(injection="norm:+10%"))
    for names in (("toy", "faked"), ("flamegate.toml::toy", "toy", "flamegate.toml::faked")):
        assert "E_NOT_ACCEPTED" in command(4, "baseline", "accept", *names).err
        assert not (project / ".flamegate/baselines").exists()
    printed = command(4, "baseline", "accept").out
    assert "not accepted: E_NOT_ACCEPTED: The latest run of 'faked' had work injected" in printed
    assert "without --inject." in printed
    assert "accepted 1 baseline" in printed
    assert [name for _, name, _ in ArtifactStore(project / ".flamegate").list_baselines()] == [
        "toy"
    ]
    edit(faked / "receipt.json", lambda found: found.update(tokens_per_second=1e6))
    assert ask("baseline", "accept") == 3
    edit(latest / "receipt.json", lambda found: found.update(tokens_per_second=1e6))
    command.read()
    printed = command(3, "baseline", "accept").out
    assert (printed.count("not accepted: "), len(printed.splitlines())) == (2, 2)


def test_baselines_are_named_by_nodes_too(project: Path, latest: Path, command: Command) -> None:
    command(0, "baseline", "accept", "flamegate.toml::toy")
    shown = command(0, "baseline", "show", "toy").out
    assert command(0, "baseline", "show", "flamegate.toml::toy").out == shown


def test_what_was_accepted_is_printed_if_the_disk_is_full(
    project: Path, latest: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(latest, latest.with_name("zoo"))
    accept = RunStore.accept

    def fail(store: RunStore, name: str, *arguments: Any) -> Any:
        if name == "zoo":
            raise ToolError("E_CANNOT_WRITE", "The disk is full.")
        return accept(store, name, *arguments)

    monkeypatch.setattr(RunStore, "accept", fail)
    printed = command(5, "baseline", "accept")
    assert "accepted 1 baseline" in printed.out
    assert "E_CANNOT_WRITE" in printed.err


def test_a_broken_baseline_is_listed_as_unusable(project: Path, capsys: Captured) -> None:
    broken = project / ".flamegate" / "baselines" / "machine" / "old"
    broken.mkdir(parents=True)
    (broken / "evidence.json").write_text("{")
    assert ask("baseline", "list") == ask("baseline", "show", "old") == 3
    assert capsys.readouterr().out.count("unusable: E_") == 2


def test_prune_removes_baselines_of_undeclared_workloads(
    project: Path, latest: Path, command: Command
) -> None:
    assert ask("baseline", "accept") == 0
    ((_, _, accepted),) = ArtifactStore(project / ".flamegate").list_baselines()
    of_test, embedded = accepted.with_name("of-a-test"), accepted.with_name("1tok")
    shutil.copytree(accepted, of_test)
    shutil.copytree(accepted, embedded)
    corrupt = accepted.with_name("corrupt")
    shutil.copytree(accepted, corrupt)
    (corrupt / "evidence.json").write_text("{}")
    name = "evidence.json"
    edit(of_test / name, lambda found: found["workload"].update(source="tests/test_a.py::test_b"))
    digest = hashlib.sha256((of_test / name).read_bytes()).hexdigest()
    edit(of_test / "baseline.json", lambda found: found["files"].update({name: digest}))
    (project / "flamegate.toml").write_text(workload("new"))
    command.read()
    kept, listed, _ = command(0, "baseline", "prune").out.splitlines()
    assert kept.startswith(f"kept, because it cannot be read: The baseline {corrupt}/")
    assert listed == f"would remove toy: {accepted}"
    assert accepted.is_dir()
    assert command(0, "baseline", "prune", "--yes").out.endswith(f"removed toy: {accepted}\n")
    assert corrupt.is_dir()
    assert not accepted.exists()
    # Tests and the embedded engine have no declaration, and still measure these.
    assert of_test.is_dir()
    assert embedded.is_dir()


def test_a_node_of_a_test_is_the_workload_that_it_measures() -> None:
    nodes = {"toy": "toy", "flamegate.toml::toy[a]": "toy[a]", "t/test_a.py::T::b": "t.test_a.T.b"}
    assert {node: get_workload_name(node) for node in nodes} == nodes
