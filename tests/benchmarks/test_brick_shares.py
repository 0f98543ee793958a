"""Shares by bricks and shares by samples: one function is one function in both."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.brick_shares import BLOCKS, FUNCTIONS, of_bricks, samples, table
from pytest_flamegate.bricks import BrickProfiler
from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.child.embedded.serving import load_engine
from pytest_flamegate.child.embedded.transformer import Transformer
from pytest_flamegate.engines.embedded import SHIPPED_MODEL
from pytest_flamegate.profile.model import Frame
from tests.bricks.factory import make_totals

pytestmark = pytest.mark.measures


def test_each_brick_of_the_engine_is_of_one_function() -> None:
    engine = load_engine({"model": str(SHIPPED_MODEL)})
    with engine.mark_bricks(), BrickProfiler() as profiler:
        list(engine("2+2=", 2))
    marked = {each.name for each in profiler.recorded().totals}
    assert marked == {
        name for part in (FUNCTIONS, BLOCKS) for each in part.values() for name in each
    }
    assert all(callable(getattr(kernels, name)) for name in FUNCTIONS)
    assert all(callable(getattr(Transformer, name)) for name in BLOCKS)


def test_bricks_of_one_function_are_summed_and_blocks_left_out() -> None:
    found = of_bricks(
        [
            make_totals("QkvProjection", [30]),
            make_totals("DownProjection", [30]),
            make_totals("RmsNorm", [40]),
            make_totals("AttentionBlock", [900]),
        ]
    )
    assert (found["ternary_gemv"], found["rms_norm"], found["embed"]) == (0.6, 0.4, 0.0)
    with pytest.raises(ValueError, match="no function: Other"):
        of_bricks([make_totals("Other", [1])])
    with pytest.raises(ValueError, match="no time"):
        of_bricks([make_totals("FeedForward", [1])])


def test_a_sample_belongs_to_the_innermost_function_of_the_engine() -> None:
    def stack(*names: str) -> tuple[Frame, ...]:
        return tuple(Frame(name, "", "python") for name in names)

    found = samples(
        {
            stack("main", "_attention_block", "attention", "softmax", "_amax"): 5,
            stack("main", "_feed_forward", "ternary_gemv"): 3,
            stack("main", "_feed_forward"): 7,
            stack("main"): 9,
        }
    )
    assert found == {"attention": 5, "ternary_gemv": 3}


def test_the_sampling_error_is_that_of_so_many_samples() -> None:
    clocked = [{**dict.fromkeys(FUNCTIONS, 0.0), "attention": 0.5, "rope": 0.5}] * 2
    seen = [Counter(attention=30, rope=20), Counter(attention=30, rope=20)]
    rows = {line[0]: line[1:] for line in table(clocked, seen).rows}
    assert rows["attention"] == ("50.00", "60.00", "-10.00", "5.00", "0.00")
    assert rows["embed"] == ("0.00", "0.00", "0.00", "0.00", "0.00")
    assert (
        "(100 samples); of 9 kernels 9 agree within two sampling errors, 7"
        in table(clocked, seen).title
    )
