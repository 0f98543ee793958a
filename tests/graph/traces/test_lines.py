"""Lines that engines print: phases with their median, and dispatches of kernels."""

from __future__ import annotations

import pytest

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.graph.traces import read_trace
from tests.graph.traces import made
from tests.graph.traces.made import named


def test_phases_are_bricks_with_medians() -> None:
    found = read_trace(b"Once upon a time\n" + made.LINES)
    assert found.medians_us == {
        "embed_us": 12,
        "forward_us": 340.5,
        "logits_us": 80,
        "sample_us": 0.5,
    }
    totals = named(found)
    assert list(totals) == ["Embedding", "Forward", "LmHead", "Sampling"]
    assert (totals["Forward"].calls, totals["Forward"].total_ns) == (3, 1_000_500)
    assert (totals["Forward"].min_ns, totals["Forward"].max_ns) == (300_000, 360_000)
    assert totals["Forward"].quantile_ns(0.5) == pytest.approx(340_500, rel=0.008)
    assert found.wall_ns is None


def test_dispatches_are_counted() -> None:
    expected = {"gemv_avx2": 4, "gemv_f16": 1}
    assert read_trace(made.DISPATCH).kernels == expected
    both = read_trace(made.LINES + made.DISPATCH)
    assert (both.source, both.kernels, len(both.totals)) == ("timing", expected, 4)
    assert read_trace(made.DISPATCH).totals == ()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"timing: embed_us=1\ntiming: embed_us=2\n", "E_TOO_FEW_RUNS"),
        (made.LINES.replace(b"sample_us=0.5", b"", 1), "E_TOO_FEW_RUNS"),
        (b"timing: embed_us=nan\n" * 3, "E_BAD_FIGURE"),
        (b"timing: embed_us=-1\n" * 3, "E_BAD_FIGURE"),
        (b"timing: embed_us=1e999\n" * 3, "E_BAD_FIGURE"),
        (b"timing: embed_us=1e300\n" * 3, "E_TRACE"),
        (b"timing: " + b"x" * 20_000, "E_TRACE"),
        (b"quant_dispatch: kernel=a count=-1\n", "E_BAD_FIGURE"),
        (b"".join(b"quant_dispatch: kernel=k%d\n" % n for n in range(1001)), "E_BAD_SOURCE"),
    ],
)
def test_invalid_lines_raise(data: bytes, code: str) -> None:
    with pytest.raises(FlamegateError) as error:
        read_trace(data)
    assert error.value.code == code
