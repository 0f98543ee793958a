"""From an observation to evidence and a claim: the kernels and the backend that are claimed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.clocks import utc_now
from pytest_flamegate.core.json import replace
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.observe.observation import Observation, Run
from pytest_flamegate.observe.redact import redact_environment
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.compose import Subject, backend_of, compose
from pytest_flamegate.receipt.types import Evidence, Receipt
from tests.made import Bundle, bundle
from tests.profile.profiles import profile, python
from tests.receipt.gpu import NOTHING, gpu_run, nowhere, on_gpu, seen

KNOWN, UNKNOWN = profile({(python("ternary_gemv"),): 300}), profile({(python("decode_step"),): 300})
REPORT = Report("toy:log", {"tokens": 3.0, "prefill_ms": 6.0, "decode_ms": 5.85},
                {"MUL_MAT": 7, "cuda_gemm_fp16": 2})  # fmt: skip


SHARED = (
    *("nonce", "tokens", "token_digest", "token_source", "differs_at", "clock_scope"),
    *("requested_environment", "effective_environment"),
)


def observe(*reports: Report) -> Observation:
    """Return an observation of three runs whose sequences have these reports each."""
    made = bundle(engine="python", created=utc_now()).evidence

    def reporting(run: Run) -> Run:
        sequences = sum(len(block.sequences_ns) for block in run.blocks)
        return replace(run, reported=reports * sequences)

    runs = tuple(reporting(run) for run in made.runs if run.role == "timed")
    return Observation(runs=runs, **{name: getattr(made, name) for name in SHARED})


def compose_toy(
    observation: Observation, sampled: Profile | None
) -> tuple[Receipt | None, Evidence]:
    workload = Workload(
        "toy", "python", "2+2=", 4, "flamegate.toml", Path("/project"), target="toy:generate"
    )
    machine = {"os": "linux", "arch": "x86_64"}
    subject = Subject(workload, {"path": "model"}, machine, None, "0.1.0", None)
    return compose(subject, observation, [] if sampled is None else [sampled], sampled, None)


def verify(receipt: Receipt | None, evidence: Evidence) -> Verification:
    assert receipt is not None
    files = Bundle(receipt, replace(evidence, profile=None), b"").sealed().files
    return verify_receipt(files["receipt.json"], evidence=files["evidence.json"])


def test_reports_become_figures_that_agree_with_the_observed_ones() -> None:
    observation = observe(REPORT)
    receipt, evidence = compose_toy(observation, KNOWN)
    found = {metric.name: metric for metric in evidence.metrics}
    own = found["engine_decode_tokens_per_second"]
    assert own.formula == "toy:log:(n-1)/decode-time/median"
    assert own.samples == sum(len(run.reported) for run in observation.runs)
    assert found["tokens_per_second"].provenance == "measured"
    assert receipt is not None
    assert receipt.tokens_per_second == found["tokens_per_second"].value
    assert verify(receipt, evidence).refusals == ()
    # The profile names its kernels, so that reported ones stay in the evidence.
    assert receipt.kernels == ("ternary_gemv",)
    reported = [(each.name, each.told_by) for each in evidence.kernels[1:]]
    assert reported == [("MUL_MAT", "toy:log"), ("cuda_gemm_fp16", "toy:log")]


def test_if_the_profile_names_none_they_are_claimed_and_not_observed() -> None:
    receipt, evidence = compose_toy(observe(REPORT), UNKNOWN)
    assert receipt is not None
    # No GPU was observed: its kernel is in the evidence, and is not claimed.
    assert (receipt.kernels, receipt.backend) == (("decode_step", "MUL_MAT"), "cpu")
    answer = verify(receipt, evidence)
    assert answer.refusals == ()
    assert answer.grade is Grade.CONSISTENT
    assert "W_KERNELS_FROM_ENGINE" in {each.code for each in answer.warnings}


def test_a_reported_mock_is_rejected_and_reports_alone_make_no_receipt() -> None:
    found = compose_toy(observe(Report("toy:log", {}, {"mock_gemv": 1})), KNOWN)
    assert "E_MOCK_KERNEL" in {each.code for each in verify(*found).refusals}
    receipt, evidence = compose_toy(observe(REPORT), None)
    assert receipt is None
    assert {each.source for each in evidence.kernels} == {"engine"}


def test_a_kernel_by_a_gpus_name_is_cuda_only_if_a_gpu_was_observed() -> None:
    sampled = profile({(python("sm80_xmma_gemm"),): 300})
    receipt, evidence = compose_toy(observe(), sampled)
    assert receipt is not None
    assert (receipt.kernels, receipt.backend) == (("sm80_xmma_gemm",), "cpu")
    forged = verify(replace(receipt, backend="cuda"), evidence)
    assert "W_DEVICE_NOT_OBSERVED" in {notice.code for notice in forged.warnings}
    assert forged.grade < Grade.OBSERVED
    without = verify(replace(receipt, backend="cuda"), replace(evidence, device=NOTHING))
    assert "E_NO_DEVICE" in {refusal.code for refusal in without.refusals}
    elsewhere = seen(Bundle(receipt, evidence, b""))
    receipt, evidence = compose_toy(replace(observe(), device=elsewhere), sampled)
    assert receipt is not None
    assert receipt.backend == "cuda"
    found = verify(receipt, evidence)
    named = {each.code for each in (*found.refusals, *found.warnings)}
    assert not [code for code in named if "DEVICE" in code or "GPU" in code]


LESS: dict[str, Callable[[], Bundle]] = {
    "no device": lambda: gpu_run().with_evidence(device=NOTHING),
    "versions differ": lambda: gpu_run(nvml_driver="560.28.03"),
    "no run was observed": lambda: gpu_run(runs=()),
    "on no device": nowhere,
    "one run of three idle": lambda: on_gpu(busy=0),
    "kernels of a CPU": lambda: gpu_run("cpu"),
    "kernels that only wait": lambda: gpu_run().with_evidence(
        kernels=(replace(gpu_run().evidence.kernels[0], name="cuda_sync"),)
    ),
    "an engine without GPU kernels": lambda: gpu_run().with_evidence(
        workload={"engine": "embedded"}
    ),
}


@pytest.mark.parametrize("make", LESS.values(), ids=LESS)
def test_anything_less_than_device_and_kernel_is_cpu(make: Callable[[], Bundle]) -> None:
    assert backend_of(gpu_run().evidence) == "cuda"
    assert backend_of(make().evidence) == "cpu"


@pytest.mark.parametrize(
    ("declared", "recorded"),
    [
        ("root ::= a\nb\t\u202ec", r"root ::= a\nb\t\u202ec"),
        (r"a\nb", r"a\\nb"),
        ("plain, 行列", "plain, 行列"),
    ],
)
def test_a_variable_of_several_lines_is_escaped_and_honest(declared: str, recorded: str) -> None:
    variables = {"GRAMMAR": declared}
    assert redact_environment(variables) == {"GRAMMAR": recorded}
    receipt, evidence = compose_toy(in_environment(redact_environment(variables)), KNOWN)
    assert verify(receipt, evidence).honest


@pytest.mark.parametrize(("name", "value"), [("MY_SEED", "auto"), ("TF_DETERMINISTIC", "0")])
def test_a_variable_that_draws_tokens_is_said_and_not_dishonest(name: str, value: str) -> None:
    receipt, evidence = compose_toy(in_environment({name: value}), KNOWN)
    assert receipt is not None
    assert not receipt.deterministic
    found = verify(receipt, evidence)
    assert found.honest
    (reason,) = [each for each in found.unfit if each.code == "F_NOT_DETERMINISTIC"]
    assert f'"{name}" is "{value}"' in reason.message


def in_environment(variables: dict[str, str]) -> Observation:
    """Return an observation in which a process has these variables."""
    seen = observe()
    return replace(
        seen,
        requested_environment={**seen.requested_environment, **variables},
        effective_environment={**seen.effective_environment, **variables},
    )
