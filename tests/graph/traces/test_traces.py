"""Traces of torch, Chrome and onnxruntime: calls within calls, split by thread and stream."""

import gzip
from collections import Counter
from typing import Any

import pytest

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.graph import traces
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import Kernel, Transfer, build_graph
from pytest_flamegate.graph.traces import read_trace
from tests.graph.traces import made
from tests.graph.traces.made import chrome, event, named, torch
from tests.profile.test_traces import SELF_US

LAUNCH = {"correlation": 7}
SHAPE = {"grid": [32, 4, 1], "block": [256, 1, 1], "shared memory": 4096}
KERNEL = {**LAUNCH, **SHAPE, "stream": 7}


def on_gpu(name: str, start: float, length: float, **args: Any) -> dict[str, Any]:
    category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    return event(name, start, length, cat=category, pid=0, tid=7, args=args)


def test_self_times_and_names_are_those_of_torch() -> None:
    """The figures are those of torch's own key_averages, in microseconds."""
    found = named(read_trace(made.TORCH_OPERATORS))
    own = {name: each.self_ns / 1e3 for name, each in found.items()}
    assert own == pytest.approx(SELF_US, abs=0.01)
    found = named(read_trace(made.TORCH))
    assert (found["RmsNorm"].category, found["RmsNorm"].calls) == ("Norm", 6)
    assert (found["QkvProjection"].category, found["QkvProjection"].calls) == ("Attention", 6)
    assert found["LmHead"].calls == 3
    own = {"RmsNorm": 288.31, "QkvProjection": 112.76, "LmHead": 89.364, "decode": 407.562}
    assert {name: found[name].self_ns / 1e3 for name in own} == pytest.approx(own, abs=0.01)


def test_total_of_a_recursive_brick_counts_its_outermost_call() -> None:
    found = named(read_trace(chrome(event("f", 0, 10), event("f", 2, 5), event("g", 3, 1))))
    assert (found["f"].calls, found["f"].total_ns, found["f"].self_ns) == (2, 10_000, 9_000)
    assert (found["f"].min_ns, found["f"].max_ns) == (5_000, 10_000)


def test_threads_are_split() -> None:
    found = read_trace(chrome(event("a", 0, 10), event("b", 2, 30, tid=2), event("c", 20, 5)))
    assert [(thread.self_ns, thread.calls) for thread in found.lanes] == [(15_000, 2), (30_000, 1)]
    assert found.wall_ns == 32_000
    assert [call.parent for call in found.calls] == [None, None, None]
    assert len(read_trace(made.VIZTRACER).lanes) == 2
    assert len(read_trace(made.ONNX_PARALLEL).lanes) == 2


@pytest.mark.parametrize("maker", [torch, chrome])
def test_overlapping_events_of_one_thread_raise(maker: Any) -> None:
    problem = r"E_TRACE.*overlap for 0\.048 ms of 0\.100 ms"
    with pytest.raises(ReceiptError, match=problem):
        read_trace(maker(event("a", 0, 100), event("b", 50, 100)))


def test_kernel_is_in_its_stream_and_a_node_named_by_its_launch() -> None:
    found = read_trace(
        torch(
            event("aten::mm", 0, 20),
            event("cudaLaunchKernel", 5, 4, cat="cuda_runtime", args=LAUNCH),
            on_gpu("gemv<float>(float*, int)", 8, 30, **KERNEL),
        )
    )
    launch, kernel = found.calls[1:]
    assert launch.kernel == "gemv<float> <<<(32,4,1),(256,1,1)>>> smem=4096B"
    assert (kernel.name, kernel.parent, kernel.kernel) == ("gemv<float>", None, "")
    assert [thread.name for thread in found.lanes] == ["1 1", "GPU 0 stream 7"]
    assert found.wall_ns == 38_000
    node = Kernel("gemv<float>", (32, 4, 1), (256, 1, 1), 4096)
    assert node in build_graph(found.calls).nodes


def test_copies_have_direction_and_bytes() -> None:
    found = read_trace(
        torch(
            on_gpu("Memcpy HtoD (Pageable -> Device)", 0, 5, stream=7, bytes=4096),
            on_gpu("Memcpy DtoH (Device -> Pageable)", 6, 5, stream=7, bytes=8),
            on_gpu("Memcpy DtoD (Device -> Device)", 12, 5, stream=7),
            event("Memset (Device)", 20, 1, cat="gpu_memset", pid=0, tid=7, args={"stream": 7}),
        )
    )
    copies = [("H2D", 4096), ("D2H", 8), ("D2D", 0), ("Memset", 0)]
    assert [(call.name, call.bytes) for call in found.calls] == copies
    assert Transfer("D2H", 8, 6_000, 11_000) in build_graph(found.calls).nodes


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"grid": [0, 1, 1]}, "grid"),
        ({"grid": [1.5, 1, 1]}, "grid"),
        ({"block": [1, 1, 2**40]}, "grid or block"),
        ({"shared memory": -1}, "shared memory"),
        ({"shared memory": True}, "shared memory"),
    ],
    ids=str,
)
def test_invalid_launch_raises(args: dict[str, Any], words: str) -> None:
    with pytest.raises(ReceiptError, match=f"E_TRACE.*{words}"):
        read_trace(torch(on_gpu("gemv", 0, 1, **{**KERNEL, **args})))
    with pytest.raises(ReceiptError, match="bytes"):
        read_trace(torch(on_gpu("Memcpy HtoD", 0, 1, bytes=-1)))


@pytest.mark.parametrize("shape", [None, [1, 1], "32,1,1", 3])
def test_kernel_without_a_launch_is_a_name(shape: Any) -> None:
    launch = event("cudaLaunchKernel", 0, 1, cat="cuda_runtime", args=LAUNCH)
    found = read_trace(torch(launch, on_gpu("gemv", 2, 1, **{**KERNEL, "grid": shape})))
    assert found.calls[0].kernel == "gemv"


@pytest.mark.parametrize("data", [torch(), b'[{"ph":"M","name":"a"}]'])
def test_trace_without_events_raises(data: bytes) -> None:
    with pytest.raises(ReceiptError, match=r"E_TRACE.*no event"):
        read_trace(data)


def test_calls_and_names_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_trace(made.VIZTRACER)
    monkeypatch.setattr(traces, "MAX_CALLS", 20)
    found = read_trace(made.VIZTRACER)
    assert found.calls == ()
    assert found.totals == whole.totals
    assert any("only the totals" in note for note in found.notes)
    monkeypatch.setattr(traces, "MAX_NAMES", 3)
    with pytest.raises(ReceiptError, match=r"E_TRACE.*3 different names"):
        read_trace(made.VIZTRACER)
    monkeypatch.setattr(traces, "MAX_BYTES", 1000)
    for data in (made.TORCH, gzip.compress(made.TORCH)):
        with pytest.raises(ReceiptError, match=r"E_TOO_LARGE.*1,000"):
            read_trace(data)


def test_times_since_1970_are_read() -> None:
    """torch.profiler wrote them for years, and many tools still do."""
    begun = 1_790_000_000_000_000
    found = read_trace(made.chrome(event("a", begun, 100), event("b", begun + 10, 30)))
    assert [(each.name, each.start_ns, each.self_ns) for each in found.calls] == [
        ("a", 0, 70_000),
        ("b", 10_000, 30_000),
    ]


FILES = {
    "torch": (made.TORCH, "torch.profiler"),
    "torch operators": (made.TORCH_OPERATORS, "torch.profiler"),
    "torch stacks": (made.TORCH_STACKS, "torch.profiler"),
    "onnxruntime": (made.ONNX, "onnxruntime"),
    "onnxruntime parallel": (made.ONNX_PARALLEL, "onnxruntime"),
    "viztracer": (made.VIZTRACER, "chrome"),
}


@pytest.mark.parametrize("name", FILES)
def test_calls_totals_threads_and_graph_agree(name: str) -> None:
    data, source = FILES[name]
    found = read_trace(data)
    assert found.source == source
    assert read_trace(gzip.compress(data, mtime=0)) == found
    assert {each.provenance for each in found.totals} == {"ingested"}
    assert all(0 <= each.self_ns <= each.total_ns for each in found.totals)
    assert all(each.min_ns <= each.max_ns for each in found.totals)
    self_ns: Counter[str] = Counter()
    threads: Counter[int] = Counter()
    for call in found.calls:
        self_ns[call.name] += call.self_ns
        threads[call.lane] += call.self_ns
        if call.parent is not None:
            parent = found.calls[call.parent]
            assert parent.lane == call.lane
            assert parent.start_ns <= call.start_ns <= call.end_ns <= parent.end_ns
    assert self_ns == {each.name: each.self_ns for each in found.totals}
    assert threads == {number: thread.self_ns for number, thread in enumerate(found.lanes)}
    calls = Counter(call.name for call in found.calls)
    assert calls == {each.name: each.calls for each in found.totals}
    assert max(call.end_ns for call in found.calls) == found.wall_ns
    graph = build_graph(found.calls)
    assert len(graph.nodes) == len(found.calls)
    assert 0 < find_critical_path(graph).length_ns <= found.wall_ns


@pytest.mark.parametrize("data", [b"", b"{}", b"hello\n", b"\0\1\2", b"[]", b'{"a":1}', b"timing"])
def test_unknown_format_raises_with_the_name(data: bytes) -> None:
    with pytest.raises(ReceiptError, match=r"E_UNKNOWN_FORMAT.*x\.txt"):
        read_trace(data, "x.txt")
