"""The self test: its plan, its bench, and its cases, with a right gate and with faults in it."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Injection, Workload
from pytest_flamegate.core.errors import ToolError, UndecidedError
from pytest_flamegate.core.json import replace
from pytest_flamegate.core.locks import LOCK_DIRECTORY, machine_lock
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.gate import analyses, hotspots, pairs
from pytest_flamegate.gate import verdict as verdicts
from pytest_flamegate.gate.judge import GatedRun
from pytest_flamegate.gate.rule import RateDecision, Reason, decide
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.receipt import Refusal, verify_receipt
from pytest_flamegate.run import seal, selftest
from pytest_flamegate.run.selftest import (
    BUDGET_S,
    MORE,
    SAME_PART,
    SLOWED_PART,
    Bench,
    Compared,
    find_share,
    is_same_function,
    open_bench,
)
from pytest_flamegate.run.selftest_cases import CASES, SUMMARIES, CaseRow, summarize, try_case
from tests.report.verdicts import rate, share
from tests.run.fakes import TOKEN_NS, FakeProfiler, World, install

WORKLOAD = Workload("4tok", "embedded", "2+2=", 4, "flamegate.toml")
SLOWED = Injection("ternary_gemv", 100.0)
NAMES = tuple(case.name for case in CASES)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return install(monkeypatch)


def bench(directory: Path, injection: Injection | None = SLOWED, **measured: Compared) -> Bench:
    """A bench that measures fake processes, and holds ``measured`` as if it had been."""
    made = Bench(
        replace(WORKLOAD, directory=directory),
        injection,
        Settings(directory, directory / ".flamegate"),
        Progress(),
        FakeProfiler(),  # type: ignore[arg-type]
        "Profiling is off.",
    )
    vars(made).update(measured)
    return made


def tried(name: str, made: Bench) -> CaseRow:
    return next(try_case(made, case) for case in CASES if case.name == name)


def decides(decision: RateDecision, if_slower: bool | None = None) -> Callable[..., Any]:
    """Return a rule that decides so about every change, or about slower or faster ones only."""

    def faulty(*arguments: Any) -> Any:
        found = RIGHT_RULE(*arguments)
        concerns = if_slower is None or (found.slower if if_slower else found.faster)
        return replace(found, decision=decision) if concerns else found

    return faulty


def halve(*arguments: Any) -> Any:
    found = RIGHT_DIFFERENCE(*arguments)
    return replace(found, quiet=found.quiet / 2)


def blame_risen_shares(moved_share: Any, *_: Any, **__: Any) -> str:
    return "costs_more" if moved_share.shift_pp > 0.0 else "unchanged"


def trust(*arguments: Any, **options: Any) -> Any:
    return replace(RIGHT_VERIFIER(*arguments, **options), ok=True, refusals=())


def reject(*arguments: Any, **options: Any) -> Any:
    refusal = Refusal("E_TPS_MISMATCH", "It does not fit.", "Measure again.")
    return replace(RIGHT_VERIFIER(*arguments, **options), ok=False, refusals=(refusal,))


RIGHT_RULE, RIGHT_DIFFERENCE, RIGHT_VERIFIER = decide, pairs._difference, verify_receipt
JUDGE = sys.modules[GatedRun.__module__]
GREEN = {name: replace(kind, exit_code=0) for name, kind in verdicts.KINDS.items()}


@pytest.mark.parametrize(
    ("name", "owner", "attribute", "fault"),
    [
        ("slowed", analyses, "decide", decides("pass")),
        ("slowed", analyses, "decide", decides("improved")),
        ("named", JUDGE, "explaining_functions", lambda *_: ("attention", "ternary_gemv")),
        ("size", pairs, "_difference", halve),
        ("allowed", analyses, "decide", decides("regressed", if_slower=True)),
        ("share", hotspots, "decide_drift", lambda *_: ("pass", ())),
        ("backwards", analyses, "decide", decides("pass", if_slower=False)),
        ("neighbours", hotspots, "_find", blame_risen_shares),
        ("small", analyses, "log_time_of_drop", lambda _: 0.2),
        ("same code", analyses, "decide", decides("regressed")),
        ("no blame", hotspots, "_find", lambda *_, **__: "costs_more"),
        ("receipt", seal, "verify_receipt", reject),
        ("forged figure", seal, "verify_receipt", trust),
        ("forged profile", seal, "verify_receipt", trust),
        ("forged profile", verdicts, "KINDS", GREEN),
        ("copied run", JUDGE, "find_copy", lambda *_: None),
        ("other prompt", JUDGE, "compare", lambda *_, **__: ()),
        ("no baseline", verdicts, "KINDS", GREEN),
        ("few samples", GatedRun, "lacks_samples", lambda *_: False),
    ],
)
@pytest.mark.usefixtures("world")
def test_a_gate_with_a_fault_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    owner: Any,
    attribute: str,
    fault: Any,
) -> None:
    monkeypatch.setattr(owner, attribute, fault)
    assert tried(name, bench(tmp_path)).result == "failed"


@pytest.mark.parametrize("name", ["share", "neighbours"])
def test_few_samples_leave_the_cases_of_shares_undecided(
    tmp_path: Path, world: World, name: str
) -> None:
    world.samples = 200
    assert tried(name, bench(tmp_path)).result == "undecided"


def test_noise_leaves_cases_undecided_and_fails_none(tmp_path: Path, world: World) -> None:
    factors = itertools.cycle((0.3, 1.0, 3.0))

    def on_process(_: str) -> None:
        world.token_ns = round(TOKEN_NS * next(factors))

    world.on_process = on_process
    made = bench(tmp_path)
    rows = [try_case(made, case) for case in CASES]
    assert not [row for row in rows if row.result == "failed"]
    undecided = {row.name for row in rows if row.result == "undecided"}
    assert undecided >= {"slowed", "named", "backwards", "same code"}
    status, advice = summarize(rows)
    assert (status, "idle" in advice) == (4, True)
    failed = replace(rows[0], result="failed")
    assert summarize([*rows, failed]) == (1, SUMMARIES["failed"][1])


def test_too_little_extra_work_says_how_much_is_enough(tmp_path: Path, world: World) -> None:
    little = Injection("attention", 25.0)
    row = tried("slowed", bench(tmp_path, little))
    # A twelfth of the time: 1.3 × 5 % fewer tokens per second are 7.0 % more time.
    assert (row.result, "--extra 8" in row.detail) == ("undecided", True), row
    unprofiled = bench(tmp_path, little)
    unprofiled.profiler = None
    assert tried("slowed", unprofiled).result == "undecided"


def verdict(name: str, **more: Any) -> Verdict:
    signal = rate(name, change_pct=-6.2, ci_low_pct=-7.4, ci_high_pct=9.9)
    reasons = (Reason("E_CLEARLY", "It did."),)
    options: dict[str, Any] = {"reasons": reasons, "signals": (signal,), **more}
    return Verdict(verdict=name, grade="OBSERVED", false_alarm_rate=0.01, **options)  # type: ignore[arg-type]


BLAMED = (share("ternary_gemv", 0.5, 0.6, "costs_more")[0],)


@pytest.mark.parametrize(
    ("name", "measured", "times"),
    [
        ("slowed", [verdict("inconclusive"), verdict("regressed")], [1, MORE]),
        ("slowed", [verdict("inconclusive"), verdict("inconclusive")], [1, MORE]),
        ("same", [verdict("inconclusive"), verdict("pass")], [1, MORE]),
        ("same", [verdict("regressed"), verdict("pass")], [1, 1]),
        ("same", [verdict("pass", hotspots=BLAMED), verdict("pass")], [1, 1]),
    ],
)
def test_noise_is_given_more_time_once_and_an_alarm_a_second_look(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    measured: list[Verdict],
    times: list[float],
) -> None:
    given: list[float] = []

    def once(made: Bench, label: str, head: Any, budget_s: float, profiled: bool) -> Compared:
        given.append(budget_s / BUDGET_S)
        return Compared(measured[len(given) - 1])

    monkeypatch.setattr(Bench, "_compare_once", once)
    found = getattr(bench(tmp_path), name)
    part = {"slowed": SLOWED_PART, "same": SAME_PART}[name]
    assert (found.verdict, given) == (measured[-1], [part * each for each in times])
    assert found.first == (measured[0] if len(measured) > 1 else None)


def test_a_small_slowdown_counts_what_a_repeated_call_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Injection] = []

    def once(made: Bench, label: str, head: Injection, *_: Any) -> Compared:
        given.append(head)
        return Compared(verdict("regressed"))

    monkeypatch.setattr(Bench, "_compare_once", once)
    monkeypatch.setattr(Bench, "share", 0.5)
    injection = Injection("ternary_gemv", 300.0)
    # Half the time, three times more: 150 % if each call took as long. 75 % were measured.
    signal = rate("regressed", change_pct=100.0 * (1.0 / 1.75 - 1.0))
    made = bench(tmp_path, injection, slowed=Compared(verdict("regressed", signals=(signal,))))
    assert (made.injected_pct, made.slowed_pct) == pytest.approx((150.0, 75.0))
    assert made.small.verdict.verdict == "regressed"
    # 8.1 % more time is 7.5 % fewer tokens per second: 17 % of that function, 34 % of such calls.
    assert given == [Injection("ternary_gemv", 34)]


@pytest.mark.parametrize(
    ("name", "first"),
    [("same code", verdict("regressed")), ("no blame", verdict("pass", hotspots=BLAMED))],
)
def test_one_alarm_of_two_is_undecided(tmp_path: Path, name: str, first: Verdict) -> None:
    row = tried(name, bench(tmp_path, same=Compared(verdict("pass"), first=first)))
    assert (row.result, "may be chance" in row.detail) == ("undecided", True)


def test_too_little_seen_is_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: Any) -> Any:
        raise UndecidedError("E_FEW_SAMPLES", "Too few.", "More.")

    monkeypatch.setattr(selftest, "measure", measure)
    rows = [tried(name, bench(tmp_path)) for name in ("slowed", "named", "forged profile")]
    assert {row.result for row in rows} == {"undecided"}
    assert rows[0].happened == "inconclusive, E_FEW_SAMPLES"


@pytest.mark.usefixtures("world")
def test_a_case_without_what_it_needs_is_left_out(tmp_path: Path) -> None:
    made = bench(tmp_path)
    made.profiler = None
    results = {name: tried(name, made).result for name in NAMES}
    assert {name for name in NAMES if results[name] == "ok"} == {
        "slowed", "allowed", "backwards", "same code", "copied run", "other prompt", "no baseline"
    }  # fmt: skip
    assert tried("named", made).detail == "Profiling is off."


@pytest.mark.usefixtures("world")
def test_the_machine_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK_DIRECTORY, str(tmp_path))
    program = Workload("prog", "command", "p", 4, "flamegate.toml", command=("true",))
    given = Settings(tmp_path, tmp_path / ".flamegate", profiler="none")
    with open_bench(program, None, given, Progress(), lambda _: None) as made:
        assert "Profiling is off" in (made.why_unavailable("profile") or "")
        with pytest.raises(ToolError, match="E_LOCK_TIMEOUT"), machine_lock(print, 0.05):
            pass
    with machine_lock(print, 0.05):
        pass


def test_a_share_is_of_all_that_a_function_calls() -> None:
    given = "model:Layer.forward"
    assert [is_same_function(given, each) for each in ("Layer.forward", "Other.forward")] == [
        *(True, False),
    ]
    assert not is_same_function("max", "softmax")
    counts = {"main heavy dot": 60, "main heavy": 20, "main light": 15, "main light dot": 5}
    stacks = {
        tuple(Frame(name, "toy.py", "python") for name in stack.split()): count
        for stack, count in counts.items()
    }
    profile: Any = SimpleNamespace(stacks=stacks)
    assert find_share("heavy", profile) == 0.8
    assert find_share("toy:light", profile) == 0.2
    assert find_share("heavy", profile, "dot") == 60 / 65
    assert find_share("nothing", profile) is None
    assert find_share("heavy", None) is None
