"""The types of a receipt (the claim) and of its evidence (what the observer measured).

Annotations are the validation: ``core.json`` decodes these types. The schemas in ``schemas/``
describe each field with its unit; the docstrings here add only how fields are obtained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta, Struct

from pytest_flamegate.bricks.record import BrickRun
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.git import Commit
from pytest_flamegate.core.json import Count, NonEmpty, Positive, Sha256, Share, Timestamp
from pytest_flamegate.observe.build import Program
from pytest_flamegate.observe.gpu import ObservedDevices
from pytest_flamegate.observe.observation import Answer, ClockScope, Run
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
                "E_BAD_OPTION", f"There is no grade {name!r}.", f"Choose one of {known}."
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
        "is only rejected by its age (--max-age)"
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

Side = Literal["base", "head"]
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

    ``backend`` is ``cuda`` only if a device and a kernel show that a GPU computed.
    ``deterministic`` says that every sequence of the run had the same tokens.
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


class Metric(Struct, frozen=True, gc=False):
    """One figure with everything needed to compare it.

    ``formulas.toml`` explains each ``formula``: tools use one name for different ones. Derived and
    ingested figures are never gated.
    """

    name: NonEmpty
    value: float
    formula: str
    unit: str
    direction: Direction
    clock: Clock
    samples: Count
    provenance: Literal["measured", "counted", "ingested", "derived"]


@dataclass(frozen=True, slots=True)
class ProcessProfile:
    """The samples of one profiled process, in ``self_samples`` by the name of the leaf frame."""

    pid: Positive
    samples: Count
    self_samples: Mapping[str, Count]
    started_ticks: Count | None = None


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """How the profile was taken, and what it contains.

    Shares and costs of ``hotspots`` are of the phase that the profile ``covers``. ``overhead_pct``
    is None if the extra CPU time per token of profiled runs could not be measured.
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
    """Where a kernel was seen; ``told_by`` is the source of an engine's report."""

    name: NonEmpty
    source: Literal["profile", "engine"]
    count: Count
    told_by: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the observer measured; it names the receipt by its SHA-256.

    Fields with a default are missing in older evidence.
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
    side: Side | None = None
    device: ObservedDevices | None = None
    redacted: tuple[str, ...] = ()
    program: Program | None = None
    differs_to: str | None = None
    engine: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    bricks: tuple[BrickRun, ...] = ()
    answers: tuple[Answer, ...] = ()
    schema_version: Literal["1.0.0"] = "1.0.0"

    @property
    def timed(self) -> tuple[Run, ...]:
        """The runs that no profiler touched."""
        return tuple(run for run in self.runs if run.role == "timed")

    def expected_digest(self, run: Run) -> str | None:
        """Return the digest of the run's last sequence if equal prompts give equal tokens.

        None if no answer to its prompt is known.
        """
        if not run.prompts:
            return self.token_digest
        known = (each.digest for each in self.answers if each.prompt == run.prompts[-1])
        return next(known, None)

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
