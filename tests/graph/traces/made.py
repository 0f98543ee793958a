"""Traces of other profilers, recorded ones and such made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_flamegate.bricks.record import BrickTotals
from pytest_flamegate.graph.ingested import IngestedTrace
from tests.profile.profiles import DATA as PROFILES

DATA = Path(__file__).parent / "data"
TORCH = (DATA / "torch-bricks.json").read_bytes()
TORCH_OPERATORS = (PROFILES / "torch-trace.json").read_bytes()
TORCH_STACKS = (PROFILES / "torch-trace-stacks.json").read_bytes()
ONNX = (PROFILES / "onnx-trace.json").read_bytes()
ONNX_PARALLEL = (DATA / "onnx-parallel.json").read_bytes()
VIZTRACER = (DATA / "viztracer.json").read_bytes()
LINES = b"".join(
    b"timing: embed_us=%d forward_us=%.1f logits_us=%d sample_us=0.5\n" % each
    for each in ((12, 340.5, 90), (10, 360.0, 70), (50, 300.0, 80))
)
DISPATCH = (
    b"quant_dispatch: tensor=blk.0.attn_q format=TQ2_0 kernel=gemv_avx2\n"
    b"quant_dispatch: tensor=blk.1.attn_q format=TQ2_0 kernel=gemv_avx2 count=3\n"
    b"quant_dispatch: tensor=output format=F16 kernel=gemv_f16\n"
)


def brick(name: str = "RmsNorm", calls: int = 10, total_ns: int = 1_000_000, **more: Any) -> Any:
    """Return a brick as trueno writes it: microseconds with two decimals."""
    average_us = round(total_ns / max(calls, 1) / 1000, 2)
    fields = {"name": name, "count": calls, "total_ns": total_ns, "avg_us": average_us}
    return {**fields, "min_us": max(average_us - 0.02, 0), "max_us": average_us + 0.02, **more}


def trueno(*bricks: Any, total_ns: int | None = None, **more: Any) -> bytes:
    """Return a profile as trueno writes it: its time is a sum, its tokens are elements."""
    spent_ns = sum(each["total_ns"] for each in bricks) if total_ns is None else total_ns
    shared = [
        {"pct": round(100 * each["total_ns"] / max(spent_ns, 1), 1), **each} for each in bricks
    ]
    return json.dumps(
        {"total_tokens": 4096, "total_ns": spent_ns, "total_throughput": 1.0, "bricks": shared}
        | more
    ).encode()


TRUENO = trueno(
    brick("RmsNorm", 57, 1_234_567, throughput=189.3),
    brick("Qkv", 7, 7_000_001, total_bytes=1 << 20, bottleneck="memory"),
    brick("my kernel", 3, 100),
)


def event(name: str, start: float, length: float, **more: Any) -> dict[str, Any]:
    fields = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1}
    return {**fields, "ts": start, "dur": length, **more}


def torch(*events: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


def chrome(*events: dict[str, Any]) -> bytes:
    return json.dumps([{**each, "cat": "f"} for each in events]).encode()


def named(found: IngestedTrace) -> dict[str, BrickTotals]:
    return {each.name: each for each in found.totals}
