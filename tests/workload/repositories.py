"""Small git repositories for tests, untouched by the configuration of whoever runs them."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
# No sample hooks in each repository, and no search for maintenance after each commit.
BRIEF = ("-c", "init.templateDir=", "-c", "maintenance.auto=false")


def git(directory: Path, *arguments: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *IDENTITY, *BRIEF, "-c", "protocol.file.allow=always", *arguments],
        cwd=directory,
        env=env,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def repository(directory: Path, *commits: Mapping[str, str]) -> Path:
    """Make a repository with these commits, each the files it adds or changes."""
    directory.mkdir(parents=True, exist_ok=True)
    git(directory, "init", "-q", "-b", "main")
    for number, files in enumerate(commits):
        write(directory, files)
        git(directory, "add", "-A")
        git(directory, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
    return directory
