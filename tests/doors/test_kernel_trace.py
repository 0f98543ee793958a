"""``kernel_trace``: one run more says which kernels ran, and no timed run pays for it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import ReceiptError, ToolError, UsageError
from pytest_flamegate.engines import engine
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.run.instruments import read_traces, trace_kernels
from tests.profile.profiles import DATA
from tests.workload.declared import read_file

TARGET = """
import os, shutil

TRACE = os.environ.get("FLAMEGATE_KERNEL_TRACE")

def forgetful(prompt, max_tokens):
    yield from range(max_tokens)

def generate(prompt, max_tokens):
    if TRACE:
        shutil.copy({trace!r}, TRACE + "/onnx.json")
    return forgetful(prompt, max_tokens)
"""
TOML = """
[workloads.traced]
engine = "python"
target = "traced_toy:{target}"
prompt = "p"
max_tokens = 4
kernel_trace = "{by}"
"""


def watched(root: Path, target: str = "generate", by: str = "target") -> Observer:
    (root / "traced_toy.py").write_text(TARGET.format(trace=str(DATA / "onnx-trace.json")))
    (root / "flamegate.toml").write_text(TOML.format(target=target, by=by))
    (declared,) = read_file(root / "flamegate.toml")
    return Observer(declared, engine("python").plan(declared, None))


@pytest.mark.measures
def test_kernels_are_reported_by_a_run_of_its_own(tmp_path: Path) -> None:
    observer = watched(tmp_path)
    observer.run_timed(0.05)
    (report,) = trace_kernels(observer)
    assert report.source == "onnxruntime:CPU"
    assert dict(report.kernels) == {"MatMul": 6, "Relu": 3, "Softmax": 3}
    seen = observer.observation()
    assert [run.role for run in seen.runs] == ["timed", "traced"]
    assert [len(run.reported) for run in seen.runs] == [0, 1]
    assert seen.timed == seen.runs[:1]
    # It generated what the timed ones did.
    assert seen.differs_at is None
    assert seen.runs[1].token_digest == seen.runs[0].token_digest
    # A workload that asks for no trace gets no such run.
    plain = Observer(replace(observer.workload, options={}), observer.plan)
    assert trace_kernels(plain) == ()
    assert plain.runs == ()


@pytest.mark.measures
@pytest.mark.parametrize(
    ("target", "by", "words"),
    [
        ("forgetful", "target", r"E_NO_KERNEL_TRACE.*FLAMEGATE_KERNEL_TRACE"),
        # As an environment without torch answers, whether this one has it or not.
        ("generate", "torch", r"E_NO_LIBRARY.*no torch here.*kernel_trace"),
    ],
)
def test_a_trace_that_is_not_written_is_an_error(
    tmp_path: Path, target: str, by: str, words: str
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    with pytest.raises(ToolError, match=words):
        trace_kernels(watched(tmp_path, target, by))


def test_another_tracer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'E_BAD_VALUE: .*"torch" or "target", and is "jax"'):
        watched(tmp_path, by="jax")


def test_traces_of_several_parts_are_added_up(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes((DATA / "onnx-trace.json").read_bytes())
    (tmp_path / "c.json").write_bytes((DATA / "torch-trace.json").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"threads": 1}))
    told = {each.source: each.kernels for each in read_traces(tmp_path)}
    assert told["onnxruntime:CPU"]["MatMul"] == 12
    assert told["torch.profiler"]["aten::addmm"] == 6
    (tmp_path / "a.json").write_bytes((DATA / "onnx-trace.json").read_bytes()[:-10])
    with pytest.raises(ReceiptError, match="E_TRACE"):
        read_traces(tmp_path)
