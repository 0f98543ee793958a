"""Rules over what the engine says of itself, one refusal each; and honest words of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import process_time
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_flamegate.core.json import loads
from pytest_flamegate.core.schema import validate
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.rules.figures import CHECKS
from pytest_flamegate.receipt.rules.subject import Submission
from pytest_flamegate.receipt.types import KernelSighting
from tests.made import Bundle, bundle
from tests.receipt.test_crosscheck import metric

if TYPE_CHECKING:
    from pytest_flamegate.receipt.rules.subject import Claim


NOBODYS = KernelSighting("i2s_gemv", "engine", 9, "llama.cpp:perf")


def verify(triple: Bundle) -> Verification:
    files = triple.files
    return verify_receipt(
        files["receipt.json"],
        evidence=files["evidence.json"],
        profile_folded=files["profile.folded"],
    )


def only(**figures: float) -> Bundle:
    """A report of these figures alone, on every timed run."""
    triple = bundle()
    for index, run in enumerate(triple.evidence.runs):
        if run.role == "timed":
            triple = triple.with_run(index, reported=(Report("log", figures),))
    return triple.recomputed()


HONEST: dict[str, Callable[[], Bundle]] = {
    "n-1": lambda: bundle().with_reports(),
    "n": lambda: bundle().with_reports(counted=0),
    "the end counted": lambda: bundle().with_reports(counted=1),
    "two sources": lambda: bundle().with_reports().with_reports("server", counted=0),
    "a program": lambda: bundle(clock_scope="process").with_reports(load_ms=20.0),
    "bytes were counted": lambda: (
        bundle().with_reports(counted=30).with_evidence(token_source="stdout:byte")
    ),
    "a load before it was ready": lambda: bundle().with_reports(load_ms=29.5),
    "one token": lambda: bundle(tokens=("52",)).with_reports(counted=0),
    "its own rate": lambda: bundle(jitter=0.001).with_reports(tokens_per_second=512.8),
    "a rate in whole numbers": lambda: bundle(jitter=0.001).with_reports(tokens_per_second=513.0),
    "a rate of nothing": lambda: bundle().with_reports(tokens_per_second=0.0),
    "a rate and no time": lambda: only(tokens=4.0, tokens_per_second=9e9),
    "times in whole milliseconds": lambda: only(
        tokens=3.0, decode_ms=6.0, tokens_per_second=512.82
    ),
    "steps": lambda: only(embed_us=9.0, forward_us=1800.0, logits_us=40.5, sample_us=3.0),
    "a total of the whole run": lambda: only(tokens=24.0, total_ms=90.0),
    "figures of its own": lambda: only(spec_accept_pct=41.5, n_reused=0.0),
    "kernels": lambda: bundle().with_reports(kernels={"MUL_MAT": 211, "ROPE": 60}),
    "kernels that never ran": lambda: bundle().with_reports(kernels={"TL2": 0, "mock_gemv": 0}),
    "kernels that the profile shows": lambda: bundle().with_reports(kernels={"ternary_gemv": 210}),
    "kernels of strange names": lambda: bundle().with_reports(
        kernels={"a\u202eb": 3, "x" * 500: 1}
    ),
}

REFUSED: list[tuple[str, Callable[[], Bundle]]] = [
    ("E_REPORT_CONTRADICTION", lambda: bundle().with_reports(counted=2)),
    ("E_REPORT_CONTRADICTION", lambda: bundle().with_reports(counted=-2)),
    ("E_REPORT_CONTRADICTION", lambda: only(tokens=0.0)),
    ("E_REPORT_CONTRADICTION", lambda: only(tokens=3.5e9)),
    ("E_REPORT_CONTRADICTION", lambda: only(decode_ms=110.0)),
    ("E_REPORT_CONTRADICTION", lambda: only(prefill_ms=60.0, decode_ms=60.0)),
    ("E_REPORT_CONTRADICTION", lambda: only(total_ms=200.0)),
    ("E_REPORT_CONTRADICTION", lambda: only(load_ms=200.0)),
    ("E_REPORT_CONTRADICTION", lambda: only(forward_us=150_000.0)),
    ("E_REPORT_CONTRADICTION", lambda: bundle().with_reports(decode_ms=30.0)),
    ("E_REPORT_CONTRADICTION", lambda: bundle(clock_scope="process").with_reports(load_ms=500.0)),
    ("E_REPORT_CONTRADICTION", lambda: bundle().with_reports(tokens_per_second=5130.0)),
    ("E_REPORT_CONTRADICTION", lambda: bundle().with_reports(tokens_per_second=51.3)),
    ("E_REPORT_CONTRADICTION", lambda: bundle().with_reports(decode_tokens_per_second=5130.0)),
    ("E_REPORT_CONTRADICTION", lambda: bundle().with_reports(prefill_tokens_per_second=9000.0)),
    ("E_KERNEL_UNSEEN", lambda: kernels(bundle(), NOBODYS)),
    ("E_KERNEL_UNSEEN", lambda: kernels(bundle().with_reports(kernels={"other": 9}), NOBODYS)),
    ("E_KERNEL_UNSEEN", lambda: kernels(bundle().with_reports(), replace(NOBODYS, told_by=""))),
    ("E_KERNEL_UNSEEN", lambda: kernels(told(), replace(told_kernel(), count=10**6))),
    ("E_KERNEL_UNSEEN", lambda: kernels(told(), replace(told_kernel(), told_by="log"))),
    ("E_KERNEL_UNSEEN", lambda: kernels(told(), told_kernel(), told_kernel())),
    ("E_KERNEL_UNSEEN", lambda: kernels(told())),
    ("E_MOCK_KERNEL", lambda: bundle().with_reports(kernels={"mock_gemv": 2})),
    ("E_MOCK_KERNEL", lambda: bundle().with_reports(kernels={"gemv_MOCK" + "x" * 500: 1})),
    ("E_METRIC_MISMATCH", lambda: metric(bundle().with_reports(), "engine_decode_ms", value=1.1)),
    ("E_METRIC_MISMATCH", lambda: metric(bundle().with_reports(), "engine_decode_ms", samples=99)),
    (
        "E_METRIC_MISMATCH",
        lambda: metric(bundle().with_reports(), "engine_decode_ms", direction="higher_is_better"),
    ),
    (
        "E_METRIC_MISMATCH",
        lambda: metric(bundle().with_reports(), "engine_decode_ms", provenance="measured"),
    ),
    (
        "E_METRIC_MISMATCH",
        lambda: metric(bundle().with_reports(), "engine_decode_ms", formula="log:decode_ms/median"),
    ),
    ("E_METRIC_MISMATCH", lambda: metric(bundle(), "load_ms", provenance="ingested")),
    ("E_METRIC_MISMATCH", lambda: metric(bundle(), "load_ms", name="engine_load_ms")),
]


def kernels(triple: Bundle, *by_engine: KernelSighting) -> Bundle:
    shown = [each for each in triple.evidence.kernels if each.source == "profile"]
    return triple.with_evidence(kernels=(*shown, *by_engine))


def told() -> Bundle:
    return bundle().with_reports(kernels={"i2s_gemv": 2})


def told_kernel() -> KernelSighting:
    return told().evidence.kernels[-1]


@pytest.mark.parametrize("name", HONEST)
def test_honest_words_take_nothing_from_what_was_observed(name: str) -> None:
    answer = verify(HONEST[name]())
    assert answer.refusals == ()
    assert answer.grade is Grade.OBSERVED


@pytest.mark.parametrize(("code", "make"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
def test_what_contradicts_is_refused(code: str, make: Callable[[], Bundle]) -> None:
    answer = verify(make())
    assert {refusal.code for refusal in answer.refusals} == {code}
    assert all(refusal.remedy for refusal in answer.refusals)


def test_very_many_reports_of_very_many_lengths_are_read_in_time() -> None:
    triple = bundle(timed=1, tokens=("a", "b"))
    run = triple.evidence.runs[0]
    sequences = tuple((1000,) * length for length in range(1, 3000, 2))
    block = replace(run.blocks[0], sequences_ns=sequences)
    odd = tuple(Report("log", {"tokens": 2000.0 + 0.001 * n}) for n in range(100_000))
    evidence = replace(triple.evidence, runs=(replace(run, blocks=(block,), reported=odd),))
    case = Submission(claim=cast("Claim", None), receipt_sha256="", evidence=evidence)
    rule = next(each for each in CHECKS if "as many tokens" in each.sentence)
    began = process_time()
    assert list(rule.find(case)) == []
    assert process_time() - began < 5


def test_a_kernel_by_the_engines_word_alone_keeps_a_claim_below_observed() -> None:
    triple = told()
    claimed = triple.with_receipt(kernels=(*triple.receipt.kernels, "i2s_gemv"))
    answer = verify(claimed)
    assert answer.ok
    assert answer.grade is Grade.CONSISTENT
    assert "W_KERNELS_FROM_ENGINE" in {notice.code for notice in answer.warnings}


def test_where_nothing_ran_figures_are_ingested_from_elsewhere() -> None:
    """What another tool measured has no runs; nothing here says that it is untrue."""
    triple = metric(bundle(), "load_ms", provenance="ingested").with_evidence(runs=(), profile=None)
    assert "E_METRIC_MISMATCH" not in {refusal.code for refusal in verify(triple).refusals}


@pytest.mark.parametrize(
    ("report", "valid"),
    [
        ({"source": "x", "figures": {}, "kernels": {}}, True),
        ({"source": "x", "figures": {"tokens": 0, "n": 1e-9}, "kernels": {"k": 0}}, True),
        ({"source": "", "figures": {}, "kernels": {}}, False),
        ({"source": 1, "figures": {}, "kernels": {}}, False),
        ({"source": "x", "figures": {}}, False),
        ({"figures": {}, "kernels": {}}, False),
        ({"source": "x", "figures": {"tokens": -1}, "kernels": {}}, False),
        ({"source": "x", "figures": {"tokens": float("nan")}, "kernels": {}}, False),
        ({"source": "x", "figures": {"tokens": "9"}, "kernels": {}}, False),
        ({"source": "x", "figures": {"tokens": True}, "kernels": {}}, False),
        ({"source": "x", "figures": {}, "kernels": {"k": -1}}, False),
        ({"source": "x", "figures": {}, "kernels": {"k": 1.5}}, False),
        ([], False),
    ],
    ids=range(13),
)
def test_the_schema_of_a_report(report: Any, valid: bool) -> None:
    document: Any = loads(bundle().with_reports().files["evidence.json"])
    document["runs"][0]["reported"] = [report]
    assert (validate(document, "evidence") == []) is valid
