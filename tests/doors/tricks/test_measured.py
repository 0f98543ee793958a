"""Engines of a slower change that try to look fast, each checked on a real measurement."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.commands.asked import ask
from tests.doors.project import IGNORED, workload
from tests.doors.tricks import engines
from tests.doors.tricks.table import MEASURED, WITHOUT_MEASURING, Trick
from tests.doors.tricks.test_doors import write
from tests.doors.tricks.uploads import GREEN
from tests.workload.repositories import git

pytestmark = [pytest.mark.measures, pytest.mark.nightly]
_UNDECIDED = "inconclusive"
"""Any answer may be this one on a busy machine, and then the check fails."""


_FAILED = "error"
_NO_RIGHT = "PermissionError"
"""A system may deny what a trick asks for: a priority, a scheduling class."""


@pytest.fixture(autouse=True)
def reaped() -> Iterator[None]:
    """What an engine made a child of this process has ended; nobody else waits for it."""
    yield
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@pytest.mark.parametrize("trick", MEASURED, ids=lambda trick: trick.name)
def test_a_measured_trick(
    trick: Trick, pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = check(pytester.path, trick.head, trick.base, trick.ignored, trick.budget_s)
    if _FAILED in answer and _NO_RIGHT in capfd.readouterr().out:
        pytest.skip("the trick needs a right that this process does not have")
    # An engine that fails to run is no answer to its trick.
    assert answer & {*trick.by_check.split(" or "), _UNDECIDED}, answer


@pytest.mark.parametrize("name", sorted(engines.OF_CHANGES))
def test_a_change_that_needs_no_measurement_is_stopped_on_one(
    name: str, pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    """Elsewhere these are played with made-up processes."""
    (trick,) = (each for each in WITHOUT_MEASURING if each.name == name)
    head = {"toy.py": engines.OF_CHANGES[name], **trick.head}
    answer = check(pytester.path, head, {"flamegate.toml": workload("toy"), **trick.base})
    shown = capfd.readouterr()
    answer |= {word.strip(":") for word in (shown.out + shown.err).split()}
    assert trick.by_check in answer or {trick.by_check, *answer} >= {"regressed", _UNDECIDED}
    assert GREEN not in answer


@pytest.mark.parametrize("slower", engines.WITHOUT_TRICK)
def test_the_same_slowdown_without_a_trick_is_found(slower: str, pytester: pytest.Pytester) -> None:
    assert check(pytester.path, {"toy.py": slower}) & {"regressed", _UNDECIDED}


@pytest.mark.parametrize(
    "line", ["def generate(*_):\n    raise PermissionError('a right')\n    yield", "def :"]
)
def test_an_engine_that_does_not_run_is_an_error(
    line: str, pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _FAILED in check(pytester.path, {"toy.py": f"{engines.SLOWER}\n\n{line}\n"})
    assert (_NO_RIGHT in capfd.readouterr().out) == (_NO_RIGHT in line)


def check(
    root: Path,
    head: Mapping[str, str | None],
    base: Mapping[str, str] = MappingProxyType({}),
    ignored: Mapping[str, str] = MappingProxyType({}),
    budget_s: int = 8,
) -> set[str]:
    """Return verdict and codes of a change of the toy engine, GREEN if the check passes."""
    git(root, "init", "-q", "-b", "main")
    write(
        root,
        {
            ".gitignore": f"{IGNORED}program.py\nfast.py\n.flamegate\n",
            "flamegate.toml": engines.POLICY.format(prompts=engines.ONE_PROMPT),
            "build.sh": engines.BUILD,
            "toy.py": engines.BASE,
            **base,
        },
    )
    git(root, "tag", "base")
    write(root, head)
    for name, text in ignored.items():
        (root / name).write_text(text)
    code = ask("check", "--base=base", f"--budget={budget_s}", "--profiler=none")
    found = json.loads((root / ".flamegate/check.json").read_text())
    assert found["passed"] == (code == 0)
    words = {word for row in found["required"] for word in (row["verdict"], *row["reasons"])}
    return {GREEN} if code == 0 else words
