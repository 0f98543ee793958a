"""Two trees of one repository, and the path in one for a path in the other."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest_flamegate
from pytest_flamegate.core.files import real_path

_PACKAGES = frozenset({"site-packages", "dist-packages"})
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_TOOL = os.path.dirname(os.path.realpath(pytest_flamegate.__file__))  # noqa: PTH120
UNDER_TEST = Path(_TOOL, "child", "embedded")
"""The only part of this package that is measured; the rest is the same on both sides."""


@dataclass(frozen=True, slots=True)
class TreePair:
    """The tops of two trees, every link followed. A path of ``project`` is moved to ``checkout``.

    Not moved are the files that both sides share: Python's own library, installed packages, an
    environment that lies in the project, and this package (without its engine).
    """

    project: Path
    checkout: Path

    @classmethod
    def of(cls, project: Path, checkout: Path) -> TreePair:
        """Take two directories as they were typed."""
        return cls(real_path(project), real_path(checkout))

    def swapped(self) -> TreePair:
        """Return the way back."""
        return TreePair(self.checkout, self.project)

    def holds(self, path: Path) -> bool:
        """Whether ``path`` lies in the project, and the base side uses its counterpart."""
        return self._relative(path) is not None

    def in_checkout(self, path: Path) -> bool:
        """Whether ``path`` lies in the checkout."""
        return self._within(path, self.checkout, self.project) is not None

    def moved(self, path: Path) -> Path | None:
        """Return the counterpart of ``path`` in the checkout; None if it is not moved."""
        relative = self._relative(path)
        return None if relative is None else self.checkout / relative

    def _relative(self, path: Path) -> Path | None:
        relative = self._within(path, self.project, self.checkout)
        if relative is None or not _PACKAGES.isdisjoint(relative.parts):
            return None
        return None if _installed(path) or self._in_environment(relative) else relative

    def _within(self, path: Path, top: Path, other: Path) -> Path | None:
        """Return ``path`` relative to ``top``, unless ``other`` lies between the two."""
        relative = relative_to(path, top)
        if relative is None or top == other or not other.is_relative_to(top):
            return relative
        return relative if relative_to(path, other) is None else None

    def _in_environment(self, relative: Path) -> bool:
        return any(_is_environment(str(self.project / parent)) for parent in _chain(relative))


def relative_to(path: Path, top: Path) -> Path | None:
    """Return ``path`` relative to ``top`` (all links followed), however it is spelt.

    A link inside ``top`` counts as lying there, wherever it leads.
    """
    if ".." in path.parts:
        path = real_path(path.parent) / path.name
    where = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links
    if os.path.realpath(where) == str(top):
        return Path()
    directory, name = os.path.split(where)
    above = _directory(directory, str(top))
    return None if above is None else Path(above, name)


@lru_cache(maxsize=8192)
def _directory(directory: str, top: str) -> str | None:
    path = Path(directory)
    for ancestor in (path, *path.parents):
        if os.path.realpath(ancestor) == top:
            return str(path.relative_to(ancestor))
    followed = real_path(path)
    return str(followed.relative_to(top)) if followed.is_relative_to(top) else None


def _installed(path: Path) -> bool:
    """Whether ``path`` belongs to the running Python's installation or to this package."""
    followed = Path(os.path.realpath(path.parent), path.name)
    if followed.is_relative_to(_TOOL):
        return not followed.is_relative_to(UNDER_TEST)
    return any(followed.is_relative_to(directory) for directory in _installation())


@lru_cache(maxsize=1)
def _installation() -> tuple[str, ...]:
    """Return the directories of the library and of installed packages.

    Not the prefix: a project may lie in it (``/usr/src/app``).
    """
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    found = {sysconfig.get_path(name) for name in names}
    found.add(site.getusersitepackages())
    found.add(os.path.dirname(sys.executable))  # noqa: PTH120
    return tuple(sorted(os.path.realpath(each) for each in found if each))


@lru_cache(maxsize=8192)
def _is_environment(directory: str) -> bool:
    return any(os.path.exists(os.path.join(directory, mark)) for mark in _ENVIRONMENT)  # noqa: PTH110, PTH118


def _chain(relative: Path) -> tuple[Path, ...]:
    """Return ``relative`` and the directories above it, without the top itself."""
    return (relative, *relative.parents)[:-1] if relative.parts else ()
