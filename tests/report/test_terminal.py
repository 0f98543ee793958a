from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
from rich.cells import cell_len

from pytest_flamegate.core.text import Notice, Refusal
from pytest_flamegate.gate import Reason, Verdict
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.rules.replay import RateAgain, Replayed
from pytest_flamegate.receipt.verify import Verification
from pytest_flamegate.report.terminal import (
    Outcome,
    colour_of,
    preamble,
    summary,
    verification_text,
)
from tests.report import factory, verdicts


def outcome(name: str = "decode", verdict: Verdict | None = None) -> Outcome:
    return Outcome(name, verdict or verdicts.no_baseline(), factory.receipt(), factory.evidence())


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"note": "no perf", "cpu": "AMD EPYC", "cores": 2, "noise_pct": 1.9},
            "flamegate: py-spy 0.4.3 (no perf) · AMD EPYC, 2 cores · noise 1.9 %",
        ),
        (
            {"note": None, "cpu": " ", "cores": 1, "noise_pct": None},
            "flamegate: py-spy 0.4.3 · unknown CPU, 1 core",
        ),
        (
            {"note": None, "cpu": "A\nB", "cores": None, "noise_pct": None},
            r"flamegate: py-spy 0.4.3 · A\x0aB",
        ),
    ],
)
def test_the_line_before(given: dict[str, object], line: str) -> None:
    assert preamble(profiler="py-spy 0.4.3", **given) == line  # type: ignore[arg-type]


def test_the_table() -> None:
    lines = summary(
        [outcome("1tok"), outcome("passage", verdicts.regressed())],
        width=120,
        accept="pytest --flamegate --flamegate-update",
    )
    assert lines == [
        "workload   tokens/s   quiet clock   verdict       hottest frames (share of CPU)",
        "1tok            427   2.33 ms/tok   no baseline   "
        "ternary_gemv 71.6 %  quantize 16.0 %  softmax 4.3 %",
        "passage         427   2.33 ms/tok   regressed     "
        "ternary_gemv 71.6 %  quantize 16.0 %  softmax 4.3 %",
        "receipts OBSERVED (the machine's owner could still have forged them)"
        " · flame graphs in .flamegate/latest",
        "accept these as the baseline:  pytest --flamegate --flamegate-update",
    ]


def test_wide_names_keep_the_columns_in_line() -> None:
    lines = summary([outcome("行列"), outcome("decode"), outcome("x" * 99)], width=110)
    starts = {cell_len(line[: line.index("ternary_gemv")]) for line in lines[1:4]}
    assert len(starts) == 1
    assert lines[3].startswith("…" + "x" * 35)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_rows_fit_the_terminal(width: int) -> None:
    table = summary([outcome("1tok"), outcome("passage")], width=width)[:3]
    # The frames' column never gets narrower than one name needs.
    assert all(cell_len(line) <= max(width, 70) for line in table)


def test_frames_are_dropped_whole() -> None:
    lines = summary([outcome("1tok")], width=90)
    assert lines[1].endswith("ternary_gemv 71.6 %  quantize 16.0 %")


def test_undecided_verdicts_say_why() -> None:
    lines = summary([outcome("p", verdicts.inconclusive()), outcome("d", verdicts.regressed())])
    reasons = [line for line in lines if line.startswith(("p: ", "d: "))]
    assert len(reasons) == 1
    assert reasons[0].startswith("p: inconclusive: between 1.0 % faster and 7.9 % slower")


def test_grades_are_counted_and_the_lowest_is_owned_up_to() -> None:
    low = dataclasses.replace(verdicts.no_baseline(), grade="CONSISTENT")
    lines = summary([outcome("a"), outcome("b", low)], width=120)
    assert lines[3].startswith(
        "receipts OBSERVED (1), CONSISTENT (1) (some are only the word of whoever wrote them)"
    )


def test_what_never_ran_has_dashes() -> None:
    verdict = Verdict.unjudged("error", [Reason("E_X", "It broke.")], grade="SELF_REPORTED")
    lines = summary([Outcome("broken", verdict)])
    assert lines[1].split() == ["broken", "–", "–", "error"]
    assert len(lines) == 2
    assert summary([]) == ["no workload was measured"]


def test_without_a_receipt_the_quiet_clock_tells_the_rate() -> None:
    """So it is where profiling is off: nothing is claimed, and still it was measured."""
    evidence = dataclasses.replace(factory.evidence(), profile=None, kernels=())
    lines = summary([Outcome("decode", verdicts.no_baseline(), None, evidence)])
    assert lines[1].split() == ["decode", "429", "2.33", "ms/tok", "no", "baseline"]


def test_colour_only_where_it_is_asked_for() -> None:
    outcomes = [outcome("a", verdicts.regressed()), outcome("b")]
    plain, painted = summary(outcomes), summary(outcomes, colour=True)
    assert "\x1b" not in "".join(plain)
    assert "\x1b[1;31mregressed\x1b[0m" in painted[1]
    for code in ("\x1b[0m", "\x1b[1;31m", "\x1b[1;33m"):
        painted = [line.replace(code, "") for line in painted]
    assert painted == plain


@pytest.mark.parametrize(
    ("word", "colour"),
    [("pass", "green"), ("improved", "green"), ("regressed", "red"), ("dishonest", "red"),
     ("error", "red"), ("inconclusive", "yellow"), ("no_baseline", "yellow")],
)  # fmt: skip
def test_colours(word: str, colour: str) -> None:
    verdict = Verdict(word, (Reason("E_X", "m"),), "OBSERVED")  # type: ignore[arg-type]
    assert colour_of(verdict) == colour


def verification(*, ok: bool) -> Verification:
    return Verification(
        ok=ok,
        grade=Grade.CONSISTENT,
        refusals=()
        if ok
        else (
            Refusal("E_KERNEL_UNSEEN", 'kernel "i2s\x1b" is claimed and not seen.', "Profile it."),
            Refusal("E_TPS", "512.0 tok/s claimed, 48.1 from the token times."),
        ),
        warnings=(Notice("W_DUPLICATE", "A kernel is named twice."),),
        policy="bitnet",
        ceiling="what a green answer would prove: little. Nothing more.",
    )


def test_a_refused_receipt_says_why_and_what_green_would_prove() -> None:
    assert verification_text(verification(ok=False), path="r.json", required="observed") == (
        "r.json: refused (grade CONSISTENT, wanted OBSERVED)   policy bitnet\n"
        "honest: no\n"
        '  E_KERNEL_UNSEEN   kernel "i2s\\x1b" is claimed and not seen. Profile it.\n'
        "  E_TPS             512.0 tok/s claimed, 48.1 from the token times.\n"
        "  W_DUPLICATE       A kernel is named twice.\n"
        "fit to gate on: not asked, for it is not honest\n"
        "what a green answer would prove: little. Nothing more."
    )


def test_honest_and_fit_are_answered_apart() -> None:
    unfit = (Notice("F_NO_COMMIT", "2 file(s) differed.", "Commit."),)
    told = verification_text(replace(verification(ok=True), honest=True, unfit=unfit)).splitlines()
    assert "honest: yes, CONSISTENT" in told
    assert told[-3:-1] == ["fit to gate on: no", "  F_NO_COMMIT   2 file(s) differed. Commit."]
    fit = verification_text(replace(verification(ok=True), honest=True)).splitlines()
    assert fit[-2] == "fit to gate on: yes"


def test_a_replay_that_shows_too_little_is_neither_accepted_nor_refused() -> None:
    rate = RateAgain("unknown", 512.0, why="Too few processes.")
    replayed = Replayed("0" * 64, 2, ("52",), None, rate)
    undecided = replace(verification(ok=True), replayed=replayed)
    assert verification_text(undecided).startswith("not replayed (grade")
    assert verification_text(replace(undecided, obtained_again=True)).startswith("accepted (")
    assert verification_text(replace(undecided, ok=False)).startswith("refused (")


def test_an_accepted_receipt() -> None:
    text = verification_text(verification(ok=True))
    assert text.splitlines()[0] == "accepted (grade CONSISTENT)   policy bitnet"
    assert text.splitlines()[-1].startswith("what a green answer would prove")
    assert "\x1b[32m" in verification_text(verification(ok=True), colour=True)
