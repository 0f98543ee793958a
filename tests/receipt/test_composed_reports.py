"""From an engine that reports on itself, as it runs, to the receipt and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.compose import Subject, compose
from pytest_flamegate.receipt.types import Evidence, Receipt
from tests.made import Bundle
from tests.observe.test_observer import observer, python_workload
from tests.profile.profiles import profile, python

ENGINE = """
import time
class Engine:
    def __init__(self, kernels, **more):
        self.told, self.kernels, self.more = [], kernels, more
    def __call__(self, prompt, max_tokens):
        began = time.perf_counter()
        times = []
        for token in range(max_tokens):
            end = time.perf_counter() + 0.002
            while time.perf_counter() < end:
                pass
            times.append(time.perf_counter())
            yield token
        figures = {"tokens": max_tokens - 1, "prefill_ms": 1e3 * (times[0] - began),
                   "decode_ms": 1e3 * (times[-1] - times[0]), **self.more}
        self.told.append({"source": "toy:log", "figures": figures, "kernels": self.kernels})
    def reports(self):
        told, self.told = self.told, []
        return told
engine = Engine({"MUL_MAT": 7, "cuda_gemm_fp16": 2})
broken = Engine({}, tokens_per_second=float("inf"))
"""
KNOWN, UNKNOWN = python("ternary_gemv"), python("decode_step")


def categorised(kernel: bool) -> Profile:
    return profile({(KNOWN if kernel else UNKNOWN,): 300})


def measured(directory: Path, target: str) -> Observation:
    (directory / "reporting.py").write_text(ENGINE)
    watched = observer(python_workload(directory, "four", target=f"reporting:{target}"))
    for _ in range(3):
        watched.timed(0.02)
    return watched.observation()


@pytest.fixture(scope="module")
def observation(tmp_path_factory: pytest.TempPathFactory) -> Observation:
    return measured(tmp_path_factory.mktemp("reporting"), "engine")


def composed(
    directory: Path, observation: Observation, sampled: Profile | None
) -> tuple[Receipt | None, Evidence]:
    workload = python_workload(directory, "four")
    machine = {"os": "linux", "arch": "x86_64"}
    subject = Subject(workload, {"path": "model"}, machine, None, "0.1.0", None)
    profiles = [] if sampled is None else [sampled]
    return compose(subject, observation, profiles, sampled, None)


def verified(receipt: Receipt, evidence: Evidence) -> Verification:
    files = Bundle(receipt, replace(evidence, profile=None), b"").sealed().files
    return verify_receipt(files["receipt.json"], evidence=files["evidence.json"])


def test_what_the_child_reports_reaches_its_runs_and_the_warm_up_does_not(
    observation: Observation,
) -> None:
    for run in observation.runs:
        assert len(run.reported) == sum(len(block.sequences_ns) for block in run.blocks)
        for report in run.reported:
            assert report.source == "toy:log"
            assert report.figures["tokens"] == 3.0
            assert report.kernels == {"MUL_MAT": 7, "cuda_gemm_fp16": 2}


def test_it_becomes_figures_that_do_not_contradict_what_was_observed(
    tmp_path: Path, observation: Observation
) -> None:
    receipt, evidence = composed(tmp_path, observation, categorised(True))
    assert receipt is not None
    found = {metric.name: metric for metric in evidence.metrics}
    own = found["engine_decode_tokens_per_second"]
    assert own.formula == "toy:log:(n-1)/decode-time/median"
    assert own.samples == sum(len(run.reported) for run in observation.runs)
    assert found["tokens_per_second"].provenance == "measured"
    assert receipt.tokens_per_second == found["tokens_per_second"].value
    assert verified(receipt, evidence).refusals == ()


def test_where_the_profile_names_its_kernels_the_engines_word_stays_in_the_evidence(
    tmp_path: Path, observation: Observation
) -> None:
    receipt, evidence = composed(tmp_path, observation, categorised(True))
    assert receipt is not None
    assert receipt.kernels == ("ternary_gemv",)
    sequences = sum(len(run.reported) for run in observation.runs)
    told = [(each.name, each.count, each.told_by) for each in evidence.kernels[1:]]
    assert told == [("MUL_MAT", 7 * sequences, "toy:log"),
                    ("cuda_gemm_fp16", 2 * sequences, "toy:log")]  # fmt: skip


def test_where_it_names_none_they_are_claimed_and_the_receipt_is_not_observed(
    tmp_path: Path, observation: Observation
) -> None:
    receipt, evidence = composed(tmp_path, observation, categorised(False))
    assert receipt is not None
    # Nobody saw a GPU: its kernel is told in the evidence, and not claimed.
    assert receipt.kernels == ("decode_step", "MUL_MAT")
    assert receipt.backend == "cpu"
    answer = verified(receipt, evidence)
    assert answer.refusals == ()
    assert answer.grade is Grade.CONSISTENT
    told = [each.message for each in answer.warnings if each.code == "W_KERNELS_FROM_ENGINE"]
    assert told == ['The kernel "MUL_MAT" was reported by the engine, but by no profiler.']


def test_a_mock_by_its_own_word_is_refused_whatever_the_profile_shows(
    tmp_path: Path, observation: Observation
) -> None:
    mocked = Report("toy:log", {}, {"mock_gemv": 1})
    first = replace(observation.runs[0], reported=(mocked,))
    seen = replace(observation, runs=(first, *observation.runs[1:]))
    receipt, evidence = composed(tmp_path, seen, categorised(True))
    assert receipt is not None
    assert "E_MOCK_KERNEL" in {each.code for each in verified(receipt, evidence).refusals}


def test_an_engines_word_alone_makes_no_receipt(tmp_path: Path, observation: Observation) -> None:
    receipt, evidence = composed(tmp_path, observation, None)
    assert receipt is None
    assert {each.source for each in evidence.kernels} == {"engine"}


def test_a_rate_without_end_is_refused_by_code(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="E_BAD_REPORT"):
        measured(tmp_path, "broken")
