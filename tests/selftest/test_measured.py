"""What a real comparison may say, and what it must not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.config.options import COMPARE_BUDGET_S
from pytest_flamegate.config.workload import Injection, Workload
from pytest_flamegate.core.errors import UndecidedError, UsageError
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.run import selftest
from pytest_flamegate.run.selftest import MORE, WHOLE, Asked, Bench, Compared, ask
from pytest_flamegate.run.selftest_cases import CASES, Row, exit_code_of, try_all
from tests.report.verdicts import share
from tests.selftest.bench import SLOWED, WORKLOAD, bench, verdict

NAMES = ("slowed", "named", "same code", "faster", "neighbours")
MEASURED = {each.name: each for each in CASES if each.name in NAMES}


def profiled(**samples: int) -> Any:
    """A side whose profile has one stack for each function."""
    stacks = {(Frame(name, "kernels.py", "python"),): count for name, count in samples.items()}
    profile = SimpleNamespace(stacks=stacks, samples=sum(samples.values()))
    return SimpleNamespace(side=SimpleNamespace(profile=profile))


HOT = profiled(ternary_gemv=780, attention=90, rope=130)
COLD = profiled(ternary_gemv=100, attention=90, rope=810)


def tried(name: str, made: Bench) -> Row:
    (row,) = try_all(made, [MEASURED[name]])
    return row


def slowed(found: str, base: Any = HOT, **more: Any) -> Compared:
    return Compared(verdict(found, **more), base, base)


@pytest.mark.parametrize(
    ("found", "base", "result"),
    [
        ("regressed", HOT, "ok"),
        ("inconclusive", HOT, "undecided"),
        ("pass", HOT, "differs"),
        ("improved", HOT, "differs"),
        ("dishonest", HOT, "differs"),
        ("not_comparable", HOT, "differs"),
        ("pass", COLD, "undecided"),
        ("pass", profiled(rope=1), "undecided"),
        ("improved", COLD, "differs"),
    ],
)
def test_extra_work(found: str, base: Any, result: str, tmp_path: Path) -> None:
    assert tried("slowed", bench(tmp_path, slowed=slowed(found, base))).result == result


def test_too_little_extra_work_says_how_much_is_enough(tmp_path: Path) -> None:
    row = tried("slowed", bench(tmp_path, slowed=slowed("pass", COLD)))
    # A tenth of the time: 1.3 × 5 % fewer tokens per second are 7.0 % more time.
    assert "--extra 70%" in row.detail
    enough = Asked(WORKLOAD, Injection("ternary_gemv", 70.0), None)
    again = tried("slowed", bench(tmp_path, enough, slowed=slowed("pass", COLD)))
    assert again.result == "differs"


@pytest.mark.parametrize(
    ("names", "result"),
    [(("ternary_gemv", "rope"), "ok"), (("rope", "ternary_gemv"), "differs"), ((), "undecided")],
)
def test_the_function_is_named(names: tuple[str, ...], result: str, tmp_path: Path) -> None:
    found = slowed("regressed", explained_by=names)
    assert tried("named", bench(tmp_path, slowed=found)).result == result


def test_a_function_that_it_calls_stands_for_it(tmp_path: Path) -> None:
    frames = tuple(Frame(name, "x", "native") for name in ("ternary_gemv", "dot"))
    profile = SimpleNamespace(stacks={frames: 9}, samples=9)
    native: Any = SimpleNamespace(side=SimpleNamespace(profile=profile))
    found = slowed("regressed", native, explained_by=("dot",))
    row = tried("named", bench(tmp_path, slowed=found))
    assert (row.result, row.happened) == ("ok", "dot, which it calls")


def test_nothing_is_named_where_nothing_regressed(tmp_path: Path) -> None:
    found = slowed("pass", explained_by=("ternary_gemv",))
    assert tried("named", bench(tmp_path, slowed=found)).result == "undecided"


@pytest.mark.parametrize(
    ("found", "same", "faster"),
    [
        ("pass", "ok", "ok"),
        ("improved", "ok", "ok"),
        ("inconclusive", "ok", "undecided"),
        ("regressed", "differs", "differs"),
        ("dishonest", "differs", "differs"),
        ("not_comparable", "differs", "differs"),
    ],
)
def test_the_gate_stays_open(found: str, same: str, faster: str, tmp_path: Path) -> None:
    seen = slowed(found)
    made = bench(tmp_path, same=seen, faster=seen, slowed=slowed("regressed"))
    assert tried("same code", made).result == same
    assert tried("faster", made).result == faster


@pytest.mark.parametrize(
    ("finding", "before", "after", "result"),
    [
        ("share_moved", 0.5, 0.6, "ok"),
        ("costs_more", 0.5, 0.6, "differs"),
        ("costs_less", 0.6, 0.5, "undecided"),
    ],
)
def test_neighbours_weigh_more_and_cost_no_more(
    finding: str, before: float, after: float, result: str, tmp_path: Path
) -> None:
    hotspot, _ = share("ternary_gemv", before, after, finding)
    seen = slowed("improved", hotspots=(hotspot,))
    made = bench(tmp_path, faster=seen, slowed=slowed("regressed"))
    assert tried("neighbours", made).result == result


def test_the_other_function_gets_enough_work_to_be_seen(tmp_path: Path) -> None:
    made = bench(tmp_path, slowed=slowed("regressed"))
    assert made.other == Injection("attention", round(100 * WHOLE / 0.09))
    unseen = bench(tmp_path, slowed=slowed("regressed", None))
    assert unseen.other == Injection("attention", 4 * SLOWED.extra_pct)


@pytest.mark.parametrize(
    ("name", "verdicts", "budgets"),
    [
        ("slowed", ["inconclusive", "regressed"], [COMPARE_BUDGET_S, MORE * COMPARE_BUDGET_S]),
        ("slowed", ["inconclusive", "inconclusive"], [COMPARE_BUDGET_S, MORE * COMPARE_BUDGET_S]),
        ("slowed", ["pass"], [COMPARE_BUDGET_S]),
        ("slowed", ["regressed"], [COMPARE_BUDGET_S]),
        ("same", ["inconclusive"], [COMPARE_BUDGET_S]),
        ("same", ["regressed"], [COMPARE_BUDGET_S]),
    ],
)
def test_noise_is_given_more_time_once(
    name: str,
    verdicts: list[str],
    budgets: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    def once(made: Bench, label: str, base: Any, head: Any, budget_s: float) -> Compared:
        given.append(budget_s)
        return Compared(verdict(verdicts[len(given) - 1]), HOT, HOT)

    monkeypatch.setattr(Bench, "_once", once)
    assert getattr(bench(tmp_path), name).verdict.verdict == verdicts[-1]
    assert given == budgets


def test_too_little_seen_is_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: Any) -> Any:
        raise UndecidedError("E_FEW_SAMPLES", "Too few.", "More.")

    monkeypatch.setattr(selftest, "measure", measure)
    row = tried("slowed", bench(tmp_path))
    assert (row.result, row.happened) == ("undecided", "inconclusive, E_FEW_SAMPLES")


def test_a_program_is_tried_without_injecting(tmp_path: Path) -> None:
    program = Workload("prog", "command", "p", 4, "flamegate.toml", command=("prog",))
    made = bench(tmp_path, ask(program, "25%"), same=slowed("pass"))
    rows = {name: tried(name, made) for name in MEASURED}
    assert rows.pop("same code").result == "ok"
    assert {row.result for row in rows.values()} == {"left out"}
    assert all(row.detail.startswith("E_BAD_INJECTION") for row in rows.values())
    assert made.pair == (HOT, HOT)


def test_without_a_profiler_nothing_is_said_of_functions(tmp_path: Path) -> None:
    made = bench(tmp_path, slowed=slowed("regressed"))
    made.profiler = None
    assert tried("slowed", made).result == "ok"
    row = tried("named", made)
    assert (row.result, row.detail) == ("left out", "Profiling is off.")


def test_without_a_second_function_none_is_made_faster(tmp_path: Path) -> None:
    made = bench(tmp_path, Asked(WORKLOAD, SLOWED, None), slowed=slowed("regressed"))
    row = tried("faster", made)
    assert row.result == "left out"
    assert "--other" in row.detail


@pytest.mark.parametrize(
    ("results", "code"),
    [
        (["ok", "ok"], 0),
        (["ok", "undecided"], 4),
        (["ok", "left out"], 4),
        (["undecided", "differs"], 1),
        ([], 4),
    ],
)
def test_how_it_exits(results: list[Any], code: int) -> None:
    assert exit_code_of([Row("", "", "", "", result) for result in results]) == code


PYTHON = Workload("toy", "python", "p", 4, "flamegate.toml", target="toy:generate")


@pytest.mark.parametrize(
    ("workload", "arguments", "expected"),
    [
        (WORKLOAD, ("25%",), (Injection("ternary_gemv", 25.0), "attention")),
        (WORKLOAD, ("+10", "attention"), (Injection("attention", 10.0), "ternary_gemv")),
        (WORKLOAD, ("25%", None, "rope"), (SLOWED, "rope")),
        (PYTHON, ("25%", "heavy"), (Injection("heavy", 25.0), None)),
        (PYTHON, ("25%", "toy:heavy", "light"), (Injection("toy:heavy", 25.0), "light")),
    ],
)
def test_what_is_asked(workload: Workload, arguments: Any, expected: Any) -> None:
    asked = ask(workload, *arguments)
    assert (asked.slowed, asked.other) == expected


@pytest.mark.parametrize(
    ("workload", "arguments", "code"),
    [
        (WORKLOAD, ("much",), "E_BAD_INJECTION"),
        (WORKLOAD, ("0%",), "E_BAD_INJECTION"),
        (WORKLOAD, ("-5%",), "E_BAD_INJECTION"),
        (WORKLOAD, ("25%", "rope", "rope"), "E_SAME_FRAME"),
        (PYTHON, ("25%",), "E_BAD_INJECTION"),
    ],
)
def test_what_cannot_be_asked(workload: Workload, arguments: Any, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        ask(workload, *arguments)
    assert caught.value.code == code
