"""The objects that an engine may yield as tokens, and tokenizers of whole outputs."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.tokens import plain_token, tokens_of


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
def test_ids_and_texts_are_tokens(token: Any, plain: object) -> None:
    told = plain_token(token)
    assert told == plain
    assert type(told) in (int, bytes) or isinstance(told, str)


@pytest.mark.parametrize(
    "token",
    [None, True, 0.5, Tensor(), {"id": 7}, [7], (7,), np.float32(7), np.bool_(True),
     np.array([7, 8]), np.array(["a"]), Tensor(7, 8), Tensor(7.0)],
)  # fmt: skip
def test_other_objects_are_no_tokens(token: object) -> None:
    with pytest.raises(ToolError, match="E_BAD_TOKEN"):
        plain_token(token)


async def awaited() -> AsyncIterator[int]:
    yield 7


def test_iterables_are_passed_on() -> None:
    for held in ([7], (7,), iter([7]), np.array([7]), range(3)):
        assert tokens_of(held) is held


@pytest.mark.parametrize(
    ("returned", "words"),
    [(None, "None"), ("text", "'str'"), (b"text", "'bytes'"), (7, "'int'"), ({7: 7}, "'dict'")],
)
def test_objects_without_tokens(returned: object, words: str) -> None:
    with pytest.raises(ToolError, match=f"E_NOT_TOKENS.*{words}.*yield each token"):
        tokens_of(returned)


def test_awaitables_are_rejected_with_a_remedy() -> None:
    with pytest.raises(ToolError, match=r"E_NOT_TOKENS.*'async_generator'.*event loop"):
        tokens_of(awaited())
