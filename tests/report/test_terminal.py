"""The line before the runs, the table after them, a failed test, and annotations."""

from dataclasses import replace

import pytest

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.core.json import replace as struct_replace
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.receipt import Grade, Notice, Refusal, Verification
from pytest_flamegate.receipt.rules.replay import RateAgain, Replayed
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.report.sections import Picture, Section, cell_text
from pytest_flamegate.report.terminal import (
    error_annotation,
    failure_section,
    replay_document,
    section_lines,
    summary,
    verification_text,
)
from pytest_flamegate.report.text import cells
from pytest_flamegate.report.verdict import (
    cost_section,
    describe_sureness,
    pair_section,
    reason_section,
    signal_cells,
    signal_section,
)
from tests.report import factory, verdicts
from tests.report.factory import AGAIN, report


def outcome(name: str = "decode", verdict: Verdict | None = None) -> RunReport:
    return report(verdict or verdicts.no_baseline(), name)


def test_the_gated_clock_stands_first_in_the_table() -> None:
    lines = summary(
        [outcome("1tok"), outcome("passage", verdicts.regressed())],
        width=120,
        accept="pytest --flamegate --flamegate-update",
    )
    assert lines == [
        "workload   quiet clock   tokens/s   verdict       hottest frames (share of CPU)",
        "1tok       2.06 ms/tok        486   no baseline   "
        "ternary_gemv 71.6 %  quantize 16.0 %  softmax 4.3 %",
        "passage    2.06 ms/tok        486   regressed     "
        "ternary_gemv 71.6 %  quantize 16.0 %  softmax 4.3 %",
        "1tok: no baseline: 486.0 tokens/s on the quiet clock (2.06 ms/token), 3 processes. "
        "No baseline is accepted for this workload here.",
        "gated: the quiet clock (wall time less waiting for a CPU), mean of processes",
        "receipts OBSERVED (the machine's owner could still have forged them)"
        " · flame graphs in .flamegate/latest",
        "accept these as the baseline:  pytest --flamegate --flamegate-update",
    ]


@pytest.mark.parametrize("word", ["pass", "improved", "inconclusive", "not_comparable"])
def test_a_verdict_prints_its_change_and_interval(word: str) -> None:
    rate = verdicts.rate(word, change_pct=18.1, ci_low_pct=6.4, ci_high_pct=31.1)
    verdict = replace(verdicts.inconclusive(), verdict=word, signals=(rate,))  # type: ignore[arg-type]
    lines = summary([outcome("p", verdict), outcome("d", verdicts.regressed())], width=120)
    (line,) = [line for line in lines if line.startswith(("p: ", "d: "))]
    assert line.startswith(f"p: {word.replace('_', ' ')}: ")
    assert word == "not_comparable" or "31.1" in line


def test_rows_fit_the_terminal_and_no_frame_is_cut() -> None:
    frames = ["ternary_gemv 71.6 %", "quantize 16.0 %", "softmax 4.3 %"]
    slower = verdicts.regressed()
    for width in (60, 80, 100, 200):
        lines = summary([outcome("1tok", slower), outcome("passage", slower)], width=width)
        assert all(cells(line) <= max(width, 82) for line in lines[:5])
        if width >= 100:
            assert lines[1].endswith("  ".join(frames))
        else:
            assert lines[3] == f"1tok: hottest frames {', '.join(frames)} of CPU"
    low = replace(slower, grade="CONSISTENT")
    lines = summary(
        [outcome("行列", slower), outcome("d", slower), outcome("x" * 99, low)], width=160
    )
    assert len({cells(line[: line.index("ternary_gemv")]) for line in lines[1:4]}) == 1
    assert lines[3].startswith("…" + "x" * 52)
    # The lowest grade decides the remark.
    assert "OBSERVED (2), CONSISTENT (1) (some are only the word of their author)" in lines[4]


def test_an_unknown_part_is_a_dash_or_taken_from_the_evidence() -> None:
    verdict = Verdict("error", (Reason("E_X", "It broke."),), grade="SELF_REPORTED")
    lines = summary([RunReport("broken", verdict, warnings=("No history.",))])
    assert lines[1].split() == ["broken", "–", "–", "error"]
    assert lines[2:] == ["broken: No history."]
    assert summary([]) == ["no workload was measured"]
    evidence = factory.evidence(profile=None, kernels=())
    lines = summary([RunReport("decode", verdicts.no_baseline(), "", None, evidence)])
    assert lines[1].split() == ["decode", "2.06", "ms/tok", "486", "no", "baseline"]


def test_colour_on_request_alone() -> None:
    passed = replace(verdicts.inconclusive(), verdict="pass")
    outcomes = [outcome("a", verdicts.regressed()), outcome("b"), outcome("c", passed)]
    plain, painted = summary(outcomes), summary(outcomes, colour=True)
    assert "\x1b" not in "".join(plain)
    assert "\x1b[1;31mregressed\x1b[0m" in painted[1]
    for code in ("\x1b[0m", "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;32m"):
        assert code in "".join(painted)
        painted = [line.replace(code, "") for line in painted]
    assert painted == plain


def test_annotations() -> None:
    for file, line, title, message, expected in (
        (
            "f.toml",
            12,
            "bad: x",
            "6.2 %\nin f",
            "file=f.toml,line=12,title=bad%3A x::6.2 %25%0Ain f",
        ),
        ("a,b:c%.py", None, "t", "m", "file=a%2Cb%3Ac%25.py,title=t::m"),
        ("", 3, "t", "m", "title=t::m"),
        ("f.py", 0, "t", "m", "file=f.py,line=1,title=t::m"),
        ("f.py", 1, "a\r\nb", "\x1b[31m", r"file=f.py,line=1,title=a\x0d\x0ab::\x1b[31m"),
    ):
        assert error_annotation(file, line, title, message) == f"::error {expected}"


# A failed test


def section(
    verdict: Verdict,
    evidence: Evidence | None = None,
    baseline: Evidence | None = None,
    accept: str | None = AGAIN + " --flamegate-update",
) -> str:
    paths = [".flamegate/latest/decode/flamegraph.svg"]
    return failure_section(
        verdict, evidence, baseline, paths=paths, look=None, again=AGAIN, accept=accept
    )


def column(found: Section, index: int = 0) -> list[str]:
    (table,) = (block for block in found.blocks if hasattr(block, "rows"))
    return [cell_text(row[index]) for row in table.rows]


def test_a_regression_reads_in_ten_seconds() -> None:
    base = factory.evidence(commit=replace(factory.COMMIT, revision="1234567890"))
    assert section(verdicts.regressed(), factory.evidence(), base) == (
        "regressed: 6.2 % slower (5.1 … 7.4 %, threshold 5 %), all of it in rms_norm\n"
        "  Where it went (µs/token)  before  after   change  part of the change  "
        "share of the samples\n"
        "    rms_norm                    62    181  +119 ±9  98 %                3.2 % → 8.8 %\n"
        "    ternary_gemv             1,383  1,386   +3 ±12  no certain change   –\n"
        "    attention                   83     82    -1 ±5  no certain change   4.3 % → 4.0 %\n"
        "  Compared                           before  after   change        interval  allowed  "
        "could have seen  decision\n"
        "    tokens/s, quiet clock               518    486   -6.2 %   -7.4 … -5.1 %      5 %  "
        "          1.9 %  regressed\n"
        "    tokens/s, wall clock, not gated     515    480   -6.8 %               –        –  "
        "              –  not gated\n"
        "    share of rms_norm                 3.2 %  8.8 %  +5.6 pp  +5.1 … +6.1 pp     3 pp  "
        "              –  regressed\n"
        "  Timed processes: 14 of the baseline, 14 now. A drop of 1.9 % would have been seen. "
        "Error rates: false alarms ≤ 1 %. Nominal 1 %; not calibrated on this machine.\n"
        "  evidence  .flamegate/latest/decode/flamegraph.svg · receipt OBSERVED · base 1234567 · "
        "head 4f2c91a + 2 uncommitted files\n"
        f"  again     {AGAIN}\n"
        f"  accept    {AGAIN} --flamegate-update"
    )


def test_pairs_add_their_phases_on_the_wall_clock() -> None:
    text = section(verdicts.in_pairs(), factory.evidence(), factory.evidence())
    measured = "Measured in 14 pairs of processes against 4f2c91a0c2d1"
    assert f"{measured}, both sides at the same time on one core." in text
    assert "false alarms ≤ 1 %, misses ≤ 2 %" in text
    more = replace(verdicts.in_pairs(), pairs=3, current_processes=5)
    assert (
        "Decided after 3 pairs of processes against 4f2c91a0c2d1, both sides at the same time "
        "on one core; in all 5 processes of each side were timed."
        in " ".join(describe_sureness(more))
    )
    assert "  80 % of the change is explained by rms_norm and quantize.\n" in text
    phases = text.partition("  Phases (not gated)")[2].splitlines()[1:3]
    assert phases[0].split("  ")[-2:] == ["no certain change", "2.0 % slower … 1.1 % faster"]
    assert phases[1].endswith("6.2 % slower       5.1 … 7.4 %")
    # Three pairs of a short prefill: no reader learns from "99.7 % slower … 18973.7 % faster".
    found = verdicts.in_pairs()
    wide = replace(found.phases[0], ci_low_pct=-99.7, ci_high_pct=18_973.7)
    text = section(replace(found, phases=(wide,)), factory.evidence(), factory.evidence())
    assert "no certain change  too few pairs: a factor of 2 could not be seen" in text


def test_calls_are_shown_if_a_caller_causes_their_change() -> None:
    """The same change before the first token is shown once."""
    text = section(verdicts.in_pairs(), factory.evidence(), factory.evidence())
    assert text.partition("  Calls (exact)")[2].splitlines()[1:3] == [
        "    Model.norm (src/norm.py)  Model.step, Model.layer      24     48  a token",
        "    encode (src/tokens.py)    (workload)                    1      2  to the first token",
    ]
    assert "ndarray.dot" not in text


def test_a_regression_adds_the_reasons_that_are_no_figure() -> None:
    verdict, speed = verdicts.in_pairs(), Reason("I_MACHINE_SPEED", "The machine was slower.")
    more = tuple(Reason(code, f"{code}.") for code in ("I_STORED_BASELINE", "W_ENVIRONMENT"))
    rate = replace(verdicts.rate(), reasons=(speed,))
    text = section(replace(verdict, reasons=(*verdict.reasons, *more), signals=(rate,)))
    for sentence in ("I_STORED_BASELINE I_STO", "W_ENVIRONMENT W_ENV", speed.message):
        assert f"  {sentence}" in text
    assert "E_SHARE_DRIFT" not in text


def test_the_sign_and_the_word_of_an_uncertain_change_agree() -> None:
    rows = (
        verdicts.cost("project", 126.0, 167.0, 62.0, 0.3, 0.6),
        verdicts.cost("single", 10.0, 120.0, 52.0, 0.02, 0.3),
        verdicts.cost("gone", 28.0, 0.000018, 121.0, 0.7, -0.1),
    )
    verdict = replace(verdicts.regressed(), attribution=rows)
    text = "\n".join(section_lines(cost_section(verdict)))
    assert "126    167   +41 ±62  most likely 60 %" in text
    # Its own interval excludes 0; over all rows together that is not certain.
    assert "10    120  +110 ±52  probably 30 %" in text
    assert "28      0  -28 ±121  no certain change" in text
    passed = replace(
        verdict, attribution=tuple(struct_replace(each, explains=None) for each in rows)
    )
    assert "+110 ±52  probably  " in "\n".join(section_lines(cost_section(passed)))


def test_a_reason_in_the_headline_is_followed_by_what_its_code_means() -> None:
    differs = Reason("E_TOKENS_DIFFER", "token 0 differs: '115' at the base, '7' now. Restore it.")
    verdict = Verdict("not_comparable", (differs,), grade="OBSERVED")
    (line,) = section_lines(reason_section(verdict, brief=True))
    assert line.startswith(
        "  E_TOKENS_DIFFER The two sides generated different tokens for the same"
    )


def test_a_share_that_regressed_has_no_smallest_visible_change() -> None:
    _, shown = verdicts.share("rms_norm", 0.032, 0.091, "costs_more", "regressed")
    shown = replace(shown, smallest_detectable_pct=15.3)
    assert signal_cells(shown)[-2:] == ("–", "regressed")
    assert signal_cells(replace(shown, decision="pass"))[-2:] == ("15.3 pp", "pass")


def test_of_many_functions_the_certain_changes_and_two_more_are_shown() -> None:
    many = tuple(
        verdicts.cost(f"f{i}", 10.0 + i, 90.0 + i, 1.0, 0.0001 if i < 8 else 0.9, 0.1)
        for i in range(12)
    )
    verdict = replace(verdicts.regressed(), attribution=many)
    assert column(cost_section(verdict, brief=True)) == ["f0", "f1", "f2", "f3", "f4", "f8", "f9"]
    assert len(column(cost_section(verdict))) == 12
    # A culprit that was absent or cheap must not sink below functions that are always hot.
    costs = (
        verdicts.cost("fresh", 0.0, 303.0, 9.0, 0.0001, 1.26),
        verdicts.cost("hot", 2890.0, 2950.0, 260.0, 0.9, None),
    )
    found = cost_section(replace(verdict, attribution=costs), brief=True)
    assert (column(found), column(found, 4)) == (["fresh", "hot"], ["100 %", "no certain change"])


def test_an_undecided_verdict_gives_its_reasons() -> None:
    text = section(verdicts.inconclusive(), factory.evidence(commit=None), accept=None)
    assert text.startswith("inconclusive: ")
    assert "  E_NOISE Tokens per second" in text
    assert "accept" not in text
    assert "head" not in text
    many = tuple(Reason("E_MACHINE_DIFFERS", f"machine field{i}") for i in range(15))
    text = section(replace(verdicts.inconclusive(), reasons=many))
    assert text.count("  E_MACHINE_DIFFERS machine field") == 12
    assert "  and 3 more reasons" in text


def test_a_verdict_without_figures() -> None:
    copied = (Reason("E_COPIED", "It is a copy."),)
    verdict = Verdict("dishonest", copied, grade="SELF_REPORTED")
    assert section(verdict, accept=None) == (
        "dishonest: It is a copy.\n"
        "  E_COPIED\n"
        "  evidence  .flamegate/latest/decode/flamegraph.svg · no receipt\n"
        f"  again     {AGAIN}"
    )


def test_the_cause_of_an_error_is_printed_once() -> None:
    reason = Reason("E_NO_PROFILER", "No profiler works (perf: it is not installed). Install it.")
    assert section(Verdict("error", (reason,), grade="SELF_REPORTED"), accept=None) == (
        f"error: {reason.message}\n"
        "  E_NO_PROFILER\n"
        "  evidence  .flamegate/latest/decode/flamegraph.svg · no receipt\n"
        f"  again     {AGAIN}"
    )


def test_regressed_bricks_are_named_with_their_layer() -> None:
    judged = (
        verdicts.brick("RmsNorm", 12.0, 15.0, "us/token", 10.0),
        verdicts.brick("LmHead", None, 1.8, "us/call", 0.0),
        verdicts.brick("Sampling", 5.0, 5.1, "us/token", 10.0),
    )
    verdict = verdicts.regressed()
    text = section(
        replace(verdict, signals=(*verdict.signals, *judged), bricks=(verdicts.grown(),))
    )
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert (
        "brick RmsNorm 12.0 µs/token 15.0 µs/token +25.0 % +22.0 … +28.0 % 10 % – regressed" in rows
    )
    assert "brick LmHead – 1.80 µs/call +20.0 % +17.0 … +23.0 % 0 % – regressed" in rows
    assert "  RmsNorm: most of it in layer 0 (6.00 → 9.00 µs)\n" in text
    assert "Sampling" not in text
    many = [verdicts.brick(f"b{n}", 1.0, 2.0, "us/token", 10.0) for n in range(9)]
    crowded = replace(verdict, signals=(*verdict.signals, *many))
    assert "  and 4 more figures in verdict.json\n" in section(crowded)
    assert len(column(signal_section(crowded))) == len(crowded.signals)


def test_pairs_are_drawn_above_their_interval() -> None:
    found = pair_section(verdicts.in_pairs(), [-6.0, -7.5, -5.0])
    picture = found.blocks[0]
    assert isinstance(picture, Picture)
    assert picture.markup.count("<circle") == 3
    assert "<title>pair 2: -7.5 %</title>" in picture.markup
    assert 'class="limit"' in picture.markup
    assert " together (5.1 … 7.4 %); the line" in picture.title
    around_zero = replace(verdicts.rate("inconclusive"), ci_low_pct=-7.4, ci_high_pct=5.1)
    both = pair_section(replace(verdicts.in_pairs(), signals=(around_zero,)), [-6.0, 4.0])
    assert " together (7.4 % slower … 5.1 % faster); the line" in str(both)
    assert pair_section(verdicts.in_pairs(), []).blocks == ()


# Answers about receipts


RATE = RateAgain("inside", 512.0, 498.0, 471.0, 1527.0, 480.0)
CEILING = "a green answer would prove little. Nothing more."


def verification(
    *refusals: Refusal, rate: RateAgain | None = None, warnings: tuple[Notice, ...] = ()
) -> Verification:
    replayed = None if rate is None else Replayed("0" * 64, 8, ("1",), None, rate)
    return Verification(
        not refusals, Grade.CONSISTENT, refusals, warnings, "bitnet", CEILING, replayed=replayed
    )


def test_a_rejected_receipt_gives_its_reasons() -> None:
    found = verification(
        Refusal("E_KERNEL_UNSEEN", 'kernel "i2s\x1b" is claimed and not seen.', "Profile it."),
        Refusal("E_TPS", "512.0 tok/s claimed, 48.1 from the token times."),
        warnings=(Notice("W_DUPLICATE", "A kernel is named twice."),),
    )
    assert verification_text(found, path="r.json", required="observed") == (
        "r.json: rejected (grade CONSISTENT, wanted OBSERVED)   policy bitnet\n"
        "honest: no\n"
        '  E_KERNEL_UNSEEN   kernel "i2s\\x1b" is claimed and not seen. Profile it.\n'
        "  E_TPS             512.0 tok/s claimed, 48.1 from the token times. "
        "Check the unit and the clock.\n"
        "  W_DUPLICATE       A kernel is named twice.\n"
        "usable as a baseline: not evaluated (verification failed)\n"
        f"{CEILING}"
    )


def test_honesty_and_use_as_a_baseline_are_separate_answers() -> None:
    unfit = (Notice("F_NO_COMMIT", "2 file(s) differed.", "Commit."),)
    lines = verification_text(replace(verification(), honest=True, unfit=unfit)).splitlines()
    assert "honest: yes, CONSISTENT" in lines
    assert lines[-3:-1] == [
        "usable as a baseline: no",
        "  F_NO_COMMIT   2 file(s) differed. Commit.",
    ]
    usable = verification_text(replace(verification(), honest=True)).splitlines()
    assert usable[0] == "accepted (grade CONSISTENT)   policy bitnet"
    assert usable[-2:] == ["usable as a baseline: yes", CEILING]
    assert "\x1b[1;32m" in verification_text(verification(), colour=True)


def test_a_replay_that_proves_too_little_is_neither_accepted_nor_rejected() -> None:
    undecided = verification(rate=RateAgain("unknown", 512.0, why="Too few processes."))
    assert verification_text(undecided).startswith("not replayed (grade")
    assert verification_text(replace(undecided, obtained_again=True)).startswith("accepted (")
    assert not verification_text(replace(undecided, ok=False)).startswith(("accepted", "not"))


def replayed(found: Verification) -> str:
    return verification_text(found).split("\n")[1]


def test_a_replay_as_a_line_and_as_data() -> None:
    assert replayed(verification(rate=RATE)) == (
        "replayed here: 8 processes, digest equal, 512 tok/s claimed, 498 (471 to 1,527) here"
    )
    differing = verification(Refusal("E_REPLAY_TOKENS", "No."), rate=RateAgain("unknown", 512.0))
    assert replayed(differing) == "replayed here: 8 processes, digest differs, 512 tok/s claimed"
    varying = Notice("W_REPLAY_NOT_DETERMINISTIC", "No.")
    assert "digest not compared" in verification_text(verification(rate=RATE, warnings=(varying,)))
    document = replay_document(verification(rate=RATE)) or {}
    assert (document["processes"], document["tokens"], document["rate"]) == (8, "equal", "inside")
    assert (document["low"], document["high"]) == (471.0, 1527.0)
    assert replay_document(verification()) is None


def test_the_reason_why_nothing_ran_comes_first_with_nothing_hidden_in_it() -> None:
    error = UndecidedError("E_REPLAY_UNTRUSTED", 'It would run "\x1b[2J".', "Declare it.")
    lines = verification_text(verification(), error=error).splitlines()
    assert lines[1] == "not replayed:"
    assert lines[2] == '  E_REPLAY_UNTRUSTED   It would run "\\x1b[2J". Declare it.'
