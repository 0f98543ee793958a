"""Receipts, evidence and profiles for tests. Nothing is random: equal arguments give equal bytes.

``run``, ``metric``, ``profile_record`` and ``evidence`` make single parts, in which any field can
be given. ``bundle`` makes a whole measurement that verifies as OBSERVED.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.git import Commit
from pytest_flamegate.core.json import replace
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.observe.observation import Block, Role, Run
from pytest_flamegate.profile.model import Hotspot
from pytest_flamegate.receipt.documents import encode_evidence, encode_receipt
from pytest_flamegate.receipt.metrics import cost_of, figures, overhead_pct
from pytest_flamegate.receipt.reported import engine_kernels
from pytest_flamegate.receipt.types import (
    Evidence,
    KernelSighting,
    Metric,
    ProcessProfile,
    ProfileRecord,
    Receipt,
)

CREATED = "2025-10-13T12:00:00Z"
MODEL_SHA256 = hashlib.sha256(b"model").hexdigest()
COMMIT = Commit("4f2c91a0c2d1f6b7a8e9d0c1b2a3948576e5d4c3", "main", 0)
MACHINE: Mapping[str, str] = MappingProxyType(
    {"cpu_model": "AMD EPYC", "cpu_cores": "2", "os": "linux"}
)
ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {"BITNET_DETERMINISTIC": "1", "BITNET_SEED": "42", "OPENBLAS_NUM_THREADS": "1"}
)
TOKENS = ("32", "52", "46", "10")
SHARES = {"ternary_gemv": 0.72, "quantize": 0.16, "attention": 0.08, "rms_norm": 0.04}
"""The share of each function's own samples in the profile."""
RATE_HZ = 100
PROFILED_S = 2.0
PROMPT_TOKENS = 5
BOOT_TICKS = 100_000
SETUP_S = 0.25
"""The time that a run spends outside its blocks: loading, warm-up, exit."""


def run(role: Role = "timed", pid: int = 4000, **changes: Any) -> Run:
    """Return a run of one process, without blocks unless they are given."""
    made = Run(
        role=role,
        pid=pid,
        started_ticks=BOOT_TICKS + pid,
        started_at=CREATED,
        load_ns=30_000_000,
        blocks=(),
        token_digest=token_digest(TOKENS),
        tokens_per_sequence=len(TOKENS),
        peak_rss_bytes=36 << 20,
        read_bytes=1 << 20,
        threads=1,
        voluntary_switches=12,
        involuntary_switches=3,
        cpu_pressure_pct=0.4,
    )
    return replace(made, **changes)


def metric(name: str = "tokens_per_second", value: float = 1000.0, **changes: Any) -> Metric:
    """Return a measured figure of the wall clock; a rate unless other fields are given."""
    made = Metric(
        name=name,
        value=value,
        formula="tokens/total",
        unit="tokens/s",
        direction="higher_is_better",
        clock="wall",
        samples=40,
        provenance="measured",
    )
    return replace(made, **changes)


def profile_record(processes: Sequence[ProcessProfile] = (), **changes: Any) -> ProfileRecord:
    """Return the record of a py-spy profile with the samples of ``processes``."""
    made = ProfileRecord(
        profiler="py-spy",
        profiler_version="0.4.3",
        event="wall",
        rate_hz=RATE_HZ,
        call_graph="python",
        python="3.11",
        covers="sequence",
        samples=sum(process.samples for process in processes),
        errors=0,
        lost=0,
        completeness=1.0,
        overhead_pct=None,
        degraded=(),
        folded_sha256="",
        processes=tuple(processes),
        hotspots=(),
    )
    return replace(made, **changes)


def evidence(**changes: Any) -> Evidence:
    """Return evidence of the embedded engine, without runs, metrics or profile."""
    made = Evidence(
        nonce=f"{0:032x}",
        created=CREATED,
        flamegate_version="0.1.0",
        receipt_sha256="",
        workload={
            "name": "4tok",
            "engine": "embedded",
            "prompt": "2+2=",
            "max_tokens": len(TOKENS),
            "command": [],
            "target": "toy:generate",
        },
        model_sha256=MODEL_SHA256,
        model={"path": "models/tiny.gguf", "sha256": MODEL_SHA256, "size_bytes": 454_000},
        machine=MACHINE,
        commit=COMMIT,
        requested_environment=ENVIRONMENT,
        effective_environment=ENVIRONMENT,
        tokens=TOKENS,
        token_digest=token_digest(TOKENS),
        token_source="yielded:byte",
        differs_at=None,
        clock_scope="sequence",
        runs=(),
        metrics=(),
        profile=None,
        kernels=(),
    )
    return replace(made, **changes)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A receipt, its evidence and its folded profile. ``sealed`` updates the digests in them."""

    receipt: Receipt
    evidence: Evidence
    folded: bytes

    @property
    def files(self) -> dict[str, bytes]:
        """The content of the three files by name, without changing any digest."""
        return {
            "receipt.json": encode_receipt(self.receipt),
            "evidence.json": encode_evidence(self.evidence),
            "profile.folded": self.folded,
        }

    def sealed(self) -> Bundle:
        """Return a copy whose evidence has the digests of this receipt and this profile."""
        made = self.evidence
        if made.profile is not None:
            folded_sha256 = hashlib.sha256(self.folded).hexdigest()
            made = replace(made, profile=replace(made.profile, folded_sha256=folded_sha256))
        receipt_sha256 = hashlib.sha256(encode_receipt(self.receipt)).hexdigest()
        return replace(self, evidence=replace(made, receipt_sha256=receipt_sha256))

    def with_receipt(self, **changes: Any) -> Bundle:
        """Return a sealed copy with other receipt fields."""
        return replace(self, receipt=replace(self.receipt, **changes)).sealed()

    def with_evidence(self, **changes: Any) -> Bundle:
        """Return a sealed copy with other evidence fields."""
        return replace(self, evidence=replace(self.evidence, **changes)).sealed()

    def with_profile(self, **changes: Any) -> Bundle:
        """Return a sealed copy with other fields of the profile's record."""
        assert self.evidence.profile is not None
        return self.with_evidence(profile=replace(self.evidence.profile, **changes))

    def with_run(self, index: int, **changes: Any) -> Bundle:
        """Return a sealed copy in which one run has other fields."""
        runs = list(self.evidence.runs)
        runs[index] = replace(runs[index], **changes)
        return self.with_evidence(runs=tuple(runs))

    def recomputed(self) -> Bundle:
        """Return a sealed copy whose rate, metrics and costs follow from its runs and shares."""
        old = self.evidence
        timed = [each for each in old.runs if each.role == "timed"]
        found = figures(timed, old.clock_scope, PROMPT_TOKENS)
        profile = old.profile
        if profile is not None:
            cost_s = cost_of(profile.covers, found)
            spots = tuple(
                replace(spot, cpu_s_per_token=None if cost_s is None else spot.self_share * cost_s)
                for spot in profile.hotspots
            )
            extra_pct = overhead_pct(old.runs, old.clock_scope)
            profile = replace(profile, hotspots=spots, overhead_pct=extra_pct)
        receipt = replace(self.receipt, tokens_per_second=found[0].value)
        return Bundle(receipt, replace(old, metrics=found, profile=profile), self.folded).sealed()

    def with_reports(
        self,
        source: str = "llama.cpp:perf",
        *,
        kernels: Mapping[str, int] | None = None,
        counted: int = -1,
        **figures: float,
    ) -> Bundle:
        """Return a recomputed copy whose engine reports correctly on every timed sequence.

        It counts ``counted`` tokens more than were observed. ``figures`` are added to those that
        follow from the token times, or replace them. Each sequence ran ``kernels`` so often.
        """

        def reporting(each: Run) -> Run:
            found = (
                Report(source, {**_reported(gaps, counted), **figures}, kernels or {})
                for block in each.blocks
                for gaps in block.sequences_ns
            )
            return replace(each, reported=(*each.reported, *found))

        runs = tuple(
            reporting(each) if each.role == "timed" else each for each in self.evidence.runs
        )
        profiled = tuple(each for each in self.evidence.kernels if each.source == "profile")
        reported = engine_kernels(runs, {each.name for each in profiled})
        return self.with_evidence(runs=runs, kernels=(*profiled, *reported)).recomputed()

    def write(self, directory: Path) -> Path:
        """Write the three files into ``directory``; return the receipt's path."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (directory / name).write_bytes(data)
        return directory / "receipt.json"


def bundle(
    *,
    engine: str | None = None,
    token_ns: int = 1_950_000,
    tokens: tuple[str, ...] = TOKENS,
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
) -> Bundle:
    """Return a consistent measurement that verifies as OBSERVED.

    Args:
        engine: by default ``embedded``, or ``command`` for the clock scope ``process``.
        token_ns: the mean time between two tokens, with the relative spread ``jitter``.
        timed: how many timed runs there are, each of ``blocks`` with so many ``sequences``.
        shares: the self share of each function of the module ``kernels.py``.
    """
    program = clock_scope == "process"
    engine = engine or ("command" if program else "embedded")
    source = random.Random(seed)
    length = len(tokens)
    per_profiled = max(1, math.ceil(PROFILED_S * 1e9 / (token_ns * (length + 2))))

    def make_run(index: int, role: Role) -> Run:
        count, repeats = (sequences, blocks) if role == "timed" else (per_profiled, 1)
        made = tuple(
            _block(source, count, length, token_ns, jitter, timed=role == "timed", program=program)
            for _ in range(repeats)
        )
        return run(
            role,
            4000 + index,
            blocks=made,
            token_digest=token_digest(tokens),
            tokens_per_sequence=length,
        )

    runs = _one_after_another(
        tuple(make_run(index, "timed") for index in range(timed))
        + tuple(make_run(timed + index, "profiled") for index in range(profiled)),
        created,
    )
    nonce = f"{seed:032x}"
    profile, folded = _profile(runs, shares, nonce, program=program)
    plain = evidence()
    recipe = {"engine": engine, "max_tokens": length, "command": ["./engine"] if program else []}
    recorded = replace(
        plain,
        nonce=nonce,
        created=created,
        workload={**plain.workload, **recipe},
        tokens=tokens,
        token_digest=token_digest(tokens),
        clock_scope=clock_scope,
        runs=runs,
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
        tokens_per_second=1.0,  # recomputed below
        kernels=tuple(sighting.name for sighting in recorded.kernels),
        environment={
            **ENVIRONMENT,
            "FLAMEGATE_ENGINE": engine,
            "FLAMEGATE_VERSION": "0.1.0",
            "OS": "linux-x86_64",
        },
        model=recorded.model,
    )
    return Bundle(receipt, recorded, folded).recomputed()


def _reported(gaps: Sequence[int], counted: int) -> dict[str, float]:
    """Return the figures that an engine would print of these token times, to the microsecond."""
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
    lasted_s = [sum(each.wall_ns for each in _intervals(run)) / 1e9 + SETUP_S for run in runs]
    end = datetime.fromisoformat(created)
    dated = []
    for index, each in enumerate(runs):
        before_s = sum(lasted_s[:index])
        started = end - timedelta(seconds=sum(lasted_s) - before_s)
        started_at = started.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        ticks = BOOT_TICKS + round(before_s * 100)
        dated.append(replace(each, started_ticks=ticks, started_at=started_at))
    return tuple(dated)


def _intervals(made: Run) -> Iterator[Interval]:
    for block in made.blocks:
        yield block.interval
        if block.reference is not None:
            yield block.reference


def _block(
    source: random.Random,
    count: int,
    length: int,
    token_ns: int,
    jitter: float,
    *,
    timed: bool,
    program: bool,
) -> Block:
    def gap(scale: int = 1) -> int:
        return round(scale * token_ns * (1 + jitter * source.uniform(-1, 1)))

    sequences = tuple((gap(3), *(gap() for _ in range(length - 1))) for _ in range(count))
    wall_ns = sum(map(sum, sequences)) + 10_000 * count
    spent = Interval(wall_ns, round(wall_ns * 0.98), round(wall_ns * 0.01))
    reference = Interval(900_000 + source.randrange(1000), 890_000, 0) if timed else None
    decode = None
    if program and length > 1:
        decode_ns = sum(sum(gaps[1:]) for gaps in sequences) + 5_000 * count
        decode = Interval(decode_ns, round(decode_ns * 0.98), round(decode_ns * 0.01))
    return Block(spent, sequences, reference, decode)


def _profile(
    runs: tuple[Run, ...], shares: Mapping[str, float], nonce: str, *, program: bool
) -> tuple[ProfileRecord, bytes]:
    processes = []
    pooled: dict[str, int] = dict.fromkeys(shares, 0)
    for each in runs:
        if each.role == "profiled":
            seconds = sum(block.interval.wall_ns for block in each.blocks) / 1e9
            own = {name: int(share * seconds * RATE_HZ) for name, share in shares.items()}
            processes.append(ProcessProfile(each.pid, sum(own.values()), own, each.started_ticks))
            pooled = {name: pooled[name] + own[name] for name in shares}
    samples = sum(pooled.values())
    lines = sorted(
        f"main (serving.py);decode_step (transformer.py);{name} (kernels.py) {count}\n"
        for name, count in pooled.items()
        if count
    )
    counted = sorted(pooled.items(), key=lambda entry: -entry[1])

    def spot(name: str, own: int, inclusive: int, module: str = "kernels.py") -> Hotspot:
        counts = (own, inclusive, own / samples, inclusive / samples)
        return Hotspot(name, module, "python", "other", *counts, cpu_s_per_token=None)

    spots = (
        *(spot(name, count, count) for name, count in counted if count),
        spot("decode_step", 0, samples, "transformer.py"),
        spot("main", 0, samples, "serving.py"),
    )
    covers: Literal["process", "sequence"] = "process" if program else "sequence"
    record = profile_record(processes, covers=covers, hotspots=spots, nonce=nonce)
    return record, "".join(lines).encode()
