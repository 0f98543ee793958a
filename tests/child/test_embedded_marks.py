"""The embedded engine's bricks: each call counted, none left marked, no token changed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.bricks import BrickProfiler
from pytest_flamegate.child.embedded import kernels, transformer
from pytest_flamegate.child.embedded.marks import mark_kernels
from pytest_flamegate.child.embedded.serving import inject, load_engine
from pytest_flamegate.child.embedded.transformer import Transformer
from pytest_flamegate.child.embedded.weights import encode
from pytest_flamegate.config.workload import Injection
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.embedded import SHIPPED_MODEL, embedded_workloads
from pytest_flamegate.observe.observer import Observer

if TYPE_CHECKING:
    from pytest_flamegate.bricks.record import BrickTotals, Recorded


pytestmark = pytest.mark.measures


PROMPT, TOKENS = "What is 2+2?", 10


def functions() -> dict[str, Any]:
    """Every function that marks are put around."""
    return {**vars(kernels), **vars(transformer.Transformer)}


def clocked(model: Transformer, prompt: str = PROMPT, tokens: int = TOKENS) -> Recorded:
    with mark_kernels(model.weights), BrickProfiler() as profiler:
        profiler.phase = "prefill"
        for _ in model.generate(prompt, tokens):
            profiler.phase = "decode"
    return profiler.recorded()


def calls(recorded: Recorded) -> Counter[tuple[str, str]]:
    counted: Counter[tuple[str, str]] = Counter()
    for row in recorded.totals:
        counted[row.name, row.phase] += row.calls
    return counted


def row(recorded: Recorded, name: str, layer: int | None = None) -> BrickTotals:
    (found,) = (
        each
        for each in recorded.totals
        if (each.name, each.layer, each.phase) == (name, layer, "decode")
    )
    return found


def test_calls_follow_from_tokens_and_layers(model: Transformer) -> None:
    found = calls(clocked(model))
    layers, prompt, steps = len(model.weights.layers), len(encode(PROMPT)), TOKENS - 1
    assert found["LmHead", "prefill"] + found["LmHead", "decode"] == TOKENS
    for phase, forwarded in (("prefill", prompt), ("decode", steps)):
        assert found["Embedding", phase] == forwarded
        once = ("QkvProjection", "RopeEmbedding", "AttentionScore", "OutputProjection")
        for name in (*once, "GateUpProjection", "Activation", "DownProjection"):
            assert found[name, phase] == forwarded * layers
        logits = 1 if phase == "prefill" else steps
        assert found["Sampling", phase] == found["LmHead", phase] == logits
        assert found["RmsNorm", phase] == 4 * forwarded * layers + logits
        assert found["Quantize", phase] == 4 * forwarded * layers


def test_each_layer_has_its_own(model: Transformer) -> None:
    recorded = clocked(model)
    for layer in range(len(model.weights.layers)):
        norms, rounded = row(recorded, "RmsNorm", layer), row(recorded, "Quantize", layer)
        assert norms.calls == rounded.calls == 4 * (TOKENS - 1)
    assert row(recorded, "RmsNorm").calls == row(recorded, "LmHead").calls


def test_bytes_and_elements_follow_from_shapes(model: Transformer) -> None:
    recorded, config = clocked(model), model.weights.config
    steps, layer = TOKENS - 1, model.weights.layers[1]
    down = row(recorded, "DownProjection", 1)
    matrix = layer.ffn_down
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


def test_the_tokens_are_the_same_and_nothing_stays_marked(model: Transformer) -> None:
    before = functions()
    usual = list(model.generate(PROMPT, TOKENS))
    with mark_kernels(model.weights), BrickProfiler():
        assert functions() != before
        assert list(model.generate(PROMPT, TOKENS)) == usual
    assert functions() == before
    with pytest.raises(RuntimeError, match="stop"), mark_kernels(model.weights):
        raise RuntimeError("stop")
    assert functions() == before


def test_marked_and_not_clocked_it_generates_the_same(model: Transformer) -> None:
    usual = list(model.generate(PROMPT, TOKENS))
    with mark_kernels(model.weights):
        assert list(model.generate(PROMPT, TOKENS)) == usual


def test_injected_work_is_done_within_its_brick(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = 0
    rope = kernels.rope

    def counted(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        return rope(*arguments)

    monkeypatch.setattr(kernels, "rope", counted)
    inject(Injection("rope", 100.0))
    found = calls(clocked(model))
    asked = found["RopeEmbedding", "prefill"] + found["RopeEmbedding", "decode"]
    assert abs(done - 2 * asked) <= 1


def test_the_engine_is_called_without_a_frame_of_its_own() -> None:
    loaded = load_engine({"model": str(SHIPPED_MODEL)})
    tokens: Any = loaded(PROMPT, 2)
    assert tokens.gi_code is transformer.Transformer.generate.__code__
    assert "__call__" not in vars(type(loaded))
    with loaded.mark_bricks():
        assert hasattr(functions()["rope"], "__wrapped__")


def test_a_pass_of_the_embedded_workload_covers_its_time() -> None:
    (_, workload, _) = embedded_workloads(Path())
    chosen = engine(workload.engine)
    observer = Observer(workload, chosen.plan(workload, chosen.model(workload)))
    observer.run_timed(0.02)
    _, passed, recorded = observer.run_bricks(0.3)
    assert 0.9 <= passed.coverage <= 1.0
    found: Counter[str] = Counter()
    for each in passed.totals:
        if each.phase == "decode" or each.name == "LmHead":
            found[each.name] += each.calls
    layers = 1 + max(each.layer or 0 for each in passed.totals)
    assert found["LmHead"] == passed.tokens
    assert found["AttentionScore"] == passed.decode_tokens * layers
    assert observer.observation().differs_at is None
    assert {call.phase for call in recorded.calls} == {"decode"}
    assert sum(call.name == "LmHead" for call in recorded.calls) == 1
