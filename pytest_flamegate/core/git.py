"""Run git, and describe the commit that a directory is at."""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from pytest_flamegate.core import ARTIFACTS
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.json import Count, NonEmpty
from pytest_flamegate.core.process import CompletedCommand

_TIMEOUT_S = 10.0
SCAN_S = 600.0
"""For commands that may read every file: of a fresh copy of a repository git knows no times."""
_NOT_OURS = f":(exclude,top,glob)**/{ARTIFACTS}/**"
_LINK = "120000"
"""The mode of a symbolic link in git."""
_LAST_LINES = 6
_REPOSITORY_VARIABLE = re.compile(
    r"GIT_(?:ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|DIR|GRAFT_FILE|IMPLICIT_WORK_TREE|INDEX_FILE"
    r"|INTERNAL_SUPER_PREFIX|NAMESPACE|OBJECT_DIRECTORY|PREFIX|QUARANTINE_PATH|REPLACE_REF_BASE"
    r"|SHALLOW_FILE|WORK_TREE|DIFF_OPTS|(?:GLOB|ICASE|LITERAL|NOGLOB)_PATHSPECS)"
)
"""Variables that git sets for a hook: they bind every git process to the hook's repository. The
last ones change which files a path of ours stands for, and how many lines a difference shows.

Configuration in variables (``GIT_CONFIG_COUNT``) is not among them: CI systems trust
directories and pass credentials in this way.
"""
_SETTINGS = {
    "GIT_OPTIONAL_LOCKS": "0",  # do not refresh the user's index
    "GIT_TERMINAL_PROMPT": "0",  # do not ask for a password
    "GIT_NO_REPLACE_OBJECTS": "1",  # an earlier build of this clone may have replaced the base
    "GIT_GRAFT_FILE": f"{os.devnull}/none",  # git warns of one that exists
    "LC_ALL": "C",  # messages that any reader of the error can look up
}
_GENERATED = re.compile(
    r"(?:.*/)?(?:(?:__pycache__|build|dist|htmlcov|node_modules|target"
    r"|[^/]*\.egg-info|\.(?:benchmarks|eggs|hypothesis|mypy_cache|nox|pytest_cache|ruff_cache|tox|venv))/.*"
    r"|\.coverage(?:\.[^/]*)?|coverage\.xml|Cargo\.lock|flamegate[^/]*\.html"
    r"|(?:[^/]*junit[^/]*|test-results[^/]*|report|results)\.xml|report\.html"
    r"|[^/]*\.(?:a|egg-info|o|py[co]|so))"
)
"""Names of untracked files that builds and test tools write next to the code."""

_CODE_DIGESTS: dict[str, str] = {}
"""Digests by commit: several workloads are compared in the same two."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit that a directory is at.

    Attributes:
        revision: The full hash.
        branch: The branch, or ``HEAD`` when detached.
        uncommitted: The number of files that differ from the commit, untracked ones included.
        tree: A digest of the code, equal for commits that differ in accepted baselines alone.
    """

    revision: NonEmpty
    branch: str
    uncommitted: Count
    tree: str = ""

    def same_code(self, other: Commit) -> bool:
        """Whether both are exactly the same code, without uncommitted files."""
        known = bool(self.tree) and not self.uncommitted and not other.uncommitted
        return known and self.tree == other.tree


def read_commit(directory: Path) -> Commit | None:
    """Return the commit checked out at ``directory``; None without git or without a commit.

    Artifacts of this package and untracked products of builds and test tools (``.coverage``,
    ``target/``, ``*.o``) do not count as uncommitted files. A file that the index has ``git
    status`` skip does: its content is unknown.
    """
    found = query(directory, "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
    if found is None:
        return None
    revision, branch = found.split("\n")
    uncommitted = list_uncommitted(directory)
    hidden = _count_hidden(directory, _NOT_OURS)
    if uncommitted is None or hidden is None:
        return None  # an unknown number of uncommitted files must not read as none
    return Commit(revision, branch, len(uncommitted) + hidden, code_digest(directory, revision))


def list_uncommitted(directory: Path) -> list[str] | None:
    """Return the files that differ, as ``git status`` shows them; None if git fails."""
    options = ["--porcelain", "-uall"]
    with suppress(OSError):
        # It may say that git ignores what changed in a submodule. New files there are products.
        if b"ignore" in ((find_top(directory) or directory) / ".gitmodules").read_bytes():
            options.append("--ignore-submodules=untracked")
    status = query(directory, "status", *options, "--", ":/", _NOT_OURS, timeout_s=SCAN_S)
    if status is None:
        return None
    # Only untracked files: a tracked file that changed is a change, whatever its name.
    return [
        line[3:].strip('"')
        for line in status.splitlines()
        if not (line.startswith("?? ") and _GENERATED.fullmatch(line[3:].strip('"')))
    ]


def _count_hidden(directory: Path, *paths: str) -> int | None:
    """Return the number of files whose changes ``git status`` does not look for.

    They have the flag assume-unchanged, or skip-worktree although they are there (a sparse
    checkout has left out the others).
    """
    listed = query(directory, "ls-files", "-v", "-z", "--", ":/", *paths, timeout_s=SCAN_S)
    if listed is None:
        return None
    entries = (entry.partition(" ") for entry in listed.split("\0") if entry)
    return sum(
        tag.islower() or (tag == "S" and os.path.lexists(directory / path))
        for tag, _, path in entries
    )


def find_top(directory: Path) -> Path | None:
    """Return the top of the working tree around ``directory``; None if there is none."""
    try:
        result = run(directory, "rev-parse", "--show-toplevel")
    except ToolError:
        return None
    top = stdout_text(result)
    return Path(top) if top and result.returncode == 0 else None


def resolve(directory: Path, rev: str) -> str | None:
    """Return the commit that ``rev`` names; None if it names none."""
    if rev.startswith("-"):  # git would read it as an option
        return None
    return query(directory, "rev-parse", "-q", "--verify", f"{rev}^{{commit}}")


def is_ancestor(directory: Path, commit: str, other: str) -> bool:
    """Return whether ``commit`` is ``other``, or one before it; False if either is not known."""
    return query(directory, "merge-base", "--is-ancestor", commit, other) is not None


def digest_files(directory: Path) -> dict[Path, str]:
    """Return the sha256 of every tracked file, also of submodules, without artifacts of ours.

    Two answers compare the files themselves: no flag in the index, filter or configuration that a
    program sets in between hides a change. Raises ``ToolError`` ``E_GIT`` if git fails.
    """
    top = find_top(directory) or directory
    listed = run(top, "ls-files", "-z", "--recurse-submodules", timeout_s=SCAN_S)
    if listed.returncode != 0:
        raise ToolError("E_GIT", f"git cannot list the files of {top}: {failure_text(listed)}.")
    names = os.fsdecode(listed.stdout).split("\0")
    paths = (Path(top, name) for name in names if name and f"/{ARTIFACTS}/" not in f"/{name}")
    return {path: digest_file(path) for path in paths}


def digest_file(path: Path) -> str:
    """Return a digest of the file's content and kind; empty if there is no such file."""
    try:
        if path.is_symlink():
            return f"link {os.fsdecode(path.readlink())}"
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        return f"{found} {path.stat().st_mode & 0o100:o}"
    except OSError:
        return ""


def code_digest(directory: Path, commit: str) -> str:
    """Return the sha256 of names and contents of all code files; empty if git cannot list them."""
    if commit not in _CODE_DIGESTS:
        # As git quotes names by default: the user may have configured it otherwise.
        quoted = ("-c", "core.quotePath=on")
        listing = query(directory, *quoted, "ls-tree", "-r", "--full-tree", commit)
        if listing is None:
            return ""
        ours = f"/{ARTIFACTS}/"
        paths = ((line, line.partition("\t")[2].lstrip('"')) for line in listing.splitlines())
        code = [line for line, path in paths if ours not in f"/{path}"]
        content = "\n".join(code).encode("utf-8", "surrogateescape")
        _CODE_DIGESTS[commit] = hashlib.sha256(content).hexdigest()
    return _CODE_DIGESTS[commit]


class Hunk(NamedTuple):
    """Lines that a change replaced: where they begin on each side, from 1, and how many.

    With a count of 0 the start is the line before the place.
    """

    base_start: int
    base_count: int
    head_start: int
    head_count: int


@dataclass(frozen=True, slots=True)
class FileChange:
    """How one file changed; a side's path is empty if the file is not on that side.

    ``base_lines`` are the replaced lines by number, ``head_lines`` all lines of the file in the
    working tree, if that is the head. Lines of a file that is too large are missing.
    """

    base_file: str
    head_file: str
    hunks: tuple[Hunk, ...]
    base_lines: Mapping[int, str] = field(default_factory=dict)
    head_lines: tuple[str, ...] = ()


def read_file(directory: Path, commit: str, path: str, limit: int) -> bytes:
    """Return the content of a file of a commit, by its ``path`` from ``directory``.

    Raises ``ToolError`` ``E_GIT`` if the commit has no such file, or git cannot read it, and
    ``E_TOO_LARGE`` for more than ``limit`` bytes.
    """
    listed = run(directory, "--literal-pathspecs", "ls-tree", "-lz", commit, "--", path)
    if listed.returncode != 0:
        raise ToolError("E_GIT", f"git cannot read {commit[:12]}: {failure_text(listed)}.")
    fields = stdout_text(listed).partition("\t")[0].split()
    if not fields:
        raise ToolError("E_GIT", "It is not in that commit.")
    mode, kind, name, size = fields
    if kind != "blob" or mode == _LINK:
        kind = "a symbolic link" if mode == _LINK else "no file"
        raise ToolError("E_GIT", f"It is {kind} in that commit.")
    if int(size) > limit:
        raise ToolError("E_TOO_LARGE", f"It has {int(size):,} bytes, at most {limit:,} are read.")
    found = run(directory, "cat-file", "blob", name)
    if found.returncode != 0:
        raise ToolError("E_GIT", f"git cannot read {name[:12]}: {failure_text(found)}.")
    return found.stdout


_MOST_TEXT_BYTES, _MOST_REMOVED = 1 << 20, 50_000
_FILE = re.compile(r"(---|\+\+\+|rename from|rename to) (.*)")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


def read_changes(directory: Path, base: str, head: str = "") -> tuple[FileChange, ...] | None:
    """Return how a commit differs from the commit ``base``, file by file; None without git.

    Without ``head`` it is the working tree that differs; a new file in it that git does not track
    yet is changed as a whole. Paths are relative to ``directory``, and only files below it are
    listed.
    """
    options = ["--no-color", "--no-ext-diff", "--no-textconv", "-U0", "--inter-hunk-context=0"]
    options += ["-M", "--relative", "--text"]
    text = query(
        directory,
        "-c",
        "core.quotePath=off",
        "diff",
        *options,
        "--src-prefix=a/",
        "--dst-prefix=b/",
        base,
        *filter(None, [head]),
        "--",
        timeout_s=SCAN_S,
    )
    untracked: str | None = ""
    if not head:
        arguments = ("ls-files", "-z", "--others", "--exclude-standard")
        untracked = query(directory, *arguments, timeout_s=SCAN_S)
    if text is None or untracked is None:
        return None
    whole = (Hunk(0, 0, 1, 999_999_999),)
    added = [FileChange("", name, whole) for name in untracked.split("\0") if name]
    changes = (*_parse_diff(text), *added)
    if head:
        return changes
    return tuple(
        replace(change, head_lines=_read_lines(directory, change.head_file)) for change in changes
    )


def _read_lines(directory: Path, name: str) -> tuple[str, ...]:
    path = directory / name
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_TEXT_BYTES:
            return ()
        return tuple(path.read_bytes().decode("utf-8", "replace").split("\n"))
    except OSError:
        return ()


def _parse_diff(text: str) -> Iterator[FileChange]:
    files, hunks = ["", ""], list[Hunk]()
    base_lines: dict[int, str] = {}
    # The text of a line may look like a header; "@@" tells how many lines of text follow.
    skipped = 0
    for line in text.split("\n"):
        if skipped and line[:1] in "+-\\":
            skipped -= line[:1] != "\\"
            if line[:1] == "-" and len(base_lines) < _MOST_REMOVED:
                hunk = hunks[-1]  # its removed lines come before the added ones
                behind = skipped - hunk.head_count
                base_lines[hunk.base_start + hunk.base_count - behind - 1] = line[1:]
        elif found := _HUNK.match(line):
            numbers = [1 if number is None else int(number) for number in found.groups()]
            hunks.append(Hunk(*numbers))
            skipped = numbers[1] + numbers[3]
        elif line.startswith("diff --git "):
            if hunks or files[0] != files[1]:
                yield FileChange(files[0], files[1], tuple(hunks), base_lines)
            files, hunks, base_lines = ["", ""], [], {}
        elif found := _FILE.match(line):
            files[found[1] in ("+++", "rename to")] = _read_name(found)
    if hunks or files[0] != files[1]:
        yield FileChange(files[0], files[1], tuple(hunks), base_lines)


def _read_name(header: re.Match[str]) -> str:
    # Git writes a name with a quotation mark, a backslash or a tab as a text of C.
    name = header[2]
    name = str(ast.literal_eval(name)) if name.startswith('"') else name.rstrip("\t")
    if header[1].startswith("rename"):
        return name
    return "" if name == os.devnull else name[2:]  # without a/ or b/


def run(directory: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> CompletedCommand:
    """Run git, unaffected by a hook that started this process; ``E_CANNOT_START`` without git."""
    # Imported here: the gate compares commits, and must not load subprocess for that.
    from pytest_flamegate.core import process

    env = {**without_git_variables(os.environ), **_SETTINGS}
    return process.run(["git", *arguments], timeout_s=timeout_s, env=env, cwd=directory)


def query(directory: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Return git's output without surrounding space; None if git fails or is missing."""
    try:
        result = run(directory, *arguments, timeout_s=timeout_s)
    except ToolError:
        return None
    if result.returncode != 0:
        return None
    # Only leading newlines go: a line of git status may begin with a space.
    return result.stdout.decode("utf-8", "replace").strip("\n")


def without_git_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` without the variables that bind git to one repository."""
    return {
        name: value
        for name, value in environment.items()
        if not _REPOSITORY_VARIABLE.fullmatch(name)
    }


def stdout_text(result: CompletedCommand) -> str:
    """Return git's standard output; bytes that are not UTF-8 stay usable in a path."""
    return os.fsdecode(result.stdout).strip("\n")


def failure_text(result: CompletedCommand) -> str:
    """Return the last lines of git's standard error, joined into one."""
    if result.timed_out:
        return f"git did not finish within {result.elapsed_s:.0f} s"
    lines = [line.strip() for line in result.stderr.decode("utf-8", "replace").splitlines()]
    text = " ".join(line for line in lines[-_LAST_LINES:] if line)
    return text.rstrip(".") or f"git ended with status {result.returncode}"
