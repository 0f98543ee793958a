"""The embedded engine as it is served: injected work, marked bricks, and its traffic."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.bricks import BrickProfiler
from pytest_flamegate.bricks.record import BrickTotals, Recorded
from pytest_flamegate.child.embedded import kernels, serving, transformer
from pytest_flamegate.child.embedded.transformer import Transformer, _new_cache, encode
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines.figures import read_facts
from pytest_flamegate.engines.gguf import SHIPPED_MODEL, embedded_workloads
from pytest_flamegate.models.gguf import read_header
from tests.observe.workloads import observer

PROMPT, TOKENS = "What is 2+2?", 10


def count_calls(frame: str, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Count the calls of a kernel by size in elements, until the test ends."""
    calls: Counter[int] = Counter()
    kernel = getattr(kernels, frame)

    def count(*arguments: Any) -> Any:
        first = arguments[0]
        size = {"attention": lambda: arguments[5], "ternary_gemv": lambda: first.signs.size}
        calls[int(size.get(frame, lambda: first.size)())] += 1
        return kernel(*arguments)

    monkeypatch.setattr(kernels, frame, count)
    return calls


@pytest.mark.parametrize("extra_pct", [10.0, 250.0])
@pytest.mark.parametrize("frame", serving.FRAMES)
def test_calls_of_every_size_get_their_share(
    model: Transformer, monkeypatch: pytest.MonkeyPatch, frame: str, extra_pct: float
) -> None:
    calls = count_calls(frame, monkeypatch)
    usual_tokens = list(model.generate("2+2=", 3))
    usual = Counter(calls)
    own = getattr(kernels, frame).__code__
    serving.inject(frame, extra_pct)
    added = getattr(kernels, frame).__code__
    assert added is not own
    assert (added.co_name, added.co_filename) == (own.co_name, own.co_filename)
    calls.clear()
    rounds = 10
    for _ in range(rounds):
        assert list(model.generate("2+2=", 3)) == usual_tokens
    assert calls.keys() == usual.keys()
    for size, count in usual.items():
        assert abs(calls[size] - rounds * count * (1 + extra_pct / 100)) <= 4


def test_a_repeat_reads_another_layer(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same matrix again would come from the CPU's cache at half the cost."""
    matrices: list[int] = []
    ternary_gemv = kernels.ternary_gemv

    def watch(matrix: kernels.TernaryMatrix, x: kernels.QuantizedVector) -> kernels.FloatArray:
        matrices.append(id(matrix.signs))
        return ternary_gemv(matrix, x)

    monkeypatch.setattr(kernels, "ternary_gemv", watch)
    serving.inject("ternary_gemv", 200.0)
    list(model.generate("2+2=", 1))
    matrices = matrices[12 * 4 :]  # after the first token every layer has been read
    assert len(matrices) == 12 * 4 * 4
    assert all(len(set(matrices[at : at + 3])) == 3 for at in range(0, len(matrices), 3))


def test_every_kernel_and_no_other_frame_can_be_injected() -> None:
    functions = {
        name
        for name, value in vars(kernels).items()
        if getattr(value, "__module__", "") == kernels.__name__ and not isinstance(value, type)
    }
    assert set(serving.FRAMES) == functions
    with pytest.raises(UsageError, match="E_UNKNOWN_FRAME") as caught:
        serving.inject("matmul", 10.0)
    assert all(each in caught.value.remedy for each in serving.FRAMES)


def test_traffic_is_that_of_the_arrays_and_part_of_the_facts(model: Transformer) -> None:
    traffic = {name: int(value) for name, value in serving.count_traffic(model.weights).items()}
    tensors = read_header(SHIPPED_MODEL).tensors
    floats = sum(each.parameters for each in tensors if each.type == "F32")
    ternary = sum(each.parameters for each in tensors if each.type != "F32")
    assert traffic["weights_bytes_per_token"] == 4 * (floats + ternary + ternary // 256)
    assert traffic["flops_per_token"] == 2 * (ternary + model.weights.token_embd.size)
    cache = _new_cache(model.weights.config)
    cache_bytes = cache.keys.nbytes + cache.values.nbytes
    assert traffic["kv_bytes_per_position"] * model.weights.config.context == cache_bytes
    served = serving.load_engine({"model": str(SHIPPED_MODEL)})
    assert read_facts(served.facts) == serving.count_traffic(model.weights)


def functions() -> dict[str, Any]:
    """Every function that marks are put around."""
    return {**vars(kernels), **vars(transformer.Transformer)}


@pytest.fixture(scope="module")
def recorded(model: Transformer) -> Recorded:
    with serving.mark_kernels(model.weights), BrickProfiler() as profiler:
        profiler.phase = "prefill"
        for _ in model.generate(PROMPT, TOKENS):
            profiler.phase = "decode"
    return profiler.recorded()


def row(recorded: Recorded, name: str, layer: int | None = None) -> BrickTotals:
    (found,) = (
        each
        for each in recorded.totals
        if (each.name, each.layer, each.phase) == (name, layer, "decode")
    )
    return found


def test_calls_follow_from_tokens_and_layers(model: Transformer, recorded: Recorded) -> None:
    calls: Counter[tuple[str, str]] = Counter()
    for each in recorded.totals:
        calls[each.name, each.phase] += each.calls
    layers, prompt, steps = len(model.weights.layers), len(encode(PROMPT)), TOKENS - 1
    assert calls["LmHead", "prefill"] + calls["LmHead", "decode"] == TOKENS
    for phase, forwarded in (("prefill", prompt), ("decode", steps)):
        assert calls["Embedding", phase] == forwarded
        once = ("QkvProjection", "RopeEmbedding", "AttentionScore", "OutputProjection")
        for name in (*once, "GateUpProjection", "Activation", "DownProjection"):
            assert calls[name, phase] == forwarded * layers
        logits = 1 if phase == "prefill" else steps
        assert calls["Sampling", phase] == calls["LmHead", phase] == logits
        assert calls["RmsNorm", phase] == 4 * forwarded * layers + logits
        assert calls["Quantize", phase] == 4 * forwarded * layers
    for layer in range(layers):
        assert row(recorded, "RmsNorm", layer).calls == 4 * steps
        assert row(recorded, "Quantize", layer).calls == 4 * steps
    assert row(recorded, "RmsNorm").calls == row(recorded, "LmHead").calls


def test_bytes_and_elements_follow_from_shapes(model: Transformer, recorded: Recorded) -> None:
    config, steps, matrix = model.weights.config, TOKENS - 1, model.weights.layers[1].ffn_down
    down = row(recorded, "DownProjection", 1)
    assert down.elements == steps * config.width
    assert down.bytes > steps * (matrix.signs.nbytes + matrix.scales.nbytes)
    assert down.flops >= steps * 2 * matrix.signs.size
    assert row(recorded, "GateUpProjection", 1).category == "FFN"
    assert row(recorded, "Quantize", 1).category == "Other"
    head = row(recorded, "LmHead")
    assert head.elements == steps * model.weights.token_embd.shape[0]
    assert head.flops == steps * 2 * model.weights.token_embd.size
    positions = range(len(encode(PROMPT)), len(encode(PROMPT)) + steps)
    width = config.heads * config.head_width
    assert row(recorded, "AttentionScore", 0).flops == sum(4 * width * (p + 1) for p in positions)


def test_marks_change_no_token_and_are_removed(model: Transformer) -> None:
    before = functions()
    usual = list(model.generate(PROMPT, TOKENS))
    with serving.mark_kernels(model.weights):
        assert functions() != before
        assert list(model.generate(PROMPT, TOKENS)) == usual
        with BrickProfiler():
            assert list(model.generate(PROMPT, TOKENS)) == usual
    assert functions() == before
    with pytest.raises(RuntimeError, match="stop"), serving.mark_kernels(model.weights):
        raise RuntimeError("stop")
    assert functions() == before


def test_the_engine_is_called_without_a_frame_of_its_own() -> None:
    loaded = serving.load_engine({"model": str(SHIPPED_MODEL)})
    tokens: Any = loaded(PROMPT, 2)
    assert tokens.gi_code is transformer.Transformer.generate.__code__
    assert "__call__" not in vars(type(loaded))
    with loaded.mark_bricks():
        assert hasattr(functions()["rope"], "__wrapped__")


@pytest.mark.measures
def test_bricks_cover_the_time_of_the_embedded_workload() -> None:
    (_, workload, _) = embedded_workloads(Path())
    watched = observer(workload)
    watched.run_timed(0.02)
    _, bricks, recorded = watched.run_bricks(0.3)
    assert 0.9 <= bricks.coverage <= 1.0
    assert sum(each.calls for each in bricks.totals if each.name == "LmHead") == bricks.tokens
    assert watched.observation().differs_at is None
    assert sum(call.name == "LmHead" for call in recorded.calls) == 1
