"""Rules over the figures and kernels that an engine reports about itself."""

from time import process_time
from typing import Any, cast

import pytest

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import decode_plain, replace
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.receipt import Grade
from pytest_flamegate.receipt.rules.figures import _check_reported_tokens
from pytest_flamegate.receipt.rules.rule import Claim, Submission
from pytest_flamegate.receipt.types import KernelSighting
from tests.made import Bundle, bundle
from tests.receipt.rules.changes import Make, refusals, verify, with_metric


def reports(**options: Any) -> Bundle:
    return bundle().with_reports(**options)


def only(**figures: float) -> Bundle:
    """One report of these figures alone in every timed run."""
    made = bundle()
    for index, run in enumerate(made.evidence.runs):
        if run.role == "timed":
            made = made.with_run(index, reported=(Report("log", figures),))
    return made.recomputed()


def with_kernels(made: Bundle, *reported: KernelSighting) -> Bundle:
    """The kernels of the profile, and ``reported`` ones of the engine."""
    profiled = [each for each in made.evidence.kernels if each.source == "profile"]
    return made.with_evidence(kernels=(*profiled, *reported))


def with_kernel() -> Bundle:
    return reports(kernels={"i2s_gemv": 2})


def with_decode(**changes: Any) -> Bundle:
    return with_metric(reports(), "engine_decode_ms", **changes)


KERNEL = with_kernel().evidence.kernels[-1]

HONEST: dict[str, Make] = {
    "n-1 tokens": reports,
    "n tokens": lambda: reports(counted=0),
    "n+1 tokens, with the end of the text": lambda: reports(counted=1),
    "two sources": lambda: reports().with_reports("server", counted=0),
    "a program": lambda: bundle(clock_scope="process").with_reports(load_ms=20.0),
    "bytes were counted": lambda: reports(counted=30).with_evidence(token_source="stdout:byte"),
    "a load time before it was ready": lambda: reports(load_ms=29.5),
    "one token": lambda: bundle(tokens=("52",)).with_reports(counted=0),
    "a rate": lambda: bundle(jitter=0.001).with_reports(tokens_per_second=512.8),
    "a rate in whole numbers": lambda: bundle(jitter=0.001).with_reports(tokens_per_second=513.0),
    "a rate of 0": lambda: reports(tokens_per_second=0.0),
    "a rate without a time": lambda: only(tokens=4.0, tokens_per_second=9e9),
    "times in whole milliseconds": lambda: only(
        tokens=3.0, decode_ms=6.0, tokens_per_second=512.82
    ),
    "steps": lambda: only(embed_us=9.0, forward_us=1800.0, logits_us=40.5, sample_us=3.0),
    "a total of the whole run": lambda: only(tokens=24.0, total_ms=90.0),
    "kernels": lambda: reports(kernels={"MUL_MAT": 211, "ROPE": 60}),
    "kernels that the profile shows": lambda: reports(kernels={"ternary_gemv": 210}),
}

FORGED: list[tuple[str, Make]] = [
    ("E_REPORT_CONTRADICTION", lambda: reports(counted=2)),
    ("E_REPORT_CONTRADICTION", lambda: reports(counted=-2)),
    ("E_REPORT_CONTRADICTION", lambda: only(tokens=0.0)),
    ("E_REPORT_CONTRADICTION", lambda: only(decode_ms=110.0)),
    ("E_REPORT_CONTRADICTION", lambda: only(prefill_ms=60.0, decode_ms=60.0)),
    ("E_REPORT_CONTRADICTION", lambda: only(total_ms=200.0)),
    ("E_REPORT_CONTRADICTION", lambda: only(load_ms=200.0)),
    ("E_REPORT_CONTRADICTION", lambda: only(forward_us=150_000.0)),
    ("E_REPORT_CONTRADICTION", lambda: bundle(clock_scope="process").with_reports(load_ms=500.0)),
    ("E_REPORT_CONTRADICTION", lambda: reports(tokens_per_second=51.3)),
    ("E_KERNEL_UNSEEN", lambda: with_kernels(with_kernel(), replace(KERNEL, told_by="log"))),
    ("E_KERNEL_UNSEEN", lambda: with_kernels(with_kernel(), KERNEL, KERNEL)),
    ("E_METRIC_MISMATCH", lambda: with_decode(samples=99)),
    ("E_METRIC_MISMATCH", lambda: with_decode(provenance="measured")),
    ("E_METRIC_MISMATCH", lambda: with_metric(bundle(), "load_ms", provenance="ingested")),
    ("E_METRIC_MISMATCH", lambda: with_metric(bundle(), "load_ms", name="engine_load_ms")),
]


@pytest.mark.parametrize("name", HONEST)
def test_honest_reports_do_not_lower_the_grade(name: str) -> None:
    answer = verify(HONEST[name](), require_grade=Grade.OBSERVED)
    assert answer.refusals == ()


@pytest.mark.parametrize(("code", "make"), FORGED, ids=[str(n) for n in range(len(FORGED))])
def test_a_contradiction_rejects_the_receipt(code: str, make: Make) -> None:
    assert refusals(make()) == {code}


def test_100_000_reports_of_1_500_lengths_take_less_than_5_s() -> None:
    run = bundle(timed=1).evidence.runs[0]
    sequences = tuple((1000,) * length for length in range(1, 3000, 2))
    blocks = (replace(run.blocks[0], sequences_ns=sequences),)
    odd = tuple(Report("log", {"tokens": 2000.0 + 0.001 * n}) for n in range(100_000))
    evidence = replace(bundle().evidence, runs=(replace(run, blocks=blocks, reported=odd),))
    began = process_time()
    assert list(_check_reported_tokens(Submission(cast("Claim", None), "", evidence))) == []
    assert process_time() - began < 5


@pytest.mark.parametrize(
    "odd",
    [{"source": ""}, {"figures": {"tokens": -1}}, {"figures": {"n": True}}, {"kernels": {"k": -1}}],
)
def test_the_type_of_a_report(odd: dict[str, object]) -> None:
    report = {"source": "x", "figures": {"tokens": 0, "n": 1e-9}, "kernels": {"k": 0}}
    assert decode_plain(report, Report).source == "x"
    with pytest.raises(ReceiptError):
        decode_plain(report | odd, Report)
