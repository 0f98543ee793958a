"""Traces of other profilers, recorded ones and such made by hand."""

import json
from pathlib import Path
from typing import Any

from pytest_flamegate.bricks.record import BrickTotals
from pytest_flamegate.graph.traces import IngestedTrace
from tests.profile.profiles import DATA as PROFILES

DATA = Path(__file__).parent / "data"
TORCH = (DATA / "torch-bricks.json").read_bytes()
TORCH_OPERATORS = (PROFILES / "torch-trace.json").read_bytes()
TORCH_STACKS = (PROFILES / "torch-trace-stacks.json").read_bytes()
ONNX = (PROFILES / "onnx-trace.json").read_bytes()
ONNX_PARALLEL = (DATA / "onnx-parallel.json").read_bytes()
VIZTRACER = (DATA / "viztracer.json").read_bytes()


def event(name: str, start: float, length: float, **more: Any) -> dict[str, Any]:
    fields = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1}
    return {**fields, "ts": start, "dur": length, **more}


def torch(*events: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


def chrome(*events: dict[str, Any]) -> bytes:
    return json.dumps([{**each, "cat": "f"} for each in events]).encode()


def named(found: IngestedTrace) -> dict[str, BrickTotals]:
    return {each.name: each for each in found.totals}
