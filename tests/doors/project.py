"""A small project with a toy engine: cheap to measure, and Python that py-spy can see."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

TOY = """\
import os
import time


def hash_round(x, rounds):
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def generate(prompt, max_tokens, rounds={rounds}):
    x = len(prompt)
    for _ in range(max_tokens):
        x = hash_round(x, rounds)
        yield x % 100


def nothing(prompt, max_tokens):
    return iter(())


def raises(prompt, max_tokens):
    yield 1
    raise RuntimeError("toy is broken")


def dies(prompt, max_tokens):
    yield 1
    os._exit(3)


def chatters(prompt, max_tokens):
    while True:
        yield 1


def hangs(prompt, max_tokens):
    yield 1
    time.sleep(60)
"""
ROUNDS = 4000
QUICK = ("--flamegate", "--flamegate-budget=1", "--flamegate-profiler=none")
"""Real measurements, as few as a verdict needs, and none of them profiled."""
SEEN = ("--flamegate", "--flamegate-budget=1", "--flamegate-profiler=py-spy")
"""The same with a profile, and so with a receipt."""
JUDGED = frozenset({"pass", "improved", "regressed", "inconclusive", "not_comparable"})
"""What may come of a measurement that there is a baseline for, on a machine with any noise."""


def write_toy(directory: Path, rounds: int = ROUNDS) -> None:
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

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in a process of its own: what measures starts and reaps processes."""
        return self.pytester.runpytest_subprocess(*arguments)

    def ask(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in this process, where nothing is measured."""
        return self.pytester.runpytest_inprocess(*arguments)

    def latest(self, name: str) -> set[str]:
        """The names of the files of the last run of a workload."""
        return {path.name for path in (self.artifacts / "latest" / name).iterdir()}

    def verdict(self, name: str) -> Mapping[str, Any]:
        """The verdict document of the last run of a workload."""
        text = (self.artifacts / "latest" / name / "verdict.json").read_text()
        document: dict[str, Any] = json.loads(text)
        return document

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
