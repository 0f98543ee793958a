"""Reports of an engine about itself: strictly read, and compared with each other and the clocks."""

from collections.abc import Callable
from typing import Any

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.figures import (
    ObservedFigures,
    Report,
    SourceReport,
    check_agreement,
    make_source_report,
    read_facts,
    read_report,
)

SECOND = 1_000_000_000


def test_a_report_is_read_only_once_and_complete() -> None:
    report = read_report(
        {"source": "cb_eval", "figures": {"tokens": 9, "decode_ms": 81.25}, "kernels": {"ROPE": 3}}
    )
    assert report == Report("cb_eval", {"tokens": 9.0, "decode_ms": 81.25}, {"ROPE": 3})
    with pytest.raises(TypeError):
        report.figures["tokens"] = 1.0  # type: ignore[index]
    assert read_report({"source": "x"}) == Report("x")
    assert read_report({"source": "x", "figures": {}, "kernels": None}) == Report("x")
    assert read_facts({"library": "toy 1"}) == {"library": "toy 1"}


def figures(**more: object) -> dict[str, Any]:
    return {"source": "x", "figures": more}


def kernels(more: object) -> dict[str, Any]:
    return {"source": "x", "kernels": more}


BAD_REPORTS: list[object] = [
    *(None, [], {}, {"source": " "}, {"source": 7}, {"source": "x" * 300}),
    *({"source": "x", "rate": 3}, {"source": "x", "figures": [1]}),
    *(figures(decode_ms=float("inf")), figures(decode_ms=float("nan")), figures(decode_ms=-0.1)),
    *(figures(decode_ms=10**400), figures(decode_ms="81"), figures(decode_ms=None)),
    *(figures(tokens=True), {"source": "x", "figures": {"": 1.0}}),
    *(kernels({"gemv": -1}), kernels({"gemv": 1.5}), kernels({"gemv": True})),
    *(kernels({"g" * 300: 1}), kernels({f"k{n}": 1 for n in range(5000)})),
]
BAD_FACTS: list[object] = [
    *(None, ["a"], {"": "x"}, {"v": 3}, {"a": "x" * 5000}, dict.fromkeys(map(str, range(99)), "")),
]


@pytest.mark.parametrize(
    ("read", "document"),
    [*((read_report, each) for each in BAD_REPORTS), *((read_facts, each) for each in BAD_FACTS)],
    ids=range(len(BAD_REPORTS) + len(BAD_FACTS)),
)
def test_malformed_reports_and_facts(read: Callable[[Any], object], document: object) -> None:
    with pytest.raises(ToolError, match="E_BAD_REPORT") as error:
        read(document)
    assert len(error.value.problem) < 300


def report(source: str = "a", extra: int = 0, **figures: float) -> SourceReport:
    return make_source_report(source, figures, extra_tokens=extra)


WHOLE = ObservedFigures(SECOND)
DECODED = ObservedFigures(SECOND, 10, SECOND // 2, 9)
AGREEING = [
    ([], WHOLE),
    ([report(tokens=10, extra=1), report("b", tokens=9)], WHOLE),
    ([report(tokens_per_second=100), report("b", tokens_per_second=104)], WHOLE),
    ([report(total_ms=1000)], WHOLE),
    ([report(tokens=11, extra=1)], ObservedFigures(SECOND, tokens=10)),
    # Between 10 tokens in a whole run of 1 s and 9 of them in a decode of 0.5 s.
    ([report(tokens_per_second=10)], DECODED),
    ([report(tokens_per_second=21)], DECODED),
    # Few tokens, a short decode or another unit show no rate.
    ([report(tokens_per_second=99)], ObservedFigures(SECOND, 8, SECOND // 2, 7)),
    ([report(tokens_per_second=9999)], ObservedFigures(SECOND, 10, 40_000_000, 9)),
    ([report(tokens_per_second=99)], ObservedFigures(SECOND, None, SECOND // 2, 9)),
    ([report(tokens=1, tokens_per_second=0.1)], WHOLE),
]
DISAGREEING = [
    ([report(tokens=10), report("b", tokens=9)], WHOLE, "10 tokens", "9 tokens"),
    ([report(tokens=12, extra=1), report("b", tokens=10)], WHOLE, "12", "10"),
    (
        [report(prefill_tokens_per_second=100), report("b", prefill_tokens_per_second=94)],
        WHOLE,
        "100 prefill",
        "94 prefill",
    ),
    ([report(total_ms=1013)], WHOLE, "1013.0 ms", "1000.0 ms"),
    ([report(prefill_ms=600, decode_ms=600)], WHOLE, "1200.0 ms", "1000.0 ms"),
    ([report(forward_us=2_000_000)], WHOLE, "2000.0 ms", "1000.0 ms"),
    ([report(tokens=12, extra=1)], ObservedFigures(SECOND, tokens=10), "12 tokens", "10 tokens"),
    ([report(tokens_per_second=23)], DECODED, "23", "18 tokens per"),
    ([report(tokens_per_second=7)], DECODED, "7", "10 tokens in"),
]


@pytest.mark.parametrize(("reports", "observed"), AGREEING, ids=range(len(AGREEING)))
def test_sources_that_can_both_be_right(
    reports: list[SourceReport], observed: ObservedFigures
) -> None:
    check_agreement(reports, observed)


@pytest.mark.parametrize(
    ("reports", "observed", "here", "there"), DISAGREEING, ids=range(len(DISAGREEING))
)
def test_sources_that_cannot_both_be_right(
    reports: list[SourceReport], observed: ObservedFigures, here: str, there: str
) -> None:
    with pytest.raises(ToolError, match="E_SOURCES_DISAGREE") as error:
        check_agreement(reports, observed)
    other = "b" if len(reports) > 1 else "the observer"
    assert all(words in error.value.problem for words in (here, there, other))
