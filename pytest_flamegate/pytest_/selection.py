"""Which workloads a run of pytest collects: its arguments, its workload file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_flamegate.config.marker import embedded_arguments
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.files import is_file, real_path
from pytest_flamegate.core.text import suggest
from pytest_flamegate.engines.declare import (
    FILE_NAME,
    WorkloadDeclarations,
    find_file,
    read_declarations,
)
from pytest_flamegate.engines.gguf import embedded_workloads


@dataclass(frozen=True, slots=True)
class Selection:
    """The workloads of a run.

    Attributes:
        file: The workload file, None if there is none.
        declarations: Its declarations.
        embedded: The embedded workloads.
        wanted: The embedded ones that arguments name, all of them if it is empty; None if no
            argument names any.
        arguments: The arguments of the command line, for commands to copy.
    """

    file: Path | None
    declarations: WorkloadDeclarations
    embedded: tuple[Workload, ...]
    wanted: frozenset[str] | None
    arguments: tuple[str, ...]

    @property
    def workloads(self) -> dict[str, Workload]:
        """All workloads by name; a declared one takes the place of an embedded one."""
        return {each.name: each for each in (*self.embedded, *self.declarations.workloads)}

    @property
    def takes_embedded(self) -> bool:
        """Whether the embedded workloads are collected if no test gates anything."""
        return self.wanted is not None or not (self.declarations.entries or self.arguments)

    def is_file(self, path: Path) -> bool:
        """Whether ``path`` is the workload file and declares any, through whatever links."""
        return (
            self.file is not None
            and bool(self.declarations.entries)
            and path.name == self.file.name
            and real_path(path) == real_path(self.file)
        )


def select_workloads(config: pytest.Config, settings: Settings) -> Selection:
    """Read the workload file, and take the arguments that are no paths out of ``config.args``.

    Raises:
        UsageError: ``E_UNKNOWN_WORKLOAD`` for an argument that names a workload that does not
            exist, and whatever keeps the file from being read.
    """
    file = settings.config or _named_file(config) or find_file(config.rootpath)
    declarations = WorkloadDeclarations()
    if file is not None:
        declarations = read_declarations(file, settings.thresholds)
        _check_names(config, file, declarations)
    embedded = embedded_workloads(settings.root, settings.thresholds)
    has_arguments = config.args_source is pytest.Config.ArgsSource.ARGS
    arguments = tuple(config.args) if has_arguments else ()
    wanted = _take_embedded_arguments(config, {workload.name for workload in embedded})
    if file is not None and declarations.entries and not has_arguments:
        _add_file(config, file)
    return Selection(file, declarations, embedded, wanted, arguments)


def _named_file(config: pytest.Config) -> Path | None:
    """Return the workload file that an argument names, wherever it lies."""
    paths = (
        Path(config.invocation_params.dir, argument.partition("::")[0])
        for argument in config.args
        if FILE_NAME in argument
    )
    return next((path for path in paths if path.name == FILE_NAME and is_file(path)), None)


def _check_names(config: pytest.Config, file: Path, declarations: WorkloadDeclarations) -> None:
    """Raise for an argument ``flamegate.toml::NAME`` whose workload the file does not declare."""
    known = [entry.name for entry in declarations.entries]
    known += {workload.family for workload in declarations.workloads if workload.family}
    for argument in config.args:
        path, separator, name = argument.partition("::")
        place = Path(config.invocation_params.dir, path)
        is_here = place.name == file.name and real_path(place) == real_path(file)
        if separator and is_here and name not in known:
            raise UsageError(
                "E_UNKNOWN_WORKLOAD",
                f"{argument}: {file.name} declares no workload {name!r}.",
                suggest(name, known) if known else f"Declare it in {file.name}.",
            )


def _take_embedded_arguments(config: pytest.Config, known: set[str]) -> frozenset[str] | None:
    """Take ``embedded`` and ``embedded::NAME`` out of the arguments; return the names."""
    taken = embedded_arguments(config.args, config.invocation_params.dir)
    if not taken:
        return None
    names = {argument.partition("::")[2] for argument in taken} - {""}
    if unknown := sorted(names - known):
        raise UsageError(
            "E_UNKNOWN_WORKLOAD",
            f"There is no embedded workload {unknown[0]!r}.",
            suggest(unknown[0], sorted(known)),
        )
    config.args[:] = [argument for argument in config.args if argument not in taken]
    return frozenset(names)


def _add_file(config: pytest.Config, file: Path) -> None:
    """Collect the workload file even if ``testpaths`` do not lead to it."""
    places = [Path(config.invocation_params.dir, argument) for argument in config.args]
    if not any(real_path(file).is_relative_to(real_path(place)) for place in places):
        config.args.append(str(file))
