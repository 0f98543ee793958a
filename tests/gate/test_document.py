"""``verdict.json`` holds what is promised, and reads back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import encode_json, encode_plain
from pytest_flamegate.gate import Reason, Verdict, headline, verdict_document
from pytest_flamegate.gate.document import read_verdict
from tests.gate.factory import PROFILE, QUIET, baseline, evidence, judge_stored, scaled
from tests.report import verdicts

PROMISED = {
    *("verdict", "reasons", "signals", "smallest_detectable_pct", "false_alarm_rate"),
    *("comparability", "grade"),
}
PROMISED_OF_A_SIGNAL = {
    *("name", "baseline", "current", "unit", "direction", "change_pct", "ci_low_pct"),
    *("ci_high_pct", "threshold_pct", "decision"),
}
REGRESSED = judge_stored(baseline(profile=PROFILE), evidence(scaled(QUIET, 1.2), PROFILE))


@pytest.mark.parametrize(
    "verdict",
    [
        REGRESSED,
        judge_stored(baseline(), evidence(model_sha256=None)),
        judge_stored(None, evidence()),
        judge_stored(evidence(), evidence()),
        verdicts.in_pairs(),
        verdicts.inconclusive(),
        Verdict.unjudged("error", [Reason("E_X", "It broke.")], grade="SELF_REPORTED"),
    ],
    ids=lambda verdict: verdict.verdict,
)
def test_holds_what_is_promised_and_reads_back(verdict: Verdict) -> None:
    data = encode_json(verdict_document(verdict))
    document = json.loads(data)
    assert document.keys() >= PROMISED
    assert document["verdict"] == verdict.verdict
    assert len(document["signals"]) == len(verdict.signals)
    assert all(signal.keys() >= PROMISED_OF_A_SIGNAL for signal in document["signals"])
    found = read_verdict(data)
    assert found.headline == headline(verdict)
    for name in ("verdict", "reasons", "grade", "pairs", "against", "explained_by", "miss_rate"):
        assert getattr(found.verdict, name) == getattr(verdict, name)
    assert found.verdict.current_processes == verdict.current_processes
    assert found.verdict.signals == tuple(
        replace(each, reasons=(), helped_by=()) for each in verdict.signals
    )
    assert [(cost.name, cost.change_us, cost.explains) for cost in found.verdict.attribution] == [
        (cost.name, cost.change_us, cost.explains) for cost in verdict.attribution
    ]


def test_numbers_are_those_of_the_verdict() -> None:
    document = json.loads(encode_json(verdict_document(REGRESSED)))
    assert document["signals"][0]["change_pct"] == REGRESSED.signals[0].change_pct
    assert document["reasons"][0] == {
        "code": "E_SLOWER",
        "message": REGRESSED.reasons[0].message,
    }
    assert document["attribution"][0]["name"] == "gemv"
    assert document["attribution"][0]["explains"] == pytest.approx(0.7, abs=0.01)
    hotspot = document["hotspots"][0]
    assert hotspot["finding"] == "costs_more"
    assert hotspot["baseline_share_pct"] == pytest.approx(69.9, abs=0.1)
    assert (document["exit_code"], document["grade"], document["method"]) == (
        *(1, "OBSERVED", "stored"),
    )
    incomparable = judge_stored(baseline(), evidence(model_sha256=None))
    assert json.loads(encode_json(verdict_document(incomparable)))["comparability"] == {
        "comparable": False,
        "differences": [
            {
                "field": "model sha256",
                "baseline": "aaaaaaaaaaa… (model.gguf)",
                "current": "absent",
                "code": "E_MODEL_DIFFERS",
            }
        ],
    }


@pytest.mark.parametrize("spoiled", [{}, {"verdict": "fine"}, {"reasons": [{"code": 1}]}])
def test_any_other_document_is_an_error(spoiled: dict[str, object]) -> None:
    document = {**encode_plain(verdict_document(REGRESSED)), **spoiled} if spoiled else {}
    with pytest.raises(ReceiptError, match="E_"):
        read_verdict(json.dumps(document).encode())
