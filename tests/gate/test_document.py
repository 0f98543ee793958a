from __future__ import annotations

import json

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.gate import Reason, Verdict, verdict_document
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import PROFILE, QUIET, baseline, evidence, judge_stored, scaled

PROMISED = {
    "verdict",
    "reasons",
    "signals",
    "smallest_detectable_pct",
    "false_alarm_rate",
    "comparability",
    "grade",
}
PROMISED_OF_A_SIGNAL = {
    "name",
    "baseline",
    "current",
    "unit",
    "direction",
    "change_pct",
    "ci_low_pct",
    "ci_high_pct",
    "threshold_pct",
    "decision",
}


def judged(old: Evidence | None, new: Evidence) -> Verdict:
    return judge_stored(old, new, Thresholds())


@pytest.mark.parametrize(
    "verdict",
    [
        judged(baseline(profile=PROFILE), evidence(scaled(QUIET, 1.2), PROFILE)),
        judged(baseline(), evidence(model_sha256=None)),
        judged(None, evidence()),
        judged(evidence(), evidence()),
        Verdict.unjudged("error", [Reason("E_X", "It broke.")], grade="SELF_REPORTED"),
    ],
    ids=lambda verdict: verdict.verdict,
)
def test_holds_what_is_promised_and_survives_strict_json(verdict: Verdict) -> None:
    document = json.loads(encode_json(verdict_document(verdict)))
    assert document.keys() >= PROMISED
    assert document["verdict"] == verdict.verdict
    signals = document["signals"]
    assert isinstance(signals, list)
    assert len(signals) == len(verdict.signals)
    for signal in signals:
        assert signal.keys() >= PROMISED_OF_A_SIGNAL


def test_numbers_are_those_of_the_verdict() -> None:
    verdict = judged(baseline(profile=PROFILE), evidence(scaled(QUIET, 1.2), PROFILE))
    document = json.loads(encode_json(verdict_document(verdict)))
    signals, attribution, hotspots = (
        document[name] for name in ("signals", "attribution", "hotspots")
    )
    assert isinstance(signals, list)
    assert isinstance(attribution, list)
    assert isinstance(hotspots, list)
    assert signals[0]["change_pct"] == verdict.signals[0].change_pct
    assert document["reasons"][0] == {
        "code": "E_SLOWER",
        "message": verdict.reasons[0].message,
    }
    assert attribution[0]["name"] == "gemv"
    assert attribution[0]["explains"] == pytest.approx(0.7, abs=0.01)
    assert hotspots[0]["finding"] == "costs_more"
    assert document["exit_code"] == 1
    assert document["grade"] == "OBSERVED"


def test_differences_are_told() -> None:
    verdict = judged(baseline(), evidence(model_sha256=None))
    document = json.loads(encode_json(verdict_document(verdict)))
    assert document["comparability"] == {
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
