"""The self test: its plan, its bench, the cases, and functions by the name that was given."""

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
from pytest_flamegate.gate import Reason, Verdict
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.profile.profilers.base import Setup
from pytest_flamegate.profile.profilers.pyspy import make_pyspy
from pytest_flamegate.run import selftest, selftest_cases
from pytest_flamegate.run.seal import ComposedSide
from pytest_flamegate.run.selftest import (
    BUDGET_S,
    MORE,
    WHOLE,
    Bench,
    Compared,
    SelftestPlan,
    find_share,
    is_same_function,
    make_plan,
    open_bench,
)
from pytest_flamegate.run.selftest_cases import CASES, CaseRow, exit_code_of, try_case
from tests.made import bundle
from tests.report.verdicts import rate, share
from tests.run.fakes import sealed_run

WORKLOAD = Workload("4tok", "embedded", "2+2=", 4, "flamegate.toml")
SLOWED = Injection("ternary_gemv", 25.0)


def verdict(name: str, **more: Any) -> Verdict:
    signal = rate(name, change_pct=-6.2, ci_low_pct=-7.4, ci_high_pct=9.9)
    reasons = (Reason("E_CLEARLY", "It did."),)
    options: dict[str, Any] = {"reasons": reasons, "signals": (signal,), **more}
    return Verdict(verdict=name, grade="OBSERVED", false_alarm_rate=0.01, **options)  # type: ignore[arg-type]


def side(name: str, seed: int, pairs: int = 6) -> ComposedSide:
    created = f"2025-10-13T12:00:0{seed}Z"
    made = bundle(seed=seed, timed=pairs, profiled=3, created=created)
    runs = tuple(
        replace(run, pair=index if run.role == "timed" else None)
        for index, run in enumerate(made.evidence.runs)
    )
    sealed = sealed_run(made.with_evidence(runs=runs, side=name)).head
    assert sealed.verification is not None
    assert sealed.verification.ok, sealed.verification.refusals
    return sealed


def bench(directory: Path, plan: SelftestPlan | None = None, **measured: Compared) -> Bench:
    """A bench that holds what ``measured`` says, as if it had been."""
    made = Bench(
        plan or SelftestPlan(WORKLOAD, SLOWED, "attention"),
        Settings(directory, directory / ".flamegate"),
        Progress(),
        make_pyspy(Setup()),
        "Profiling is off.",
    )
    vars(made).update(measured)
    return made


def profiled(**samples: int) -> Any:
    """A side whose profile has stacks written ``a__b``, root first."""
    stacks = {
        tuple(Frame(name, "toy.py", "python") for name in stack.split("__")): count
        for stack, count in samples.items()
    }
    profile = SimpleNamespace(stacks=stacks, samples=sum(samples.values()))
    return SimpleNamespace(profile=profile)


HOT = profiled(ternary_gemv=780, attention=90, rope=130)
COLD = profiled(ternary_gemv=100, attention=90, rope=810)


def tried(name: str, made: Bench) -> CaseRow:
    return next(try_case(made, case) for case in CASES if case.name == name)


def slowed(found: str, base: Any = HOT, **more: Any) -> Compared:
    return Compared(verdict(found, **more), base, base)


def spot(finding: str, before: float, after: float) -> Compared:
    hotspot, _ = share("ternary_gemv", before, after, finding)
    return slowed("improved", hotspots=(hotspot,))


def named(*names: str, base: Any = HOT) -> Compared:
    return slowed("regressed", base, explained_by=names)


def calling(name: str, **samples: int) -> Compared:
    return named(name, base=profiled(**samples))


@pytest.mark.parametrize(
    ("case", "found", "result"),
    [
        ("slowed", slowed("regressed"), "ok"),
        ("slowed", slowed("inconclusive"), "undecided"),
        ("slowed", slowed("pass"), "differs"),
        ("slowed", slowed("dishonest"), "differs"),
        ("slowed", slowed("pass", COLD), "undecided"),
        ("slowed", slowed("pass", profiled(rope=1)), "undecided"),
        ("slowed", slowed("improved", COLD), "differs"),
        ("named", named("ternary_gemv", "rope"), "ok"),
        ("named", named("rope", "ternary_gemv"), "differs"),
        ("named", named(), "undecided"),
        ("named", calling("dot", main__ternary_gemv__dot=9, main__dot=8), "ok"),
        ("named", calling("dot", main__ternary_gemv__dot=9, main__dot=10), "differs"),
        ("named", calling("absent", main__ternary_gemv=9), "differs"),
        ("named", named("dot", base=None), "differs"),
        ("named", slowed("pass", explained_by=("ternary_gemv",)), "undecided"),
        ("same code", slowed("pass"), "ok"),
        ("same code", slowed("improved"), "ok"),
        ("same code", slowed("inconclusive"), "ok"),
        ("same code", slowed("regressed"), "differs"),
        ("same code", slowed("dishonest"), "differs"),
        ("faster", slowed("pass"), "ok"),
        ("faster", slowed("improved"), "ok"),
        ("faster", slowed("inconclusive"), "undecided"),
        ("faster", slowed("regressed"), "differs"),
        ("neighbours", spot("share_moved", 0.5, 0.6), "ok"),
        ("neighbours", spot("costs_more", 0.5, 0.6), "differs"),
        ("neighbours", spot("costs_less", 0.6, 0.5), "undecided"),
    ],
)
def test_each_answer_of_the_gate(case: str, found: Compared, result: str, tmp_path: Path) -> None:
    first = found if case in ("slowed", "named") else slowed("regressed")
    assert tried(case, bench(tmp_path, slowed=first, same=found, faster=found)).result == result


def test_too_little_extra_work_says_how_much_is_enough(tmp_path: Path) -> None:
    row = tried("slowed", bench(tmp_path, slowed=slowed("pass", COLD)))
    # A tenth of the time: 1.3 × 5 % fewer tokens per second are 7.0 % more time.
    assert "--extra 70%" in row.detail
    enough = SelftestPlan(WORKLOAD, Injection("ternary_gemv", 70.0), None)
    again = tried("slowed", bench(tmp_path, enough, slowed=slowed("pass", COLD)))
    assert again.result == "differs"


def test_the_other_function_gets_enough_work_to_be_seen(tmp_path: Path) -> None:
    made = bench(tmp_path, slowed=slowed("regressed"))
    assert made.other == Injection("attention", round(100 * WHOLE / 0.09))
    unseen = bench(tmp_path, slowed=slowed("regressed", None))
    assert unseen.other == Injection("attention", 4 * SLOWED.extra_pct)


@pytest.mark.parametrize(
    ("name", "verdicts", "times"),
    [
        ("slowed", ["inconclusive", "regressed"], [1, MORE]),
        ("slowed", ["inconclusive", "inconclusive"], [1, MORE]),
        ("slowed", ["pass"], [1]),
        ("same", ["inconclusive"], [1]),
    ],
)
def test_noise_is_given_more_time_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, verdicts: list[str], times: Any
) -> None:
    given: list[float] = []

    def once(made: Bench, label: str, base: Any, head: Any, budget_s: float) -> Compared:
        given.append(budget_s)
        return Compared(verdict(verdicts[len(given) - 1]), HOT, HOT)

    monkeypatch.setattr(Bench, "_once", once)
    assert getattr(bench(tmp_path), name).verdict.verdict == verdicts[-1]
    assert given == [each * BUDGET_S for each in times]


def test_too_little_seen_is_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: Any) -> Any:
        raise UndecidedError("E_FEW_SAMPLES", "Too few.", "More.")

    monkeypatch.setattr(selftest, "measure", measure)
    row = tried("slowed", bench(tmp_path))
    assert (row.result, row.happened) == ("undecided", "inconclusive, E_FEW_SAMPLES")


def test_a_case_without_what_it_needs_is_left_out(tmp_path: Path) -> None:
    made = bench(tmp_path, SelftestPlan(WORKLOAD, SLOWED, None), slowed=slowed("regressed"))
    made.profiler = None
    assert tried("slowed", made).result == "ok"
    named, faster = tried("named", made), tried("faster", made)
    assert (named.result, named.detail) == ("left out", "Profiling is off.")
    assert (faster.result, "--other" in faster.detail) == ("left out", True)


@pytest.mark.parametrize(
    ("results", "code"),
    [(("ok", "ok"), 0), (("ok", "left out"), 4), (("undecided", "differs"), 1), ((), 4)],
)
def test_exit_code(results: tuple[Any, ...], code: int) -> None:
    assert exit_code_of([CaseRow("", "", "", "", result) for result in results]) == code


@pytest.mark.parametrize(
    ("engine", "arguments", "expected"),
    [
        ("embedded", ("25%",), (Injection("ternary_gemv", 25.0), "attention")),
        ("embedded", ("+10", "attention"), (Injection("attention", 10.0), "ternary_gemv")),
        ("embedded", ("25%", None, "rope"), (SLOWED, "rope")),
        ("python", ("25%", "heavy"), (Injection("heavy", 25.0), None)),
        ("python", ("25%", "toy:heavy", "light"), (Injection("toy:heavy", 25.0), "light")),
    ],
)
def test_what_is_asked(engine: str, arguments: Any, expected: Any) -> None:
    plan = make_plan(replace(WORKLOAD, engine=engine, target="toy:generate"), *arguments)
    assert (plan.slowed, plan.other) == expected


def test_a_forged_receipt_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Compared(verdict("regressed"), side("base", 1), side("head", 2))
    made = bench(tmp_path, slowed=pair)
    row = tried("forged receipt", made)
    assert (row.result, row.happened) == ("ok", row.expected)
    accepted = SimpleNamespace(ok=True, refusals=())
    with monkeypatch.context() as patch:
        patch.setattr(selftest_cases, "verify_receipt", lambda *_, **__: accepted)
        assert tried("forged receipt", made).result == "differs"
    # If the honest receipt is rejected as well, a rejection shows nothing.
    object.__setattr__(made.slowed.head, "verification", SimpleNamespace(ok=False))
    assert tried("forged receipt", made).result == "differs"
    undecided = bench(tmp_path, slowed=Compared(verdict("inconclusive")))
    assert tried("forged receipt", undecided).result == "undecided"


def test_the_machine_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK_DIRECTORY, str(tmp_path))
    program = Workload("prog", "command", "p", 4, "flamegate.toml", command=("true",))
    given = Settings(tmp_path, tmp_path / ".flamegate", profiler="none")
    with open_bench(make_plan(program, "25%"), given, Progress(), lambda _: None) as made:
        assert "Profiling is off" in (made.why_unavailable("profile") or "")
        with pytest.raises(ToolError, match="E_LOCK_TIMEOUT"), machine_lock(print, 0.05):
            pass
    with machine_lock(print, 0.05):
        pass


@pytest.mark.parametrize(
    ("given", "shown", "same"),
    [
        ("softmax", "softmax", True),
        ("forward", "Layer.forward", True),
        ("model.Layer.forward", "Layer.forward", True),
        ("model:Layer.forward", "Layer.forward", True),
        ("model:Layer.forward", "Other.forward", False),
        ("max", "softmax", False),
        ("softmax", "max", False),
    ],
)
def test_the_name_that_was_given(given: str, shown: str, same: bool) -> None:
    assert is_same_function(given, shown) is same


def test_a_share_is_of_all_that_a_function_calls() -> None:
    profile = profiled(main__heavy__dot=60, main__heavy=20, main__light=15, main=5)
    assert find_share("heavy", profile) == 0.8
    assert find_share("toy:light", profile) == 0.15
    assert find_share("nothing", profile) is None
    assert find_share("heavy", None) is None
