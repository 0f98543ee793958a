"""What an engine says reaches terminals, CI services and reports, and steers none of them."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from pytest_flamegate.cli import main
from pytest_flamegate.receipt.artifacts import ArtifactStore
from tests.doors.project import Project
from tests.made import bundle

WORDS = (
    "\x1b[2J\x1b]0;owned\x07 ::error title=owned::owned %0A::warning::owned ##[error]owned "
    "\u202edenwo\u200b [owned](javascript:alert(1)) <script>owned()</script> | a | b | `owned` "
    "]]> &lt; \x00\x08\x7f " + "::stop-commands::owned " * 12
)
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
PROGRAM = f"import sys\nsys.stderr.write({WORDS!a})\nsys.exit(3)\n"
BUILD = f"import sys\nprint({WORDS!a}); print('::error::owned'); sys.exit(3)\n"


DECLARED = """
[workloads.{name}]
command = ["python3", "engine.py"]
build = ["python3", "{build}"]
prompt = "p"
max_tokens = 1
"""


@pytest.fixture
def hostile(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A workload whose engine fails, and one whose build does: both with hostile words."""
    builds = {"dies": "nothing.py", "breaks": "build.py"}
    project.declare(*(DECLARED.format(name=name, build=build) for name, build in builds.items()))
    project.write("engine.py", PROGRAM)
    project.write("build.py", BUILD)
    project.write("nothing.py", "")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "summary.md"))
    return project


def require_harmless(text: str) -> None:
    """Nothing hidden, and no line that a CI service takes for a command of its own."""
    for line in text.splitlines():
        assert not HIDDEN.search(line), ascii(line)
        if line.lstrip().startswith("::"):
            assert line.startswith("::error file=flamegate.toml,line="), line


def test_under_pytest(hostile: Project) -> None:
    project = hostile.path
    arguments = ("--flamegate", "--flamegate-profiler=none", "--junitxml=junit.xml", "-v")
    done = hostile.run(*arguments, "--color=no", "--flamegate-report=run.html")
    done.assert_outcomes(failed=2)
    told = done.stdout.str()
    assert "owned" in told  # or nothing was tried
    require_harmless(told)
    require_harmless(done.stderr.str())
    ET.parse(project / "junit.xml")
    require_harmless((project / "junit.xml").read_text())
    summary = (project / "summary.md").read_text()
    assert "owned" in summary
    require_harmless(summary)
    shown = MarkdownIt("gfm-like", {"linkify": False}).render(summary)
    assert "owned" in shown
    assert "<script" not in shown
    assert "javascript:" not in "".join(re.findall("<[^>]*>", shown))
    page = (project / "run.html").read_text()
    assert "<script>owned" not in page
    require_harmless((project / ".flamegate/latest/dies/verdict.json").read_text())


def test_a_baseline_that_somebody_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = bundle()
    files = {**made.files, "flamegraph.md": f"# owned\n{WORDS}\n".encode()}
    artifacts = ArtifactStore(tmp_path / ".flamegate")
    for machine in ("m\x1b[31m", "m\n::error::owned"):
        artifacts.accept_baseline(machine, "w", files)
    for command in (["baseline", "list"], ["baseline", "show", "w"], ["baseline", "prune"]):
        main(command)
        told = capsys.readouterr()
        assert command[1] == "prune" or "344.0 tokens/s" in told.out
        require_harmless(told.out)
