"""The types of a receipt (the claim) and of its evidence (what the observer measured).

Annotations are the validation: ``core.json`` decodes these types, and the schemas in
``schemas/`` are generated from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from pytest_flamegate.bricks.record import BrickRun
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.git import Commit
from pytest_flamegate.core.json import Count, NonEmpty, Positive, Sha256, Share, Timestamp
from pytest_flamegate.observe.build import Program
from pytest_flamegate.observe.gpu import ObservedDevices
from pytest_flamegate.observe.observation import ClockScope, Run
from pytest_flamegate.profile.model import Covers, Hotspot


class Grade(IntEnum):
    """The grades, lowest first; missing evidence only lowers the grade.

    REPLAYED asks for a replay, which is run apart from the verifying. ATTESTED says who answers for
    the observation; it does not mean that it was replayed.
    """

    SELF_REPORTED = 1
    CONSISTENT = 2
    OBSERVED = 3
    REPLAYED = 4
    ATTESTED = 5

    @classmethod
    def parse(cls, name: str) -> Grade:
        """Return the grade called ``name`` in any case; UsageError for any other name."""
        try:
            return cls[name.strip().upper().replace("-", "_")]
        except KeyError:
            known = ", ".join(grade.name for grade in cls)
            raise UsageError(
                "E_UNKNOWN_GRADE", f"There is no grade {name!r}.", f"Choose one of {known}."
            ) from None

    @property
    def ceiling(self) -> str:
        """One sentence: what acceptance at this grade would prove, and no more."""
        return f"what a green answer would prove: {_PROOFS[self]}. Nothing more."

    @property
    def remedy(self) -> str:
        """How to reach this grade."""
        if self is Grade.ATTESTED:
            return "Have it signed with flamegate sign and give the signer's public key."
        if self is Grade.REPLAYED:
            return "Run it again here and let that hold: add --replay. Or ask for less."
        return "Keep evidence.json and profile.folded beside the receipt, or ask for less."


_PROOFS = {
    Grade.SELF_REPORTED: "nothing: it breaks a rule or cannot be read",
    Grade.CONSISTENT: (
        "this receipt is well-formed and does not contradict itself; its figures are unverified "
        "claims of its author"
    ),
    Grade.OBSERVED: (
        "these numbers were observed by flamegate on a machine whose owner is trusted"
    ),
    Grade.REPLAYED: (
        "these figures were obtained again here, by the same program and model: the same tokens, "
        "and a rate within the reported interval; nothing finer than that interval, and "
        "nothing about the profile"
    ),
    Grade.ATTESTED: (
        "the holder of a trusted key says that flamegate observed these numbers; a signature "
        "proves who said it, not that it happened, and an old signed receipt that is shown again "
        "is only refused by its age (--max-age)"
    ),
}

VerdictName = Literal[
    "pass",
    "improved",
    "regressed",
    "inconclusive",
    "not_comparable",
    "no_baseline",
    "dishonest",
    "error",
]

SCHEMA_VERSION = "1.0.0"

Provenance = Literal["measured", "sampled", "counted", "ingested", "derived"]
Direction = Literal["higher_is_better", "lower_is_better"]
Clock = Literal["wall", "quiet", "cpu", "instructions"]
KernelName = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"\S", description="a name that is not blank")
]


@dataclass(frozen=True, slots=True)
class Receipt:
    """A claim about one workload's performance, schema 1.0.0.

    ``schemas/receipt-1.0.0.schema.json`` is the contract and accepts more than is written here:
    its version 1.1.0, a backend in any case, other fields. See ``decode_receipt``.

    Attributes:
        timestamp: When the run ended.
        backend: ``cuda`` only if a device and a kernel show that a GPU computed.
        deterministic: Whether every sequence of the run had the same tokens.
        tokens_requested: Tokens asked for.
        tokens_generated: Tokens generated, at most as many as were asked for.
        tokens_per_second: Tokens per second of wall time.
        kernels: Names that the profile or the engine reported.
        environment: What it ran on; ``OS`` is always there.
        model: What identifies the model; ``path`` is always there.
        compute_path: Only real inference makes a receipt.
        schema_version: The version that the receipt follows.
    """

    timestamp: Timestamp
    backend: Literal["cpu", "cuda"]
    deterministic: bool
    tokens_requested: Positive
    tokens_generated: Positive
    tokens_per_second: Annotated[float, Meta(gt=0)]
    kernels: Annotated[tuple[KernelName, ...], Meta(min_length=1, max_length=10_000)]
    environment: Mapping[str, str]
    model: Mapping[str, str | int]
    compute_path: Literal["real"] = "real"
    schema_version: Literal["1.0.0", "1.0", "1.1.0"] = "1.0.0"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure with everything needed to compare it.

    Attributes:
        name: Its name, which different tools use for different formulas.
        value: Its value, in ``unit``.
        formula: The id of the formula, see ``receipt/formulas.py``.
        unit: Its unit.
        direction: Which way is better.
        clock: The clock behind it; instructions are counted and are no time.
        samples: How many samples it was computed from.
        provenance: How it came about; derived and ingested figures are never gated.
    """

    name: NonEmpty
    value: float
    formula: str
    unit: str
    direction: Direction
    clock: Clock
    samples: Count
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class ProcessProfile:
    """The samples of one profiled process.

    Attributes:
        pid: Process id of a profiled run.
        samples: Samples taken in it.
        self_samples: Samples by the name of the leaf frame.
        started_ticks: Start of the process in clock ticks since boot, None if unknown.
    """

    pid: Positive
    samples: Count
    self_samples: Mapping[str, Count]
    started_ticks: Count | None = None


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """How the profile was taken, and what it contains.

    Attributes:
        profiler: Name of the profiler.
        profiler_version: Its version.
        event: The event sampled, as the profiler names it.
        rate_hz: Samples per second asked for; 0 if nothing is sampled by time.
        call_graph: How stacks were unwound.
        python: Version of Python, whose frames differ between versions.
        covers: The phase that was sampled; shares and costs of ``hotspots`` are of it.
        samples: Samples in all stacks.
        errors: Samples that the profiler could not take.
        lost: Samples that were lost.
        completeness: Share of the samples whose stack reaches the workload's root.
        overhead_pct: Extra CPU per token of profiled runs over timed ones, in percent; None if it
            could not be measured.
        degraded: What makes this profile worth less.
        folded_sha256: SHA-256 of ``profile.folded``.
        processes: The profiled processes.
        hotspots: The hottest functions, hottest first.
        nonce: The nonce of the measurement it was taken in; None in older evidence.
    """

    profiler: str
    profiler_version: str
    event: str
    rate_hz: Count
    call_graph: str
    python: str
    covers: Covers
    samples: Count
    errors: Count
    lost: Count
    completeness: Share
    overhead_pct: float | None
    degraded: tuple[str, ...]
    folded_sha256: Sha256
    processes: tuple[ProcessProfile, ...]
    hotspots: tuple[Hotspot, ...]
    nonce: str | None = None


@dataclass(frozen=True, slots=True)
class KernelSighting:
    """Where a kernel was seen.

    Attributes:
        name: The name, as claimed in the receipt.
        source: The profiler saw it, or the engine reported it about itself.
        count: How often.
        told_by: The source of the engine's report; empty for the profile.
    """

    name: NonEmpty
    source: Literal["profile", "engine"]
    count: Count
    told_by: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """One measurement that a baseline rests on: means over its fresh processes.

    Attributes:
        nonce: The run's nonce.
        created: When it was measured.
        processes: How many timed processes it is the mean of.
        log_time: Natural logarithm of scheduler-adjusted seconds per token.
        log_time_ratio: The same over the seconds of the reference kernel; equal without one.
    """

    nonce: NonEmpty
    created: Timestamp
    processes: Positive
    log_time: float
    log_time_ratio: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the observer measured; it names the receipt by its SHA-256.

    Attributes:
        nonce: Random text made for this measurement, so that no other run's files fit.
        created: When the evidence was written.
        flamegate_version: Version of the observer.
        receipt_sha256: SHA-256 of the receipt's bytes; empty if no receipt was written.
        workload: The recipe: everything needed to run the workload again.
        model_sha256: SHA-256 of the model file, of all parts of a split one in order.
        model: What the model file's header says.
        machine: The identity that comparisons require to be equal.
        commit: The revision measured; None outside a repository.
        requested_environment: Variables for determinism as the workload asked for them.
        effective_environment: The same as the process had them, and others known to change speed.
        tokens: The output of one sequence, each token as text.
        token_digest: SHA-256 over those tokens, each as UTF-8 text and a newline.
        token_source: Where the tokens were read.
        differs_at: Index of the first token in which a later sequence differed, None if all agree.
        clock_scope: What an interval covers: prefill and decode, or a whole process.
        runs: Every run, timed and profiled.
        metrics: The figures computed from the runs.
        profile: The profile; None if no profiler ran.
        kernels: Where the claimed kernels were seen.
        side: The side of a comparison in pairs; None if measured alone.
        device: What was seen of GPUs; None if they were not inspected.
        redacted: Places whose text looked like a secret and was replaced.
        program: The program that ran; None if it is no file.
        differs_to: The token that the later sequence had at ``differs_at``; None if it had ended.
        engine: What the engine reports about itself, such as the version of its library.
        bricks: The processes whose bricks were clocked, each a run with the role ``bricks``.
        schema_version: The version of this schema.
    """

    nonce: Annotated[str, Meta(min_length=8)]
    created: Timestamp
    flamegate_version: str
    receipt_sha256: Annotated[
        str,
        Meta(
            pattern=r"^(?:[0-9a-f]{64})?(?![\s\S])",
            description="64 lower-case hexadecimal digits or empty",
        ),
    ]
    workload: Mapping[str, object]
    model_sha256: Sha256 | None
    model: Mapping[str, str | int]
    machine: Annotated[Mapping[str, str], Meta(min_length=1)]
    commit: Commit | None
    requested_environment: Mapping[str, str]
    effective_environment: Mapping[str, str]
    tokens: tuple[str, ...]
    token_digest: Sha256
    token_source: str
    differs_at: Count | None
    clock_scope: ClockScope
    runs: Annotated[tuple[Run, ...], Meta(min_length=1)]
    metrics: tuple[Metric, ...]
    profile: ProfileRecord | None
    kernels: tuple[KernelSighting, ...]
    side: Literal["base", "head"] | None = None
    device: ObservedDevices | None = None
    redacted: tuple[str, ...] = ()
    program: Program | None = None
    differs_to: str | None = None
    engine: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    bricks: tuple[BrickRun, ...] = ()
    schema_version: Literal["1.0.0"] = "1.0.0"

    @property
    def text(self) -> str:
        """The generated text; empty for the rounds of a benchmark."""
        if self.token_source == "called:round":
            return ""
        if self.token_source.endswith(":byte") and all(
            each.isdecimal() and each.isascii() and int(each) < 256 for each in self.tokens
        ):
            return bytes(map(int, self.tokens)).decode("utf-8", "replace")
        return "".join(self.tokens)
