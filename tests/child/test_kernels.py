"""Kernels against plain references, where the tokens would not show a difference."""

import gc
import sys
from types import FrameType

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.child.embedded.kernels import FloatArray
from pytest_flamegate.child.embedded.transformer import Transformer

RNG = np.random.default_rng(7)


def floats(*shape: int) -> FloatArray:
    return RNG.standard_normal(shape).astype(np.float32)


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


def test_rms_norm() -> None:
    x, weight = floats(512), floats(512)
    exact = x.astype(np.float64)
    expected = exact / np.sqrt((exact**2).mean() + 1e-5) * weight
    np.testing.assert_allclose(kernels.rms_norm(x, weight, 1e-5), expected, rtol=2e-6)


def test_swiglu_without_overflow() -> None:
    gate = np.array([-1e4, -90.0, -1.0, 0.0, 0.5, 90.0, 1e4], np.float32)
    up = np.array([3.0, 3.0, -2.0, 5.0, 7.0, 1.0, 0.5], np.float32)
    sigmoid = 1 / (1 + np.exp(-np.clip(gate.astype(np.float64), -700, 700)))
    got = kernels.swiglu(np.concatenate([gate, up]))
    np.testing.assert_allclose(got, gate * sigmoid * up, rtol=1e-5, atol=1e-5)


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
