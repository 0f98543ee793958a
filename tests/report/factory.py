"""Profiles, differences, bricks and evidence for reports; figures made up, shapes real."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.git import Commit
from pytest_flamegate.graph.table import tabulate_runs
from pytest_flamegate.observe.observation import Block, Observation, Run
from pytest_flamegate.profile.difference import ProfileDifference, ProfileSide, compare_profiles
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.model import Frame, Hotspot, Profile, Stack
from pytest_flamegate.receipt.metrics import figures
from pytest_flamegate.receipt.types import (
    Evidence,
    KernelSighting,
    ProcessProfile,
    ProfileRecord,
    Receipt,
)
from pytest_flamegate.report.bricks import BrickView
from tests.bricks.factory import make_run, make_totals

CATEGORIES = {
    "ternary_gemv": "matmul",
    "quantize": "quantisation",
    "softmax": "attention",
    "rms_norm": "norm",
    "memmove": "memory",
    "read": "system",
}


def python(name: str, module: str = "engine.py") -> Frame:
    return Frame(name, module, "python")


def native(name: str, module: str = "libc.so.6") -> Frame:
    return Frame(name, module, "native")


def categorise(frame: Frame) -> str:
    return CATEGORIES.get(frame.name, frame.kind)


SHOWN: Mapping[str, object] = MappingProxyType(
    {
        "title": "embedded::10tok",
        "subtitle": "embedded · 10 tokens",
        "cpu_s_per_token": 1.93e-3,
        "categorise": categorise,
    }
)
"""What a flame graph is drawn with, beside its profile."""

ROOT: Stack = (python("main"), python("generate"), python("decode_step"))
FFN: Stack = (*ROOT, python("swiglu_ffn"))
STACKS: dict[Stack, int] = {
    (*FFN, python("ternary_gemv", "kernels.py")): 940,
    (*FFN, python("quantize", "kernels.py")): 210,
    (*ROOT, python("attention"), python("softmax")): 56,
    (*ROOT, python("rms_norm")): 42,
    (*ROOT, native("memmove")): 30,
    ROOT: 33,
    (python("main"), Frame("read", "kernel", "system")): 1,
}


def profile(stacks: dict[Stack, int] | None = None, *, degraded: tuple[str, ...] = ()) -> Profile:
    given = STACKS if stacks is None else stacks
    return Profile(
        profiler="py-spy",
        profiler_version="0.4.3",
        event="wall-clock",
        rate_hz=100,
        call_graph="python",
        python="3.11.9",
        stacks=MappingProxyType(given),
        errors=2,
        complete=max(sum(given.values()) - 1, 0),
        duration_ns=13_000_000_000,
        pids=(11, 12, 13),
        degraded=degraded,
    )


def hotspots(name_prefix: str = "") -> tuple[Hotspot, ...]:
    return tuple(
        replace(
            each,
            name=name_prefix + each.name,
            category=categorise(Frame(each.name, each.module, each.kind)),
        )
        for each in rank_hotspots(profile(), 1.93e-3)
    )


def run(pid: int, *, slow: float = 1.0, role: str = "timed") -> Run:
    token_ns = int(1_950_000 * slow) + pid
    sequence = (3 * token_ns, *([token_ns] * 9))
    wall = sum(sequence) * 4
    return Run(
        role="timed" if role == "timed" else "profiled",
        pid=pid,
        started_ticks=pid * 100,
        started_at="2026-01-02T03:04:05Z",
        load_ns=250_000_000,
        blocks=(
            Block(
                interval=Interval(wall_ns=wall, cpu_ns=int(wall * 0.99), run_delay_ns=wall // 200),
                sequences_ns=(sequence,) * 4,
                reference=Interval(wall_ns=5_000_000, cpu_ns=4_990_000, run_delay_ns=0),
            ),
        ),
        token_digest="d" * 64,
        tokens_per_sequence=10,
        peak_rss_bytes=120_000_000,
        read_bytes=0,
        threads=1,
        voluntary_switches=3,
        involuntary_switches=9,
        cpu_pressure_pct=84.0,
    )


COMMIT = Commit("4f2c91a" + "0" * 33, "main", 2)
ENVIRONMENT = MappingProxyType({"BITNET_DETERMINISTIC": "1", "OMP_NUM_THREADS": "1"})
MODEL: Mapping[str, str | int] = MappingProxyType(
    {"name": "tiny-ternary", "path": "models/tiny.gguf", "quantisation": "i2_s", "layers": 4}
)
MACHINE = MappingProxyType(
    {
        "cpu_model": "AMD EPYC 7B13",
        "cpu_cores": "2",
        "arch": "x86_64",
        "kernel": "6.18.5",
        "cpu_flags_sha256": "f" * 64,
    }
)
WORKLOAD: Mapping[str, object] = MappingProxyType(
    {
        "name": "decode",
        "engine": "embedded",
        "prompt": "What is 2+2?",
        "max_tokens": 10,
        "source": "flamegate.toml",
        "command": [],
        "build": ["cargo", "build", "--release"],
        "tokenizer": "models/tokenizer.json",
        "seed": 42,
        "threads": 1,
    }
)


def profile_record(records: tuple[Hotspot, ...] | None = None) -> ProfileRecord:
    return ProfileRecord(
        profiler="py-spy",
        profiler_version="0.4.3",
        event="wall-clock",
        rate_hz=100,
        call_graph="python",
        python="3.11.9",
        covers="sequence",
        samples=1312,
        errors=2,
        lost=0,
        completeness=0.9992,
        overhead_pct=1.8,
        degraded=("ptrace is denied: sampled without stopping the process",),
        folded_sha256="a" * 64,
        processes=(
            ProcessProfile(11, 656, MappingProxyType({"ternary_gemv": 470})),
            ProcessProfile(12, 656, MappingProxyType({"ternary_gemv": 470})),
        ),
        hotspots=hotspots() if records is None else records,
    )


def evidence(
    *,
    slow: float = 1.0,
    with_profile: bool = True,
    commit: Commit | None = COMMIT,
    records: tuple[Hotspot, ...] | None = None,
    model: Mapping[str, str | int] = MODEL,
    workload: Mapping[str, object] = WORKLOAD,
) -> Evidence:
    runs = (run(1, slow=slow), run(2, slow=slow), run(3, slow=slow), run(11, role="profiled"))
    observation = Observation(
        nonce="n" * 32,
        runs=runs,
        tokens=("4", ".", "\n"),
        token_digest="d" * 64,
        token_source="stream",
        differs_at=None,
        clock_scope="sequence",
        requested_environment=ENVIRONMENT,
        effective_environment=ENVIRONMENT,
    )
    return Evidence(
        nonce=observation.nonce,
        created="2026-01-02T03:04:06Z",
        flamegate_version="0.1.0",
        receipt_sha256="b" * 64,
        workload=workload,
        model_sha256="c" * 64,
        model=model,
        machine=MACHINE,
        commit=commit,
        requested_environment=ENVIRONMENT,
        effective_environment=ENVIRONMENT,
        tokens=observation.tokens,
        token_digest=observation.token_digest,
        token_source=observation.token_source,
        differs_at=None,
        clock_scope="sequence",
        runs=runs,
        metrics=figures(observation.timed, observation.clock_scope, 5),
        profile=profile_record(records) if with_profile else None,
        kernels=(KernelSighting("ternary_gemv", "profile", 940),),
    )


def receipt() -> Receipt:
    return Receipt(
        timestamp="2026-01-02T03:04:05Z",
        backend="cpu",
        deterministic=True,
        tokens_requested=10,
        tokens_generated=10,
        tokens_per_second=427.3,
        kernels=("ternary_gemv",),
        environment=MappingProxyType({"OS": "linux-x86_64", "FLAMEGATE_ENGINE": "embedded"}),
        model=MODEL,
    )


# Differences


BASE, HEAD = "base 4f2c91a", "head 4f2c91a + 2 uncommitted files"
CPU_S = 2e-3
COMPARED: dict[Stack, int] = {
    (*FFN, python("ternary_gemv", "kernels.py")): 14_000,
    (*FFN, python("rms_norm")): 600,
    (*ROOT, python("attention")): 3_000,
    (*ROOT, python("attention"), python("softmax")): 1_400,
    (*ROOT, python("rms_norm")): 400,
    ROOT: 600,
}
"""20,000 samples: one is 0.1 µs of a token of 2 ms."""


def slowed(name: str, factor: float, stacks: dict[Stack, int] = COMPARED) -> dict[Stack, int]:
    """Return ``stacks`` with the own samples of a function times ``factor``."""
    return {
        stack: round(count * (factor if stack[-1].name == name else 1))
        for stack, count in stacks.items()
    }


def compared(
    head: dict[Stack, int], base: dict[Stack, int] = COMPARED, *, costs: bool = True
) -> ProfileDifference:
    """Compare: the CPU time of a token is that of its samples."""
    whole = sum(COMPARED.values())
    sides = [
        ProfileSide(
            name,
            profile(stacks),
            CPU_S * sum(stacks.values()) / whole if costs else None,
        )
        for name, stacks in ((BASE, base), (HEAD, head))
    ]
    return compare_profiles(*sides)


# Bricks


TREE = (
    "Layer 0",
    "├── RmsNorm  9.0µs (64 elem)",
    "└── QkvProjection  200.0µs (4096 elem)",
    "    └── batched_gemv  <<<32,256,1>>> smem=4096B",
)


def shown_bricks(name: str = "QkvProjection", *, top: int = 20, text: str = "") -> BrickView:
    """Three processes, 94 % in bricks; ``name`` is the costliest, ``text`` every sentence."""
    passes = [
        make_run(
            replace(
                make_totals("QkvProjection", [190_000, 210_000], layer=0, elements=4096), name=name
            ),
            make_totals("DownProjection", [110_000, 130_000], layer=0),
            make_totals("RmsNorm", [9_000] * 10, layer=0),
            make_totals("LmHead", [210_000]),
            wall_ns=1_000_000,
            tokens=2,
            pid=pid,
        )
        for pid in (11, 12, 13)
    ]
    return BrickView(
        table=tabulate_runs(passes, top=top),
        tree=(*TREE, text) if text else TREE,
        critical_path=text or "critical path: QkvProjection → LmHead, 410 µs of 500 µs",
        roofline=text or "at 61 % of this machine's read bandwidth (19.5 of 32.0 GB/s, 1 thread)",
        notes=(text,) if text else (),
        full_command=text or "flamegate bricks .flamegate/latest/decode",
    )
