from __future__ import annotations

import pytest

from pytest_flamegate.profile.category import categorize_frame, load_category_rules
from pytest_flamegate.profile.model import Frame
from tests.profile.profiles import native, python, system


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (python("ternary_gemv"), "matmul"),
        (python("matvec"), "matmul"),
        (python("lm_head"), "matmul"),
        (python("Linear.forward"), "matmul"),
        (python("LlamaModel.forward"), "python"),
        (python("quantize"), "quantisation"),
        (python("unpack_tq2_0"), "quantisation"),
        (python("rms_norm"), "norm"),
        (python("Model.rms_norm"), "norm"),
        (python("normalise_text"), "python"),
        (python("attention"), "attention"),
        (python("Transformer._attention_block"), "attention"),
        (python("rope"), "attention"),
        (python("property"), "python"),
        (python("swiglu"), "python"),
        (python("free"), "python"),
        (native("sgemv_kernel_4x4", "libblas.so"), "matmul"),
        (native("dgemm_kernel_SKYLAKEX", "libblas.so"), "matmul"),
        (native("sdot_k_SKYLAKEX", "libblas.so"), "matmul"),
        (native("ggml_vec_dot_q4_0_q8_0", "libggml.so"), "matmul"),
        (native("ggml_compute_forward_mul_mat", "libggml.so"), "matmul"),
        (native("matmul_i2s", "bitnet"), "matmul"),
        (native("bitnet::kernels::i2s::matmul_i2s", "bitnet"), "matmul"),
        (native("quantize_row_q8_0", "libggml.so"), "quantisation"),
        (native("dequantize_row_q4_0", "libggml.so"), "quantisation"),
        (native("ggml_compute_forward_rms_norm", "libggml.so"), "norm"),
        (native("ggml_compute_forward_soft_max", "libggml.so"), "attention"),
        (native("ggml_compute_forward_flash_attn_ext", "libggml.so"), "attention"),
        (native("__memcpy_avx512_unaligned_erms", "libc.so.6"), "memory"),
        (native("_int_malloc", "libc.so.6"), "memory"),
        (native("cfree", "libc.so.6"), "memory"),
        (native("_PyObject_Malloc", "libpython3.11.so.1.0"), "memory"),
        (native("_PyEval_EvalFrameDefault", "libpython3.11.so.1.0"), "python"),
        (native("double_add", "_multiarray_umath.so"), "native"),
        (native("[sha256sum]", "sha256sum"), "native"),
        (system("copy_to_iter"), "system"),
        (system("memcpy"), "system"),
    ],
)
def test_a_frame_has_the_category_of_its_work(frame: Frame, expected: str) -> None:
    assert categorize_frame(frame) == expected


def test_every_rule_is_well_formed() -> None:
    assert {rule.category for rule in load_category_rules()} == {
        "system",
        "attention",
        "norm",
        "matmul",
        "quantisation",
        "memory",
        "python",
        "native",
    }
    assert all(rule.names or rule.modules for rule in load_category_rules())
    assert load_category_rules()[-1].matches(native("anything", "at all"))
