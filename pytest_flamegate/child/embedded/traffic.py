"""What one token makes this engine read and compute: its weights are larger here than on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_flamegate.child.embedded.weights import Weights


def facts(weights: Weights) -> dict[str, str]:
    """Return whole numbers, as text, that the engine tells of itself.

    ``weights_bytes_per_token``: all weights as they lie in memory, each read once; the token's
    own row of the table is read again with the whole table. ``kv_bytes_per_position``: keys and
    values of one position in all layers. ``flops_per_token``: two for each weight of a product;
    attention, norms and activations are left out.
    """
    matrices = [
        matrix
        for layer in weights.layers
        for matrix in (layer.attn_qkv, layer.attn_output, layer.ffn_gate_up, layer.ffn_down)
    ]
    norms = [
        norm
        for layer in weights.layers
        for norm in (layer.attn_norm, layer.attn_sub_norm, layer.ffn_norm, layer.ffn_sub_norm)
    ]
    read = [weights.token_embd, weights.output_norm, *norms]
    read += [part for matrix in matrices for part in matrix]
    config = weights.config
    itemsize = weights.token_embd.itemsize
    products = sum(matrix.signs.size for matrix in matrices) + weights.token_embd.size
    told = {
        "weights_bytes_per_token": sum(each.nbytes for each in read),
        "kv_bytes_per_position": 2 * config.layers * config.kv_heads * config.head_width * itemsize,
        "flops_per_token": 2 * products,
    }
    return {name: str(value) for name, value in told.items()}
