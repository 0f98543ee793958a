"""What an engine may yield for a token, and what is refused of what it returns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.tokens import plain_token, tokens_of
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.observe.observer import Observer

pytestmark = pytest.mark.measures


class Tensor:
    """As torch's: an index where it holds one whole number, and an item in any case."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def item(self) -> float:
        if len(self.values) != 1:
            raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")
        return self.values[0]


@pytest.mark.parametrize(
    ("token", "plain"),
    [
        (7, 7),
        ("é", "é"),
        (b"\xff", b"\xff"),
        (np.int64(7), 7),
        (np.uint8(7), 7),
        (np.array(7), 7),
        (np.array([7]), 7),
        (np.array([[7]], np.int32), 7),
        (np.str_("a"), "a"),
        (Tensor(7), 7),
    ],
)
def test_an_id_or_a_text_is_a_token(token: Any, plain: object) -> None:
    told = plain_token(token)
    assert told == plain
    assert type(told) in (int, bytes) or isinstance(told, str)


@pytest.mark.parametrize(
    "token",
    [None, True, 0.5, Tensor(), {"id": 7}, [7], (7,), np.float32(7), np.bool_(True),
     np.array([7, 8]), np.array(["a"]), Tensor(7, 8), Tensor(7.0)],
)  # fmt: skip
def test_what_has_neither_is_no_token(token: object) -> None:
    with pytest.raises(ToolError, match="E_BAD_TOKEN"):
        plain_token(token)


async def awaited() -> AsyncIterator[int]:
    yield 7


def test_what_holds_tokens_is_handed_on_as_it_is() -> None:
    for held in ([7], (7,), iter([7]), np.array([7]), range(3)):
        assert tokens_of(held) is held


@pytest.mark.parametrize(
    ("returned", "words"),
    [(None, "None"), ("text", "'str'"), (b"text", "'bytes'"), (7, "'int'"), ({7: 7}, "'dict'")],
)
def test_what_holds_no_tokens_is_refused(returned: object, words: str) -> None:
    with pytest.raises(ToolError, match=f"E_NOT_TOKENS.*{words}.*yield each token"):
        tokens_of(returned)


def test_what_is_awaited_is_refused_with_the_way_out() -> None:
    with pytest.raises(ToolError, match=r"E_NOT_TOKENS.*'async_generator'.*event loop"):
        tokens_of(awaited())


TOY = """
import os, sys
import numpy as np

def numbers(prompt, max_tokens):
    yield from np.arange(max_tokens)

def printing(prompt, max_tokens):
    for i in range(max_tokens):
        print("token", i, flush=True)
        os.write(1, b"\\0more")
        print("and", i, file=sys.stderr)
        yield i

def whole(prompt, max_tokens):
    return list(range(max_tokens))

def silent(prompt, max_tokens):
    yield from ()

def raising(prompt, max_tokens):
    yield 0
    raise ValueError("out of memory")

def unstable(prompt, max_tokens):
    yield object()

async def later(prompt, max_tokens):
    yield 0

async def coroutine(prompt, max_tokens):
    return [0]

def text(prompt, max_tokens):
    return "0123"
"""


def observed(directory: Path, target: str) -> Observation:
    (directory / "toy.py").write_text(TOY)
    declared = Workload("w", "python", "p", 4, "test", directory, target=f"toy:{target}")
    watched = Observer(declared, engine("python").plan(declared, None))
    for _ in range(2):
        watched.run_timed(0.05)
    return watched.observation()


@pytest.mark.parametrize("target", ["numbers", "printing", "whole"])
def test_tokens_come_through_and_are_the_same_in_each_process(tmp_path: Path, target: str) -> None:
    seen = observed(tmp_path, target)
    assert seen.tokens == ("0", "1", "2", "3")
    assert seen.differs_at is None


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("silent", "E_NO_TOKENS", "generated nothing"),
        ("raising", "E_ENGINE_RAISED", "ValueError: out of memory"),
        ("unstable", "E_BAD_TOKEN", "'object'"),
        ("later", "E_NOT_TOKENS", "event loop"),
        ("coroutine", "E_NOT_TOKENS", "event loop"),
        ("text", "E_NOT_TOKENS", "'str'"),
    ],
)
def test_a_target_that_yields_no_tokens_is_refused(
    tmp_path: Path, target: str, code: str, words: str
) -> None:
    with pytest.raises(ToolError) as caught:
        observed(tmp_path, target)
    assert caught.value.code == code
    assert words in str(caught.value)
