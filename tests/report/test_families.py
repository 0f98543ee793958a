"""Variants side by side: the figures, what is said with them, how they are shown."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.report.ci import step_summary
from pytest_flamegate.report.families import family_lines
from pytest_flamegate.report.sections import TOP_FUNCTIONS, family_tables
from pytest_flamegate.report.terminal import Outcome, summary
from tests.report import factory, verdicts

if TYPE_CHECKING:
    from pytest_flamegate.receipt.types import Evidence


def outcome(variant: str, evidence: Evidence | None, family: str = "decode") -> Outcome:
    receipt = factory.receipt() if evidence is not None else None
    return Outcome(
        f"{family}[{variant}]",
        verdicts.no_baseline(),
        receipt,
        evidence,
        family=family,
        variant=variant,
    )


def workload(**changes: object) -> MappingProxyType[str, object]:
    return MappingProxyType({**factory.WORKLOAD, **changes})


FAST = factory.evidence(workload=workload(name="decode[i2s]"))
SLOW = factory.evidence(slow=2.0, workload=workload(name="decode[qk256]"))
BOTH = (outcome("i2s", FAST), outcome("qk256", SLOW))


def test_speed_is_told_against_the_fastest() -> None:
    (family,) = family_tables(BOTH[::-1])
    assert [each.name for each in family.variants] == ["qk256", "i2s"]
    slow, fast = family.variants
    assert fast.of_fastest == 1.0
    assert slow.of_fastest == pytest.approx(0.5, rel=1e-4)
    assert slow.quiet_s_per_token == pytest.approx(2 * (fast.quiet_s_per_token or 0), rel=1e-4)


def test_categories_are_the_self_shares_of_all_functions() -> None:
    (family,) = family_tables(BOTH)
    shares = family.variants[0].categories
    assert family.categories[:2] == ("matmul", "quantisation")
    assert shares["matmul"] == 940 / 1312
    assert sum(shares.values()) == pytest.approx(1.0)
    assert [each.name for each in family.variants[0].hottest] == [
        "ternary_gemv",
        "quantize",
        "softmax",
    ]


def test_functions_of_all_variants_by_their_largest_cost() -> None:
    other = factory.evidence(records=factory.hotspots("q_"))
    unseen = factory.evidence(with_profile=False)
    (family,) = family_tables([*BOTH[:1], outcome("b", other), outcome("c", unseen)])
    first, second, *_ = family.functions
    assert (first.name, second.name) == ("q_ternary_gemv", "ternary_gemv")
    cost = 940 / 1312 * 1.93e-3
    assert first.cpu_s_per_token == (0.0, cost, None)
    assert second.cpu_s_per_token == (cost, 0.0, None)
    assert len(family.functions) == TOP_FUNCTIONS
    costs = [max(cost or 0 for cost in each.cpu_s_per_token) for each in family.functions]
    assert costs == sorted(costs, reverse=True)
    assert min(costs) > 0


def test_a_variant_that_was_not_measured_has_dashes() -> None:
    outcomes = [BOTH[0], outcome("broken", None)]
    (family,) = family_tables(outcomes)
    assert family.variants[1].of_fastest is None
    assert family.notes == ()
    (row,) = [line for line in family_lines(outcomes, 120) if line.startswith("broken")]
    assert set(row.removeprefix("broken").split()) == {"–"}


def test_no_variant_was_measured() -> None:
    outcomes = [outcome("a", None), outcome("b", None)]
    (family,) = family_tables(outcomes)
    assert family.functions == ()
    assert family_lines(outcomes, 80)[1].startswith("variants of decode")


def test_one_alone_has_nothing_beside_it() -> None:
    plain = Outcome("plain", verdicts.no_baseline(), factory.receipt(), FAST)
    assert family_tables([BOTH[0], plain, plain]) == ()
    assert "variants" not in "".join(summary([BOTH[0], plain], width=120))


def test_families_stay_apart() -> None:
    others = (outcome("a", FAST, "prefill"), outcome("b", FAST, "prefill"))
    found = family_tables([BOTH[0], others[0], BOTH[1], others[1]])
    assert [each.name for each in found] == ["decode", "prefill"]
    assert [len(each.variants) for each in found] == [2, 2]


PROFILE = factory.profile_record()


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (SLOW, ()),
        (
            replace(SLOW, workload=workload(threads=2, env={"A": "1"})),
            ("Declared otherwise: threads, env.",),
        ),
        (
            replace(SLOW, workload=workload(prompt="x", max_tokens=4)),
            ("Declared otherwise: prompt, max_tokens.", "Not the same work (prompt, max_tokens)"),
        ),
        (replace(SLOW, token_digest="e" * 64), ("answered with different tokens",)),
        (replace(SLOW, clock_scope="process"), ("cover a whole program",)),
        (replace(SLOW, machine={"cpu_model": "other"}), ("different machines",)),
        (replace(SLOW, profile=replace(PROFILE, profiler="perf", rate_hz=99)), ("profiler, rate",)),
        (replace(SLOW, profile=replace(PROFILE, covers="process")), ("not taken alike (phase)",)),
        (replace(SLOW, profile=None), ()),
    ],
)
def test_what_is_not_alike_is_told(other: Evidence, told: tuple[str, ...]) -> None:
    (family,) = family_tables([BOTH[0], outcome("b", other)])
    assert len(family.notes) == len(told)
    for note, words in zip(family.notes, told, strict=True):
        assert words in note
        assert note in "\n".join(summary([BOTH[0], outcome("b", other)], width=100))


def test_the_tables_of_a_terminal() -> None:
    assert family_lines(BOTH, 100)[:18] == [
        "",
        "variants of decode, side by side, shown and never gated",
        "variant   tokens/s   quiet clock   of fastest   hottest",
        "i2s            427   2.33 ms/tok      100.0 %   "
        "ternary_gemv 71.6 % (1,383 µs), quantize 16.0 % (30…",
        "qk256          427   4.66 ms/tok       50.0 %   "
        "ternary_gemv 71.6 % (1,383 µs), quantize 16.0 % (30…",
        "share of CPU      i2s    qk256",
        "matmul         71.6 %   71.6 %",
        "quantisation   16.0 %   16.0 %",
        "attention       4.3 %    4.3 %",
        "norm            3.2 %    3.2 %",
        "python          2.5 %    2.5 %",
        "memory          2.3 %    2.3 %",
        "system          0.1 %    0.1 %",
        "µs/token         i2s   qk256",
        "ternary_gemv   1,383   1,383",
        "quantize         309     309",
        "softmax           82      82",
        "rms_norm          62      62",
    ]


@pytest.mark.parametrize("width", [80, 100, 300])
def test_the_hottest_take_the_room_that_is_left(width: int) -> None:
    lines = family_lines(BOTH, width)
    assert max(map(len, lines)) <= width
    assert lines[3].endswith("…") == (width < 300)


def test_the_page_of_a_hosted_runner() -> None:
    hostile = replace(BOTH[1], variant="a|b`<img>")
    page = step_summary([BOTH[0], hostile])
    assert "### Variants of `decode`" in page
    assert "| variant | tokens/s | quiet clock | of fastest | matmul |" in page
    assert r"| ``a\|b`<img>`` |" in page
    assert "| `ternary_gemv` | matmul | 1,383 | 1,383 |" in page
    assert "Variants" not in step_summary(BOTH[:1])
