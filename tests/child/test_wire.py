"""The objects that an engine may yield as tokens."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from pytest_flamegate.child.wire import plain_token, tokens_of
from pytest_flamegate.core.errors import ToolError


class Tensor:
    """As torch's: an index where it holds one whole number, and an item in any case."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def item(self) -> float:
        if len(self.values) != 1:
            raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")
        return self.values[0]


def test_ids_and_texts_are_tokens() -> None:
    ids = (7, np.int64(7), np.uint8(7), np.array(7), np.array([7]), np.array([[7]], np.int32))
    for token in (*ids, Tensor(7)):
        assert plain_token(token) == 7
        assert type(plain_token(token)) is int
    texts: tuple[Any, ...] = ("é", b"\xff", np.str_("a"))
    for token in texts:
        assert plain_token(token) == token


def test_other_objects_are_no_tokens() -> None:
    arrays = (np.float32(7), np.bool_(True), np.array([7, 8]), np.array(["a"]))
    for token in (None, True, 0.5, [7], {"id": 7}, *arrays, Tensor(), Tensor(7, 8), Tensor(7.0)):
        with pytest.raises(ToolError, match="E_BAD_TOKEN"):
            plain_token(token)


async def awaited() -> AsyncIterator[int]:
    yield 7


def test_iterables_have_tokens_and_other_objects_a_remedy() -> None:
    for each in ([7], (7,), iter([7]), np.array([7]), range(3)):
        assert tokens_of(each) is each
    wrong = {"None": None, "'str'": "text", "'bytes'": b"text", "'int'": 7, "'dict'": {7: 7}}
    for words, returned in wrong.items():
        with pytest.raises(ToolError, match=f"E_BAD_TOKEN.*{words}.*Yield each token"):
            tokens_of(returned)
    with pytest.raises(ToolError, match=r"E_BAD_TOKEN.*'async_generator'.*event loop"):
        tokens_of(awaited())
