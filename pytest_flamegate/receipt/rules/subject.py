"""Inputs of rules: a receipt (``Claim``), or one with evidence and profile (``Submission``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property
from typing import cast

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import parse_timestamp
from pytest_flamegate.observe.observation import Block, Run, uses_running_server
from pytest_flamegate.receipt.metrics import Rate, figures, kernel_rates, rate_of, value_of
from pytest_flamegate.receipt.policies import Policy
from pytest_flamegate.receipt.types import Evidence, Metric

_PREFILL = "prefill_tokens_per_second"


@dataclass(frozen=True)
class Submission:
    """A receipt with its evidence and its folded profile, as they were handed in.

    ``receipt_sha256`` and ``folded_sha256`` are digests of the raw bytes. The folded profile is
    None if it was not given. Values that several rules use are computed once.
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
    def timed_blocks(self) -> tuple[Block, ...]:
        """The blocks of all timed runs."""
        return tuple(block for run in self.timed for block in run.blocks)

    @cached_property
    def profiled(self) -> tuple[Run, ...]:
        """The runs that were sampled."""
        return tuple(run for run in self.evidence.runs if run.role == "profiled")

    @cached_property
    def rate(self) -> Rate | None:
        """The rate that follows from the token times; None if they give none."""
        return rate_of(self.evidence.runs)

    @cached_property
    def in_windows(self) -> bool:
        """Whether the runs are windows of one server that was not started for each run."""
        return uses_running_server(self.evidence.workload)

    @cached_property
    def recomputed(self) -> tuple[Metric, ...]:
        """The metrics that follow from the timed runs, each of which must have tokens."""
        # Only the stated prefill rate tells the length of the prompt, a whole number of tokens.
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

    @cached_property
    def cores(self) -> int | None:
        """The number of cores that the evidence states; None if it states none."""
        cores = self.evidence.machine.get("cpu_cores", "")
        return int(cores) if cores.isascii() and cores.isdigit() and len(cores) < 7 else None

    def max_parallelism(self, run: Run) -> int | None:
        """Return how many threads of ``run`` can have computed at once; None if unknown.

        Threads were counted at one moment and without the program's children, so the number of
        cores is the bound whenever it is the larger one.
        """
        bounds = [] if self.cores is None else [self.cores]
        if run.threads is not None and (bounds or self.evidence.clock_scope == "sequence"):
            bounds.append(run.threads)
        return max(1, *bounds) if bounds else None


_CONTAINERS = frozenset({dict, list})
_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True, slots=True)
class Claim:
    """One receipt, the kernel policy that applies to it, and the wishes of its reader.

    A property may be read only if its field is well-formed; see ``Rule.needs``.
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
        """Whether the receipt claims that the same prompt gives the same tokens."""
        return cast("bool", self.document["deterministic"])

    @property
    def tokens_requested(self) -> int:
        """The maximum number of tokens."""
        return cast("int", self.document["tokens_requested"])

    @property
    def tokens_generated(self) -> int:
        """The number of tokens that were generated."""
        return cast("int", self.document["tokens_generated"])

    @property
    def tokens_per_second(self) -> float:
        """The claimed rate."""
        return float(cast("float", self.document["tokens_per_second"]))

    @property
    def environment(self) -> Mapping[str, str]:
        """The recorded environment variables."""
        return cast("dict[str, str]", self.document["environment"])

    @property
    def model(self) -> Mapping[str, object]:
        """The model, with at least its path."""
        return cast("dict[str, object]", self.document["model"])

    @property
    def age_s(self) -> float:
        """Seconds from the receipt's timestamp to now; negative for a future timestamp."""
        stamp = parse_timestamp(cast("str", self.document["timestamp"]))
        return (self.now - stamp).total_seconds()

    @property
    def performance(self) -> Mapping[str, object]:
        """The optional ``performance_baseline``; empty if there is none."""
        return table(self.document, "performance_baseline")


def table(fields: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return the object called ``name``; empty if there is none."""
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def number(fields: Mapping[str, object], *names: str) -> float | None:
    """Return the first number among the fields ``names``; None if there is none."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration as written: the name of its field, its milliseconds, and its resolution.

    ``step_ms`` is one unit of the field for a whole number, which may have been rounded or cut
    off, and 0 for a fraction.
    """

    name: str
    ms: float
    step_ms: float


def duration(fields: Mapping[str, object], *stems: str) -> Duration | None:
    """Return the first duration called ``stem_ns``, ``_us``, ``_ms`` or ``_s``; None if none."""
    names = _with_units(stems)
    # An object may have 100,000 fields and rarely a time: isdisjoint looks through the smaller.
    if names.keys().isdisjoint(fields.keys()):
        return None
    for name, unit_ms in names.items():
        value = number(fields, name)
        if value is not None:
            whole = isinstance(fields[name], int)
            return Duration(name, value * unit_ms, unit_ms if whole else 0.0)
    return None


@cache
def _with_units(stems: tuple[str, ...]) -> Mapping[str, float]:
    """Return the names that a duration may have, each with its unit in milliseconds."""
    return {f"{stem}_{unit}": ms for stem in stems for unit, ms in _UNITS_MS.items()}


def objects(value: object, path: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield every object within ``value`` with its path, the outermost first."""
    pending: list[tuple[str, object]] = [(path, value)]
    while pending:
        at, entry = pending.pop()
        if isinstance(entry, dict):
            yield at, entry
            pending.extend(
                (f"{at}.{name}" if at else name, child)
                for name, child in reversed(entry.items())
                if type(child) in _CONTAINERS
            )
        # A list of 100,000 plain figures is skipped as a whole.
        elif isinstance(entry, list) and not _CONTAINERS.isdisjoint(map(type, entry)):
            pending.extend((f"{at}[{index}]", child) for index, child in enumerate(entry))


@dataclass(frozen=True, slots=True)
class Folded:
    """Samples in all, by leaf name, and by name anywhere in a stack (once a stack).

    ``problem`` says why the text is no folded profile; None if it is one.
    """

    samples: int
    self_samples: Mapping[str, int]
    inclusive_samples: Mapping[str, int]
    problem: str | None = None


def read_folded(data: bytes) -> Folded:
    """Count the samples of the folded text ``data``; never raises."""
    # Imported here because the profile room loads an adapter for each profiler.
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
