"""Kernel policies: what each name says, and which policy an engine gets."""

import pytest

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.receipt.policies import policy_for, policy_of_engine

GPU, CPU, FALLBACK, AUXILIARY, OTHER = "gpu", "cpu", "fallback", "auxiliary", "other"

CASES = [
    ("bitnet", GPU, "gemm_fp16 wmma_matmul cublas_sgemm cutlass_gemm cuda_matmul tl1_gpu_pack"),
    ("bitnet", GPU, "tl2_gpu_matmul i2s_quantize i2s_dequantize cuda_stream_gemm cuda_i2s_gemv"),
    ("bitnet", AUXILIARY, "cuda_sync cuda_memcpy_h2d cuda_device_synchronize cuda_stream_sync_0"),
    ("bitnet", AUXILIARY, "i2s_gpu_quantize i2s_gpu_matmul"),
    ("bitnet", CPU, "i2s_gemv tl1_matmul tl2_avx512_pack i2s_cpu_quantized_matmul"),
    ("bitnet", CPU, "tl1_lut_dequant_forward i2s_dequantize_block_cpu i2s_quantize_simd_avx2"),
    ("bitnet", FALLBACK, "fp32_matmul fallback_gemm dequant_i2s matmul_f32 i2s_dequant"),
    ("bitnet", FALLBACK, "i2s_dequant_fp32 i2s_fp32_gemm tl1_cpu_fallback tl2_matmul_f32"),
    ("bitnet", FALLBACK, "I2S_DEQUANT_FP32 Fallback_GEMM i2s_block_dequant_bf16"),
    ("bitnet", OTHER, "rope_apply softmax_cpu i2s_ gemm_ xgemm_ mul_i2s_gemv i2s Gemv"),
    ("bitnet", OTHER, "i2s_gemv\n gemm_fp16\nx i2s_quantize\n"),
    ("embedded", CPU, "ternary_gemv sgemv_kernel_4 cblas_sgemm DOUBLE_matmul cblas_sdot ddot_k"),
    ("embedded", OTHER, "rms_norm rope sample _PyEval_EvalFrameDefault dotted"),
    ("embedded", AUXILIARY, "cublasSgemm cuda_sync"),
    ("ggml", CPU, "ggml_vec_dot_q4_1_q8_1 llama_decode MUL_MAT tinyBLAS_Q0_AVX"),
    ("ggml", GPU, "ggml_cuda_mul_mat_q ampere_sgemm_128x64_tn"),
    ("ggml", AUXILIARY, "cudaStreamSynchronize ggml_backend_cuda_synchronize"),
    ("torch", CPU, "aten::mm aten::addmm mkldnn_inner_product"),
    ("torch", GPU, "ampere_fp16_s16816gemm_fp16 triton_poi_fused_add nvjet_hsh_128x64"),
    ("torch", AUXILIARY, "cudaLaunchKernel ncclAllReduce"),
    ("torch", OTHER, "aten::view forward"),
    ("generic", CPU, "main memcpy gemm_kernel i2s_gemv"),
    ("generic", GPU, "cuda_matmul cutlass_gemm sm80_xmma_gemm"),
    ("generic", AUXILIARY, "cuda_sync"),
    ("generic", FALLBACK, "fp32_matmul"),
]


@pytest.mark.parametrize(
    ("policy", "role", "kernel"),
    [(policy, role, kernel) for policy, role, kernels in CASES for kernel in kernels.split(" ")],
)
def test_role_of_a_kernel(policy: str, role: str, kernel: str) -> None:
    rules = policy_for(policy)
    assert rules.roles(kernel).shows_gpu_compute is (role == GPU)
    assert rules.roles(kernel).shows_cpu_compute is (role == CPU)
    assert rules.roles(kernel).is_fallback is (role == FALLBACK)
    assert rules.roles(kernel).names_gpu is (role in (GPU, AUXILIARY))


def test_policies_by_engine_name_and_alias() -> None:
    engines = (None, "embedded", "llama-cpp", "torch", "openai")
    names = [policy_of_engine(engine).name for engine in engines]
    assert names == ["bitnet", "embedded", "ggml", "torch", "generic"]
    assert policy_for("blas") is policy_for("embedded")
    with pytest.raises(UsageError, match=r"E_BAD_OPTION.*embedded, blas"):
        policy_for("blast")
    with pytest.raises(UsageError, match="E_UNKNOWN_ENGINE"):
        policy_of_engine("magic")
