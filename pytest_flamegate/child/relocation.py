"""Imports of a side that runs in a checkout: modules of the project come from there.

The project may be importable in any way (a source directory, an editable install of any kind, a
plain script); nothing is installed again.

A checkout at the front of PYTHONPATH would not do: packages that an editable install maps to a
directory of another name, modules that only the working tree has, and compiled modules that only
the working tree has built would be imported from the working tree or silently be missing.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import shutil
import site
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.abc import FileLoader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_flamegate.core import PACKAGE
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.files import MOST_COPIED, real_path

_PACKAGES = frozenset({"site-packages", "dist-packages"})
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_TOOL = real_path(PACKAGE)
UNDER_TEST = _TOOL / "child/embedded"
"""The only part of this package that is measured; the rest is the same on both sides."""
_LAYOUTS = ("", "src", "python", "lib")
"""The directories in which a repository keeps its packages."""
_LINKS = "/build/__editable__."


@dataclass(frozen=True, slots=True)
class TreePair:
    """The tops of two trees of one repository, every link followed.

    Paths of ``project`` have a counterpart in ``checkout``, but for the files that both sides
    share: Python's own library, installed packages, an environment that lies in the project, and
    this package (without its engine).
    """

    project: Path
    checkout: Path

    def reversed(self) -> TreePair:
        """Return the pair that leads from the checkout back to the project."""
        return TreePair(self.checkout, self.project)

    def is_in_checkout(self, path: Path) -> bool:
        """Whether ``path`` lies in the checkout."""
        return _relative_within(path, self.checkout, self.project) is not None

    def relocate(self, path: Path) -> Path | None:
        """Return the counterpart of ``path`` in the checkout; None if both sides share it."""
        relative = _relative_within(path, self.project, self.checkout)
        if relative is None or not _PACKAGES.isdisjoint(relative.parts) or _is_installed(path):
            return None
        parents = [self.project / each for each in (relative, *relative.parents)[:-1]]
        return None if any(map(_is_environment, parents)) else self.checkout / relative

    def relocate_text(self, entry: str) -> str:
        """Return the counterpart of a text that may be an absolute path, else the text."""
        moved = self.relocate(Path(entry)) if _is_absolute(entry) else None
        return entry if moved is None else str(moved)


def _relative_within(path: Path, top: Path, other: Path) -> Path | None:
    """Return ``path`` relative to ``top``, unless the tree ``other`` lies between the two."""
    relative = _relative_to(path, top)
    is_nested = relative is not None and top != other and other.is_relative_to(top)
    return None if is_nested and _relative_to(path, other) is not None else relative


def _relative_to(path: Path, top: Path) -> Path | None:
    """Return ``path`` relative to ``top`` (all links followed), however it is spelt.

    A link inside ``top`` counts as lying there, wherever it leads.
    """
    if ".." in path.parts:
        path = real_path(path.parent) / path.name
    path = path.absolute()
    for ancestor in (path, *path.parents):
        if _follow(ancestor) == top:
            return path.relative_to(ancestor)
    followed = _follow(path.parent) / path.name
    return followed.relative_to(top) if followed.is_relative_to(top) else None


_follow = lru_cache(maxsize=8192)(real_path)


def _is_installed(path: Path) -> bool:
    """Return whether ``path`` belongs to Python's installation or to this package."""
    followed = _follow(path.parent) / path.name
    if followed.is_relative_to(_TOOL):
        return not followed.is_relative_to(UNDER_TEST)
    return any(followed.is_relative_to(directory) for directory in _list_installation())


@lru_cache(maxsize=1)
def _list_installation() -> tuple[Path, ...]:
    """Return the directories of the library and of installed packages.

    Not the prefix: a project may lie in it (``/usr/src/app``).
    """
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    places = [*map(sysconfig.get_path, names), site.getusersitepackages()]
    return (
        *(real_path(Path(each)) for each in places if each),
        real_path(Path(sys.executable).parent),
    )


@lru_cache(maxsize=8192)
def _is_environment(directory: Path) -> bool:
    return any((directory / mark).exists() for mark in _ENVIRONMENT)


def relocate_imports(project: Path, checkout: Path) -> Relocator:
    """Import modules of ``project`` from ``checkout`` from now on.

    Links of both paths are followed. ``ToolError`` ``E_WRONG_SIDE`` if a module of the project is
    already imported.
    """
    sides = TreePair(real_path(project), real_path(checkout))
    _list_loaded(sides)
    sys.path[:] = [_relocate_entry(entry, sides) for entry in sys.path]
    relocator = Relocator(sides)
    sys.meta_path.insert(0, relocator)
    # PYTHONPATH is for a Python that the engine starts: it does not have the finder.
    ours = [each for each in sys.path if _is_absolute(each) and sides.is_in_checkout(Path(each))]
    if ours and sides.project != sides.checkout:
        theirs = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        others = [each for each in (_relocate_entry(e, sides) for e in theirs) if each not in ours]
        os.environ["PYTHONPATH"] = os.pathsep.join([*ours, *others])
    return relocator


def copy_libraries(top: Path, home: str) -> None:
    """Load compiled modules and libraries that lie below ``top`` from copies in ``home``.

    Each process has copies of its own, because the place of a file's pages in memory has a speed.
    All other files of the directory are linked next to the copy. Installed packages are not
    copied. A module that cannot be loaded from its copy is loaded from its own file. A file that
    is loaded twice has one copy, so that its state stays one.
    """
    load_module, open_library = ExtensionFileLoader.create_module, _ctypes.dlopen
    top, copies = real_path(top), dict[tuple[Path, int, int], str]()

    def copy(name: str) -> str:
        file = real_path(Path(name))
        if os.sep not in name or not file.is_file() or not file.is_relative_to(top):
            return name
        is_installed = not _PACKAGES.isdisjoint(file.relative_to(top).parts)
        about = file.stat()
        if is_installed or about.st_size > MOST_COPIED:
            return name
        version = file, about.st_ino, about.st_mtime_ns
        if version not in copies:
            directory = Path(tempfile.mkdtemp(dir=home))
            for entry in file.parent.iterdir():
                if entry != file:
                    (directory / entry.name).symlink_to(entry)
            copies[version] = str(shutil.copy2(file, str(directory / file.name)))
        return copies[version]

    def create_module(loader: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
        origin = str(spec.origin)
        with suppress(ImportError, OSError):
            copied = ModuleSpec(spec.name, spec.loader, origin=copy(origin))
            module = load_module(loader, copied)
            module.__file__ = origin
            return module
        return load_module(loader, spec)

    def open_copy(name: Any, *options: int) -> int:
        with suppress(OSError):
            return open_library(name and copy(os.fsdecode(name)), *options)
        return open_library(name, *options)

    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign, assignment]
    ctypes._dlopen = open_copy  # type: ignore[attr-defined]


class Relocator(MetaPathFinder):
    """Asks the finders after it, and moves modules of the project to the checkout."""

    def __init__(self, sides: TreePair) -> None:
        self._error: ToolError | None = None
        self._sides = sides
        self._roots: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of ``fullname`` on this side.

        Raises ``ModuleNotFoundError`` for a module of the project alone, and ``ToolError``
        ``E_BASE_NOT_BUILT`` if that is a compiled module.
        """
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        finders = (each for each in later if hasattr(each, "find_spec"))
        specs = (each.find_spec(fullname, path, target) for each in finders)
        spec = next((each for each in specs if each is not None), None)
        if spec is None:
            return self._find_in_revision(fullname, path)
        if spec.origin is not None and _is_absolute(spec.origin):
            return self._relocate_module(spec, Path(spec.origin), is_top_level=path is None)
        if spec.loader is None and spec.submodule_search_locations is not None:
            # The portions of a namespace package; one without any left is not there.
            locations = list(spec.submodule_search_locations)
            moved = self._relocate_locations(locations)
            if moved != locations and not any(map(os.path.isdir, moved)):
                raise _not_at_revision_error(spec, locations[0])
            spec.submodule_search_locations = moved
        return spec

    def check(self, *, has_own_code: bool = True) -> None:
        """Raise an error if a side did not load the code of its checkout.

        ``has_own_code`` says that the engine runs code of the project. An error of the relocation
        that the engine swallowed is raised again. Raises ``ToolError``: ``E_WRONG_SIDE`` for a
        module of the project itself, ``E_SAME_CODE`` if no module came from the checkout, or a
        package of the project from an installed copy.
        """
        if self._error is not None:
            raise self._error
        sides, problem = self._sides, ""
        loaded = _list_loaded(sides)
        if has_own_code and not any(sides.is_in_checkout(file) for _, file in loaded):
            problem = f"Nothing was imported from the checkout {sides.checkout}"
        for name, file in loaded:
            if _has_source(sides.checkout, file) and not sides.is_in_checkout(file):
                problem = f"{name} is imported from {file}, although the revision holds it"
        if problem:
            raise ToolError(
                "E_SAME_CODE", f"{problem}: both sides would run the same installed code."
            )

    def _relocate_module(self, spec: ModuleSpec, origin: Path, *, is_top_level: bool) -> ModuleSpec:
        moved = self._sides.relocate(origin)
        if moved is None:
            self._check_uncompiled(spec.name, origin)
            return spec
        above = 2 if spec.submodule_search_locations is not None else 1
        root = str(moved.parents[above - 1])
        if is_top_level and root not in self._roots:
            self._roots.append(root)
        for file in (moved, self._sides.relocate(real_path(origin))):
            if file is not None and file.is_file():
                return self._load_from(spec, file)
        # A module may have become a package since, or the other way round.
        found = PathFinder.find_spec(spec.name, [root])
        if found is not None and found.origin is not None:
            self._check_uncompiled(spec.name, Path(found.origin))
            return found
        if isinstance(spec.loader, ExtensionFileLoader):
            raise self._not_built_error(spec.name, origin)
        raise _not_at_revision_error(spec, str(origin))

    def _load_from(self, spec: ModuleSpec, moved: Path) -> ModuleSpec:
        """Return ``spec`` with its loader pointed at the file ``moved``."""
        if not isinstance(spec.loader, FileLoader | ExtensionFileLoader):
            raise self._store_error(
                "E_WRONG_SIDE",
                f"The module {spec.name!r} is loaded by {type(spec.loader).__qualname__}, "
                "which cannot be pointed at the checkout.",
            )
        spec.loader.path = spec.origin = str(moved)
        spec.cached = None  # the place of the byte code follows from the origin
        if (locations := spec.submodule_search_locations) is not None:
            locations = self._relocate_locations(locations) or [str(moved.parent)]
            spec.submodule_search_locations = locations
        return spec

    def _relocate_locations(self, locations: Sequence[str]) -> list[str]:
        """Return ``locations`` on this side, without those that the revision does not have."""
        moved = ((each, _relocate_entry(each, self._sides)) for each in locations)
        return [new for old, new in moved if new == old or Path(new).is_dir()]

    def _find_in_revision(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Return a module of the revision alone; raise if only the project has built it."""
        back = self._sides.reversed()
        entries = [each for each in (sys.path if path is None else path) if isinstance(each, str)]
        projects = [old for each in entries if (old := back.relocate_text(each)) != each]
        found = PathFinder.find_spec(fullname, projects) if projects else None
        if found is not None and isinstance(found.loader, ExtensionFileLoader):
            raise self._not_built_error(fullname, Path(str(found.origin)))
        # An editable install by names knows no name that is gone since.
        return PathFinder.find_spec(fullname, self._roots) if path is None else None

    def _check_uncompiled(self, fullname: str, origin: Path) -> None:
        """Raise an error for source that the project runs compiled: the sides would differ."""
        old = self._sides.reversed().relocate(origin)
        if origin.suffix == ".py" and old is not None and old != origin and old.is_file():
            for suffix in EXTENSION_SUFFIXES:
                if (built := old.with_name(old.stem + suffix)).is_file():
                    raise self._not_built_error(fullname, built)

    def _not_built_error(self, fullname: str, built: Path) -> ToolError:
        return self._store_error(
            "E_BASE_NOT_BUILT",
            f"The compiled module {fullname!r} exists at {built}, and the revision (checked out "
            f"at {self._sides.checkout}) has not built it.",
        )

    def _store_error(self, code: str, problem: str) -> ToolError:
        """Store the error: an engine may swallow it and go on without the module."""
        self._error = self._error or ToolError(code, problem)
        return self._error


def _not_at_revision_error(spec: ModuleSpec, place: str) -> ModuleNotFoundError:
    message = f"No module named {spec.name!r} (it exists at {place} and not at the revision)"
    return ModuleNotFoundError(message, name=spec.name)


def _relocate_entry(entry: str, sides: TreePair) -> str:
    """Return the counterpart of an entry of a search path.

    The tree of links of a strict editable install by setuptools stays: the modules that it leads
    to are moved.
    """
    return entry if _LINKS in str(entry) else sides.relocate_text(entry)


def _has_source(checkout: Path, installed: Path) -> bool:
    """Whether the checkout holds the source of a module of an installed package."""
    packages = next((each for each in installed.parents if each.name in _PACKAGES), None)
    if packages is None:
        return False
    stem = installed.name.partition(".")[0]  # a compiled module has a longer suffix
    source = installed.relative_to(packages).with_name(f"{stem}.py")
    return any((checkout / layout / source).is_file() for layout in _LAYOUTS)


def _is_absolute(entry: object) -> bool:
    return isinstance(entry, str) and Path(entry).is_absolute()


def _list_loaded(sides: TreePair) -> list[tuple[str, Path]]:
    """Return the imported modules that have a file; raise ``E_WRONG_SIDE`` for the project's."""
    files = [(name, getattr(module, "__file__", None)) for name, module in sys.modules.items()]
    loaded = [(name, Path(file)) for name, file in files if isinstance(file, str)]
    for name, file in loaded if sides.project != sides.checkout else ():
        if name != "__main__" and sides.relocate(file) is not None:
            raise ToolError(
                "E_WRONG_SIDE",
                f"{name} was loaded from {file}, and not from the side's own tree "
                f"{sides.checkout}: the code would be compared with itself.",
            )
    return loaded
