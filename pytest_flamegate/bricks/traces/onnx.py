"""Profiles of onnxruntime: the parts of its sessions, and each kernel under its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.bricks.traces.nesting import Span, brick_name, nested
from pytest_flamegate.profile.onnx_trace import SOURCE, onnx_events, onnx_operator
from pytest_flamegate.profile.text import escape

if TYPE_CHECKING:
    from pytest_flamegate.bricks.traces.ingested import Ingested


def read_onnx(data: bytes) -> Ingested:
    """Return sessions and operators. Raises what ``nested`` raises."""
    spans = [
        Span(
            brick_name(onnx_operator(each)),
            escape(" ".join(part for part in each.track if part)) or "0",
            each.start_us,
            each.length_us,
        )
        for each in onnx_events(data)
    ]
    return nested(spans, SOURCE, ["its clock counts whole microseconds"])
