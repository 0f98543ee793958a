"""Profiles, differences, bricks and evidence for reports; figures made up, shapes real."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.graph.table import tabulate_runs
from pytest_flamegate.observe.observation import Block, Run
from pytest_flamegate.profile.difference import ProfileDifference, ProfileSide, compare_profiles
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.model import Frame, Hotspot, Profile, Stack
from pytest_flamegate.receipt.metrics import figures
from pytest_flamegate.receipt.types import Evidence, KernelSighting, ProfileRecord, Receipt
from pytest_flamegate.report.bricks import BrickView
from pytest_flamegate.report.flame import Drawn
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.report.source import (
    Excerpt,
    SideCost,
    SourceCell,
    SourceFile,
    SourceRow,
    SourceView,
)
from tests import made
from tests.bricks.factory import make_run, make_totals


def python(name: str, module: str = "engine.py") -> Frame:
    return Frame(name, module, "python")


ROOT: Stack = (python("main"), python("generate"), python("decode_step"))
FFN: Stack = (*ROOT, python("swiglu_ffn"))
STACKS: dict[Stack, int] = {
    (*FFN, python("ternary_gemv", "kernels.py")): 940,
    (*FFN, python("quantize", "kernels.py")): 210,
    (*ROOT, python("attention"), python("softmax")): 56,
    (*ROOT, python("rms_norm")): 42,
    (*ROOT, Frame("memmove", "libc.so.6", "native")): 30,
    ROOT: 33,
    (python("main"), Frame("read", "kernel", "system")): 1,
}
TOKEN_S = 1.93e-3
"""The CPU time of one token of the profile."""


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
    ranked = rank_hotspots(profile(), TOKEN_S)
    return tuple(replace(each, name=name_prefix + each.name) for each in ranked)


def run(pid: int, slow: float) -> Run:
    token_ns = int(1_950_000 * slow) + pid
    sequences = ((3 * token_ns, *([token_ns] * 9)),) * 4
    wall = sum(map(sum, sequences))
    spent = Interval(wall_ns=wall, cpu_ns=int(wall * 0.99), run_delay_ns=wall // 200)
    return made.run(pid=pid, blocks=(Block(spent, sequences, Interval(5_000_000, 4_990_000, 0)),))


COMMIT = replace(made.COMMIT, uncommitted=2)
WORKLOAD: Mapping[str, object] = MappingProxyType(
    {
        "name": "decode",
        "engine": "embedded",
        "prompt": "What is 2+2?",
        "max_tokens": 10,
        "build": ["cargo", "build", "--release"],
    }
)


def profile_record(records: tuple[Hotspot, ...] | None = None) -> ProfileRecord:
    return made.profile_record(
        samples=1312,
        completeness=0.9992,
        overhead_pct=1.8,
        degraded=("ptrace is denied: sampled without stopping the process",),
        hotspots=hotspots() if records is None else records,
    )


def evidence(
    *, slow: float = 1.0, records: tuple[Hotspot, ...] | None = None, **changes: object
) -> Evidence:
    """Return evidence of three timed processes; ``records`` are the hotspots of its profile."""
    runs = tuple(run(pid, slow) for pid in (1, 2, 3))
    given: dict[str, object] = {
        "nonce": "n" * 32,
        "workload": WORKLOAD,
        "commit": COMMIT,
        "runs": runs,
        "metrics": figures(runs, "sequence", made.PROMPT_TOKENS),
        "profile": profile_record(records),
        "kernels": (KernelSighting("ternary_gemv", "profile", 940),),
    }
    return made.evidence(**given | changes)


def receipt() -> Receipt:
    return replace(
        made.bundle().receipt,
        tokens_requested=10,
        tokens_generated=10,
        tokens_per_second=427.3,
        kernels=("ternary_gemv",),
    )


AGAIN = 'pytest "flamegate.toml::decode" --flamegate'


def report(verdict: Verdict, name: str = "decode", **changes: Any) -> RunReport:
    """Return the report on a judged run, with receipt, evidence and a flame graph."""
    given: dict[str, Any] = {
        "receipt": receipt(),
        "evidence": evidence(),
        "drawn": Drawn(name, profile(), TOKEN_S),
        "again": AGAIN,
        "accept": f"{AGAIN} --flamegate-update",
    }
    return RunReport(name, verdict, headline(verdict), **given | changes)


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
    old, new = (
        ProfileSide(
            name,
            profile(stacks),
            CPU_S * sum(stacks.values()) / whole if costs else None,
        )
        for name, stacks in ((BASE, base), (HEAD, head))
    )
    return compare_profiles(old, new)


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


def source_view(text: str = "", function: str = "swiglu_ffn") -> SourceView:
    """Two replaced lines between two that stayed, each with ``text`` in it; every text is shown."""
    rows = (
        SourceRow(SourceCell(1, f"def a({text}):"), SourceCell(2, f"def a({text}):", 0.0, 1.0)),
        SourceRow(SourceCell(2, f"    x{text}", 0.5, 0.5), SourceCell(3, "    y", 1.0, 1.0), True),
        SourceRow(SourceCell(3, "    gone", 0.001, 0.2), None, True),
        SourceRow(SourceCell(4, ""), SourceCell(4, "")),
    )
    file = SourceFile(f"src/a{text}.py", (Excerpt(rows, (function,)),), (f"A note{text}.",))
    base, head = SideCost(f"base{text}", 1e-3), SideCost(f"head{text}", 2e-3)
    return SourceView((file,), head, base, (f"A sentence{text}.",))
