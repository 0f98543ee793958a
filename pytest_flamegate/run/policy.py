"""The policy of a base revision: the workloads that it requires, and how a head would change it.

The judge reads the policy from the base, so that a change cannot relax the check that judges it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.text import format_value, suggest
from pytest_flamegate.engines.declare import InvalidWorkload, find_file, read_declarations
from pytest_flamegate.receipt.compose import recipe
from pytest_flamegate.receipt.rerun import compare_recipes

SETTINGS = (
    *("profiler", "budget", "config", "dir", "instructions", "strict", "share_drift"),
    *("tokens_per_second", "hotspots", "peak_gflops"),
)
"""The keys of pytest's configuration file that belong to the policy."""

Entry = Workload | InvalidWorkload


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A value of the policy that the head changes; it counts once the change is merged.

    ``workload`` is empty for a setting of the whole run.
    """

    workload: str
    key: str
    base: str
    head: str

    def __str__(self) -> str:
        return f"{self.workload or 'settings'}: {self.key} {self.base} → {self.head}"


@dataclass(frozen=True, slots=True)
class BasePolicy:
    """The workloads that the check measures, and the differences between base and head.

    Attributes:
        required: The base's workloads, to be run in the head's tree. One that the head lacks, or
            declares with an error, is an ``InvalidWorkload``.
        new: The head's workloads that the base does not have.
        changes: What the head declares otherwise than the base.
    """

    required: tuple[Entry, ...]
    new: tuple[Entry, ...] = ()
    changes: tuple[PolicyChange, ...] = ()


def compare_policies(
    base: Sequence[Entry],
    head: Sequence[Entry],
    base_name: str,
    place: Callable[[Path], Path],
) -> BasePolicy:
    """Return the base's workloads as they run in the working tree, and the differences.

    ``place`` returns the counterpart there of a directory of the base.

    A build of the head is used if the base has none: a change may introduce it. Any other key
    counts as the base declares it.
    """
    declared = {each.name: each for each in head}
    required: list[Entry] = []
    changes: list[PolicyChange] = []
    for entry in base:
        found = declared.pop(entry.name, None)
        if isinstance(entry, InvalidWorkload) or isinstance(found, InvalidWorkload):
            required.append(found if isinstance(found, InvalidWorkload) else entry)
        elif found is None:
            required.append(_missing(entry, list(declared), base_name))
        else:
            changes += _compare(entry, found)
            build = entry.build or found.build
            directory = place(entry.directory)
            required.append(replace(entry, directory=directory, source=found.source, build=build))
    return BasePolicy(tuple(required), tuple(declared.values()), tuple(changes))


def compare_settings(base: Mapping[str, Any], head: Mapping[str, Any]) -> list[PolicyChange]:
    """Return the settings of the policy that differ between two configuration files."""
    return [
        PolicyChange("", f"flamegate_{name}", _show(base.get(name)), _show(head.get(name)))
        for name in SETTINGS
        if base.get(name) != head.get(name)
    ]


def read_entries(root: Path, settings: Settings) -> tuple[Entry, ...]:
    """Return the workloads declared in the tree at ``root``; none without a workload file."""
    file = settings.config or find_file(root)
    return () if file is None else read_declarations(file, settings.thresholds).entries


def _missing(entry: Workload, others: Sequence[str], base_name: str) -> InvalidWorkload:
    error = UsageError(
        "E_REQUIRED_WORKLOAD",
        f"{base_name} requires the workload {entry.name!r}, and the head does not declare it.",
        f"Declare it again; merge its removal by itself, without this check. "
        f"{suggest(entry.name, others) if others else ''}".rstrip(),
    )
    return InvalidWorkload(entry.name, error, None)


def _compare(base: Workload, head: Workload) -> Iterator[PolicyChange]:
    for name, old, new in compare_recipes(_list_keys(base), _list_keys(head)):
        if name != "source":
            yield PolicyChange(base.name, name, _show(old), _show(new))


def _list_keys(workload: Workload) -> dict[str, object]:
    """Return everything that a declaration chooses."""
    limits = {each.name: getattr(workload.thresholds, each.name) for each in fields(Thresholds)}
    return {**recipe(workload), "profile": workload.sampling, **limits}


def _show(value: object) -> str:
    if value in (None, []):
        return "(none)"
    if isinstance(value, Mapping):
        return format_value({key: str(each) for key, each in value.items()})
    return format_value(value) if isinstance(value, str | int | float | list) else str(value)
