"""Injected work is counted in calls and elements, never timed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.child.embedded.serving import FRAMES, inject
from pytest_flamegate.child.embedded.transformer import Transformer
from pytest_flamegate.config.workload import Injection
from pytest_flamegate.core.errors import UsageError


def size_of(frame: str, arguments: tuple[Any, ...]) -> int:
    """Work of one call in elements, told apart from the injector's own table."""
    if frame == "ternary_gemv":
        return int(arguments[0].signs.size)
    if frame == "attention":
        return int(arguments[5]) + 1
    return int(arguments[0].size)


class Counted:
    """A kernel that counts its calls by size; stands in for it until the test ends."""

    def __init__(self, frame: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[int] = Counter()
        kernel = getattr(kernels, frame)

        def counted(*arguments: Any) -> Any:
            self.calls[size_of(frame, arguments)] += 1
            return kernel(*arguments)

        monkeypatch.setattr(kernels, frame, counted)

    def take(self) -> Counter[int]:
        taken = Counter(self.calls)
        self.calls.clear()
        return taken


def elements(calls: Counter[int]) -> int:
    return sum(size * count for size, count in calls.items())


@pytest.mark.parametrize("extra_pct", [10.0, 35.0, 250.0])
@pytest.mark.parametrize("frame", FRAMES)
def test_every_size_of_call_gets_its_share(
    model: Transformer, monkeypatch: pytest.MonkeyPatch, frame: str, extra_pct: float
) -> None:
    kernel = Counted(frame, monkeypatch)
    usual_tokens = list(model.generate("What is 2+2?", 10))
    usual = kernel.take()
    inject(Injection(frame, extra_pct))
    rounds = 2
    for _ in range(rounds):
        assert list(model.generate("What is 2+2?", 10)) == usual_tokens
    injected = kernel.take()
    assert injected.keys() == usual.keys()
    for size, count in usual.items():
        asked = rounds * count * extra_pct / 100
        assert abs(injected[size] - rounds * count - asked) <= 1


@pytest.mark.parametrize("frame", ["ternary_gemv", "quantize", "rms_norm", "attention"])
def test_one_long_sequence_already_gets_what_was_asked(
    model: Transformer, monkeypatch: pytest.MonkeyPatch, frame: str
) -> None:
    kernel = Counted(frame, monkeypatch)
    list(model.generate("The gate", 120))
    usual = elements(kernel.take())
    inject(Injection(frame, 10.0))
    list(model.generate("The gate", 120))
    assert elements(kernel.take()) / usual - 1 == pytest.approx(0.10, rel=0.03)


def test_a_repeated_product_reads_another_layer(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same matrix again would come from the CPU's cache at half the cost."""
    seen: list[int] = []
    ternary_gemv = kernels.ternary_gemv

    def watched(matrix: kernels.TernaryMatrix, x: kernels.QuantizedVector) -> kernels.FloatArray:
        seen.append(id(matrix.signs))
        return ternary_gemv(matrix, x)

    monkeypatch.setattr(kernels, "ternary_gemv", watched)
    inject(Injection("ternary_gemv", 200.0))
    list(model.generate("2+2=", 1))
    seen = seen[12 * 4 :]  # after the first token every layer has been seen
    assert len(seen) == 12 * 4 * 4
    assert all(len(set(seen[at : at + 3])) == 3 for at in range(0, len(seen), 3))


def test_the_extra_work_is_seen_as_the_kernels_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = kernels.rope.__code__
    monkeypatch.setattr(kernels, "rope", kernels.rope)
    inject(Injection("rope", 10.0))
    added = kernels.rope.__code__
    assert added is not own
    for name in ("co_name", "co_qualname", "co_filename"):
        assert getattr(added, name) == getattr(own, name)


def test_a_second_injection_replaces_the_first(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Counted("sample", monkeypatch)
    inject(Injection("sample", 400.0))
    inject(Injection("sample", 100.0))
    list(model.generate("2+2=", 1))
    assert kernel.take().total() == 2


def test_an_unknown_frame_is_refused_with_the_possible_ones() -> None:
    with pytest.raises(UsageError) as caught:
        inject(Injection("matmul", 10.0))
    assert caught.value.code == "E_UNKNOWN_FRAME"
    assert "'matmul'" in str(caught.value)
    assert all(frame in caught.value.remedy for frame in FRAMES)


@pytest.mark.parametrize("extra_pct", [0.0, -5.0, float("nan"), float("inf")])
def test_what_is_no_extra_work_is_refused(extra_pct: float) -> None:
    before = kernels.rope
    with pytest.raises(UsageError) as caught:
        inject(Injection("rope", extra_pct))
    assert caught.value.code == "E_BAD_INJECTION"
    assert kernels.rope is before


def test_every_frame_is_a_kernel() -> None:
    functions = {
        name
        for name, value in vars(kernels).items()
        if getattr(value, "__module__", "") == kernels.__name__ and not isinstance(value, type)
    }
    assert set(FRAMES) == functions
