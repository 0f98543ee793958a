"""Figures computed from token times, rates of kernel benchmarks, and the spread of shares."""

from dataclasses import replace
from random import Random

import pytest

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.observe.observation import Block, Role, Run
from pytest_flamegate.profile.difference import SPREAD
from pytest_flamegate.receipt.formulas import meaning_of
from pytest_flamegate.receipt.metrics import (
    KERNEL_RATE_NAMES,
    kernel_rates,
    rate_of,
    spread_of,
    tokens_per_second,
)
from pytest_flamegate.receipt.types import ProcessProfile
from tests.made import bundle, metric

SHARES = {"gemv": 0.6, "attn": 0.25, "norm": 0.1, "copy": 0.05}
RATE = metric(value=2000.0, samples=640)
RECIPE = {"engine": "benchmark", "calls": 50, "elements": 512, "bytes": 4096, "flops": 1024}


def test_each_rate_is_calls_times_what_a_call_works_on() -> None:
    found = kernel_rates(RECIPE, [RATE])
    assert [(each.name, each.value, each.unit) for each in found] == [
        ("kernel_calls_per_second", 100_000.0, "calls/s"),
        ("kernel_elements_per_second", 51_200_000.0, "elements/s"),
        ("kernel_bytes_per_second", 409_600_000.0, "B/s"),
        ("kernel_gflops", pytest.approx(0.1024), "GFLOP/s"),
    ]
    assert tuple(each.name for each in found) == KERNEL_RATE_NAMES
    assert {each.provenance for each in found} == {"derived"}
    assert all(meaning_of(each.formula) for each in found)


@pytest.mark.parametrize(
    "changes",
    [{"engine": "python"}, {"calls": None}, {"calls": True}, {"calls": 0}, {"calls": 1e3}],
)
def test_another_recipe_gives_no_kernel_rates(changes: dict[str, object]) -> None:
    assert kernel_rates({**RECIPE, **changes}, [RATE]) == ()
    assert kernel_rates(RECIPE, [replace(RATE, name="load_ms")]) == ()


@pytest.mark.parametrize("work", [None, -1, 0, True, "512", [1], 1 << 80, float("nan")])
def test_foreign_figures_give_no_rate(work: object) -> None:
    found = kernel_rates({**RECIPE, "elements": work}, [RATE])
    assert [each.name for each in found] == [
        name for name in KERNEL_RATE_NAMES if name != "kernel_elements_per_second"
    ]


def processes(spread: float, count: int = 40, samples: int = 2000) -> list[ProcessProfile]:
    """Processes whose shares vary ``spread`` times as much as independent samples would."""
    chance = Random(11)
    made = []
    for pid in range(count):
        # Samples in clumps of n vary by the square root of n more.
        clump = round(spread**2)
        names = chance.choices(list(SHARES), list(SHARES.values()), k=samples // clump)
        own = {name: clump * names.count(name) for name in SHARES}
        made.append(ProcessProfile(pid, sum(own.values()), own))
    return made


@pytest.mark.parametrize("spread", [1.0, 2.0, 3.0, 5.0])
def test_a_wider_spread_than_usual_is_found(spread: float) -> None:
    # Profiles of one program spread more than independent samples would.
    assert spread_of(processes(spread)) == pytest.approx(max(SPREAD, spread), rel=0.25)


@pytest.mark.parametrize(
    "seen",
    [
        [],
        [ProcessProfile(1, 10, {"f": 10})],
        [ProcessProfile(1, 0, {})],
        [ProcessProfile(pid, 0, {"f": 10}) for pid in (1, 2)],
    ],
)
def test_one_process_has_no_spread(seen: list[ProcessProfile]) -> None:
    assert spread_of(seen) == SPREAD


def run_of(*sequences: tuple[int, ...], role: Role = "timed", program: bool = False) -> Run:
    decode = Interval(sum(sum(gaps[1:]) for gaps in sequences) + 1, 1, None)
    told_apart = program and any(len(gaps) > 1 for gaps in sequences)
    block = Block(
        Interval(sum(map(sum, sequences)) + 1, 1, None),
        sequences,
        decode=decode if told_apart else None,
    )
    return replace(bundle().evidence.runs[0], role=role, blocks=(block,))


@pytest.mark.parametrize(
    ("scope", "sequences", "rate", "formula"),
    [
        ("sequence", [(500, 250, 250)], 3 / 1000e-9, "tokens/total"),
        ("sequence", [(500, 500), (400, 600)], 4 / 2000e-9, "tokens/total"),
        ("process", [(9000, 250, 250)], 2 / 500e-9, "decode-tokens/decode-time"),
        ("process", [(9000, 250), (9000,)], 1 / 250e-9, "decode-tokens/decode-time"),
        ("process", [(500,)], 1 / 500e-9, "tokens/total"),
    ],
)
def test_rate_from_token_times(
    scope: str, sequences: list[tuple[int, ...]], rate: float, formula: str
) -> None:
    runs = (run_of(*sequences, program=scope == "process"), run_of((1,), role="profiled"))
    found = rate_of(runs)
    assert found is not None
    assert found.tokens_per_second == pytest.approx(rate)
    assert found.formula == formula
    made = tokens_per_second(runs)
    assert made.value == pytest.approx(rate)
    assert made.formula == formula


@pytest.mark.parametrize("sequences", [[], [()], [(0,)], [(0, 0)]])
def test_no_rate_without_times(sequences: list[tuple[int, ...]]) -> None:
    assert rate_of((run_of(*sequences),)) is None
    assert rate_of((run_of((5, 5), role="profiled"),)) is None
