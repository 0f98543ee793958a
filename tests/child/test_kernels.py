"""Each kernel against a plain float64 (or scalar) reference."""

import gc
import sys
from types import FrameType

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.child.embedded.kernels import FloatArray, TernaryMatrix
from pytest_flamegate.child.embedded.transformer import Transformer

RNG = np.random.default_rng(7)


def floats(*shape: int) -> FloatArray:
    return RNG.standard_normal(shape).astype(np.float32)


def ternary(rows: int, columns: int) -> tuple[TernaryMatrix, npt.NDArray[np.float64]]:
    """Return a random matrix and its dense form (rows, columns)."""
    signs = RNG.integers(-1, 2, (columns // 256, 256, rows)).astype(np.float32)
    scales = RNG.uniform(0.01, 0.1, (columns // 256, rows)).astype(np.float32)
    dense = signs.astype(np.float64) * scales[:, None, :]
    return TernaryMatrix(signs, scales), dense.reshape(columns, rows).T


def ggml_q8_k(x: FloatArray) -> list[float]:
    """ggml's rounding as it is written in C: scalar, by the signed value farthest from 0."""
    rounded: list[float] = []
    for start in range(0, x.size, 256):
        block = x[start : start + 256]
        farthest = max(block, key=abs)
        inverse = np.float32(-127) / farthest if farthest else np.float32(0)
        scale = np.float32(1) / inverse if farthest else np.float32(0)
        for value in block:
            whole = min(127, round(float(inverse * value)))  # Python rounds half to even
            rounded.append(float(np.float32(whole) * scale))
    return rounded


@settings(max_examples=25)
@given(
    hnp.arrays(
        np.float32,
        st.sampled_from([256, 512]),
        elements=st.floats(-1e6, 1e6, width=32).filter(lambda v: v == 0 or abs(v) > 1e-20),
    )
)
def test_quantize_equals_ggml_to_the_bit(x: FloatArray) -> None:
    values, scales = kernels.quantize(x)
    got = (values[:, 0, :] * scales[:, None]).reshape(-1)
    assert got.tolist() == ggml_q8_k(x)


def test_quantize_of_zeros_and_of_halves() -> None:
    x = np.zeros(512, np.float32)
    x[:5] = [127.0, 0.5, 1.5, 2.5, -0.5]
    values, scales = kernels.quantize(x)
    assert values[0, 0, :5].tolist() == [127.0, 0.0, 2.0, 2.0, 0.0]
    assert not values[1].any()
    assert np.isfinite(scales).all()


@pytest.mark.parametrize(("rows", "columns"), [(1, 256), (40, 512), (24, 1024)])
def test_ternary_gemv(rows: int, columns: int) -> None:
    matrix, dense = ternary(rows, columns)
    x = kernels.quantize(floats(columns))
    values, scales = x
    flat = (values[:, 0, :].astype(np.float64) * scales[:, None]).reshape(-1)
    np.testing.assert_allclose(kernels.ternary_gemv(matrix, x), dense @ flat, rtol=1e-5, atol=1e-5)


def test_rms_norm() -> None:
    x, weight = floats(512), floats(512)
    exact = x.astype(np.float64)
    expected = exact / np.sqrt((exact**2).mean() + 1e-5) * weight
    np.testing.assert_allclose(kernels.rms_norm(x, weight, 1e-5), expected, rtol=2e-6)


def test_rope_turns_pairs_of_halves() -> None:
    x, angles = floats(3, 8), RNG.uniform(0, 6, 4)
    turned = (x[:, :4] + 1j * x[:, 4:].astype(np.complex128)) * np.exp(1j * angles)
    got = kernels.rope(x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
    np.testing.assert_allclose(got, np.hstack([turned.real, turned.imag]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("position", [0, 1, 9])
def test_attention(position: int) -> None:
    heads, kv_heads, width = 4, 2, 8
    keys, values = floats(kv_heads, 12, width), floats(kv_heads, 12, width)
    query, key, value = floats(heads, width), floats(kv_heads, width), floats(kv_heads, width)
    past_keys, past_values = keys.astype(np.float64), values.astype(np.float64)
    past_keys[:, position], past_values[:, position] = key, value
    expected = []
    for head in range(heads):
        group = head // (heads // kv_heads)
        scores = np.array(
            [query[head].astype(float) @ past_keys[group, t] for t in range(position + 1)]
        )
        weights = np.exp(scores / np.sqrt(width))
        weights /= weights.sum()
        expected.extend(weights @ past_values[group, : position + 1])
    got = kernels.attention(query, key, value, keys, values, position)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    assert (keys[:, position] == key).all()
    assert (values[:, position] == value).all()


def test_swiglu_without_overflow() -> None:
    gate = np.array([-1e4, -90.0, -1.0, 0.0, 0.5, 90.0, 1e4], np.float32)
    up = np.array([3.0, 3.0, -2.0, 5.0, 7.0, 1.0, 0.5], np.float32)
    sigmoid = 1 / (1 + np.exp(-np.clip(gate.astype(np.float64), -700, 700)))
    got = kernels.swiglu(np.concatenate([gate, up]))
    np.testing.assert_allclose(got, gate * sigmoid * up, rtol=1e-5, atol=1e-5)


def test_embed_lm_head_and_sample() -> None:
    table, x = floats(10, 6), floats(6)
    row = kernels.embed(table, 3)
    assert row.tolist() == table[3].tolist()
    row += 1
    assert row.tolist() != table[3].tolist(), "the caller may change its copy"
    logits = kernels.lm_head(table, x)
    np.testing.assert_allclose(logits, table.astype(np.float64) @ x, rtol=1e-5, atol=1e-6)
    assert kernels.sample(np.array([1, 4, 2, 4], np.float32)) == 1


def test_a_step_runs_no_python_code_but_its_own(model: Transformer) -> None:
    """Else a profile would show NumPy's helpers where a kernel should stand."""
    list(model.generate("1+1=", 1))
    files: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    generating = model.generate("1+1=", 2)
    previous = sys.getprofile()
    gc.disable()  # a collection may call back whom it pleases, as Hypothesis does
    sys.setprofile(note)
    try:
        next(generating)
    finally:
        sys.setprofile(previous)
        gc.enable()
    names = {file.replace("\\", "/").rpartition("/pytest_flamegate/")[2] for file in files}
    expected = ("kernels", "transformer")
    assert names == {f"child/embedded/{name}.py" for name in expected}
