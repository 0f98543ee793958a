"""An injection from the workload to the child that slows the function."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_flamegate.config.workload import Injection, Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Served
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.receipt.compose import recipe

pytestmark = pytest.mark.measures

# Each call takes 200 µs of CPU time, however fast the machine is just now.
TOY = """
import math
from json import dumps
from time import thread_time_ns

def hot(x):
    end = thread_time_ns() + 200_000
    while thread_time_ns() < end:
        pass
    return x * x

def unused(x):
    return x

def generate(prompt, max_tokens):
    for i in range(max_tokens):
        yield hot(i)

def listed(prompt, max_tokens):
    return [hot(i) for i in range(max_tokens)]

def late(prompt, max_tokens):
    import helper
    for i in range(max_tokens):
        yield helper.softmax(hot(i)) if i % 8 == 7 else hot(i)

def warm(prompt, max_tokens):
    for i in range(max_tokens):
        yield unused(i) if i == 39 else i
"""


def workload(directory: Path, injection: Injection | None, target: str = "generate") -> Workload:
    (directory / "injected_toy.py").write_text(TOY)
    (directory / "helper.py").write_text("def softmax(x): return x\n")
    return Workload(
        name="w",
        engine="python",
        prompt="p",
        max_tokens=40,
        source="test",
        directory=directory,
        target=f"injected_toy:{target}",
        injection=injection,
    )


def observed(
    directory: Path, injection: Injection | None, target: str = "generate"
) -> tuple[Observation, float]:
    """Run one process; return what was seen and its CPU time per token in nanoseconds."""
    declared = workload(directory, injection, target)
    kind = engine("python")
    kind.validate(declared)
    watched = Observer(declared, kind.plan(declared, None))
    run = watched.run_timed(0.15)
    cost_ns = sum(b.interval.cpu_ns for b in run.blocks) / sum(b.tokens for b in run.blocks)
    return watched.observation(), cost_ns


@pytest.mark.parametrize("target", ["generate", "listed"])
def test_a_named_function_costs_more_and_the_tokens_stay(tmp_path: Path, target: str) -> None:
    usual, usual_ns = observed(tmp_path, None, target)
    slowed, slowed_ns = observed(tmp_path, Injection("hot", 100.0), target)
    assert slowed.token_digest == usual.token_digest
    assert 150_000 < slowed_ns - usual_ns < 300_000


def test_the_plan_and_the_recipe_say_so(tmp_path: Path) -> None:
    injected = workload(tmp_path, Injection("mod:C.hot", 12.5))
    plan = engine("python").plan(injected, None)
    assert isinstance(plan, Served)
    assert plan.load["inject"] == ["mod:C.hot", 12.5]
    assert recipe(injected)["injection"] == "mod:C.hot:+12.5%"
    plan = engine("python").plan(workload(tmp_path, None), None)
    assert isinstance(plan, Served)
    assert "inject" not in plan.load


@pytest.mark.parametrize(
    ("frame", "target", "code", "words"),
    [
        ("hott", "generate", "E_UNKNOWN_FRAME", "injected_toy:hot"),
        ("sqrt", "generate", "E_UNKNOWN_FRAME", "'sqrt'"),
        ("measured_sequences", "generate", "E_UNKNOWN_FRAME", "measured_sequences"),
        ("softmax", "late", "E_UNKNOWN_FRAME", "module:qualname"),
        ("unused", "generate", "E_FRAME_NOT_CALLED", "'unused' was not called"),
    ],
)
def test_what_cannot_be_slowed(
    tmp_path: Path, frame: str, target: str, code: str, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        observed(tmp_path, Injection(frame, 10.0), target)
    assert caught.value.code == code
    assert words in str(caught.value)


@pytest.mark.parametrize(("frame", "target"), [("unused", "warm"), ("helper:softmax", "late")])
def test_what_is_called_late_can_be_slowed(tmp_path: Path, frame: str, target: str) -> None:
    """Not while warming up, or from a module that is imported during the call."""
    # Far beyond what injecting costs, also where a busy machine makes that cost milliseconds.
    seen, _ = observed(tmp_path, Injection(frame, 1e7), target)
    assert len(seen.tokens) == 40
