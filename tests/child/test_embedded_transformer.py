from __future__ import annotations

import pytest

from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.child.embedded.transformer import Transformer
from pytest_flamegate.child.embedded.weights import decode
from pytest_flamegate.core.errors import UsageError


def test_generation_ends_before_the_end_marker(model: Transformer) -> None:
    assert decode(model.generate("3+4=", 50)) == b"7"


def test_no_step_is_run_for_a_token_nobody_asked_for(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[int] = []
    embed = kernels.embed

    def watched(table: kernels.FloatArray, token: int) -> kernels.FloatArray:
        embedded.append(token)
        return embed(table, token)

    monkeypatch.setattr(kernels, "embed", watched)
    assert list(model.generate("The gate", 3)) == [*b" st"]
    assert embedded == [256, *b"The gate", *b" s"]


def test_two_sequences_at_once_do_not_mix(model: Transformer) -> None:
    passage, total = model.generate("The gate", 12), model.generate("What is 4+5?", 10)
    mixed = [token for pair in zip(passage, total, strict=False) for token in pair]
    assert bytes(mixed[0::2]) == b" stands op"
    assert bytes(mixed[1::2]) == b" 4+5 is 9."


def test_a_sequence_left_half_way_leaves_nothing_behind(model: Transformer) -> None:
    abandoned = model.generate("The gate", 200)
    for _ in range(50):
        next(abandoned)
    del abandoned
    assert decode(model.generate("8+9=", 5)) == b"17"


@pytest.mark.parametrize(("prompt", "max_tokens"), [("2+2=", 0), ("2+2=", 508), ("x" * 512, 1)])
def test_what_does_not_fit_is_refused(model: Transformer, prompt: str, max_tokens: int) -> None:
    with pytest.raises(UsageError, match="512") as caught:
        next(iter(model.generate(prompt, max_tokens)))
    assert caught.value.code == "E_CONTEXT_LENGTH"


def test_the_context_can_be_filled_to_its_last_position(model: Transformer) -> None:
    assert len(list(model.generate("x" * 509, 2))) <= 2


def test_a_cache_is_used_again(model: Transformer) -> None:
    list(model.generate("2+2=", 1))
    before = [id(cache) for cache in model.idle_caches]
    for _ in range(3):
        list(model.generate("2+2=", 1))
    assert [id(cache) for cache in model.idle_caches] == before != []
