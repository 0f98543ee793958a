"""The slowdowns of one line: what the gate takes for a change among the harmless ones beside it."""

from pathlib import Path

import pytest

from benchmarks.line_edits import SLOWDOWNS, Slowdown, files_of, right_lines
from pytest_flamegate.core.git import read_changes
from pytest_flamegate.gate.edits import map_lines
from pytest_flamegate.profile.model import SourceLine
from tests.workload.repositories import git, repository, write

HARMLESS = ("#", "/*", "import ", "from ", "TAU = ")


@pytest.mark.parametrize("slowdown", SLOWDOWNS, ids=lambda each: each.name)
def test_one_line_counts_as_changed(slowdown: Slowdown, tmp_path: Path) -> None:
    base, head = files_of(slowdown)
    assert right_lines(slowdown, head)
    project = repository(tmp_path, base)
    write(project, head)
    git(project, "add", "-A")
    changes = read_changes(project, "HEAD")
    assert changes is not None
    lines = map_lines(changes)
    changed = {
        f"{path}:{number}"
        for path, text in head.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if lines.head_place(SourceLine(path, number)).is_changed
        if line.strip() and (line.startswith("#define") or not line.strip().startswith(HARMLESS))
    }
    assert len(changed) <= 1
    in_other_lines = any(word in slowdown.name for word in ("constant", "a list instead of a set"))
    if changed and not in_other_lines:
        assert changed <= set(right_lines(slowdown, head))
    assert changed or slowdown.name.endswith("no early exit")
