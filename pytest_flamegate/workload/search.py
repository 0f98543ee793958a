"""Look for files by pattern, and never for long: links in circles and endless trees end."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from pytest_flamegate.paths import is_file

MOST_ENTRIES = 50_000
"""Names that one search looks at, at most."""


class Search:
    """One search, maybe through several places. ``complete`` is False where it was cut short.

    ``unread`` are the directories that the system did not let it read.
    """

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self.complete = True
        self.unread: list[Path] = []
        self._left = most
        self._listed: dict[Path, list[os.DirEntry[str]]] = {}

    def files(self, directory: Path, pattern: str) -> list[Path]:
        """Return the files below ``directory`` that match, in order of their paths.

        ``*``, ``?`` and ``[…]`` stand for parts of a name and ``**`` for any directories;
        that one follows no links. A path without any of them is a file's own.
        """
        parts = _parts(pattern)
        if not parts or parts[-1] == "**":
            return []
        found: set[Path] = set()
        done: set[tuple[Path, int]] = set()
        todo = [(directory, 0)]
        while todo and self.complete:
            place = todo.pop()
            if place in done:
                continue
            done.add(place)
            here, at = place
            part, last = parts[at], at == len(parts) - 1
            if part == "**":
                todo.append((here, at + 1))
                todo += [(here / name, at) for name in self._directories(here)]
                continue
            names = self._matching(here, part) if _is_pattern(part) else [part]
            paths = [here / name for name in names]
            if last:
                found.update(filter(is_file, paths))
            else:
                todo += [(path, at + 1) for path in paths if os.path.isdir(path)]  # noqa: PTH112
        return sorted(found)

    def names(self, directory: Path) -> list[str]:
        """Return what stands in a directory, in order; nothing where it cannot be read."""
        return sorted(entry.name for entry in self._entries(directory))

    def _matching(self, directory: Path, part: str) -> list[str]:
        return [each.name for each in self._entries(directory) if fnmatchcase(each.name, part)]

    def _directories(self, directory: Path) -> list[str]:
        return [e.name for e in self._entries(directory) if e.is_dir(follow_symlinks=False)]

    def _entries(self, directory: Path) -> list[os.DirEntry[str]]:
        if directory not in self._listed:
            self._listed[directory] = self._scanned(directory)
        return self._listed[directory]

    def _scanned(self, directory: Path) -> list[os.DirEntry[str]]:
        found: list[os.DirEntry[str]] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if not self._left:
                        self.complete = False
                        break
                    self._left -= 1
                    found.append(entry)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, ValueError):
            self.unread.append(directory)
        return found


def _parts(pattern: str) -> list[str]:
    """Return the pattern's parts, many ``**`` in a row as one, which means the same."""
    parts = PurePath(pattern).parts
    return [p for at, p in enumerate(parts) if p != "**" or parts[at - 1 : at] != ("**",)]


def _is_pattern(part: str) -> bool:
    return any(letter in part for letter in "*?[")
