"""The functions that do the work of one token, under the names a profile shows.

One token at a time, float32 throughout. Each function spends its time in NumPy, and
calls only functions that NumPy runs without Python frames of its own (ufuncs, array methods
written in C), so that the time is seen under the function's name. None changes its
inputs, except that ``attention`` writes its own position of the cache; a call may be
repeated without changing the result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

BLOCK = 256
_Q8_MAX = np.float32(127)
_SMALLEST_PEAK = np.float32(1e-35)  # an all-zero block has no scale of its own
_ONE, _HALF = np.float32(1), np.float32(0.5)


class TernaryMatrix(NamedTuple):
    """A matrix of ``rows`` x ``blocks * 256`` ternary weights, unpacked for BLAS.

    ``signs`` holds -1, 0 or +1 as float32, shape (blocks, 256, rows); ``scales`` has
    shape (blocks, rows): a weight is its sign times the scale of its row's block.
    """

    signs: FloatArray
    scales: FloatArray


QuantizedVector = tuple[FloatArray, FloatArray]
"""Activations on the Q8_K grid: whole numbers from -127 to 127 as float32, and scales.

The values have shape (blocks, 1, 256), the scales (blocks,). A plain tuple, since a named
one runs Python code of its own at every step.
"""


def embed(table: FloatArray, token: int) -> FloatArray:
    """Return the row (width,) of ``token`` in ``table`` (vocabulary, width)."""
    row: FloatArray = table[token].copy()
    return row


def rms_norm(x: FloatArray, weight: FloatArray, epsilon: float) -> FloatArray:
    """Return ``x`` (width,) divided by its root mean square, times ``weight`` (width,)."""
    mean_square = float(x.dot(x)) / x.size
    scaled: FloatArray = x * np.float32((mean_square + epsilon) ** -0.5)
    scaled *= weight
    return scaled


def quantize(x: FloatArray) -> QuantizedVector:
    """Round ``x`` (blocks * 256,) as ggml's Q8_K does: 8 bits, one scale a block.

    ggml divides by the signed value of largest magnitude; the sign cancels between
    values and scale, so the magnitude serves here.
    """
    blocks = x.reshape(-1, 1, BLOCK)
    peaks: FloatArray = np.maximum.reduce(np.absolute(blocks), axis=2, keepdims=True)
    inverse_scales: FloatArray = np.divide(_Q8_MAX, np.maximum(peaks, _SMALLEST_PEAK))
    values: FloatArray = np.multiply(blocks, inverse_scales)
    np.rint(values, out=values)
    scales: FloatArray = np.divide(_ONE, inverse_scales.reshape(-1))
    return values, scales


def ternary_gemv(matrix: TernaryMatrix, x: QuantizedVector) -> FloatArray:
    """Return ``matrix`` times ``x`` as (rows,).

    A ternary product in its result, not in its method: signs are stored as float32 and
    multiplied by BLAS. Within a block every sum is of whole numbers below 2**24, hence
    exact, and equal to ggml's integer sum whatever the order of addition.
    """
    values, scales = x
    sums: FloatArray = np.matmul(values, matrix.signs).reshape(matrix.scales.shape)
    sums *= matrix.scales
    product: FloatArray = scales.dot(sums)
    return product


def rope(x: FloatArray, cosines: FloatArray, sines: FloatArray) -> FloatArray:
    """Rotate ``x`` (heads, width) by its position's angles (NEOX order: halves are pairs).

    ``cosines`` and ``sines`` have shape (width / 2,).
    """
    half = cosines.size
    low, high = x[:, :half], x[:, half:]
    rotated = np.empty(x.shape, np.float32)
    np.subtract(low * cosines, high * sines, out=rotated[:, :half])
    np.add(high * cosines, low * sines, out=rotated[:, half:])
    return rotated


def attention(
    query: FloatArray,
    key: FloatArray,
    value: FloatArray,
    keys: FloatArray,
    values: FloatArray,
    position: int,
) -> FloatArray:
    """Store ``key`` and ``value`` at ``position``, then attend to all positions so far.

    ``query`` is (heads, width); ``key`` and ``value`` are (kv_heads, width); ``keys`` and
    ``values`` are the cache (kv_heads, context, width). Returns (heads * width,). Query
    heads share the key and value heads in equal groups.
    """
    keys[:, position] = key
    values[:, position] = value
    kv_heads, width = key.shape
    grouped = query.reshape(kv_heads, -1, width)
    seen = position + 1
    scores = np.matmul(grouped, keys[:, :seen].transpose(0, 2, 1))
    scores *= np.float32(width**-0.5)
    scores -= np.maximum.reduce(scores, axis=2, keepdims=True)
    np.exp(scores, out=scores)
    mixed: FloatArray = np.matmul(scores, values[:, :seen])
    mixed /= np.add.reduce(scores, axis=2, keepdims=True)
    return mixed.reshape(-1)


def swiglu(gate_up: FloatArray) -> FloatArray:
    """Return silu(gate) * up for ``gate_up`` (2 * width,), the gate's half first.

    silu(x) = x / (1 + exp(-x)) is written with tanh, which cannot overflow.
    """
    width = gate_up.size // 2
    half_gate = gate_up[:width] * _HALF
    gated: FloatArray = np.tanh(half_gate)
    gated += _ONE
    gated *= half_gate
    gated *= gate_up[width:]
    return gated


def lm_head(table: FloatArray, x: FloatArray) -> FloatArray:
    """Return the logits (vocabulary,): ``table`` (vocabulary, width) times ``x`` (width,)."""
    logits: FloatArray = table.dot(x)
    return logits


def sample(logits: FloatArray) -> int:
    """Return the most likely token, the lowest id of equals."""
    return int(logits.argmax())
