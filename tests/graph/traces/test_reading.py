"""Every format is recognised by its content, and its figures agree with each other."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict

import pytest

from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.graph import traces
from pytest_flamegate.graph.traces import read_trace
from tests.graph.traces import made

FILES = {
    "torch": (made.TORCH, "torch.profiler"),
    "torch operators": (made.TORCH_OPERATORS, "torch.profiler"),
    "torch stacks": (made.TORCH_STACKS, "torch.profiler"),
    "onnxruntime": (made.ONNX, "onnxruntime"),
    "onnxruntime parallel": (made.ONNX_PARALLEL, "onnxruntime"),
    "viztracer": (made.VIZTRACER, "chrome"),
    "trueno": (made.TRUENO, "trueno"),
    "lines": (made.LINES + made.DISPATCH, "timing"),
    "dispatch": (made.DISPATCH, "quant_dispatch"),
}
every = pytest.mark.parametrize("name", FILES)


@every
def test_format_is_recognised_by_content(name: str) -> None:
    data, source = FILES[name]
    found = read_trace(data)
    assert found.source == source
    assert read_trace(gzip.compress(data, mtime=0)) == found


@every
def test_trace_is_ingested_and_has_no_tokens(name: str) -> None:
    found = read_trace(FILES[name][0])
    assert found.provenance == "ingested"
    assert {each.provenance for each in found.totals} <= {"ingested"}
    assert found.tokens is None


@every
def test_no_thread_spends_more_than_the_wall_time(name: str) -> None:
    found = read_trace(FILES[name][0])
    assert all(each.self_ns >= 0 and each.total_ns >= each.self_ns for each in found.totals)
    assert all(each.min_ns <= each.max_ns for each in found.totals)
    if found.wall_ns is not None:
        for thread in found.lanes:
            assert thread.self_ns <= found.wall_ns


@every
def test_calls_totals_and_threads_agree(name: str) -> None:
    found = read_trace(FILES[name][0])
    if not found.calls:
        assert found.source in ("trueno", "timing", "quant_dispatch")
        return
    self_ns: Counter[str] = Counter()
    threads: dict[int, int] = defaultdict(int)
    for call in found.calls:
        self_ns[call.name] += call.self_ns
        threads[call.lane] += call.self_ns
        if call.parent is not None:
            parent = found.calls[call.parent]
            assert parent.lane == call.lane
            assert parent.start_ns <= call.start_ns <= call.end_ns <= parent.end_ns
    assert self_ns == {each.name: each.self_ns for each in found.totals}
    assert [threads[number] for number in range(len(found.lanes))] == [
        thread.self_ns for thread in found.lanes
    ]
    assert Counter(call.name for call in found.calls) == {
        each.name: each.calls for each in found.totals
    }
    assert min(call.start_ns for call in found.calls) == 0
    assert max(call.end_ns for call in found.calls) == found.wall_ns


@pytest.mark.parametrize("data", [b"", b"{}", b"hello\n", b"\0\1\2", b"[]", b'{"a":1}', b"timing"])
def test_unknown_format_raises_with_the_name(data: bytes) -> None:
    with pytest.raises(ReceiptError, match=r"x\.txt") as error:
        read_trace(data, "x.txt")
    assert error.value.code == "E_UNKNOWN_FORMAT"


def test_size_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MAX_BYTES", 1000)
    with pytest.raises(ReceiptError, match=r"E_TOO_LARGE.*1,000"):
        read_trace(made.TORCH)
    with pytest.raises(ReceiptError, match=r"E_TOO_LARGE"):
        read_trace(gzip.compress(made.TORCH))


@pytest.mark.parametrize(
    "data",
    [
        made.torch(),
        b'[{"ph":"M","name":"a"}]',
        made.trueno(),
        made.trueno(made.brick("RmsNorm", 0, 0)),
        b"timing: nothing_us=3\n",
        b"quant_dispatch\n",
    ],
)
def test_trace_without_bricks_raises(data: bytes) -> None:
    with pytest.raises(UndecidedError) as error:
        read_trace(data)
    assert error.value.code == "E_NO_BRICKS"
