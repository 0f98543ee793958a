"""Digests of the embedded engine: equal in two runs, and different after one changed weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_flamegate.child.embedded import kernels, transformer
from pytest_flamegate.child.embedded.kernels import BLOCK, TernaryMatrix
from pytest_flamegate.child.embedded.transformer import Transformer
from pytest_flamegate.child.embedded.weights import encode
from pytest_flamegate.engines.embedded import SHIPPED_MODEL
from pytest_flamegate.graph.divergence import Tolerance, divergence, sentence
from pytest_flamegate.graph.tensors import Digests, TensorKey

PROMPT = "Once"
TOKENS = 3
NORMS = ("attn_norm", "attn_sub_norm", "ffn_norm", "ffn_sub_norm")
PROJECTIONS = {
    "attn_qkv": "QkvProjection",
    "attn_output": "OutputProjection",
    "ffn_gate_up": "GateProjection",
    "ffn_down": "DownProjection",
}
Kernel = Callable[..., Any]


@pytest.fixture(scope="module")
def model() -> Transformer:
    return transformer.load(SHIPPED_MODEL)


def recorded(model: Transformer, values_bytes: int = 0) -> Digests:
    """Generate, and record the result of each kernel under the name of its weights."""
    digests = Digests(values_bytes=values_bytes)
    names: dict[int, tuple[str, int | None]] = {id(model.weights.output_norm): ("RmsNorm", None)}
    for number, layer in enumerate(model.weights.layers):
        for name in NORMS:
            names[id(getattr(layer, name))] = (f"RmsNorm {name}", number)
        for name, brick in PROJECTIONS.items():
            names[id(getattr(layer, name))] = (brick, number)
    position = -1

    def record_results(kernel: Kernel, weight_at: int | None, brick: str = "") -> Kernel:
        def called(*given: Any) -> Any:
            nonlocal position
            position += brick == "Embedding"
            result = kernel(*given)
            name, layer = (brick, None) if weight_at is None else names[id(given[weight_at])]
            digests.record(name, result, layer=layer, position=position)
            return result

        return called

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "embed", record_results(kernels.embed, None, "Embedding"))
        patch.setattr(kernels, "rms_norm", record_results(kernels.rms_norm, 1))
        patch.setattr(kernels, "ternary_gemv", record_results(kernels.ternary_gemv, 0))
        patch.setattr(kernels, "lm_head", record_results(kernels.lm_head, None, "LmHead"))
        list(model.generate(PROMPT, TOKENS))
    return digests


def flipped(model: Transformer, layer: int, name: str) -> Transformer:
    """Return the model with the sign of one weight changed.

    It is the one for the largest input of the first token: for an input of 0 nothing would change.
    """
    norm = NORMS[list(PROJECTIONS).index(name)]
    given = recorded(model, values_bytes=64 << 20).get(TensorKey(f"RmsNorm {norm}", layer, 0))
    assert given is not None
    assert given.values is not None
    largest = int(np.argmax(np.abs(np.frombuffer(given.values, "<f4"))))
    layers = list(model.weights.layers)
    matrix: TernaryMatrix = getattr(layers[layer], name)
    signs = matrix.signs.copy()
    at = (*divmod(largest, BLOCK), 0)
    signs[at] = 1 if signs[at] < 1 else -1
    changed: Any = {name: matrix._replace(signs=signs)}
    layers[layer] = replace(layers[layer], **changed)
    weights = replace(model.weights, layers=tuple(layers))
    return replace(model, weights=weights, idle_caches=[])


def test_two_runs_are_equal(model: Transformer) -> None:
    found = divergence(recorded(model), recorded(model))
    assert found.same
    assert found.reordered is None
    forward = len(encode(PROMPT)) + TOKENS - 1
    each = 1 + len(model.weights.layers) * (len(NORMS) + len(PROJECTIONS))
    assert found.compared == forward * each + 2 * TOKENS


@pytest.mark.parametrize("name", PROJECTIONS)
def test_changed_weight_is_found(model: Transformer, name: str) -> None:
    layer = 2
    found = divergence(recorded(model), recorded(flipped(model, layer, name)))
    assert not found.same
    assert found.first is not None
    assert found.first.key == TensorKey(PROJECTIONS[name], layer, 0)
    assert not found.missing
    assert f"The runs differ from {PROJECTIONS[name]}, layer {layer}, position 0 on: " in sentence(
        found
    )


def test_changed_embedding_is_found_at_its_position(model: Transformer) -> None:
    tokens = encode(PROMPT)
    position = len(tokens) - 1
    assert tokens.count(tokens[position]) == 1
    table = model.weights.token_embd.copy()
    table[tokens[position], 5] += np.float32(1e-3)
    weights = replace(model.weights, token_embd=table)
    other = replace(model, weights=weights, idle_caches=[])
    found = divergence(recorded(model), recorded(other))
    assert found.first is not None
    assert found.first.key == TensorKey("Embedding", None, position)


def test_rounding_is_within_a_tolerance_and_a_changed_weight_is_not(model: Transformer) -> None:
    one = recorded(model, values_bytes=64 << 20)
    rounded = replace(
        model,
        weights=replace(
            model.weights, output_norm=np.nextafter(model.weights.output_norm, np.float32(9))
        ),
        idle_caches=[],
    )
    close = recorded(rounded, values_bytes=64 << 20)
    assert not divergence(one, close).same
    within = divergence(one, close, tolerance=Tolerance(1e-4, 1e-4))
    assert within.same
    assert within.largest is not None
    wrong = recorded(flipped(model, 2, "ffn_down"), values_bytes=64 << 20)
    found = divergence(one, wrong, tolerance=Tolerance(1e-4, 1e-4))
    assert found.first is not None
    assert found.first.key == TensorKey("DownProjection", 2, 0)
    assert found.largest is not None
    assert found.largest.difference > 1e-4
