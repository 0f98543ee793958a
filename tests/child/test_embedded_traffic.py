"""What the engine says that a token reads is what its arrays hold."""

from __future__ import annotations

from pytest_flamegate.child.embedded.serving import count_traffic, load_engine
from pytest_flamegate.child.embedded.transformer import Transformer, _new_cache
from pytest_flamegate.engines.embedded import SHIPPED_MODEL
from pytest_flamegate.engines.figures import read_facts
from pytest_flamegate.models.gguf import read_header


def test_weights_are_read_as_they_were_unpacked(model: Transformer) -> None:
    told = {name: int(value) for name, value in count_traffic(model.weights).items()}
    floats = ternary = scales = 0
    for tensor in read_header(SHIPPED_MODEL).tensors:
        if tensor.type == "F32":
            floats += tensor.parameters
        else:
            ternary += tensor.parameters
            scales += tensor.parameters // 256
    assert told["weights_bytes_per_token"] == 4 * (floats + ternary + scales)
    assert told["flops_per_token"] == 2 * (ternary + model.weights.token_embd.size)


def test_a_position_of_the_cache(model: Transformer) -> None:
    cache = _new_cache(model.weights.config)
    held = cache.keys.nbytes + cache.values.nbytes
    assert (
        int(count_traffic(model.weights)["kv_bytes_per_position"]) * model.weights.config.context
        == held
    )


def test_the_engine_tells_them_and_still_generates(model: Transformer) -> None:
    served = load_engine({"model": str(SHIPPED_MODEL)})
    assert read_facts(served.facts) == count_traffic(model.weights)
    assert list(served("2+2=", 2)) == list(model.generate("2+2=", 2))
