from __future__ import annotations

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.figures import (
    Observed,
    SourceReport,
    check_agreement,
    make_source_report,
)

SECOND = 1_000_000_000


def said(source: str = "a", extra: int = 0, **figures: float) -> SourceReport:
    return make_source_report(source, figures, extra_tokens=extra)


ALIKE = [
    ([], Observed(SECOND)),
    ([said(tokens=10, tokens_per_second=100), said("b", tokens=10)], Observed(SECOND)),
    ([said(tokens=10, extra=1), said("b", tokens=9)], Observed(SECOND)),
    ([said(tokens_per_second=100), said("b", tokens_per_second=104)], Observed(SECOND)),
    ([said(total_ms=1000)], Observed(SECOND)),
    ([said(tokens=11, extra=1)], Observed(SECOND, tokens=10)),
    ([said(tokens=300)], Observed(SECOND)),
    # Between 10 tokens in a whole run of 1 s and 9 of them in a decode of 0.5 s.
    ([said(tokens_per_second=10)], Observed(SECOND, 10, SECOND // 2, 9)),
    ([said(tokens_per_second=18)], Observed(SECOND, 10, SECOND // 2, 9)),
    ([said(tokens_per_second=21)], Observed(SECOND, 10, SECOND // 2, 9)),
    # Few tokens, a short decode or another unit tell no rate.
    ([said(tokens_per_second=99)], Observed(SECOND, 8, SECOND // 2, 7)),
    ([said(tokens_per_second=9999)], Observed(SECOND, 10, 40_000_000, 9)),
    ([said(tokens_per_second=99)], Observed(SECOND, None, SECOND // 2, 9)),
    ([said(tokens=1, tokens_per_second=0.1)], Observed(SECOND)),
]
APART = [
    ([said(tokens=10), said("b", tokens=9)], Observed(SECOND), "10 tokens", "9 tokens"),
    ([said(tokens=12, extra=1), said("b", tokens=10)], Observed(SECOND), "12", "10"),
    (
        [said(tokens_per_second=100), said("b", tokens_per_second=106)],
        Observed(SECOND),
        "100 tokens per second",
        "106 tokens per second",
    ),
    (
        [said(prefill_tokens_per_second=100), said("b", prefill_tokens_per_second=50)],
        Observed(SECOND),
        "100 prefill",
        "50 prefill",
    ),
    ([said(total_ms=1013)], Observed(SECOND), "1013.0 ms", "1000.0 ms"),
    ([said(prefill_ms=600, decode_ms=600)], Observed(SECOND), "1200.0 ms", "1000.0 ms"),
    ([said(forward_us=2_000_000)], Observed(SECOND), "2000.0 ms", "1000.0 ms"),
    ([said(tokens=12, extra=1)], Observed(SECOND, tokens=10), "12 tokens", "10 tokens"),
    ([said(tokens=100, tokens_per_second=10)], Observed(SECOND), "10 tokens per", "1.000 s"),
    ([said(tokens_per_second=23)], Observed(SECOND, 10, SECOND // 2, 9), "23", "18 tokens per"),
    ([said(tokens_per_second=7)], Observed(SECOND, 10, SECOND // 2, 9), "7", "10 tokens in"),
]


@pytest.mark.parametrize(("sources", "seen"), ALIKE, ids=range(len(ALIKE)))
def test_what_can_both_be_right_passes(sources: list[SourceReport], seen: Observed) -> None:
    check_agreement(sources, seen)


@pytest.mark.parametrize(("sources", "seen", "here", "there"), APART, ids=range(len(APART)))
def test_what_cannot_both_be_right_is_refused(
    sources: list[SourceReport], seen: Observed, here: str, there: str
) -> None:
    with pytest.raises(ToolError) as refused:
        check_agreement(sources, seen)
    assert refused.value.code == "E_SOURCES_DISAGREE"
    assert here in refused.value.problem
    assert there in refused.value.problem
    assert ("b" if len(sources) > 1 else "the observer") in refused.value.problem
