"""The sections of a verdict, as a failed test prints them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flamegate.gate import Comparability, FieldDifference, Reason, Verdict
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report.sections import Picture, Section, cell_text
from pytest_flamegate.report.terminal import failure_section
from pytest_flamegate.report.verdict import cost_section, pair_section, signal_section
from tests.report import factory, verdicts

NODE = 'pytest "flamegate.toml::decode" --flamegate'


def section(
    verdict: Verdict,
    evidence: Evidence | None = None,
    baseline: Evidence | None = None,
    *,
    accept: str | None = NODE + " --flamegate-update",
    colour: bool = False,
) -> str:
    return failure_section(
        verdict,
        evidence,
        baseline,
        paths=[".flamegate/latest/decode/flamegraph.svg"],
        again=NODE,
        accept=accept,
        colour=colour,
    )


def column(found: Section, index: int = 0) -> list[str]:
    (table,) = (block for block in found.blocks if hasattr(block, "rows"))
    return [cell_text(row[index]) for row in table.rows]


def test_a_regression_reads_in_ten_seconds() -> None:
    base = factory.evidence(commit=replace(factory.COMMIT, revision="1234567890"))
    assert section(verdicts.regressed(), factory.evidence(), base) == (
        "regressed: 6.2 % slower (5.1 … 7.4, threshold 5), all of it in rms_norm\n"
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
        "Error rates: false alarms ≤ 1 % (nominal 1 %; not calibrated on this machine).\n"
        "  evidence  .flamegate/latest/decode/flamegraph.svg · receipt OBSERVED · base 1234567 · "
        "head 4f2c91a + 2 uncommitted files\n"
        f"  again     {NODE}\n"
        f"  accept    {NODE} --flamegate-update"
    )


def test_pairs_add_their_phases_on_the_wall_clock() -> None:
    text = section(verdicts.in_pairs(), factory.evidence(), factory.evidence())
    assert "Measured in 14 pairs of processes against 4f2c91a0c2d1." in text
    assert "false alarms ≤ 1 %, misses ≤ 2 %" in text
    assert "  80 % of the change is explained by rms_norm and quantize.\n" in text
    phases = text.partition("  Phases (wall clock, not gated)")[2].splitlines()[1:3]
    assert phases[0].split("  ")[-2:] == ["no certain change", "2.0 % slower … 1.1 % faster"]
    assert phases[1].endswith("6.2 % slower       5.1 … 7.4")


@pytest.mark.parametrize("extra", ["I_STORED_BASELINE", "W_ENVIRONMENT"])
def test_a_regression_adds_the_reasons_that_are_no_figure(extra: str) -> None:
    verdict = verdicts.in_pairs()
    more = Reason(extra, "The other sentence.")
    text = section(replace(verdict, reasons=(*verdict.reasons, more)))
    assert f"  {extra} The other sentence.\n" in text
    assert "E_SHARE_DRIFT" not in text


def test_the_machines_own_speed_is_a_sentence() -> None:
    reason = Reason("I_MACHINE_SPEED", "The machine itself ran 11.1 % slower.")
    rate = replace(verdicts.rate(), reasons=(reason,))
    assert reason.message in section(replace(verdicts.regressed(), signals=(rate,)))


def test_a_function_that_cost_nothing_before_comes_first() -> None:
    """A culprit that was absent or cheap must not sink below functions that are always hot."""
    costs = (
        verdicts.cost("fresh", 0.0, 303.0, 9.0, 0.0001, 1.26),
        verdicts.cost("hot", 2890.0, 2950.0, 260.0, 0.9, None),
    )
    found = cost_section(replace(verdicts.regressed(), attribution=costs), brief=True)
    assert column(found) == ["fresh", "hot"]
    assert column(found, 4) == ["100 %", "no certain change"]


def test_many_changes_are_cut_to_the_certain_ones_and_two_more() -> None:
    many = tuple(
        verdicts.cost(f"f{i}", 10.0 + i, 90.0 + i, 1.0, 0.0001 if i < 8 else 0.9, 0.1)
        for i in range(12)
    )
    verdict = replace(verdicts.regressed(), attribution=many)
    assert column(cost_section(verdict, brief=True)) == ["f0", "f1", "f2", "f3", "f4", "f8", "f9"]
    assert len(column(cost_section(verdict))) == 12


def test_an_undecided_verdict_gives_its_reasons() -> None:
    text = section(verdicts.inconclusive(), factory.evidence(commit=None), accept=None)
    assert text.startswith("inconclusive: between 1.0 % faster and 7.9 % slower")
    assert "  E_NOISE Tokens per second" in text
    assert "accept" not in text
    assert "head" not in text


def test_reasons_are_listed_up_to_a_limit() -> None:
    differences = tuple(
        FieldDifference(f"machine field{i}", "a", "b", "E_MACHINE_DIFFERS") for i in range(15)
    )
    verdict = Verdict(
        verdict="not_comparable",
        reasons=tuple(Reason(each.code, each.message) for each in differences),
        grade="OBSERVED",
        comparability=Comparability(differences),
    )
    text = section(verdict)
    assert text.count("  E_MACHINE_DIFFERS machine field") == 12
    assert "  and 3 more reasons" in text


def test_a_verdict_without_figures() -> None:
    verdict = Verdict.unjudged(
        "dishonest", [Reason("E_COPIED", "It is a copy.")], grade="SELF_REPORTED"
    )
    assert section(verdict, accept=None) == (
        "dishonest: It is a copy.\n"
        "  E_COPIED It is a copy.\n"
        "  evidence  .flamegate/latest/decode/flamegraph.svg · receipt SELF_REPORTED\n"
        f"  again     {NODE}"
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
    assert pair_section(verdicts.in_pairs(), []).blocks == ()
