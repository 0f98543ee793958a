"""Engines of a slower change that try to look fast, each checked on a real measurement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.commands.asked import ask
from tests.doors.project import IGNORED, workload
from tests.doors.tricks import engines
from tests.doors.tricks.table import MEASURED, Trick
from tests.doors.tricks.test_doors import write
from tests.doors.tricks.uploads import GREEN
from tests.workload.repositories import git

pytestmark = [pytest.mark.measures, pytest.mark.nightly]
_UNDECIDED = "inconclusive"
"""Any answer may be this one on a busy machine, and then the check fails."""


@pytest.mark.parametrize("trick", MEASURED, ids=lambda trick: trick.name)
def test_a_measured_trick(trick: Trick, pytester: pytest.Pytester) -> None:
    answer = check(pytester.path, trick.head)
    assert answer & {*trick.by_check.split(" or "), _UNDECIDED}, answer


def test_the_same_slowdown_without_a_trick_is_found(pytester: pytest.Pytester) -> None:
    assert check(pytester.path, {"toy.py": engines.SLOWER}) & {"regressed", _UNDECIDED}


def check(root: Path, head: Mapping[str, str | None]) -> set[str]:
    """Return verdict and codes of a change of the toy engine, GREEN if the check passes."""
    git(root, "init", "-q", "-b", "main")
    declared = workload("toy", max_tokens="24", build='["sh", "build.sh"]')
    write(
        root,
        {
            ".gitignore": f"{IGNORED}program.py\n.flamegate\n",
            "flamegate.toml": declared.replace("toy:", "program:"),
            "build.sh": engines.BUILD,
            "toy.py": engines.BASE,
        },
    )
    git(root, "tag", "base")
    write(root, head)
    code = ask("check", "--base=base", "--budget=8", "--profiler=none")
    found = json.loads((root / ".flamegate/check.json").read_text())
    assert found["passed"] == (code == 0)
    (row,) = found["required"]
    return {GREEN} if code == 0 else {row["verdict"], *row["reasons"]}
