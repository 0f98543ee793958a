"""Calls of functions, counted in the observed process."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.child.call_counts import CountedCalls, EdgeCalls, record_calls
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import decode_json
from pytest_flamegate.engines import engine
from pytest_flamegate.observe.observer import Observer
from tests.observe.workloads import forked, make_workload

TOKENS = 5
needs_monitoring = pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")


class Tokenizer:
    def __len__(self) -> int:
        return 7


class Node:
    """Only the garbage collector ends it."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        project(0)


def project(value: int) -> int:
    return value + 1


def step(value: int) -> int:
    Node()
    bytearray(value)
    return project(value) + len(Tokenizer())


def generate(prompt: str, max_tokens: int) -> Iterator[int]:
    value = len(re.findall("o", prompt))
    for _ in range(max_tokens):
        value = step(project(value))
        yield value


def edges(found: CountedCalls) -> dict[str, tuple[int, int]]:
    """Return the calls before the first token and after it by ``caller>callee``."""
    return {f"{each.caller}>{each.callee}": (each.prefill, each.decode) for each in found.calls}


@needs_monitoring
def test_calls_of_python_and_c_are_counted_by_caller_and_phase() -> None:
    observer = forked(Path(), generate, prompt="go on", max_tokens=TOKENS)
    found = observer.count_calls()
    calls = edges(found)
    assert found.tokens == TOKENS
    assert calls["measured_sequences>generate"] == (1, 0)
    assert calls["generate>step"] == (1, 4)
    assert calls["generate>project"] == calls["step>project"] == (1, 4)
    assert calls["step>Tokenizer.__len__"] == (1, 4)
    assert calls["findall>re.Pattern.findall"] == (1, 0)
    assert calls["step>len"] == calls["step>bytearray"] == (1, 4)
    assert not [edge for edge in calls if edge.endswith(">Node")]
    # Finalisers run when the collector likes, and the counter is no part of the workload.
    assert not [edge for edge in calls if "__del__" in edge or "_CallCounter" in edge]
    in_c = {each.callee for each in found.calls if not each.callee_file}
    assert {"len", "re.Pattern.findall"} <= in_c
    assert not any(each.varies for each in found.calls)
    assert observer.runs == ()


@needs_monitoring
def test_a_function_whose_calls_vary_is_named_and_not_counted() -> None:
    numbers = iter(range(10_000))

    def varying(prompt: str, max_tokens: int) -> Iterator[int]:
        for token in range(max_tokens):
            for _ in range(next(numbers)):
                project(1)
            step(1)
            yield token

    found = forked(Path(), varying, max_tokens=TOKENS).count_calls()
    assert {each.callee for each in found.calls if each.varies} == {"project"}
    assert (1, 4) in [calls for edge, calls in edges(found).items() if edge.endswith(">step")]


@needs_monitoring
def test_the_interpreter_is_left_as_it_was() -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    before = [monitoring.get_tool(tool) for tool in range(6)]

    def fail(*_: object) -> None:
        raise OSError

    with pytest.raises(OSError):
        record_calls(fail, 1, None, lambda: None, lambda _: None)
    assert [monitoring.get_tool(tool) for tool in range(6)] == before


@pytest.mark.parametrize("change", [{"prefill": -1}, {"decode": -1}, {"callee": None}])
def test_a_record_that_cannot_be_is_an_error(change: dict[str, Any]) -> None:
    edge = asdict(EdgeCalls("f", "f.py", "len", "", 1, 2, varies=False))

    def read(call: dict[str, Any]) -> CountedCalls:
        data = json.dumps({"tokens": 2, "calls": [call]}).encode()
        return decode_json(data, CountedCalls, subject="The record")

    assert asdict(read(edge).calls[0]) == edge
    with pytest.raises(ReceiptError, match="The record is malformed"):
        read({**edge, **change})


def test_without_the_interpreters_help_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "monitoring", raising=False)
    tokens: list[int] = []

    def run(times: int, began: Callable[[], None], token: Callable[[Any], None]) -> None:
        began()
        token(times)

    found = json.loads(record_calls(run, 3, None, lambda: None, tokens.append))
    assert (tokens, found["tokens"], found["calls"]) == ([3], 0, [])


@needs_monitoring
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["embedded", "python"])
def test_two_runs_of_unchanged_code_have_equal_counts(name: str) -> None:
    workload = make_workload(
        Path(__file__).parents[2],
        name,
        prompt="go on and on",
        target="tests.child.test_call_counts:generate" if name == "python" else None,
    )
    kind = engine(name)
    plan = kind.plan(workload, kind.model(workload))
    first = Observer(workload, plan).count_calls()
    assert first.tokens
    assert not any(each.varies for each in first.calls)
    for _ in range(10):
        again = Observer(workload, plan).count_calls()
        assert (again.tokens, set(again.calls)) == (first.tokens, set(first.calls))
