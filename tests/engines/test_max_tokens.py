"""The same workload for another number of tokens."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Streamed
from pytest_flamegate.engines.command import replace_max_tokens


def streamed(*command: str, prompt: str = "p", max_tokens: int = 20) -> tuple[Streamed, Workload]:
    workload = Workload("w", "command", prompt, max_tokens, "test", Path(), command)
    plan = engine("command").plan(workload, None)
    assert isinstance(plan, Streamed)
    return plan, workload


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("{max_tokens}", "3"),
        ("--n={max_tokens}", "--n=3"),
        ("--n={max_tokens}:{seed}:{prompt}", "--n=3:42:a 20 b"),
        ("{prompt}/{max_tokens}/{max_tokens}", "a 20 b/3/3"),
        ("({max_tokens}.*)", "(3.*)"),
        ("20 {prompt}", "20 a 20 b"),
    ],
)
def test_only_the_number_of_tokens_changes(part: str, expected: str) -> None:
    plan, workload = streamed("engine", part, "{max_tokens}", prompt="a 20 b")
    assert replace_max_tokens(plan, workload, 3) == ("engine", expected, "3")


def test_programs_without_the_placeholder_cannot_generate_fewer() -> None:
    plan, workload = streamed("engine", "20")
    assert replace_max_tokens(plan, workload, 1) is None
    assert replace_max_tokens(replace(plan, argv=("engine", "--n", "20")), workload, 1) is None
    _, named = streamed("engine", "{max_tokens}")
    assert replace_max_tokens(replace(plan, argv=("engine", "21")), named, 1) is None
