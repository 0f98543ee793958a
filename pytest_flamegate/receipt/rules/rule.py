"""Rules as data, and their subjects: a receipt, or one with its evidence and profile.

A rule is a code, the statement that must hold, and the grade that it protects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Generic, Literal, TypeVar, cast

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import computed_once, parse_timestamp
from pytest_flamegate.core.text import one_line
from pytest_flamegate.observe.observation import Block, Run, uses_running_server
from pytest_flamegate.profile.hotspots import count_by_name
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.receipt.metrics import Rate, figures, kernel_rates, rate_of, value_of
from pytest_flamegate.receipt.policies import Policy
from pytest_flamegate.receipt.reported import of_engine
from pytest_flamegate.receipt.types import Evidence, Grade, Metric

T = TypeVar("T")
SubjectT = TypeVar("SubjectT")
Find = Callable[[SubjectT], Iterator[str]]
_MAX_REPORTED = 8
_MAX_COUNTED = 5_000
"""One megabyte can break a rule ten thousand times; counting them all would take seconds."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[SubjectT]):
    """One rule: ``sentence`` must hold, and ``find`` yields a message for each breach.

    ``protects`` is the lowest grade that a subject cannot have if it breaks the rule. It is None if
    the rule concerns a requirement of the reader (an age, a GPU) and not honesty.
    """

    code: str
    sentence: str
    protects: Grade | None
    find: Find[SubjectT]


class MalformedFieldError(Exception):
    """A rule read a malformed field of the receipt, which has been reported already."""


class Rulebook(Generic[SubjectT]):
    """Rules over one kind of subject, in the order of reporting; several may share a code."""

    def __init__(self, *books: Rulebook[SubjectT], protects: Grade | None = None) -> None:
        """Start with the rules of ``books``; ``protects`` is the default of ``rule``."""
        self.rules: tuple[Rule[SubjectT], ...] = tuple(rule for book in books for rule in book)
        self._protects = protects

    def __iter__(self) -> Iterator[Rule[SubjectT]]:
        return iter(self.rules)

    def rule(
        self,
        code: str,
        sentence: str,
        *,
        protects: Grade | Literal["book"] | None = "book",
    ) -> Callable[[Find[SubjectT]], Find[SubjectT]]:
        """Return a decorator that adds its function as a rule; see ``Rule`` for the arguments."""

        def add(find: Find[SubjectT]) -> Find[SubjectT]:
            grade = self._protects if protects == "book" else protects
            self.rules += (Rule(code, sentence, grade, find),)
            return find

        return add

    def find_breaches(self, subject: SubjectT) -> Iterator[tuple[Rule[SubjectT], str]]:
        """Yield rule and message of breaches; a malformed field ends the rule that reads it."""
        for rule in self.rules:
            messages = rule.find(subject)
            try:
                # Nearly every rule is kept: only a first breach makes it worth bounding the rest.
                first = next(messages, None)
            except MalformedFieldError:
                continue
            if first is not None:
                for message in _bound(chain((first,), messages)):
                    yield rule, one_line(message)


def _bound(messages: Iterator[str]) -> Iterator[str]:
    with suppress(MalformedFieldError):
        yield from islice(messages, _MAX_REPORTED)
        more = sum(1 for _ in islice(messages, _MAX_COUNTED))
        if more:
            least = "at least " if more == _MAX_COUNTED else ""
            yield f"The same problem occurs {least}{more:,} more times."


class _Field(Generic[T]):
    """A required field of a receipt, by the name of the attribute; it is looked up once."""

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, claim: Claim, _: type) -> T:
        value = claim.__dict__[self._name] = claim.read(self._name)
        return cast("T", value)


@dataclass(frozen=True)
class Claim:
    """One receipt, the kernel policy that applies to it, and the requirements of its reader.

    To read a field that is in ``malformed`` raises ``MalformedFieldError``.
    """

    document: Mapping[str, object]
    policy: Policy
    now: datetime
    require_gpu_kernels: bool = False
    max_age_s: float | None = None
    malformed: frozenset[str] = frozenset()

    kernels = _Field[list[str]]()
    deterministic = _Field[bool]()
    environment = _Field[dict[str, str]]()
    model = _Field[dict[str, object]]()
    timestamp = _Field[str]()
    tokens_generated = _Field[int]()
    tokens_per_second = _Field[float]()
    tokens_requested = _Field[int]()

    def read(self, name: str) -> object:
        """Return a required field."""
        if name in self.malformed:
            raise MalformedFieldError(name)
        return self.document[name]

    @computed_once
    def backend(self) -> str:
        """``cpu`` or ``cuda``."""
        return str(self.read("backend")).lower()

    @computed_once
    def age_s(self) -> float:
        """Seconds from the receipt's timestamp to now; negative for a future timestamp."""
        return (self.now - parse_timestamp(self.timestamp)).total_seconds()

    @computed_once
    def objects(self) -> tuple[tuple[str, Mapping[str, object]], ...]:
        """Every object within the receipt with its path, the outermost first."""
        return tuple(find_objects(self.document))


_CONTAINERS = frozenset({dict, list})


def find_objects(value: object, path: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
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


@dataclass(frozen=True)
class Submission:
    """A receipt with its evidence and its folded profile, as they were handed in.

    ``receipt_sha256`` and ``folded_sha256`` are digests of the raw bytes. The folded profile is
    None if it was not given. ``suspicions`` are the codes of suspicions that it raised. Values
    that several rules use are computed once.
    """

    claim: Claim
    receipt_sha256: str
    evidence: Evidence
    folded: Folded | None = None
    folded_sha256: str | None = None
    suspicions: tuple[str, ...] = ()

    @computed_once
    def timed(self) -> tuple[Run, ...]:
        """The runs that supply the figures."""
        return self.evidence.timed

    @computed_once
    def timed_blocks(self) -> tuple[Block, ...]:
        """The blocks of all timed runs."""
        return tuple([block for run in self.timed for block in run.blocks])

    @computed_once
    def profiled(self) -> tuple[Run, ...]:
        """The runs that were sampled."""
        return tuple([run for run in self.evidence.runs if run.role == "profiled"])

    @computed_once
    def has_reports(self) -> bool:
        """Whether the engine reported figures or kernels of some run."""
        return any(run.reported for run in self.evidence.runs)

    @computed_once
    def rate(self) -> Rate | None:
        """The rate that follows from the token times; None if they give none."""
        return rate_of(self.evidence.runs)

    @computed_once
    def in_windows(self) -> bool:
        """Whether the runs are windows of one server that was not started for each run."""
        return uses_running_server(self.evidence.workload)

    @computed_once
    def recomputed(self) -> tuple[Metric, ...]:
        """The metrics that follow from the timed runs; none if these give no rate."""
        if self.rate is None or not all(map(has_tokens, self.timed)):
            return ()
        found = figures(
            self.timed,
            self.evidence.clock_scope,
            None,
            with_zero_times=True,
            rate=self.rate,
            prefill_rate=value_of(self.evidence.metrics, "prefill_tokens_per_second"),
        )
        return found + kernel_rates(self.evidence.workload, found)

    @computed_once
    def has_exact_metrics(self) -> bool:
        """Whether the evidence lists each metric that follows from the runs, and no other one."""
        return bool(self.recomputed) and self.recomputed == self.evidence.metrics

    @computed_once
    def cores(self) -> int | None:
        """The number of cores that the evidence states; None if it states none."""
        cores = self.evidence.machine.get("cpu_cores", "")
        return int(cores) if cores.isascii() and cores.isdigit() and len(cores) < 7 else None

    def max_parallelism(self, run: Run) -> int | None:
        """Return how many threads of ``run`` can have computed at once; None if unknown.

        Threads were counted at one moment and without the program's children, so the number of
        cores is the bound. A server that ran before may have more cores than its observer.
        """
        if self.cores is not None:
            return max(1, self.cores, (run.threads or 0) if self.in_windows else 0)
        is_counted = run.threads is not None and self.evidence.clock_scope == "sequence"
        return max(1, run.threads or 0) if is_counted else None


def has_tokens(run: Run) -> bool:
    """Whether each sequence of ``run`` has tokens, and some are judged."""
    # A program's decode states how many were judged, also in a block without a sequence.
    return 0 not in run.lengths and min(run.tokens, run.judged_tokens) > 0


def identify_metric(metric: Metric) -> tuple[str, str]:
    """Return the identity of a metric: its name, and for an engine's figure also its source."""
    return metric.name, metric.formula if of_engine(metric) else ""


@dataclass(frozen=True, slots=True)
class Folded:
    """Samples in all, by leaf, and by name anywhere in a stack; ``problem`` if it is no profile."""

    samples: int
    self_samples: Mapping[str, int]
    inclusive_samples: Mapping[str, int]
    frames: frozenset[Frame] = frozenset()
    problem: str | None = None


def read_folded(data: bytes) -> Folded:
    """Count the samples of the folded text ``data``; never raises."""
    # Imported here because the profile room loads an adapter for each profiler.
    from pytest_flamegate.profile.frames import parse_folded

    try:
        stacks = parse_folded(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Folded(0, {}, {}, problem=f"The folded profile is not UTF-8 at byte {error.start}.")
    except ReceiptError as error:
        return Folded(0, {}, {}, problem=error.problem)
    own, inclusive, _ = count_by_name(stacks)
    return Folded(sum(stacks.values()), own, inclusive, frozenset().union(*stacks))
