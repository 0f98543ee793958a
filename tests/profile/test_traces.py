"""Traces that torch.profiler and onnxruntime wrote, as profiles and as counts of kernels."""

import json
from collections import Counter

import pytest

from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.profile.formats import parse_profile
from pytest_flamegate.profile.formats.traces import count_kernels
from pytest_flamegate.profile.frames import fold_profile
from pytest_flamegate.profile.model import Profile
from tests.graph.traces.made import event, torch
from tests.profile.profiles import DATA

TORCH = (DATA / "torch-trace.json").read_bytes()
STACKS = (DATA / "torch-trace-stacks.json").read_bytes()
ONNX = (DATA / "onnx-trace.json").read_bytes()
SGEMM = "sgemm_128x64<float>"
SELF_US = {
    "aten::ones": 39.839, "aten::empty": 12.729, "aten::fill_": 20.060, "aten::linear": 55.675,
    "aten::t": 50.023, "aten::transpose": 26.773, "aten::as_strided": 14.831,
    "aten::addmm": 39728.795, "aten::expand": 30.966, "aten::copy_": 42.212,
    "aten::resolve_conj": 5.780, "aten::gelu": 168891.928, "aten::softmax": 13.121,
    "aten::_softmax": 33.659,
}  # fmt: skip
"""What torch's own ``key_averages`` said of the very run whose trace is kept here."""


def self_us(profile: Profile) -> dict[str, float]:
    found: Counter[str] = Counter()
    for stack, count in profile.stacks.items():
        found[stack[-1].name] += count
    return {name: count / 1e3 for name, count in found.items()}


def test_self_times_and_counts_are_those_that_torch_itself_computes() -> None:
    read = parse_profile(TORCH)
    assert self_us(read) == pytest.approx(SELF_US, abs=0.01)
    assert (read.profiler, read.unit) == ("torch.profiler", "nanoseconds")
    counted = count_kernels(TORCH)
    assert counted.keys() == {"torch.profiler"}
    operators = counted["torch.profiler"]
    assert (operators["aten::as_strided"], operators["aten::addmm"]) == (12, 6)
    assert operators.keys() == SELF_US.keys()
    assert count_kernels(STACKS) == counted


def test_python_functions_stand_above_the_operators_they_call() -> None:
    text = fold_profile(parse_profile(STACKS))
    python = "forward (torch/nn/modules/linear.py);<built-in function linear> (built-in)"
    assert f"{python};aten::linear [torch];aten::addmm [torch]" in text
    assert " at 0x" not in text


def test_nodes_of_onnxruntime_stand_below_their_operator() -> None:
    read = parse_profile(ONNX)
    path = "SequentialExecutor::Execute [onnxruntime];MatMul [CPU];/proj/MatMul [node] "
    assert path in fold_profile(read)
    assert self_us(read)["/proj/MatMul"] == 104
    # What all sessions took, nothing twice.
    outermost = {"model_loading_array", "session_initialization", "model_run"}
    assert read.samples == 1000 * sum(
        each["dur"] for each in json.loads(ONNX) if each["name"] in outermost
    )


def test_operators_of_onnxruntime_are_counted_by_provider() -> None:
    events = json.loads(ONNX)
    moved = next(each for each in events if each["name"] == "/act/Relu_kernel_time")
    moved["args"]["provider"] = "CUDAExecutionProvider"
    assert count_kernels(json.dumps(events).encode()) == {
        "onnxruntime:CPU": {"MatMul": 6, "Relu": 2, "Softmax": 3},
        "onnxruntime:CUDA": {"Relu": 1},
    }


def test_kernels_of_the_gpu_are_kept_apart_from_operators() -> None:
    data = torch(
        event("aten::mm", 0, 10),
        event(f"{SGEMM}(float*, int)", 4, 30, cat="kernel", pid=0, tid=7),
        event("Memcpy HtoD", 40, 2, cat="gpu_memcpy", pid=0, tid=7),
    )
    assert count_kernels(data) == {
        "torch.profiler": {"aten::mm": 1},
        "torch.profiler:gpu": {SGEMM: 1, "Memcpy HtoD": 1},
    }
    read = parse_profile(data)
    assert fold_profile(read).splitlines()[:2] == [
        "[GPU] [gpu];Memcpy HtoD [gpu] 2000",
        f"[GPU] [gpu];{SGEMM} [gpu] 30000",
    ]
    assert any("on the GPU" in note for note in read.degraded)


def test_threads_are_apart_and_an_event_that_outlives_the_one_around_it_is_cut() -> None:
    read = parse_profile(torch(event("a", 0, 10), event("b", 2, 3, tid=2)))
    assert self_us(read) == {"a": 10, "b": 3}
    read = parse_profile(torch(event("a", 0, 10), event("b", 8, 4)))
    assert self_us(read) == {"a": 8, "b": 2}
    assert any(note.startswith("1 events reach beyond") for note in read.degraded)
    steps = (event(f"ProfilerStep#{n}", 10 * n, 5, cat="user_annotation") for n in range(3))
    assert self_us(parse_profile(torch(*steps))) == {"ProfilerStep": 15}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (TORCH[:-400], "not JSON"),
        (torch().replace(b"1", b'1, "traceEvents": []', 1), "twice in one object"),
        (b'{"schemaVersion":1,"traceEvents":{}}', "no list"),
        (b'{"schemaVersion":1,"traceEvents":[3]}', "no object"),
        (b'[{"schemaVersion":1,"traceEvents":[]}]', "no object"),
        (torch(event("a", 0, -1)), "duration"),
        (torch(event("a", 1e16, 1)), "start"),
        (torch(event("a", True, 1)), "start"),
        (torch(event("a", 0, 1)).replace(b'"dur": 1', b'"dur": NaN'), "NaN"),
        (torch(*(event("a", 0, 1) for _ in range(3000))), "open at once"),
        (b'[{"cat":"Session","ph":"X","name":3}]', "no name"),
        (ONNX[:-30], "ended too early"),
    ],
)
def test_a_malformed_trace_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ReceiptError, match=f"E_TRACE.*{words}"):
        parse_profile(data)


def test_an_event_that_is_not_used_may_be_malformed_and_a_list_without_its_end() -> None:
    others = (event("Record Window End", 0, -1, cat="Trace"), event("a", -1e30, 1, cat=["x"]))
    assert self_us(parse_profile(torch(event("a", 0, 5), *others))) == {"a": 5}
    whole, cut = parse_profile(ONNX), parse_profile(ONNX.rstrip().removesuffix(b"]") + b",")
    assert cut.stacks == whole.stacks
    assert [each for each in cut.degraded if each not in whole.degraded] == [
        "its end is missing, as if the process had been stopped"
    ]


def test_a_provider_with_the_name_of_the_kernel_is_no_frame_of_the_kernel() -> None:
    read = parse_profile(ONNX.replace(b"CPUExecutionProvider", b"kernelExecutionProvider"))
    assert fold_profile(read)
    assert not any(frame.module == "kernel" for stack in read.stacks for frame in stack)


def test_a_file_of_another_kind_holds_no_kernel() -> None:
    assert count_kernels(b'{"traceEvents": []}') == {}


def test_a_trace_without_time_or_of_another_tool_is_no_profile() -> None:
    with pytest.raises(UndecidedError, match="E_NO_SAMPLES"):
        parse_profile(torch(event("a", 0, 0)))
    with pytest.raises(ReceiptError, match="E_UNKNOWN_FORMAT"):
        parse_profile(b'{"traceEvents": [{"ph":"X","name":"a","ts":1,"dur":2}]}')
