"""Imports of the base side: modules of the project come from its checkout.

It runs inside the measured child process. The project may be importable in any way (a source
directory, an editable install of any kind, a plain script); nothing is installed a second time.

A checkout at the front of PYTHONPATH alone would not do: packages that an editable install maps to
a directory of another name, modules that only the working tree has, and compiled modules that only
the working tree has built would be imported from the working tree or silently be missing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from pytest_flamegate.child.sides import TreePair
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.files import real_path

_FILE_LOADERS = (SourceFileLoader, SourcelessFileLoader, ExtensionFileLoader)
_LAYOUTS = ("", "src", "python", "lib")
"""Where a repository keeps its packages."""
_LINKS = "/build/__editable__."


def relocate(project: Path, checkout: Path) -> None:
    """Import modules of ``project`` from ``checkout`` from now on.

    ``ToolError`` ``E_WRONG_SIDE`` if a module of the project is already imported.
    """
    sides = TreePair.of(project, checkout)
    _check_loaded(sides)
    sys.path[:] = [_moved(entry, sides) for entry in sys.path]
    sys.meta_path.insert(0, Relocator(sides))
    _set_python_path(sides)


def check_side(project: Path, checkout: Path, *, own_model: bool = False) -> None:
    """Raise an error if the base side did not load the base's code.

    ``own_model`` says that the two sides load different models, so that their code may be equal.
    An error of the relocation that the engine swallowed is raised again.

    Raises:
        ToolError: ``E_WRONG_SIDE`` for a module of the project itself, ``E_SAME_CODE`` if no
            module came from the checkout.
    """
    for finder in sys.meta_path:
        if isinstance(finder, Relocator) and finder.error is not None:
            raise finder.error
    sides = TreePair.of(project, checkout)
    _check_loaded(sides)
    if not own_model and not any(sides.in_checkout(file) for _, file in _loaded()):
        raise ToolError(
            "E_SAME_CODE",
            f"Nothing was imported from the checkout {sides.checkout}, and no model of it "
            "differs: both sides would run the same installed code.",
            "Install the project with pip install -e ., or measure a target that it holds.",
        )


class Relocator(MetaPathFinder):
    """Asks the finders after it, and moves modules of the project to the checkout."""

    def __init__(self, sides: TreePair) -> None:
        self.error: ToolError | None = None
        self._sides = sides
        self._roots: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of ``fullname`` on this side.

        Raises ``ModuleNotFoundError`` for a module of the project alone, and ``ToolError``
        ``E_BASE_NOT_BUILT`` if that is a compiled module.
        """
        spec = self._behind(fullname, path, target)
        if spec is None:
            return self._not_in_the_project(fullname, path)
        if spec.origin is not None and _is_absolute(spec.origin):
            return self._module(spec, Path(spec.origin), top_level=path is None)
        if spec.loader is None and spec.submodule_search_locations is not None:
            return self._namespace(spec, [str(each) for each in spec.submodule_search_locations])
        return spec

    def _behind(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        finders = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                return spec
        return None

    def _module(self, spec: ModuleSpec, origin: Path, *, top_level: bool) -> ModuleSpec:
        moved = self._sides.moved(origin)
        if moved is None:
            if top_level:
                self._check_installed_copy(spec.name, origin)
            self._check_uncompiled(spec.name, origin)
            return spec
        above = 2 if spec.submodule_search_locations is not None else 1
        root = str(moved.parents[above - 1])
        if top_level and root not in self._roots:
            self._roots.append(root)
        linked = self._sides.moved(real_path(origin))
        for file in (moved, linked):
            if file is not None and file.is_file():
                return self._file(spec, file)
        # A module may have become a package since, or the other way round.
        found = PathFinder.find_spec(spec.name, [root])
        if found is not None and found.origin is not None:
            self._check_uncompiled(spec.name, Path(found.origin))
            return found
        if isinstance(spec.loader, ExtensionFileLoader):
            raise self._not_built(spec.name, origin)
        raise ModuleNotFoundError(
            f"No module named {spec.name!r} (it stands at {origin} and not at the revision)",
            name=spec.name,
        )

    def _file(self, spec: ModuleSpec, moved: Path) -> ModuleSpec:
        """Return ``spec`` for the file ``moved``, with a loader of the same kind."""
        kind = type(spec.loader)
        locations = spec.submodule_search_locations
        if locations is not None:
            locations = self._locations(locations) or [str(moved.parent)]
        try:
            if not issubclass(kind, _FILE_LOADERS):
                raise TypeError(kind)
            found = spec_from_file_location(
                spec.name,
                moved,
                loader=kind(spec.name, str(moved)),
                submodule_search_locations=locations,
            )
        except TypeError:
            raise self._error(
                "E_CANNOT_RELOCATE",
                f"The module {spec.name!r} is loaded by {kind.__qualname__}, "
                "which cannot be pointed at the checkout.",
                'Measure it as a program of its own: engine = "command".',
            ) from None
        assert found is not None
        return found

    def _namespace(self, spec: ModuleSpec, locations: list[str]) -> ModuleSpec:
        """Move the portions of a namespace package; one without any left is not there."""
        moved = self._locations(locations)
        if moved == locations:
            return spec
        if not any(map(os.path.isdir, moved)):
            raise ModuleNotFoundError(
                f"No module named {spec.name!r} (it stands at {locations[0]} "
                "and not at the revision)",
                name=spec.name,
            )
        spec.submodule_search_locations = moved
        return spec

    def _locations(self, locations: Sequence[str]) -> list[str]:
        """Return ``locations`` on this side, without those that the revision does not have."""
        moved = ((each, _moved(each, self._sides)) for each in locations)
        return [new for old, new in moved if new == old or os.path.isdir(new)]  # noqa: PTH112

    def _not_in_the_project(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Return a module of the revision alone; raise if only the project has built it."""
        back = self._sides.swapped()
        entries = [each for each in (sys.path if path is None else path) if isinstance(each, str)]
        there = [str(old) for each in entries if (old := _counterpart(Path(each), back))]
        found = PathFinder.find_spec(fullname, there) if there else None
        if found is not None and isinstance(found.loader, ExtensionFileLoader):
            raise self._not_built(fullname, Path(str(found.origin)))
        if path is None and self._roots:
            # An editable install by names knows no name that is gone since.
            return PathFinder.find_spec(fullname, self._roots)
        return None

    def _check_uncompiled(self, fullname: str, origin: Path) -> None:
        """Raise an error for source that the project runs compiled: the sides would differ."""
        if origin.suffix != ".py":
            return
        old = _counterpart(origin, self._sides.swapped())
        if old is None or old == origin or not old.is_file():
            return
        for suffix in EXTENSION_SUFFIXES:
            if (built := old.with_name(old.stem + suffix)).is_file():
                raise self._not_built(fullname, built)

    def _check_installed_copy(self, fullname: str, origin: Path) -> None:
        """Raise an error for an installed copy of the project's own package."""
        if self._sides.in_checkout(origin) or "site-packages" not in origin.parts:
            return
        for layout in _LAYOUTS:
            source = self._sides.checkout / layout / fullname / "__init__.py"
            if source.is_file():
                raise self._error(
                    "E_INSTALLED_COPY",
                    f"{fullname} is imported from {origin.parent}, although the revision holds "
                    f"{source.relative_to(self._sides.checkout)}: both sides would run "
                    "the same installed code.",
                    "Install the project with pip install -e . instead.",
                )

    def _not_built(self, fullname: str, built: Path) -> ToolError:
        return self._error(
            "E_BASE_NOT_BUILT",
            f"The compiled module {fullname!r} stands at {built}, and at the revision "
            f"(checked out at {self._sides.checkout}) nothing has built it.",
            'Give the workload a build, such as build = ["python", "setup.py", "build_ext", '
            '"--inplace"].',
        )

    def _error(self, code: str, problem: str, remedy: str) -> ToolError:
        """Store the error: an engine may swallow it and go on without the module."""
        self.error = self.error or ToolError(code, problem, remedy)
        return self.error


def _set_python_path(sides: TreePair) -> None:
    """Set PYTHONPATH, for a Python that the engine starts: it does not have the finder."""
    ours = [each for each in sys.path if _is_absolute(each) and sides.in_checkout(Path(each))]
    if ours and sides.project != sides.checkout:
        theirs = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        others = [each for each in (_moved(each, sides) for each in theirs) if each not in ours]
        os.environ["PYTHONPATH"] = os.pathsep.join([*ours, *others])


def _moved(entry: str, sides: TreePair) -> str:
    """Return the counterpart of an entry of a search path.

    An entry that is not absolute stays, and so does the tree of links of a strict editable
    install by setuptools: the modules that it leads to are moved.
    """
    if not _is_absolute(entry) or _LINKS in entry:
        return entry
    moved = sides.moved(Path(entry))
    return entry if moved is None else str(moved)


def _is_absolute(entry: object) -> bool:
    return isinstance(entry, str) and os.path.isabs(entry)  # noqa: PTH117


def _counterpart(path: Path, sides: TreePair) -> Path | None:
    return sides.moved(path) if path.is_absolute() else None


def _loaded() -> list[tuple[str, Path]]:
    """Return the imported modules that have a file, by name."""
    files = ((name, getattr(module, "__file__", None)) for name, module in sys.modules.items())
    return [(name, Path(file)) for name, file in files if isinstance(file, str)]


def _check_loaded(sides: TreePair) -> None:
    if sides.project == sides.checkout:
        return
    for name, file in _loaded():
        if name != "__main__" and sides.holds(file):
            raise ToolError(
                "E_WRONG_SIDE",
                f"The base side loaded {name} from {file}, the working tree: "
                "the working tree would be compared with itself.",
                "Something imports the project as Python starts (a .pth file, sitecustomize, "
                "PYTHONSTARTUP); take it out of this environment.",
            )
