from typing import Any

import pytest

from pytest_flamegate.profile import hotspots
from pytest_flamegate.profile.model import Frame, Stack
from tests.profile.profiles import native, profile, python, system


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (python("ternary_gemv"), "matmul"),
        (python("quantize"), "quantisation"),
        (python("rms_norm"), "norm"),
        (python("attention"), "attention"),
        (python("rope"), "attention"),
        (python("property"), "python"),
        (native("sgemv_kernel_4x4", "libblas.so"), "matmul"),
        (native("ggml_vec_dot_q4_0_q8_0", "libggml.so"), "matmul"),
        (native("bitnet::kernels::i2s::matmul_i2s", "bitnet"), "matmul"),
        (native("ggml_compute_forward_soft_max", "libggml.so"), "attention"),
        (native("__memcpy_avx512_unaligned_erms", "libc.so.6"), "memory"),
        (native("_PyEval_EvalFrameDefault", "libpython3.11.so.1.0"), "python"),
        (native("double_add", "_multiarray_umath.so"), "native"),
        (native("[sha256sum]", "sha256sum"), "native"),
        (system("memcpy"), "system"),
    ],
)
def test_a_frame_has_the_category_of_its_work(frame: Frame, expected: str) -> None:
    assert hotspots.categorize_frame(frame) == expected


ROOT = python("measured_sequences", "child.py")
NORM = python("rms_norm", "kernels.py")
GEMV = python("ternary_gemv", "kernels.py")
LINEAR = python("linear", "a.py")


def test_functions_are_ranked_by_their_own_cost() -> None:
    spots = hotspots.rank_hotspots(
        profile({(ROOT, NORM): 20, (ROOT, GEMV): 70, (ROOT,): 10}), 0.002
    )
    shown: list[Any] = [(s.name, s.self_share, s.inclusive_share, s.cpu_s_per_token) for s in spots]
    assert shown == [
        ("ternary_gemv", 0.7, 0.7, pytest.approx(0.0014)),
        ("rms_norm", 0.2, 0.2, pytest.approx(0.0004)),
        ("measured_sequences", 0.1, 1.0, pytest.approx(0.0002)),
    ]
    assert sum(spot.self_samples for spot in spots) == 100
    assert [spot.category for spot in spots] == ["matmul", "norm", "python"]


def test_recursion_counts_once_in_a_stack() -> None:
    spots = hotspots.rank_hotspots(profile({(ROOT, NORM, NORM, NORM): 4}))
    counted = [(s.name, s.self_samples, s.inclusive_samples) for s in spots]
    assert counted == [("rms_norm", 4, 4), ("measured_sequences", 0, 4)]
    assert spots[0].cpu_s_per_token is None
    assert hotspots.rank_hotspots(profile({})) == ()


def test_functions_of_one_name_are_one_hotspot_that_shows_the_heaviest() -> None:
    twin = native("linear", "libheavy.so")
    callers: dict[Stack, int] = {(LINEAR, python(f"caller{index}")): 9 for index in range(5)}
    taken = profile({(LINEAR,): 3, (ROOT, twin): 8, (twin, LINEAR): 1, **callers})
    (spot,) = [found for found in hotspots.rank_hotspots(taken) if found.name == "linear"]
    assert (spot.module, spot.kind) == ("libheavy.so", "native")
    assert (spot.self_samples, spot.inclusive_samples) == (12, 3 + 8 + 1 + 45)


def test_the_order_of_the_stacks_does_not_matter() -> None:
    stacks: dict[Stack, int] = {(ROOT, NORM): 5, (ROOT, GEMV): 5, (ROOT, system("read")): 5}
    spots = hotspots.rank_hotspots(profile(stacks))
    assert spots == hotspots.rank_hotspots(profile(dict(reversed(stacks.items()))))
    assert [spot.name for spot in spots][:3] == ["read", "rms_norm", "ternary_gemv"]


@pytest.mark.parametrize(
    ("samples", "code"), [(0, "E_NO_SAMPLES"), (1, "E_FEW_SAMPLES"), (99, "E_FEW_SAMPLES")]
)
def test_too_few_samples_are_noted(samples: int, code: str) -> None:
    taken = profile({(ROOT,): samples} if samples else {})
    found, notes = hotspots.pool_profiles("perf", [taken, taken], max_tokens=32)
    assert (found is not None, [*notes]) == (True, [code])
    more = {0: "", 1: "About max_tokens = 6400 is enough.", 99: "About max_tokens = 96 is enough."}
    assert notes[code].endswith(more[samples])


def test_enough_samples_and_no_profiler_need_no_note() -> None:
    enough = profile({(ROOT,): 200})
    assert hotspots.pool_profiles("perf", [enough]) == (enough, {})
    assert hotspots.pool_profiles(None, []) == (None, {})
    assert hotspots.pool_profiles("perf", [])[1].keys() == {"E_NO_SAMPLES"}
