"""Find the directories of finished runs, and of earlier attempts at a commit.

Another job may have written them. Their names are read here, and none of their content.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.core.files import real_path
from pytest_flamegate.core.git import query
from pytest_flamegate.receipt.baseline import EVIDENCE, VERDICT

MAX_DIRECTORIES = 2000


def find_runs(
    directories: Sequence[Path], needed: Collection[str] = (EVIDENCE, VERDICT)
) -> dict[str, list[Path]]:
    """Return the run directories below ``directories`` by the name of the workload.

    They have the files ``needed``: a run that ended with an error has a verdict alone. Links are
    not followed. Raises ``ReceiptError`` ``E_TOO_MANY_RUNS``.
    """
    found: dict[str, list[Path]] = {}
    for directory, files in _walk(directories):
        if set(needed) <= set(files):
            found.setdefault(directory.name, []).append(directory)
    return found


def _walk(directories: Sequence[Path]) -> Iterator[tuple[Path, list[str]]]:
    """Yield each directory at or below ``directories`` with the names of its files."""
    count = 0
    for top in directories:
        for name, names, files in os.walk(top):
            names.sort()
            count += 1
            if count > MAX_DIRECTORIES:
                given = ", ".join(map(ascii, map(str, directories[:3])))
                more = ", …" if len(directories) > 3 else ""
                raise ReceiptError(
                    "E_TOO_MANY_RUNS",
                    f"There are more than {MAX_DIRECTORIES:,} directories in {given}{more}.",
                )
            yield Path(name), files


def find_attempts(directory: Path | None, number: int | None, root: Path) -> list[Path]:
    """Return the directories of earlier attempts at a commit, in order: those that have a run.

    A run that ended with an error counts: it is one of which ``verdict.json`` was written.
    ``number`` is that of the present attempt, None if it is not known; ``root`` is in the
    repository. Raises ``UndecidedError`` ``E_ATTEMPTS_MISSING`` if there were more, and
    ``UsageError`` ``E_BAD_OPTION`` for a number below 1, or if ``directory`` is a link or a file,
    or has files of the commit itself.
    """
    found: list[Path] = []
    unused: list[str] = []
    if number is not None and number < 1:
        raise UsageError(
            "E_BAD_OPTION", f"--attempt is {number}.", "The first attempt has the number 1."
        )
    if directory is not None and (problem := _find_foreign_writer(directory, root)):
        raise UsageError(
            "E_BAD_OPTION",
            f"--earlier is {str(directory)!a}, which {problem}.",
            "Name a directory that only the CI service writes to.",
        )
    if directory is not None and directory.exists():
        # By the number that the CI service gave: 9 before 10.
        inside = sorted(directory.iterdir(), key=lambda each: (len(each.name), each.name))
        found = [
            each
            for each in inside
            if not each.is_symlink() and any(VERDICT in files for _, files in _walk([each]))
        ]
        unused = [each.name for each in inside if each not in found]
    if number is not None and number - 1 > len(found):
        raise UndecidedError(
            "E_ATTEMPTS_MISSING",
            f"This is attempt {number} at this commit, and {len(found)} of the {number - 1} "
            "earlier ones are here."
            + (f" No attempt, because it has no verdict.json: {unused[0]!a}." if unused else ""),
        )
    return found


def _find_foreign_writer(directory: Path, root: Path) -> str:
    """Return how a change could have written into a directory of attempts; empty if it cannot."""
    path = Path.cwd() / directory
    parents = [each for each in path.parents if each.is_relative_to(root)]
    if any(each.is_symlink() for each in (path, *parents)):
        return "is a link, or below one in the repository"
    if path.exists() and not path.is_dir():
        return "is no directory"
    if path.exists() and query(root, "ls-files", "--", str(real_path(directory))):
        return "has files of the commit itself"
    return ""
