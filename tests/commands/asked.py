"""Run a command in this process, or, by ``PROGRAM``, in one of its own."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.capture import CaptureResult

from pytest_flamegate.cli import main
from tests.workload.repositories import git

DOCS = Path(__file__).parents[2] / "docs"
Captured = pytest.CaptureFixture[str]
PROGRAM = "import sys; from pytest_flamegate.cli import main; sys.exit(main())"


def ask(*arguments: str) -> int:
    """Return the exit code of ``flamegate ARGUMENTS``."""
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


@dataclass(frozen=True)
class Command:
    """Runs ``flamegate ARGUMENTS`` in this process; ``capsys`` has what it prints."""

    capsys: Captured

    def __call__(self, code: int, *arguments: str) -> CaptureResult[str]:
        """Run a command that must end with ``code``; return the output since the last reading."""
        found, printed = ask(*arguments), self.read()
        assert found == code, printed
        return printed

    def read(self) -> CaptureResult[str]:
        """Return what was printed since the last reading."""
        return self.capsys.readouterr()


def commit(project: Path) -> str:
    """Commit everything, ignored files too; return the commit."""
    git(project, "add", "-A", "-f")
    git(project, "commit", "-q", "--allow-empty", "-m", "a change")
    return git(project, "rev-parse", "HEAD")


def read_workflow(host: str, name: str) -> str:
    """Return a workflow of the documentation that installs flamegate from an address."""
    text = (DOCS / host / name).read_text()
    return text.replace("HOST/PATH/pytest-flamegate@COMMIT", "host.example/flamegate@v1.0.0")


def find_traps(directory: Path, capsys: Captured) -> tuple[int, list[tuple[str, str]]]:
    """Return the exit code, and code and place of each trap."""
    code = ask("doctor", "--ci", str(directory))
    heads = [line.split() for line in capsys.readouterr().out.splitlines() if ": E_CI_" in line]
    return code, [(code, place.rstrip(":")) for place, code in heads]
