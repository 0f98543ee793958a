"""Workloads as test items: ``flamegate.toml::decode`` and ``embedded::1tok``."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from pytest_flamegate.config.options import MARKER, embedded_arguments, is_marked
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.files import is_file, real_path
from pytest_flamegate.core.text import suggest
from pytest_flamegate.engines import declare
from pytest_flamegate.engines.gguf import embedded_workloads
from pytest_flamegate.run.publish import Outcome
from pytest_flamegate.run.stages import Call


@dataclass(frozen=True, slots=True)
class Selection:
    """The workloads of a run: those that ``file`` declares, and the embedded ones.

    ``wanted`` are the embedded ones that arguments name, all of them if it is empty; None if no
    argument names any. ``arguments`` are those of the command line, for commands to copy.
    """

    file: Path | None
    declarations: declare.WorkloadDeclarations
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

    Raises ``UsageError``: ``E_UNKNOWN_WORKLOAD``, and whatever keeps the file from being read.
    """
    file = settings.config or _named_file(config) or declare.find_file(config.rootpath)
    declarations = declare.WorkloadDeclarations()
    if file is not None:
        declarations = declare.read_declarations(file, settings.thresholds)
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
        if declare.FILE_NAME in argument
    )
    return next((path for path in paths if path.name == declare.FILE_NAME and is_file(path)), None)


def _check_names(
    config: pytest.Config, file: Path, declarations: declare.WorkloadDeclarations
) -> None:
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


def node_id(item: pytest.Item) -> str:
    """Return the node id of ``item`` as it is without pytest-xdist.

    ``--dist loadgroup`` appends ``@GROUP`` to ``item.nodeid``, which pytest cannot select by.
    """
    return item.nodeid if item.parent is None else f"{item.parent.nodeid}::{item.name}"


class Gating(Protocol):
    """Gates workloads on behalf of tests.

    Attributes:
        measured: The test of each name that ``flamegate.measure`` was given, by its node id.
    """

    settings: Settings
    selection: Selection
    measured: dict[str, str]

    def gate(self, item: pytest.Item, workload: Workload, call: Call | None = None) -> Outcome:
        """Measure and gate ``workload`` for ``item``; fail the test if the verdict fails."""


class WorkloadItem(pytest.Item):
    """One declared or embedded workload; a declaration with an error is one failing test."""

    def __init__(
        self, *, workload: Workload | declare.InvalidWorkload, gating: Gating, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.workload = workload
        self.gating = gating
        self.add_marker(MARKER)

    def runtest(self) -> None:
        """Measure and gate; a failing verdict fails the test."""
        if not isinstance(self.workload, Workload):
            pytest.fail(f"error: {self.workload.error}", pytrace=False)
        self.gating.gate(self, self.workload)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where the workload is declared, and the heading of its failure."""
        if isinstance(self.workload, Workload):
            source = self.workload.source
            line = declare.find_line(self.path, self.name) if is_file(self.path) else None
        else:
            source, line = self.path.name, self.workload.line
        # A heading that the node id ends in would be shown in its place, dots made colons.
        return self.path, line - 1 if line else None, f"{self.name} ({source})"


class WorkloadFile(pytest.File):
    """``flamegate.toml`` or a pyproject with ``[tool.flamegate]``."""

    gating: Gating

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item for each workload declared."""
        for entry in self.gating.selection.declarations.entries:
            yield _item(self, self.gating, entry)


class EmbeddedWorkloads(pytest.Collector):
    """The embedded workloads, which are gated if nothing is declared."""

    gating: Gating

    def collect(self) -> Iterator[pytest.Item]:
        """Yield those that arguments name, else all unless another test gates something."""
        wanted = self.gating.selection.wanted
        if wanted is None and any(map(is_marked, self.session.items)):
            return
        for workload in self.gating.selection.embedded:
            if not wanted or workload.name in wanted:
                yield _item(self, self.gating, workload)


def _item(
    parent: pytest.Collector, gating: Gating, workload: Workload | declare.InvalidWorkload
) -> WorkloadItem:
    return WorkloadItem.from_parent(parent, name=workload.name, workload=workload, gating=gating)
