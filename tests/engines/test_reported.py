"""What an engine reports of itself is read strictly: it is foreign."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.figures import Report, read_facts, read_report
from pytest_flamegate.engines.figures import make_source_report as told_by


def test_a_report_is_read() -> None:
    told = read_report(
        {"source": "cb_eval", "figures": {"tokens": 9, "decode_ms": 81.25}, "kernels": {"ROPE": 3}}
    )
    assert told == Report("cb_eval", {"tokens": 9.0, "decode_ms": 81.25}, {"ROPE": 3})
    assert type(told.figures["tokens"]) is float
    with pytest.raises(TypeError):
        told.figures["tokens"] = 1.0  # type: ignore[index]


@pytest.mark.parametrize("told", [{"source": "x"}, {"source": "x", "figures": {}, "kernels": None}])
def test_what_it_does_not_tell_is_empty(told: dict[str, Any]) -> None:
    assert read_report(told) == Report("x")


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        "x",
        {},
        {"source": ""},
        {"source": " "},
        {"source": 7},
        {"source": "x" * 300},
        {"source": "x", "rate": 3},
        {"source": "x", "figures": [1]},
        {"source": "x", "figures": {"": 1.0}},
        {"source": "x", "figures": {"decode_ms": float("inf")}},
        {"source": "x", "figures": {"decode_ms": float("nan")}},
        {"source": "x", "figures": {"decode_ms": -0.1}},
        {"source": "x", "figures": {"decode_ms": 10**400}},
        {"source": "x", "figures": {"decode_ms": "81"}},
        {"source": "x", "figures": {"decode_ms": None}},
        {"source": "x", "figures": {"tokens": True}},
        {"source": "x", "kernels": {"gemv": -1}},
        {"source": "x", "kernels": {"gemv": 1.5}},
        {"source": "x", "kernels": {"gemv": True}},
        {"source": "x", "kernels": {"g" * 300: 1}},
        {"source": "x", "kernels": {f"k{n}": 1 for n in range(5000)}},
    ],
    ids=range(23),
)
def test_what_is_none_is_refused_by_code(told: object) -> None:
    with pytest.raises(ToolError) as error:
        read_report(told)
    assert error.value.code == "E_BAD_REPORT"
    assert len(error.value.problem) < 300


@pytest.mark.parametrize(
    ("source", "figures", "kernels"),
    [
        ("", {}, {}),
        ("log", {"decode_ms": float("nan")}, {}),
        ("log", {}, {f"k{n}": 1 for n in range(5000)}),
    ],
    ids=["no name", "no number", "no end"],
)
def test_what_a_source_reads_is_checked_alike(
    source: str, figures: dict[str, float], kernels: dict[str, int]
) -> None:
    with pytest.raises(ToolError) as error:
        told_by(source, figures, kernels)
    assert error.value.code == "E_BAD_REPORT"


def test_what_an_engine_says_that_it_is_are_texts() -> None:
    assert read_facts({"library": "toy 1"}) == {"library": "toy 1"}


@pytest.mark.parametrize(
    "told",
    [
        None,
        ["a"],
        {"": "x"},
        {"version": 3},
        {"a": "x" * 5000},
        dict.fromkeys(map(str, range(99)), ""),
    ],
    ids=range(6),
)
def test_other_facts_are_refused_by_code(told: object) -> None:
    with pytest.raises(ToolError) as error:
        read_facts(told)
    assert error.value.code == "E_BAD_REPORT"
