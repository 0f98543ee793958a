"""Run a command in this process, or, by ``PROGRAM``, in one of its own."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureResult

from pytest_flamegate.cli import main
from tests.doors.project import workload
from tests.run import fakes
from tests.workload.repositories import git

DOCS = Path(__file__).parents[2] / "docs"
Captured = pytest.CaptureFixture[str]
PROGRAM = "import sys; from pytest_flamegate.cli import main; sys.exit(main())"
SLOWER_NS = round(1.3 * fakes.TOKEN_NS)


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


@dataclass(frozen=True)
class Repository:
    """A project with git history, whose processes are those of ``world``."""

    path: Path
    world: fakes.World
    run: Command

    def check(self, code: int, *options: str, base: str = "HEAD~1") -> CaptureResult[str]:
        """Check the commit against ``base``, which must end with ``code``; return the output."""
        return self.run(code, "check", f"--base={base}", *options)

    def git(self, *words: str) -> str:
        return git(self.path, *words)

    def commit(self) -> str:
        return commit(self.path)

    def declare(self, *workloads: str) -> str:
        """Declare these workloads, toy without any, and commit; return the commit."""
        (self.path / "flamegate.toml").write_text("\n".join(workloads or (workload("toy"),)))
        return self.commit()

    def answer(self) -> dict[str, Any]:
        """Return what the last check wrote for programs."""
        found: dict[str, Any] = json.loads((self.path / ".flamegate/check.json").read_text())
        return found

    def page(self) -> str:
        return (self.path / ".flamegate/check.md").read_text()

    def sentence(self) -> str:
        return str(self.answer()["sentence"])

    def debt(self) -> list[str]:
        return list(self.answer()["waivers"])

    def verdicts(self, key: str = "required") -> dict[str, str]:
        return {each["workload"]: each["verdict"] for each in self.answer()[key]}

    def reasons(self) -> list[list[str]]:
        return [each["reasons"] for each in self.answer()["required"]]

    def upload(self) -> Path:
        """Move the runs into a directory of their own, as another job would upload them."""
        return Path(shutil.move(self.path / ".flamegate/latest", self.path.parent / "uploaded"))


def read_workflow(host: str, name: str) -> str:
    """Return a workflow of the documentation that installs flamegate from an address."""
    text = (DOCS / host / name).read_text()
    return text.replace("HOST/PATH/pytest-flamegate@COMMIT", "host.example/flamegate@v1.0.0")


def find_traps(directory: Path, capsys: Captured) -> tuple[int, list[tuple[str, str]]]:
    """Return the exit code, and code and place of each trap."""
    code = ask("doctor", "--ci", str(directory))
    heads = [line.split() for line in capsys.readouterr().out.splitlines() if ": E_CI_" in line]
    return code, [(code, place.rstrip(":")) for place, code in heads]
