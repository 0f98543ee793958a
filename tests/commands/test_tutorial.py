"""The tutorial's commands, word for word, in an empty directory, and the answers it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doors.project import require_profiler

PAGE = Path(__file__).parents[2] / "docs/tutorial.md"
BLOCK = re.compile(r"(?:<!-- exits (\d) -->\n)?```bash\n(.*?)```\n(?:\n```\n(.*?)```)?", re.S)
FIGURE = re.compile(r"\b[0-9a-f]{12}\b|[0-9]+(?:\.[0-9]+)?")
HOTTEST = re.compile(r"\w+: hottest frames (\w+)")
END = "-- the exit code is "


def plain(line: str) -> str:
    """Return ``line`` without its figures and its columns."""
    return " ".join(FIGURE.sub("0", line).split())


@pytest.mark.nightly
@pytest.mark.measures
def test_the_tutorial_ends_as_it_says(tmp_path: Path) -> None:
    require_profiler("py-spy")
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == 8
    script = "".join(f"{command}echo '{END}'$?\n" for _, command, _ in blocks)
    environment = {
        # For a person at a terminal: CI fails what is open.
        **{name: value for name, value in os.environ.items() if name != "CI"},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **{f"GIT_{role}_NAME": "A. Person" for role in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{role}_EMAIL": "a@example.org" for role in ("AUTHOR", "COMMITTER")},
    }
    done = subprocess.run(
        ["bash"], input=script, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    outputs = re.split(rf"{END}(\d+)\n", done.stdout)
    codes = [int(code) for code in outputs[1::2]]
    assert codes == [int(code or 0) for code, _, _ in blocks], done.stdout + done.stderr
    for (_, command, promised), output in zip(blocks, outputs[::2], strict=False):
        printed = [plain(line) for line in output.splitlines()]
        for line in promised.splitlines():
            start = plain(line.partition("…")[0])
            if hottest := HOTTEST.match(start):  # a column of the table if they are short
                assert "hottest frames" in output
                assert hottest[1] in output
                continue
            assert any(each.startswith(start) for each in printed), (command, line, output)
