"""``flamegate check`` runs base and head in checkouts of one kind: none shows its side."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.base import Plan, Served, Streamed
from pytest_flamegate.run import measure, processes
from tests.commands.asked import Repository, ask
from tests.doors.project import workload
from tests.models.gguf_files import GgufFile
from tests.run import fakes
from tests.workload.repositories import write

BUILD = '["sh", "-c", "pwd >> $LOG; mkdir made; cp seed made/it.gguf"]'
COMMAND = 'engine = "command"\ncommand = ["python3", "toy.py", "{model}", "{max_tokens}"]\n'
PROGRAM = workload("toy").replace('target = "toy:generate"\n', COMMAND)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Workload, Any]]:
    """Workload and plan of each side that is measured: of the base, and then of the head."""
    fakes.install(monkeypatch, profiled=False)
    found: list[tuple[Workload, Any]] = []

    class Recorder(fakes.FakeObserver):
        def __post_init__(self) -> None:
            super().__post_init__()
            found.append((self.workload, self.plan))

    monkeypatch.setattr(processes, "Observer", Recorder)
    return found


@pytest.fixture(params=["base first", "head first"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An order that is not left to chance."""

    class Fixed(random.Random):
        def shuffle(self, x: Any) -> None:
            x.sort(reverse=request.param == "head first")

    monkeypatch.setattr("pytest_flamegate.run.prepare.random.SystemRandom", Fixed)
    first = {"base first": list, "head first": lambda items: [*items][::-1]}[request.param]
    monkeypatch.setattr(measure, "_shuffle", first)
    return str(request.param)


def add_commit(repo: Repository, *ignored: str) -> None:
    (repo.path / ".gitignore").write_text("\n".join((".flamegate", "made", *ignored)))
    repo.git("add", "-A")
    repo.git("commit", "-q", "--allow-empty", "-m", "a change")


def normalise(workload: Workload, plan: Plan, other: Path) -> str:
    """Return how a side runs with its own directory and the other's replaced."""
    text = repr((workload, plan)).replace(str(workload.directory), "OWN")
    return text.replace(str(other), "OTHER")


def sides(seen: list[tuple[Workload, Any]]) -> Iterator[tuple[Path, Any]]:
    """Yield directory and plan of each side, which must differ by their random names alone."""
    (base, plan), (head, head_plan) = seen
    assert normalise(base, plan, head.directory) == normalise(head, head_plan, base.directory)
    assert base.directory.parents[1] == head.directory.parents[1]
    assert base.directory.name == head.directory.name
    assert len(str(base.directory)) == len(str(head.directory))
    yield from ((base.directory, plan), (head.directory, head_plan))


def test_both_sides_of_a_python_engine_are_given_the_same(
    clone: Repository, seen: list[tuple[Workload, Any]]
) -> None:
    text = workload("toy", env=f'{{ DATA = "{clone.path}/data" }}')
    clone.declare(text)
    clone.declare(text + "\n")
    clone.check(0)
    for root, plan in sides(seen):
        assert isinstance(plan, Served)
        assert plan.load["checkout"] == str(root)
        assert plan.load["projects"][0] == str(clone.path)
    assert clone.git("worktree", "list").count("\n") == 0


@pytest.mark.parametrize("model", ["tracked", "ignored", "renamed", "built"])
def test_both_sides_read_a_model_of_one_kind_of_place(
    clone: Repository, seen: list[tuple[Workload, Any]], model: str
) -> None:
    """A model that only one of them has is the clone's for both, and so is one of no commit."""
    pattern, file = "made/*.gguf" if model == "built" else "*.gguf", GgufFile().packed()
    (clone.path / "seed").write_bytes(file)
    if model in ("tracked", "renamed"):
        (clone.path / "a.gguf").write_bytes(file)
    clone.declare(f'{PROGRAM}model = "{pattern}"\nbuild = {BUILD}\nenv = {{ LOG = "/dev/null" }}\n')
    if model == "ignored":
        (clone.path / "a.gguf").write_bytes(file)
    elif model == "renamed":
        clone.git("mv", "a.gguf", "b.gguf")
    add_commit(clone, *["*.gguf"] * (model == "ignored"))
    ask("check", "--base=HEAD~1")
    for root, plan in sides(seen):
        assert isinstance(plan, Streamed)
        place = {"tracked": root / "a.gguf", "built": root / "made/it.gguf"}
        name = "b.gguf" if model == "renamed" else "a.gguf"
        assert plan.argv[2] == str(place.get(model, clone.path / name))


def test_what_was_built_before_is_not_measured(
    clone: Repository, seen: list[tuple[Workload, Any]], monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    log = clone.path.parent / "log"
    write(clone.path, {"seed": ""})
    text = f'{workload("toy", build=BUILD)}env = {{ LOG = "{log}" }}\n'
    clone.declare(text)
    clone.declare(text + "\n")
    monkeypatch.setenv("FLAMEGATE_SKIP_BUILD", "1")
    clone.check(0)
    (base, _), (head, _) = sides(seen)
    built = [str(base), str(head)]
    assert log.read_text().split() == (built if order == "base first" else built[::-1])
    assert not (clone.path / "made").exists()
    verdict = (clone.path / ".flamegate/latest/toy/verdict.json").read_text()
    assert "FLAMEGATE_SKIP_BUILD=1 has no effect here" in verdict


def test_an_error_of_the_head_is_worth_more(repo: Repository, order: str) -> None:
    for status in (1, 2, 0):
        write(repo.path, {"build.sh": f"exit {status}"})
        repo.declare(workload("toy", build='["sh", "build.sh"]'))
    repo.git("checkout", "-q", "HEAD~1")
    assert "The base" not in repo.check(5).out
    repo.git("checkout", "-q", "main")
    assert "The base" in repo.check(4).out


def test_a_program_that_git_ignores_is_named(repo: Repository, order: str) -> None:
    text = PROGRAM.replace('"python3", "toy.py"', '"made/engine"').replace('"{model}", ', "")
    repo.declare(text)
    write(repo.path, {"made/engine": "#!/bin/sh\n"})
    repo.declare(text + "\n")
    repo.git("rm", "-q", "--cached", "made/engine")
    add_commit(repo)
    repo.world.fail(ToolError("E_CANNOT_START", "Cannot start 'made/engine': no such program."))
    printed = repo.check(5, base="HEAD~2").out
    assert "made/engine is not in the checkout of" in printed
    assert "Declare the build that makes it" in printed


def test_an_error_of_an_engine_says_what_a_checkout_lacks(repo: Repository) -> None:
    repo.declare()
    repo.declare(workload("toy") + "\n")
    repo.world.fail(ToolError("E_ENGINE_RAISED", "The engine raised ImportError.", "Run it alone."))
    printed = repo.check(5).out
    assert "Run it alone. It ran in a checkout of " in printed
    assert "which has no submodules and no files that git ignores." in printed


CURIOUS = """
import json, os, sys

frame = sys._getframe()
while not isinstance(frame.f_locals.get("spec"), dict):
    frame = frame.f_back
HERE = os.path.dirname(os.path.abspath(__file__))
seen = {"here": HERE, "cwd": os.getcwd(), "argv": sys.orig_argv[:4], "path": sys.path,
    "env": {**os.environ, "FLAMEGATE_TREE": ""}, "spec": frame.f_locals["spec"],
    "parent": os.getppid(), "python": sys.executable, "umask": os.umask(0o22)}
with open(os.environ["LOG"], "a") as log:
    log.write(json.dumps(seen) + chr(10))
"""


@pytest.mark.measures
@pytest.mark.nightly
def test_a_measured_engine_is_shown_nothing_of_its_side(clone: Repository) -> None:
    log = clone.path.parent / "log"
    (clone.path / "toy.py").write_text((clone.path / "toy.py").read_text() + CURIOUS)
    text = workload("toy", env=f'{{ LOG = "{log}" }}', build='["touch", "made"]')
    clone.declare(text)
    add_commit(clone)
    clone.declare(text + "\n")
    base = clone.git("rev-parse", "HEAD~1")
    assert ask("check", f"--base={base}", "--budget=1", "--profiler=none") in (0, 4)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    here = {row["here"] for row in rows}
    assert len(here) == 2
    for row in rows:
        (other,) = here - {row["here"]}
        # Copies of libraries lie in a directory of each process.
        row["spec"].pop("copies", None)
        row |= json.loads(json.dumps(row).replace(row["here"], "OWN").replace(other, "OTHER"))
    assert all(row == rows[0] for row in rows)
