"""Small consistent measurements for tests: a receipt, its evidence, its folded profile.

Nothing here is random or read from a clock, so equal arguments give equal bytes.
"""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.git import Commit
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.observe.observation import Block, Observation, Role, Run
from pytest_flamegate.profile.model import Hotspot
from pytest_flamegate.receipt.compose import encode_evidence, encode_receipt
from pytest_flamegate.receipt.metrics import cost_of, engine_kernels, figures, metrics, overhead_pct
from pytest_flamegate.receipt.types import (
    Evidence,
    KernelSighting,
    ProcessProfile,
    ProfileRecord,
    Receipt,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


CREATED = "2025-10-13T12:00:00Z"
MODEL_SHA256 = hashlib.sha256(b"model").hexdigest()
SHARES = {"ternary_gemv": 0.72, "quantize": 0.16, "attention": 0.08, "rms_norm": 0.04}
RATE_HZ = 100
PROFILED_S = 2.0
PROMPT_TOKENS = 5
BOOT_TICKS = 100_000
SETUP_S = 0.25
"""What a run takes beyond its blocks: to load, to warm up, to end."""


@dataclass(frozen=True, slots=True)
class Triple:
    """One measurement. ``sealed`` has the digests that bind its three parts together."""

    receipt: Receipt
    evidence: Evidence
    folded: bytes

    @property
    def files(self) -> dict[str, bytes]:
        """The three files by name, exactly as the parts stand."""
        return {
            "receipt.json": encode_receipt(self.receipt),
            "evidence.json": encode_evidence(self.evidence),
            "profile.folded": self.folded,
        }

    def sealed(self) -> Triple:
        """Return this measurement with the digests of receipt and profile put right."""
        evidence = self.evidence
        if evidence.profile is not None:
            folded_sha256 = hashlib.sha256(self.folded).hexdigest()
            evidence = replace(
                evidence, profile=replace(evidence.profile, folded_sha256=folded_sha256)
            )
        receipt_sha256 = hashlib.sha256(encode_receipt(self.receipt)).hexdigest()
        return replace(self, evidence=replace(evidence, receipt_sha256=receipt_sha256))

    def with_receipt(self, **changes: Any) -> Triple:
        """Return a sealed copy with other receipt fields."""
        return replace(self, receipt=replace(self.receipt, **changes)).sealed()

    def with_evidence(self, **changes: Any) -> Triple:
        """Return a sealed copy with other evidence fields."""
        return replace(self, evidence=replace(self.evidence, **changes)).sealed()

    def with_profile(self, **changes: Any) -> Triple:
        """Return a sealed copy with other fields of the profile's record."""
        assert self.evidence.profile is not None
        return self.with_evidence(profile=replace(self.evidence.profile, **changes))

    def with_run(self, index: int, **changes: Any) -> Triple:
        """Return a sealed copy in which one run has other fields."""
        runs = list(self.evidence.runs)
        runs[index] = replace(runs[index], **changes)
        return self.with_evidence(runs=tuple(runs))

    def remeasured(self) -> Triple:
        """Return a sealed copy whose metrics, rate and costs are those of its runs and shares."""
        seen = self.evidence
        found = figures(
            [run for run in seen.runs if run.role == "timed"], seen.clock_scope, PROMPT_TOKENS
        )
        profile = seen.profile
        if profile is not None:
            cost_s = cost_of(profile.covers, found)
            spots = (_costing(spot, cost_s) for spot in profile.hotspots)
            extra_pct = overhead_pct(seen.runs, seen.clock_scope)
            profile = replace(profile, hotspots=tuple(spots), overhead_pct=extra_pct)
        evidence = replace(seen, metrics=found, profile=profile)
        receipt = replace(self.receipt, tokens_per_second=found[0].value)
        return Triple(receipt, evidence, self.folded).sealed()

    def telling(
        self,
        source: str = "llama.cpp:perf",
        *,
        kernels: Mapping[str, int] | None = None,
        counted: int = -1,
        **figures: float,
    ) -> Triple:
        """Return a sealed copy whose engine reports on every timed sequence, as it was.

        It counts ``counted`` tokens more than were observed; ``figures`` stand beside or in place
        of what follows from the token times. ``kernels`` ran as often in each sequence.
        """
        runs = tuple(
            replace(
                run,
                reported=(
                    *run.reported,
                    *(
                        Report(source, {**_figures(gaps, counted), **figures}, kernels or {})
                        for block in run.blocks
                        for gaps in block.sequences_ns
                    ),
                ),
            )
            if run.role == "timed"
            else run
            for run in self.evidence.runs
        )
        shown = tuple(each for each in self.evidence.kernels if each.source == "profile")
        told = engine_kernels(runs, {each.name for each in shown})
        return self.with_evidence(runs=runs, kernels=(*shown, *told)).remeasured()

    def write(self, directory: Path) -> Path:
        """Write the three files into ``directory``; return the receipt's path."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (directory / name).write_bytes(data)
        return directory / "receipt.json"


def build(
    *,
    engine: str | None = None,
    token_ns: int = 1_950_000,
    tokens: tuple[str, ...] = ("32", "52", "46", "10"),
    timed: int = 3,
    profiled: int = 2,
    blocks: int = 2,
    sequences: int = 3,
    jitter: float = 0.02,
    seed: int = 0,
    created: str = CREATED,
    clock_scope: Literal["sequence", "process"] = "sequence",
    shares: Mapping[str, float] = SHARES,
    deterministic: bool = True,
) -> Triple:
    """Return a consistent measurement that verifies as OBSERVED.

    ``engine`` is by default one that is clocked as ``clock_scope`` says.

    ``token_ns`` is the mean gap between tokens in nanoseconds, ``jitter`` its relative
    spread, ``shares`` the self share of each function (module ``kernels.py``).
    """
    program = clock_scope == "process"
    engine = engine or ("command" if program else "embedded")
    source = random.Random(seed)
    length = len(tokens)
    per_profiled = max(1, math.ceil(PROFILED_S * 1e9 / (token_ns * (length + 2))))

    def run(index: int, role: Role) -> Run:
        count = sequences if role == "timed" else per_profiled
        repeats = blocks if role == "timed" else 1
        return Run(
            role=role,
            pid=4000 + index,
            started_ticks=None,
            started_at=created,
            load_ns=30_000_000,
            blocks=tuple(
                _block(
                    source,
                    count,
                    length,
                    token_ns,
                    jitter,
                    reference=role == "timed",
                    program=program,
                )
                for _ in range(repeats)
            ),
            token_digest=token_digest(tokens),
            tokens_per_sequence=length,
            peak_rss_bytes=36 << 20,
            read_bytes=1 << 20,
            threads=1,
            voluntary_switches=12,
            involuntary_switches=3,
            cpu_pressure_pct=0.4,
        )

    runs = _one_after_another(
        tuple(run(index, "timed") for index in range(timed))
        + tuple(run(timed + index, "profiled") for index in range(profiled)),
        created,
    )
    environment = {"BITNET_DETERMINISTIC": "1", "BITNET_SEED": "42", "OPENBLAS_NUM_THREADS": "1"}
    observation = Observation(
        nonce=f"{seed:032x}",
        runs=runs,
        tokens=tokens,
        token_digest=token_digest(tokens),
        token_source="yielded:byte",
        differs_at=None,
        clock_scope=clock_scope,
        requested_environment=environment,
        effective_environment=environment,
    )
    found = metrics(observation, PROMPT_TOKENS)
    profile, folded = _profile(runs, shares, observation.nonce, program=program)
    evidence = Evidence(
        nonce=observation.nonce,
        created=created,
        flamegate_version="0.1.0",
        receipt_sha256="",
        workload={
            "name": "4tok",
            "engine": engine,
            "prompt": "2+2=",
            "max_tokens": length,
            "command": ("./engine",) if program else (),
            "target": "toy:generate",
        },
        model_sha256=MODEL_SHA256,
        model={"path": "models/tiny.gguf", "sha256": MODEL_SHA256, "size_bytes": 454_000},
        machine={"cpu_model": "AMD EPYC", "cpu_cores": "2", "os": "linux"},
        commit=Commit("4f2c91a0c2d1f6b7a8e9d0c1b2a3948576e5d4c3", "main", 0),
        requested_environment=environment,
        effective_environment=environment,
        tokens=tokens,
        token_digest=observation.token_digest,
        token_source=observation.token_source,
        differs_at=None,
        clock_scope=clock_scope,
        runs=runs,
        metrics=found,
        profile=profile,
        kernels=tuple(
            KernelSighting(spot.name, "profile", spot.self_samples)
            for spot in profile.hotspots
            if spot.self_samples
        ),
    )
    receipt = Receipt(
        timestamp=created,
        backend="cpu",
        deterministic=deterministic,
        tokens_requested=length,
        tokens_generated=length,
        tokens_per_second=found[0].value,
        kernels=tuple(sighting.name for sighting in evidence.kernels),
        environment={
            **environment,
            "FLAMEGATE_ENGINE": engine,
            "FLAMEGATE_VERSION": "0.1.0",
            "OS": "linux-x86_64",
        },
        model=evidence.model,
    )
    return Triple(receipt, evidence, folded).remeasured()


def _figures(gaps: Sequence[int], counted: int) -> dict[str, float]:
    """Return what an engine that computed these token times would print, to the microsecond."""
    prefill_ms, decode_ms = (round(sum(part) / 1e6, 3) for part in (gaps[:1], gaps[1:]))
    return {
        "tokens": len(gaps) + counted,
        "prompt_tokens": PROMPT_TOKENS,
        "prefill_ms": prefill_ms,
        "decode_ms": decode_ms,
        "total_ms": prefill_ms + decode_ms,
    }


def _one_after_another(runs: tuple[Run, ...], created: str) -> tuple[Run, ...]:
    """Date the runs: each ends before the next begins, and the last before ``created``."""
    lasted_s = [sum(interval.wall_ns for interval in _spent(run)) / 1e9 + SETUP_S for run in runs]
    end = datetime.fromisoformat(created)
    dated = []
    for index, run in enumerate(runs):
        before_s = sum(lasted_s[:index])
        started_at = end - timedelta(seconds=sum(lasted_s) - before_s)
        told = started_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        dated.append(
            replace(run, started_ticks=BOOT_TICKS + round(before_s * 100), started_at=told)
        )
    return tuple(dated)


def _spent(run: Run) -> Iterator[Interval]:
    for block in run.blocks:
        yield block.interval
        if block.reference is not None:
            yield block.reference


def _costing(spot: Hotspot, cost_s: float | None) -> Hotspot:
    return replace(spot, cpu_s_per_token=None if cost_s is None else spot.self_share * cost_s)


def _block(
    source: random.Random,
    count: int,
    length: int,
    token_ns: int,
    jitter: float,
    *,
    reference: bool,
    program: bool,
) -> Block:
    def gap(scale: int = 1) -> int:
        return round(scale * token_ns * (1 + jitter * source.uniform(-1, 1)))

    sequences = tuple((gap(3), *(gap() for _ in range(length - 1))) for _ in range(count))
    wall_ns = sum(map(sum, sequences)) + 10_000 * count
    spent = Interval(wall_ns, round(wall_ns * 0.98), round(wall_ns * 0.01))
    kernel = Interval(900_000 + source.randrange(1000), 890_000, 0) if reference else None
    decode = None
    if program and length > 1:
        decode_ns = sum(sum(gaps[1:]) for gaps in sequences) + 5_000 * count
        decode = Interval(decode_ns, round(decode_ns * 0.98), round(decode_ns * 0.01))
    return Block(spent, sequences, kernel, decode)


def _spot(name: str, module: str, own: int, inclusive: int, samples: int) -> Hotspot:
    return Hotspot(
        name=name,
        module=module,
        kind="python",
        category="other",
        self_samples=own,
        inclusive_samples=inclusive,
        self_share=own / samples,
        inclusive_share=inclusive / samples,
        cpu_s_per_token=None,
    )


def _profile(
    runs: tuple[Run, ...], shares: Mapping[str, float], nonce: str, *, program: bool
) -> tuple[ProfileRecord, bytes]:
    processes = []
    pooled: dict[str, int] = dict.fromkeys(shares, 0)
    for run in runs:
        if run.role == "profiled":
            seconds = sum(block.interval.wall_ns for block in run.blocks) / 1e9
            own = {name: int(share * seconds * RATE_HZ) for name, share in shares.items()}
            processes.append(ProcessProfile(run.pid, sum(own.values()), own, run.started_ticks))
            pooled = {name: pooled[name] + own[name] for name in shares}
    samples = sum(pooled.values())
    lines = sorted(
        f"main (serving.py);decode_step (transformer.py);{name} (kernels.py) {count}\n"
        for name, count in pooled.items()
        if count
    )
    counted = sorted(pooled.items(), key=lambda entry: -entry[1])
    hotspots = (
        *(_spot(name, "kernels.py", count, count, samples) for name, count in counted if count),
        _spot("decode_step", "transformer.py", 0, samples, samples),
        _spot("main", "serving.py", 0, samples, samples),
    )
    record = ProfileRecord(
        profiler="py-spy",
        profiler_version="0.4.3",
        event="wall",
        rate_hz=RATE_HZ,
        call_graph="python",
        python="3.11",
        covers="process" if program else "sequence",
        samples=samples,
        errors=0,
        lost=0,
        completeness=1.0,
        overhead_pct=None,
        degraded=(),
        folded_sha256="",
        processes=tuple(processes),
        hotspots=hotspots,
        nonce=nonce,
    )
    return record, "".join(lines).encode()
