"""The recipe that measures as another user than the judge, with a user that is made for it."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.project import IGNORED, TOY, workload
from tests.workload.repositories import git, write

SCRIPT = Path(__file__).parents[2] / "docs/recipes/separate-user/check-as.sh"
USER = f"flamegate-{os.getpid()}"
ENGINE = """\
import os, subprocess
for attack in ("echo passed > {place}/check.json", "echo x > {place}/work.txt"):
    subprocess.run(["sh", "-c", attack], stderr=subprocess.DEVNULL)
if os.getuid() == 0 or "SECRET" in os.environ:
    raise SystemExit("this engine must not run as the judge")
"""


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user can read: pytest's own are closed."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def user() -> Iterator[pwd.struct_passwd]:
    """A user that exists for one test."""
    if os.getuid() != 0 or not all(map(shutil.which, ("useradd", "setpriv", "pkill"))):
        pytest.skip("making a user takes root, useradd, setpriv and pkill")
    subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/false", USER], check=True)
    try:
        yield pwd.getpwnam(USER)
    finally:
        subprocess.run(["userdel", USER], check=True)


def write_command(directory: Path, user: pwd.struct_passwd) -> None:
    """Write the command ``flamegate`` of an interpreter that the user can read.

    That of a virtual environment may be in a home directory that is closed to others.
    """
    packages = os.pathsep.join((str(SCRIPT.parents[3]), sysconfig.get_path("purelib")))
    command = directory / "flamegate"
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        program = f'PYTHONPATH="{packages}" exec {python} -m pytest_flamegate "$@"'
        command.write_text(f"#!/bin/sh\n{program}\n")
        command.chmod(0o755)
        asked = [str(command), "--version"]
        if not subprocess.run(asked, user=user.pw_uid, group=user.pw_gid, cwd="/").returncode:
            return
    pytest.skip("another user can read neither this interpreter nor this package")


@pytest.mark.measures
@pytest.mark.nightly
def test_the_measured_code_cannot_write_where_it_is_judged(
    tmp_path: Path, user: pwd.struct_passwd, py_spy: None, open_directory: Path
) -> None:
    write_command(open_directory, user)
    clone = tmp_path / "judge"
    clone.mkdir()
    git(clone, "init", "-q", "-b", "main")
    write(
        clone,
        {
            "toy.py": TOY.replace("{rounds}", "4000"),
            "flamegate.toml": workload("toy", tokens_per_second='"40%"'),
            "pytest.ini": "[pytest]\nflamegate_budget = 8\nflamegate_profiler = py-spy\n",
            ".gitignore": f"{IGNORED}.flamegate/\n",
        },
    )
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "base")
    engine = ENGINE.replace("{place}", str(clone / ".flamegate"))
    twice = TOY.replace("        x = hash", "        hash_round(x, rounds)\n        x = hash")
    write(clone, {"toy.py": engine + twice.replace("{rounds}", "4000")})
    git(clone, "commit", "-q", "-am", "half as fast, and an attack")
    path = f"{open_directory}:{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(SCRIPT), USER, "HEAD~1"],
        cwd=clone,
        env={**os.environ, "PATH": path, "TMPDIR": str(open_directory), "SECRET": "x"},
        capture_output=True,
        text=True,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 1
    found = json.loads((clone / ".flamegate/check.json").read_text())
    assert [row["verdict"] for row in found["required"]] == ["regressed"]
    assert not (clone / ".flamegate/work.txt").exists()
    assert subprocess.run(["pgrep", "-u", USER]).returncode == 1
