"""Compose the evidence of an observation, and the receipt that claims its figures."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_flamegate.bricks.record import BrickRun
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.clocks import utc_now
from pytest_flamegate.core.git import Commit
from pytest_flamegate.observe.build import InspectedProgram
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.observe.redact import redact_environment
from pytest_flamegate.profile.frames import fold_profile
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.model import Hotspot, Profile
from pytest_flamegate.receipt.metrics import cost_of, figures, kernel_rates, tokens_per_second
from pytest_flamegate.receipt.policies import policy_of_engine
from pytest_flamegate.receipt.reported import MAX_KERNELS, claimed_kernels, engine_kernels
from pytest_flamegate.receipt.rules.claim import find_random_setting
from pytest_flamegate.receipt.types import (
    Evidence,
    KernelSighting,
    Metric,
    ProcessProfile,
    ProfileRecord,
    Receipt,
    Side,
)


def backend_of(evidence: Evidence) -> Literal["cpu", "cuda"]:
    """Return ``cuda`` only if a device and a kernel both show that a GPU computed, else ``cpu``.

    Device nodes, kernel driver and NVML must agree, every timed run must have computed on the
    device, and the profile or the engine must name a kernel that shows GPU compute under the
    engine's kernel policy. A profiler of the CPU may see no GPU kernel; then the claim stays
    ``cpu``, and its grade is lowered by ``W_DEVICE_BUSY``.
    """
    seen = evidence.device
    if seen is None or any(seen.find_missing()) or any(seen.find_contradictions()):
        return "cpu"
    timed = len(evidence.timed)
    if not timed or sum(run.active for run in seen.runs) < timed:
        return "cpu"
    policy = policy_of_engine(str(evidence.workload["engine"]))
    gpu = any(policy.roles(sighting.name).shows_gpu_compute for sighting in evidence.kernels)
    return "cuda" if gpu else "cpu"


KERNEL_CATEGORIES = frozenset({"matmul", "quantisation", "attention", "norm"})
KERNEL_FLOOR = 0.001


@dataclass(frozen=True, slots=True)
class Subject:
    """The model, machine, code and tool of a measurement, apart from its runs.

    ``counted`` are figures that were counted in runs of their own. ``program`` is the program as
    it was before anything ran.
    """

    workload: Workload
    model: Mapping[str, str | int]
    machine: Mapping[str, str]
    commit: Commit | None
    flamegate_version: str
    prompt_tokens: int | None
    side: Side | None = None
    counted: tuple[Metric, ...] = ()
    program: InspectedProgram | None = None


def compose(
    subject: Subject,
    seen: Observation,
    profiles: Sequence[Profile],
    pooled: Profile | None,
    overhead_pct: float | None,
    bricks: Sequence[BrickRun] = (),
) -> tuple[Receipt | None, Evidence]:
    """Return the receipt and its evidence, whose ``receipt_sha256`` is still empty.

    Without a profile there is no receipt, because no kernel was observed.
    """
    found = figures(seen.timed, seen.clock_scope, subject.prompt_tokens)
    record = None
    sightings: tuple[KernelSighting, ...] = ()
    stated = recipe(subject.workload)
    if pooled is not None:
        spots = rank_hotspots(pooled, cost_of(pooled.covers, found))
        record = ProfileRecord(
            profiler=pooled.profiler,
            profiler_version=pooled.profiler_version,
            event=pooled.event,
            rate_hz=pooled.rate_hz,
            call_graph=pooled.call_graph,
            python=pooled.python,
            covers=pooled.covers,
            samples=pooled.samples,
            errors=pooled.errors,
            lost=pooled.lost,
            completeness=pooled.completeness,
            overhead_pct=overhead_pct,
            degraded=pooled.degraded,
            folded_sha256=hashlib.sha256(fold_profile(pooled).encode()).hexdigest(),
            processes=tuple(process_profile(profile) for profile in profiles),
            hotspots=spots,
            nonce=seen.nonce,
        )
        sightings = kernels(spots)
    reported = engine_kernels(seen.runs, {sighting.name for sighting in sightings})
    model_sha256 = subject.model.get("sha256")
    evidence = Evidence(
        nonce=seen.nonce,
        created=utc_now(),
        flamegate_version=subject.flamegate_version,
        receipt_sha256="",
        workload=stated,
        model_sha256=str(model_sha256) if model_sha256 else None,
        model=subject.model,
        machine=subject.machine,
        commit=subject.commit,
        requested_environment=seen.requested_environment,
        effective_environment=seen.effective_environment,
        tokens=seen.tokens,
        token_digest=seen.token_digest,
        token_source=seen.token_source,
        differs_at=seen.differs_at,
        clock_scope=seen.clock_scope,
        runs=seen.runs,
        metrics=(*found, *kernel_rates(stated, found), *subject.counted),
        profile=record,
        kernels=(*sightings, *reported),
        side=subject.side,
        device=seen.device,
        program=subject.program.program if subject.program else None,
        differs_to=seen.differs_to,
        engine=seen.engine,
        bricks=tuple(bricks),
        answers=seen.answers,
    )
    if not sightings:
        return None, evidence
    return _compose_receipt(subject, seen, evidence), evidence


def kernels(spots: Sequence[Hotspot]) -> tuple[KernelSighting, ...]:
    """Return the functions of the profile that compute; the hottest ones if none is known."""
    chosen = _select_known_kernels(spots) or [s for s in spots if s.self_samples > 0]
    return tuple(
        KernelSighting(spot.name, "profile", spot.self_samples) for spot in chosen[:MAX_KERNELS]
    )


def _select_known_kernels(spots: Sequence[Hotspot]) -> list[Hotspot]:
    return [s for s in spots if s.category in KERNEL_CATEGORIES and s.self_share >= KERNEL_FLOOR]


_STATED = (
    *("name", "engine", "prompt", "max_tokens", "source", "seed", "threads", "token_unit"),
    *("timeout_s", "target", "model", "tokenizer"),
)


def recipe(workload: Workload) -> dict[str, object]:
    """Return everything needed to run the workload again, as plain data."""
    stated = {name: getattr(workload, name) for name in _STATED}
    found = {name: value for name, value in stated.items() if value is not None}
    found |= {
        "command": list(workload.command),
        "build": list(workload.build),
        "env": redact_environment(workload.env),
    }
    if workload.prompts:
        del found["prompt"]
        found["prompts"] = list(workload.prompts)
    found |= workload.options
    if workload.injection is not None:
        found["injection"] = f"{workload.injection.frame}:+{workload.injection.extra_pct:g}%"
    return found


def _compose_receipt(subject: Subject, seen: Observation, evidence: Evidence) -> Receipt:
    rate = tokens_per_second(seen.runs)
    backend = backend_of(evidence)
    environment = {
        **seen.effective_environment,
        "FLAMEGATE_ENGINE": subject.workload.engine,
        "FLAMEGATE_VERSION": subject.flamegate_version,
        "OS": f"{subject.machine.get('os', '')}-{subject.machine.get('arch', '')}",
    }
    if "python" in subject.machine:
        environment["PYTHON_VERSION"] = subject.machine["python"]
    return Receipt(
        timestamp=evidence.created,
        backend=backend,
        deterministic=seen.differs_at is None
        and len(seen.runs) > 1
        and find_random_setting(environment) is None,
        tokens_requested=subject.workload.max_tokens,
        tokens_generated=len(seen.tokens),
        tokens_per_second=rate.value,
        kernels=claimed_kernels(
            evidence.kernels,
            named_by_profile=evidence.profile is not None
            and bool(_select_known_kernels(evidence.profile.hotspots)),
            backend=backend,
            policy=policy_of_engine(subject.workload.engine),
        ),
        environment=dict(sorted(environment.items())),
        model=subject.model,
    )


def process_profile(profile: Profile) -> ProcessProfile:
    """Count the samples of one process by leaf frame, without its call stacks.

    A verifier recomputes the spread between processes from these records.
    """
    own = {
        spot.name: spot.self_samples for spot in rank_hotspots(profile, None) if spot.self_samples
    }
    started_ticks = profile.started_ticks[0] if profile.started_ticks else None
    return ProcessProfile(profile.pids[0], profile.samples, own, started_ticks)
