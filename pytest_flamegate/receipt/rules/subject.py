"""A receipt, its evidence and its profile, as the cross-checks read them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, cast

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import read_timestamp
from pytest_flamegate.receipt.metrics import figures, kernel_rates, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from pytest_flamegate.observe.observation import Run
    from pytest_flamegate.receipt.policies import Policy
    from pytest_flamegate.receipt.types import Evidence, Metric


_PREFILL = "prefill_tokens_per_second"


@dataclass(frozen=True)
class Case:
    """What is claimed and what was seen.

    ``receipt_sha256`` and ``folded_sha256`` are of the raw bytes as they were read;
    the folded profile is None where it was not given. What several rules ask for is made once.
    """

    claim: Claim
    receipt_sha256: str
    evidence: Evidence
    folded: Folded | None = None
    folded_sha256: str | None = None

    @cached_property
    def timed(self) -> tuple[Run, ...]:
        """The runs that supply the figures."""
        return tuple(run for run in self.evidence.runs if run.role == "timed")

    @cached_property
    def profiled(self) -> tuple[Run, ...]:
        """The runs that were sampled."""
        return tuple(run for run in self.evidence.runs if run.role == "profiled")

    @cached_property
    def recomputed(self) -> tuple[Metric, ...]:
        """The metrics that the timed runs give; each must have generated tokens."""
        # Nothing else says how long the prompt was; but it is a whole number of tokens.
        scope = self.evidence.clock_scope
        stated = value_of(self.evidence.metrics, _PREFILL)
        found = figures(self.timed, scope, None if stated is None else 1, unseen=True)
        found += kernel_rates(self.evidence.workload, found)
        one = value_of(found, _PREFILL)
        if stated is None or one is None:
            return found
        tokens = max(1, round(stated / one))
        return tuple(
            replace(metric, value=metric.value * tokens) if metric.name == _PREFILL else metric
            for metric in found
        )

    def lanes(self, run: Run) -> int | None:
        """Return how many threads at most ran at once for ``run``; None where nothing says so.

        Threads are counted at one moment, and a program's children are not among them, so
        the cores bound what was possible.
        """
        cores = self.evidence.machine.get("cpu_cores", "")
        known = [int(cores)] if cores.isascii() and cores.isdigit() and len(cores) < 7 else []
        if run.threads is not None and (known or self.evidence.clock_scope == "sequence"):
            known.append(run.threads)
        return max(1, *known) if known else None


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


@dataclass(frozen=True, slots=True)
class Folded:
    """Samples in all, by leaf name and by name anywhere in a stack (once a stack).

    ``problem`` says why the text is no folded profile, None where it is one.
    """

    samples: int
    self_samples: Mapping[str, int]
    inclusive_samples: Mapping[str, int]
    problem: str | None = None


def read_folded(data: bytes) -> Folded:
    """Return what the folded text ``data`` holds; never raises."""
    # The profile room brings every profiler's adapter along; most receipts have no profile.
    from pytest_flamegate.profile.folded import parse_folded

    try:
        stacks = parse_folded(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Folded(0, {}, {}, f"The folded profile is not UTF-8 at byte {error.start}.")
    except ReceiptError as error:
        return Folded(0, {}, {}, error.problem)
    own: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    for stack, count in stacks.items():
        if stack:
            own[stack[-1].name] += count
        for name in {frame.name for frame in stack}:
            inclusive[name] += count
    return Folded(sum(stacks.values()), own, inclusive)
