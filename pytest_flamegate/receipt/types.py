"""What is claimed (the receipt) and what was seen (the evidence)."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.bricks.record import BrickRun
    from pytest_flamegate.core.git import Commit
    from pytest_flamegate.observe.build import Program
    from pytest_flamegate.observe.gpu import DevicesSeen
    from pytest_flamegate.observe.observation import Run
    from pytest_flamegate.profile.model import Covers, Hotspot


SCHEMA_VERSION = "1.0.0"

Provenance = Literal["measured", "sampled", "counted", "ingested", "derived"]
Direction = Literal["higher_is_better", "lower_is_better"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """A claim about one workload's performance, schema v1.0.0.

    ``kernels`` are names that the profile or the engine showed. ``environment`` maps
    names to strings; ``model`` holds at least ``path``.
    """

    timestamp: str
    backend: Literal["cpu", "cuda"]
    deterministic: bool
    tokens_requested: int
    tokens_generated: int
    tokens_per_second: float
    kernels: tuple[str, ...]
    environment: Mapping[str, str]
    model: Mapping[str, str | int]
    compute_path: Literal["real"] = "real"
    schema_version: str = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure with everything needed to compare it: formula, unit, direction, clock."""

    name: str
    value: float
    formula: str
    unit: str
    direction: Direction
    clock: Literal["wall", "quiet", "cpu", "instructions"]
    samples: int
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class ProcessProfile:
    """One profiled process: self samples by frame name, of ``samples`` in all.

    ``started_ticks`` is its start in clock ticks since boot, None where it was not seen.
    """

    pid: int
    samples: int
    self_samples: Mapping[str, int]
    started_ticks: int | None = None


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """How the profile was taken, what it holds, and the sha256 of ``profile.folded``.

    ``overhead_pct`` is the extra CPU per token of the profiled runs over the timed
    ones, in percent (None where it could not be measured). ``covers`` is the phase that was
    sampled; the shares and costs of ``hotspots`` are of it. ``nonce`` is that of the
    measurement it was taken in, None in evidence that was written before it was kept.
    """

    profiler: str
    profiler_version: str
    event: str
    rate_hz: int
    call_graph: str
    python: str
    covers: Covers
    samples: int
    errors: int
    lost: int
    completeness: float
    overhead_pct: float | None
    degraded: tuple[str, ...]
    folded_sha256: str
    processes: tuple[ProcessProfile, ...]
    hotspots: tuple[Hotspot, ...]
    nonce: str | None = None


@dataclass(frozen=True, slots=True)
class KernelSighting:
    """Where a kernel was seen: ``profile`` or ``engine``, and how often.

    ``told_by`` names the engine's report that it stands in, empty for the profile.
    """

    name: str
    source: Literal["profile", "engine"]
    count: int
    told_by: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """One measurement that a baseline rests on: means over its fresh processes.

    ``log_time`` is the natural logarithm of quiet seconds per token, ``log_time_ratio`` the
    same over the reference kernel's seconds (equal to the first without one).
    """

    nonce: str
    created: str
    processes: int
    log_time: float
    log_time_ratio: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the observer saw; stands beside the receipt and names it by sha256.

    ``workload`` is the recipe (engine, prompt, command, …) as plain data; ``machine``
    the identity that comparisons hold on to; ``tokens`` the output of one sequence.
    ``side`` is that of a comparison in pairs, None where it was measured alone. ``device``
    is what was seen of GPUs, empty where none was there; None where nobody looked. ``redacted``
    are the places where text was replaced because it looked like a secret. ``program`` is the
    program that ran, None where no file is it or none was told. ``differs_to`` is the token
    that the later sequence had at ``differs_at``, None where it had ended by then. ``engine`` is
    what the engine says that it is: the version of its library, how it was built. ``bricks`` are
    the processes whose bricks were clocked, each one of ``runs`` with the role ``bricks``.
    """

    nonce: str
    created: str
    flamegate_version: str
    receipt_sha256: str
    workload: Mapping[str, object]
    model_sha256: str | None
    model: Mapping[str, str | int]
    machine: Mapping[str, str]
    commit: Commit | None
    requested_environment: Mapping[str, str]
    effective_environment: Mapping[str, str]
    tokens: tuple[str, ...]
    token_digest: str
    token_source: str
    differs_at: int | None
    clock_scope: Literal["sequence", "process"]
    runs: tuple[Run, ...]
    metrics: tuple[Metric, ...]
    profile: ProfileRecord | None
    kernels: tuple[KernelSighting, ...]
    side: Literal["base", "head"] | None = None
    device: DevicesSeen | None = None
    redacted: tuple[str, ...] = ()
    program: Program | None = None
    differs_to: str | None = None
    engine: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    bricks: tuple[BrickRun, ...] = ()
    schema_version: str = SCHEMA_VERSION
