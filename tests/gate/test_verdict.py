"""Every verdict in one sentence."""

import json
import math
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import encode_json, encode_plain, replace
from pytest_flamegate.gate.document import read_verdict, verdict_document
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.gate.verdict import Verdict, headline
from tests.gate.factory import (
    PROFILE,
    QUIET,
    baseline,
    changed,
    evidence,
    judge_paired,
    judge_stored,
    moved,
    scaled,
    sides,
)
from tests.receipt.documents import load_schema
from tests.report import verdicts

BROKEN = Verdict("error", (Reason("E_X", "It broke."),), grade="SELF_REPORTED")
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
        BROKEN,
    ],
    ids=lambda verdict: verdict.verdict,
)
def test_holds_what_is_promised_and_reads_back(verdict: Verdict) -> None:
    data = encode_json(verdict_document(verdict))
    Draft202012Validator(load_schema("verdict")).validate(json.loads(data))
    # A document does without what only the decision needs.
    signals = tuple(replace(each, reasons=(), more_processes=()) for each in verdict.signals)
    costs = tuple(replace(each, no_more_than_us=math.inf) for each in verdict.attribution)
    expected = replace(verdict, signals=signals, attribution=costs, differences=())
    expected = replace(expected, hotspots=(), phases=(), bricks=(), analyses=())
    expected = replace(expected, more_processes=(), cpu_pressure_pct=None)
    assert read_verdict(data) == (headline(verdict), expected)


def test_a_note_about_a_new_workload_excuses_no_other_verdict() -> None:
    note = Reason("I_NEW_WORKLOAD", "It is new.")
    for name, code, fails in (("no_baseline", 0, False), ("regressed", 1, True)):
        verdict = Verdict(name, (note,), grade="OBSERVED")  # type: ignore[arg-type]
        assert (verdict.exit_code, verdict.fails_test(ci=True, strict=True)) == (code, fails)


def test_a_slowdown_estimated_below_the_threshold_says_why_it_fails() -> None:
    made = verdicts.in_pairs()
    rate = replace(made.signals[0], change_pct=-4.2, ci_low_pct=-6.2, ci_high_pct=-2.2)
    below = replace(made, signals=(rate, *made.signals[1:]), lines=())
    expected = (
        "regressed: 4.2 % slower (2.2 … 6.2 %: certain, and perhaps more than the 5 % allowed), "
    )
    assert headline(below).startswith(expected)
    assert "perhaps" not in headline(made)


def test_numbers_are_those_of_the_verdict() -> None:
    document = json.loads(encode_json(verdict_document(REGRESSED)))
    assert document["attribution"][0]["explains"] == pytest.approx(0.7, abs=0.01)
    assert document["attribution"][0]["change_us_per_token"] == pytest.approx(140, rel=0.02)
    hotspot = document["hotspots"][0]
    assert (hotspot["name"], hotspot["finding"]) == ("gemv", "costs_more")
    assert hotspot["baseline_share_pct"] == pytest.approx(69.9, abs=0.1)
    assert (document["exit_code"], document["method"]) == (1, "stored")
    incomparable = judge_stored(baseline(), evidence(model_sha256=None))
    comparability = json.loads(encode_json(verdict_document(incomparable)))["comparability"]
    assert not comparability["comparable"]
    assert comparability["differences"][0]["current"] == "absent"


@pytest.mark.parametrize("spoiled", [{}, {"verdict": "fine"}, {"reasons": [{"code": 1}]}])
def test_any_other_document_is_an_error(spoiled: dict[str, object]) -> None:
    document = {**encode_plain(verdict_document(REGRESSED)), **spoiled} if spoiled else {}
    with pytest.raises(ReceiptError, match="E_"):
        read_verdict(json.dumps(document).encode())


NOISY = tuple(t * f for t, f in zip(QUIET, (1.01, 1.1, 0.95, 1.05, 0.9, 1.02), strict=True))


def line(times: tuple[float, ...], counts: Any = None, process: Any = None) -> str:
    old = baseline(profile=PROFILE if counts else None)
    return headline(judge_stored(old, evidence(times, counts, process=process)))


def grown(**factors: float) -> tuple[tuple[float, ...], Any]:
    """Times and profiles of an engine whose functions cost ``factors`` as much."""
    whole, counts = changed(**factors)
    return scaled(QUIET, whole), counts


@pytest.mark.parametrize(
    ("made", "pattern"),
    [
        (
            grown(rms_norm=3.0),
            r"regressed: 10\.7 % slower \(9\.\d … 1[12]\.\d %, threshold 5 %\), "
            r"all of it in rms_norm",
        ),
        (
            grown(rms_norm=3.5, attention=1.4),
            r"regressed: 18\.\d % slower \(.*\), most of it in rms_norm \(6\d %\)",
        ),
        (
            grown(rms_norm=3.0, attention=1.7, gemv=1.2),
            r"regressed: 28\.\d % slower \(.*\)(, 3\d % of it in \w+){3}",
        ),
        (
            grown(gemv=0.5),
            r"improved: 53\.\d % faster \(5\d\.\d … 5\d\.\d %\), all of it in gemv; "
            r"could have seen \d\.\d %",
        ),
        (
            (scaled(QUIET, 1.0), PROFILE),
            r"pass: unchanged \(1\.\d % slower … 1\.\d % faster, threshold 5 %\); "
            r"could have seen 2\.\d %",
        ),
        (
            (scaled(QUIET, 1.03), PROFILE),
            r"pass: 2\.9 % slower \(1\.\d … 4\.\d %, threshold 5 %\), certainly less than the 5 % "
            r"allowed; could have seen 2\.\d %",
        ),
        (
            (scaled(QUIET, 1.2), None),
            r"regressed: 16\.7 % slower \(15\.\d … 17\.\d %, threshold 5 %\)",
        ),
        (
            (scaled(QUIET, 1.2), PROFILE, {"waiting_us": 200.0}),
            r"regressed: 16\.7 % slower \(.*\), all of it in waiting, off the CPU",
        ),
        (
            (scaled(QUIET, 1.0), PROFILE[:2]),
            r"inconclusive: Shares need 3 profiled processes .* Tokens per second: .*\.",
        ),
    ],
)
def test_headlines(made: tuple[Any, ...], pattern: str) -> None:
    text = line(*made)
    assert re.fullmatch(pattern, text), text


def test_a_share_alone_fails_if_drift_is_strict() -> None:
    new = evidence(scaled(QUIET, 1.0), moved(PROFILE, "rms_norm", 80, "gemv"))
    old = baseline(profile=PROFILE)
    assert headline(judge_stored(old, new)).startswith("pass: unchanged")
    text = headline(judge_stored(old, new, share_drift="strict"))
    assert re.fullmatch(
        r"regressed: gemv 69\.9 → 61\.9 % of the samples \(-8\.0 pp, threshold 5 pp\); rms_norm "
        r"6\.0 → 14\.1 % of the samples \(\+8\.0 pp, threshold 5 pp\); "
        r"tokens/s unchanged \(1\.\d % slower … 1\.\d % faster, threshold 5 %\)",
        text,
    ), text


def test_a_function_whose_cost_may_have_changed_is_not_named_as_the_cause() -> None:
    wide = tuple({"gemv": 950 + i, "rope": 50 - i} for i in (0, 20, -400, -200, 40, -500))
    text = headline(judge_stored(baseline(profile=wide), evidence(scaled(QUIET, 1.1), wide)))
    assert re.fullmatch(r"regressed: 9\.1 % slower \([^)]*, threshold 5 %\)", text), text


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((0.9, 0.1), "5 %), all of it in f0"),
        ((0.5, 0.4), "5 %), most of it in f0 (50 %)"),
        ((0.3, 0.25, 0.2, 0.15), "5 %), 30 % of it in f0, 25 % of it in f1, 20 % of it in f2"),
        ((0.4, 0.1, 0.09, -0.2), "5 %), 40 % of it in f0, 10 % of it in f1"),
        ((), "5 %), most likely g"),
    ],
)
def test_functions_that_make_up_a_tenth_of_the_change_are_named(
    parts: tuple[float, ...], words: str
) -> None:
    rows = [
        verdicts.cost(f"f{number}", 50.0, 50.0 + 100.0 * part, 1.0, 1e-4, part)
        for number, part in enumerate(parts)
    ]
    uncertain = verdicts.cost("g", 50.0, 120.0, 90.0, 0.2, 0.7)
    made = replace(verdicts.regressed(), attribution=(uncertain, *rows))
    assert headline(made).endswith(words)
    (line,) = verdicts.in_pairs().lines
    elsewhere = replace(line, place=replace(line.place, is_changed=False))
    little = replace(line, cost=replace(line.cost, explains=0.09))
    assert headline(replace(made, lines=(elsewhere, little))) == headline(made)
    named = replace(line, cost=replace(line.cost, explains=0.1))
    text = headline(replace(made, lines=(elsewhere, little, named)))
    place = "10 % of it at src/norm.c:221-224 (changed here, 30.0 → 110 µs/token)"
    assert text == headline(made).replace("5 %), ", f"5 %), {place}, ")


def test_noise_states_width_reason_and_remedy() -> None:
    old = baseline(process={"pressure": 22.0})
    text = headline(judge_stored(old, evidence(NOISY, process={"pressure": 20.0})))
    assert re.fullmatch(
        r"inconclusive: \d+\.\d % \w+ \(\d+\.\d % slower … \d+\.\d % faster, threshold 5 %\) "
        r"after 6 processes; CPU pressure was 20 %; could have seen \d+\.\d %; "
        r"measure again when less runs beside it, or give it more time \(--flamegate-budget\), "
        r"or allow a drop of \d+ %, which can be decided here",
        text,
    ), text
    # A change that could have been seen needs no larger threshold.
    verdict = judge_stored(old, evidence(NOISY, process={"pressure": 20.0}))
    # No user would allow a drop of 25 %.
    for smallest, advised in ((5.0, False), (5.1, True), (20.0, True), (25.0, False)):
        fine = replace(verdict.signals[0], smallest_detectable_pct=smallest)
        assert ("allow a drop" in headline(replace(verdict, signals=(fine,)))) is advised
    # The noise of a baseline asks for pairs.
    text = headline(judge_stored(baseline(NOISY), evidence()))
    assert "; compare in pairs (--flamegate-against=REV), or allow a drop of" in text


def test_an_unjudged_verdict_gives_its_first_reason() -> None:
    assert headline(judge_stored(None, evidence())) == (
        "no baseline: 999.6 tokens/s on the quiet clock (1.00 ms/token), 6 processes. No baseline "
        "is accepted for this workload on this machine. Accept this run with --flamegate-update."
    )
    text = headline(judge_stored(baseline(), evidence(model_sha256=None, clock_scope="process")))
    assert text == (
        "not comparable: model sha256 differs: aaaaaaaaaaa… (model.gguf) at the baseline, "
        "absent now. Restore the model, or accept a new baseline (--flamegate-update). And 1 more."
    )
    assert headline(BROKEN) == "error: It broke."
    assert headline(judge_stored(evidence(), evidence())).startswith("dishonest: The baseline was")
    few = headline(judge_stored(baseline(), evidence(scaled(QUIET, 2.0)[:2])))
    assert few.startswith("inconclusive: The current side has 2 timed process(es)")


def test_pairs_are_named_as_pairs() -> None:
    noisy = [0.2 * (-1) ** i + 0.001 * i for i in range(6)]
    text = headline(judge_paired(*sides(noisy)))
    assert ", threshold 5 %) after 6 pairs; " in text
    assert text.endswith("; give it more time (--flamegate-budget)")
    unknown = replace(judge_stored(baseline(), evidence()), smallest_detectable_pct=None)
    assert "could have seen" not in headline(unknown)
