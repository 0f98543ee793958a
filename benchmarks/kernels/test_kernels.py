"""The embedded engine's kernels, gated: ``pytest benchmarks/kernels --flamegate``.

Each declares the work of one call: elements of its result or input, the bytes that it reads
and writes at least, and its floating-point operations (a product and a sum count as two).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_flamegate.child.embedded.kernels import (
    BLOCK,
    FloatArray,
    TernaryMatrix,
    attention,
    quantize,
    rms_norm,
    rope,
    ternary_gemv,
)
from pytest_flamegate.child.embedded.transformer import unpack_tq2_0

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture


DROP = "15%"
HEADS, HEAD_WIDTH, CONTEXT = 8, 64, 128
WIDTH = HEADS * HEAD_WIDTH
TQ2_BLOCK_BYTES = BLOCK // 4 + 2


def floats(*shape: int) -> FloatArray:
    made: FloatArray = np.random.default_rng(42).standard_normal(shape, dtype=np.float32)
    return made


def ternary(rows: int, columns: int) -> TernaryMatrix:
    blocks = columns // BLOCK
    signs = np.random.default_rng(42).integers(-1, 2, (blocks, BLOCK, rows))
    return TernaryMatrix(signs.astype(np.float32), np.ones((blocks, rows), np.float32))


@pytest.mark.flamegate(
    throughput=DROP,
    elements=lambda rows, columns: rows * columns,
    bytes=lambda rows, columns: 4 * rows * columns,
    flops=lambda rows, columns: 2 * rows * columns,
)
@pytest.mark.parametrize(("rows", "columns"), [(512, 512), (1536, 512)])
def test_ternary_gemv(benchmark: BenchmarkFixture, rows: int, columns: int) -> None:
    product = benchmark(ternary_gemv, ternary(rows, columns), quantize(floats(columns)))
    assert product.shape == (rows,)


@pytest.mark.flamegate(throughput=DROP, elements=WIDTH, bytes=8 * WIDTH)
def test_quantize(benchmark: BenchmarkFixture) -> None:
    values, scales = benchmark(quantize, floats(WIDTH))
    assert values.size == WIDTH
    assert scales.size == WIDTH // BLOCK


@pytest.mark.flamegate(
    throughput=DROP,
    elements=lambda rows: rows * WIDTH,
    bytes=lambda rows: rows * WIDTH // BLOCK * TQ2_BLOCK_BYTES + 4 * rows * WIDTH,
)
@pytest.mark.parametrize("rows", [128])
def test_dequantize(benchmark: BenchmarkFixture, rows: int) -> None:
    """TQ2_0 as in a model file, unpacked: every code is 1, which is zero."""
    packed = np.full((rows, WIDTH // BLOCK, TQ2_BLOCK_BYTES), 0b01010101, np.uint8)
    packed[:, :, -2:] = np.array([1.0], "<f2").view(np.uint8)
    matrix = benchmark(unpack_tq2_0, packed.reshape(-1), rows)
    assert not matrix.signs.any()
    assert (matrix.scales == 1.0).all()


@pytest.mark.flamegate(throughput=DROP, elements=WIDTH, bytes=12 * WIDTH, flops=4 * WIDTH)
def test_rms_norm(benchmark: BenchmarkFixture) -> None:
    normed = benchmark(rms_norm, floats(WIDTH), np.ones(WIDTH, np.float32), 1e-5)
    assert float(normed.dot(normed)) / WIDTH == pytest.approx(1.0, rel=1e-3)


@pytest.mark.flamegate(throughput=DROP, elements=WIDTH, bytes=12 * WIDTH, flops=3 * WIDTH)
def test_rope(benchmark: BenchmarkFixture) -> None:
    angles = np.arange(HEAD_WIDTH // 2, dtype=np.float32)
    x = floats(HEADS, HEAD_WIDTH)
    rotated = benchmark(rope, x, np.cos(angles), np.sin(angles))
    assert float(np.square(rotated).sum()) == pytest.approx(float(np.square(x).sum()), rel=1e-4)


@pytest.mark.flamegate(
    throughput=DROP,
    elements=lambda position: HEADS * (position + 1),
    bytes=lambda position: 8 * WIDTH * (position + 1),
    flops=lambda position: 4 * WIDTH * (position + 1),
)
@pytest.mark.parametrize("position", [CONTEXT - 1])
def test_attention(benchmark: BenchmarkFixture, position: int) -> None:
    cache: Any = [floats(HEADS, CONTEXT, HEAD_WIDTH) for _ in range(2)]
    step = [floats(HEADS, HEAD_WIDTH) for _ in range(3)]
    mixed = benchmark(attention, *step, *cache, position)
    assert mixed.shape == (WIDTH,)
    assert np.isfinite(mixed).all()
