"""A receipt as the rules read it: typed access to a document whose form was checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, cast

from pytest_flamegate.receipt.timestamps import read_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from pytest_flamegate.receipt.policies import Policy

_CONTAINERS = frozenset({dict, list})
_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True, slots=True)
class Claim:
    """One receipt, the kernel policy it is read under, and what its reader asked for.

    A property may be read only where its field is well-formed; the rules say which
    fields they need, and are not asked where one is not.
    """

    document: Mapping[str, object]
    policy: Policy
    now: datetime
    require_gpu_kernels: bool = False
    max_age_s: float | None = None

    @property
    def kernels(self) -> Sequence[str]:
        """Kernel names in the order of the receipt."""
        return cast("list[str]", self.document["kernels"])

    @property
    def backend(self) -> str:
        """``cpu`` or ``cuda``."""
        return cast("str", self.document["backend"]).lower()

    @property
    def deterministic(self) -> bool:
        """Whether the same prompt is claimed to give the same tokens."""
        return cast("bool", self.document["deterministic"])

    @property
    def tokens_requested(self) -> int:
        """Tokens asked for."""
        return cast("int", self.document["tokens_requested"])

    @property
    def tokens_generated(self) -> int:
        """Tokens generated."""
        return cast("int", self.document["tokens_generated"])

    @property
    def tokens_per_second(self) -> float:
        """The rate that is claimed."""
        return float(cast("float", self.document["tokens_per_second"]))

    @property
    def environment(self) -> Mapping[str, str]:
        """Names to strings."""
        return cast("dict[str, str]", self.document["environment"])

    @property
    def model(self) -> Mapping[str, object]:
        """The model, with at least its path."""
        return cast("dict[str, object]", self.document["model"])

    @property
    def age_s(self) -> float:
        """Seconds from the receipt's timestamp to now; negative where it lies ahead."""
        stamp = read_timestamp(cast("str", self.document["timestamp"]))
        return (self.now - stamp).total_seconds()

    @property
    def performance(self) -> Mapping[str, object]:
        """The optional ``performance_baseline``, empty where there is none."""
        return table(self.document, "performance_baseline")


def table(fields: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return the object called ``name``, empty where there is none."""
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def number(fields: Mapping[str, object], *names: str) -> float | None:
    """Return the first number among the fields ``names``, None where there is none."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration as written: its field, its milliseconds, and the unit of its last digit.

    ``step_ms`` is the resolution: a whole number of milliseconds may have been rounded
    or cut off, a fraction was not.
    """

    name: str
    ms: float
    step_ms: float


def duration(fields: Mapping[str, object], *stems: str) -> Duration | None:
    """Return the first duration called ``stem_ns``, ``_us``, ``_ms`` or ``_s``, None if none."""
    names = _named(stems)
    # Few objects state a time, and every rule about times asks each. Of two views, the smaller
    # is looked through: an object may have a hundred thousand fields.
    if names.keys().isdisjoint(fields.keys()):
        return None
    for name, unit_ms in names.items():
        value = number(fields, name)
        if value is not None:
            whole = isinstance(fields[name], int)
            return Duration(name, value * unit_ms, unit_ms if whole else 0.0)
    return None


@cache
def _named(stems: tuple[str, ...]) -> Mapping[str, float]:
    """Return the names that a duration may have, each with its unit in milliseconds."""
    return {f"{stem}_{unit}": ms for stem in stems for unit, ms in _UNITS_MS.items()}


def objects(value: object, path: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield every object within ``value`` with its path, the outermost first."""
    pending: list[tuple[str, object]] = [(path, value)]
    while pending:
        where, entry = pending.pop()
        if isinstance(entry, dict):
            yield where, entry
            pending.extend(
                (f"{where}.{name}" if where else name, child)
                for name, child in reversed(entry.items())
                if type(child) in _CONTAINERS
            )
        # A list of a hundred thousand figures is passed over, and not looked through.
        elif isinstance(entry, list) and not _CONTAINERS.isdisjoint(map(type, entry)):
            pending.extend((f"{where}[{index}]", child) for index, child in enumerate(entry))
