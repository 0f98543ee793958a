"""A small project with a toy engine: cheap to measure, and Python that py-spy can see."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.profile.profilers import PROFILERS
from pytest_flamegate.profile.profilers.base import Setup
from pytest_flamegate.profile.profilers.tools import try_profiler
from tests.tools import require
from tests.workload.repositories import git

if TYPE_CHECKING:
    import pytest

TOY = """\
def hash_round(x, rounds):
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def generate(prompt, max_tokens, rounds={rounds}):
    x = len(prompt)
    for _ in range(max_tokens):
        x = hash_round(x, rounds)
        yield x % 100


def steady(prompt, max_tokens):
    for _ in generate(prompt, max_tokens):
        yield 7
"""
QUICK = ("--flamegate", "--flamegate-budget=1", "--flamegate-profiler=none")
"""Real measurements, as few as a verdict needs, and none of them profiled."""
SEEN = ("--flamegate", "--flamegate-budget=1", "--flamegate-profiler=py-spy")
"""The same with a profile, and so with a receipt."""
JUDGED = frozenset({"pass", "improved", "regressed", "inconclusive", "not_comparable"})
"""What may come of a measurement that there is a baseline for, on a machine with any noise."""
BARE = (
    "-p no:cacheprovider -p no:hypothesispytest -p no:benchmark -p no:randomly "
    "-p no:rerunfailures -p no:pytest_cov"
)
"""Without the plugins that write into the project, or spend a second of every run on imports."""
IGNORED = "stdout\nstderr\nrunpytest-*\n__pycache__\n.pytest_cache\n/build\n"
"""What the harness around a test writes, and what is built or measured."""


def write_toy(directory: Path, rounds: int = 4000) -> None:
    """Write the engine; a token costs about half a millisecond for 4000 ``rounds``."""
    (directory / "toy.py").write_text(TOY.replace("{rounds}", str(rounds)))


def workload(name: str, target: str = "generate", **more: str) -> str:
    """Return the declaration of a workload that runs ``toy.TARGET``; values as TOML."""
    keys = {
        "target": f'"toy:{target}"',
        "prompt": '"2+2="',
        "max_tokens": "4",
        **more,
    }
    return f"[workloads.{name}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())


def require_profiler(name: str) -> None:
    """Skip the test if the profiler does not work here."""
    probe = try_profiler(PROFILERS[name](Setup()))
    require(probe.usable, f"{name} cannot be used: {probe.code}: {probe.reason}")


@dataclass(frozen=True)
class Project:
    """The directory that one test runs pytest in."""

    pytester: pytest.Pytester

    @property
    def path(self) -> Path:
        return self.pytester.path

    @property
    def artifacts(self) -> Path:
        return self.path / ".flamegate"

    def declare(self, *workloads: str) -> None:
        """Write ``flamegate.toml``."""
        self.write("flamegate.toml", "\n".join(workloads))

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self) -> None:
        """Commit every file; the first call makes the repository."""
        if not (self.path / ".git").exists():
            git(self.path, "init", "-q", "-b", "main")
        if not (self.path / ".gitignore").exists():
            self.write(".gitignore", IGNORED)
        git(self.path, "add", "-A")
        git(self.path, "commit", "-q", "-m", "a change")

    def has_one_worktree(self) -> bool:
        """Whether no checkout of a comparison is left."""
        return len(git(self.path, "worktree", "list").splitlines()) == 1

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in a process of its own."""
        return self.pytester.runpytest_subprocess(*arguments)

    def ask(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in this process, with all that a test has replaced in it."""
        return self.pytester.runpytest_inprocess(*arguments)

    def latest(self, name: str) -> set[str]:
        """The names of the files of the last run of a workload."""
        return {path.name for path in (self.artifacts / "latest" / name).iterdir()}

    def verdict(self, name: str) -> Mapping[str, Any]:
        """The verdict document of the last run of a workload."""
        return self.document(name, "verdict.json")

    def document(self, name: str, file: str = "evidence.json") -> dict[str, Any]:
        """The evidence of the last run of a workload, or another document of it."""
        text = (self.artifacts / "latest" / name / file).read_text()
        found: dict[str, Any] = json.loads(text)
        return found

    def reasons(self, name: str) -> dict[str, str]:
        """The reasons of the last verdict on a workload: code and message."""
        return {each["code"]: each["message"] for each in self.verdict(name)["reasons"]}

    def history(self) -> list[dict[str, Any]]:
        """Every record of a gated run."""
        lines = (self.artifacts / "history" / "runs.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def refused(result: pytest.RunResult, *words: str) -> None:
    """Assert a usage error with these words, told without a traceback."""
    told = result.stderr.str() + result.stdout.str()
    assert result.ret == 4, told
    for word in words:
        assert word in told, told
    assert "Traceback" not in told
    assert "INTERNALERROR" not in told
