from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.gate import Comparability, FieldDifference, Reason, Verdict
from pytest_flamegate.report.terminal import failure_section
from tests.report import factory, verdicts

if TYPE_CHECKING:
    from pytest_flamegate.receipt.types import Evidence


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


def test_a_regression_reads_in_ten_seconds() -> None:
    base = factory.evidence(commit=dataclasses.replace(factory.COMMIT, revision="1234567890"))
    assert section(verdicts.regressed(), factory.evidence(), base) == (
        "regressed: 6.2 % slower (5.1 … 7.4, threshold 5), all of it in rms_norm\n"
        "  tokens/s (quiet clock)  518 → 486  6.2 % slower  14 and 14 processes, "
        "could have seen 1.9 %, false alarms ≤ 1 %\n"
        "  tokens/s (wall clock)   515 → 480  6.8 % slower  shown, not gated\n"
        "  where it went (µs/token)  rms_norm         62  →    181  +119 ±9  explains 98 %, "
        "share 3.2 → 8.8 %\n"
        "                            ternary_gemv  1,383  →  1,386   +3 ±12  no change seen\n"
        "                            attention        83  →     82    -1 ±5  no change seen, "
        "share 4.3 → 4.0 %\n"
        "  share of the samples  rms_norm 3.2 % → 8.8 % (+5.6 pp, 3 allowed)\n"
        "  share moved, cost did not  attention 4.3 % → 4.0 % (-0.3 pp, 3 allowed)\n"
        "  error rates  nominal 1 %; not calibrated on this machine\n"
        "  evidence  .flamegate/latest/decode/flamegraph.svg · receipt OBSERVED · base 1234567 · "
        "head 4f2c91a + 2 uncommitted files\n"
        f"  again     {NODE}\n"
        f"  accept    {NODE} --flamegate-update"
    )


@pytest.mark.parametrize(
    ("before", "now", "change_pct", "line"),
    [
        (
            100.0,
            80.0,
            -10.0,
            "100 → 80.0, of which the machine itself 11.1 % slower  10.0 % slower",
        ),
        (100.0, 101.0, -5.0, "100 → 101, of which the machine itself 6.3 % faster  5.0 % slower"),
    ],
)
def test_the_machines_own_speed_does_not_contradict_the_change(
    before: float, now: float, change_pct: float, line: str
) -> None:
    rate = verdicts.rate(baseline=before, current=now, change_pct=change_pct)
    moved = dataclasses.replace(rate, reasons=(Reason("I_MACHINE_SPEED", "It ran slower."),))
    verdict = dataclasses.replace(verdicts.regressed(), signals=(moved,))
    assert f"  tokens/s (quiet clock)  {line}  14 and 14" in section(verdict)
    plain = dataclasses.replace(verdicts.regressed(), signals=(rate,))
    assert "machine itself" not in section(plain)


def test_a_comparison_says_its_pairs_phases_and_what_explains_it() -> None:
    text = section(verdicts.in_pairs(), factory.evidence(), factory.evidence())
    assert (
        "6.2 % slower  14 pairs, could have seen 1.9 %, false alarms ≤ 1 %, misses ≤ 2 %\n" in text
    )
    assert (
        "  phase (ms)  prefill, first token      39.9  →  40.1  no change seen\n"
        "              decode, each further one  1.93  →  2.06  6.2 % slower (5.1 … 7.4)\n"
    ) in text
    assert "  80 % of it explained by  rms_norm, quantize\n" in text


def test_what_else_is_to_be_known_stands_beside_a_regression() -> None:
    verdict = verdicts.in_pairs()
    told = Reason("I_STORED_BASELINE", "The stored baseline alone said so.")
    text = section(dataclasses.replace(verdict, reasons=(*verdict.reasons, told)))
    assert "  I_STORED_BASELINE  The stored baseline alone said so.\n" in text
    assert "E_SHARE_DRIFT" not in text


def test_many_changes_are_cut_to_those_that_count() -> None:
    many = tuple(
        verdicts.cost(f"f{i}", 10.0 + i, 90.0 + i, 1.0, 0.0001 if i < 8 else 0.9, 0.1)
        for i in range(12)
    )
    text = section(dataclasses.replace(verdicts.regressed(), attribution=many))
    assert [line.split("→")[0].split()[-2] for line in text.splitlines() if "±" in line] == [
        "f0", "f1", "f2", "f3", "f4", "f11", "f10"
    ]  # fmt: skip


def test_an_undecided_verdict_gives_its_reasons() -> None:
    text = section(verdicts.inconclusive(), factory.evidence(commit=None), accept=None)
    assert text.startswith("inconclusive: between 1.0 % faster and 7.9 % slower")
    assert "  E_NOISE  Tokens per second" in text
    assert "accept" not in text
    assert "head" not in text


def test_what_differs_is_listed_whole_up_to_a_limit() -> None:
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
    assert text.count("  E_MACHINE_DIFFERS  machine field") == 12
    assert "  and 3 more reasons" in text


def test_a_refusal_without_figures() -> None:
    verdict = Verdict.unjudged(
        "dishonest", [Reason("E_COPIED", "It is a copy.")], grade="SELF_REPORTED"
    )
    assert section(verdict, accept=None) == (
        "dishonest: It is a copy.\n"
        "  E_COPIED  It is a copy.\n"
        "  evidence  .flamegate/latest/decode/flamegraph.svg · receipt SELF_REPORTED\n"
        f"  again     {NODE}"
    )


@pytest.mark.parametrize("evil", ["a\nFAILED b", "\x1b[2J", "\u202egnol", "x" * 5000])
def test_hostile_names_do_not_reach_the_terminal(evil: str) -> None:
    hotspot, _ = verdicts.share(evil, 0.1, 0.2, "costs_more", "regressed")
    verdict = dataclasses.replace(
        verdicts.regressed(),
        hotspots=(hotspot,),
        attribution=(verdicts.cost(evil, 1.0, 9.0, 0.1, 0.0, 0.99),),
        error_rate_basis=evil,
        grade=evil,
        reasons=(Reason("E_X", evil),),
    )
    commit = dataclasses.replace(factory.COMMIT, revision=evil)
    evidence = dataclasses.replace(
        factory.evidence(commit=commit), machine=MappingProxyType({"cpu": evil})
    )
    text = section(verdict, evidence, evidence)
    assert evil not in text
    assert not set(text) & set("\x1b\u202e")
    assert len(text.splitlines()) == len(section(verdicts.regressed(), evidence).splitlines()) - 3


def test_the_answer_is_coloured_where_it_is_asked_for() -> None:
    painted = section(verdicts.regressed(), colour=True).splitlines()
    assert painted[0].startswith("\x1b[1m\x1b[31mregressed")
    assert painted[1:] == section(verdicts.regressed()).splitlines()[1:]


def test_bricks_that_cost_too_much_are_told() -> None:
    judged = (
        verdicts.brick("RmsNorm", 12.0, 15.0, "us/token", 10.0),
        verdicts.brick("LmHead", None, 1.8, "us/call", 0.0),
        verdicts.brick("Sampling", 5.0, 5.1, "us/token", 10.0),
    )
    verdict = verdicts.regressed()
    told = section(
        dataclasses.replace(
            verdict, signals=(*verdict.signals, *judged), bricks=(verdicts.grown(),)
        )
    )
    assert (
        "  bricks  RmsNorm  12.0  →  15.0 µs/token  +25.0 % (+22.0 … +28.0), 10 allowed, "
        "most of it in layer 0 (6.00 → 9.00)\n"
        "          LmHead             1.80 µs/call  +20.0 % (+17.0 … +23.0) against its budget\n"
    ) in told
    assert "Sampling" not in told
    many = [verdicts.brick(f"b{n}", 1.0, 2.0, "us/token", 10.0) for n in range(9)]
    told = section(dataclasses.replace(verdict, signals=(*verdict.signals, *many)))
    assert "  and 3 more bricks in verdict.json\n" in told


def test_without_judged_bricks_none_are_told() -> None:
    assert "bricks" not in section(verdicts.regressed())
