"""Holds what a program says of itself against what was observed, and against itself."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.workload.sources.base import Told

RATES_ALIKE = 0.05
"""How far two rates that a program reports of one run may lie apart: they are of one run."""
CLOCKS_ALIKE = 0.25
"""How far a rate may lie beyond the observed ones: its clock may leave out sampling or printing."""
_TIME_SLACK = 1.01
_TIME_SLACK_MS = 1.0
_TOKENS_TO_TELL = 8
_DECODE_TO_TELL_NS = 50_000_000
OBSERVER = "the observer"


@dataclass(frozen=True, slots=True)
class Observed:
    """What the observer clocked of the run.

    ``tokens`` is None where it counts in another unit than the engine. ``decode_ns`` is the
    time in which ``decode_tokens`` came, None where the decode was not told apart.
    """

    wall_ns: int
    tokens: int | None = None
    decode_ns: int | None = None
    decode_tokens: int = 0


def check(said: Sequence[Told], seen: Observed) -> None:
    """Raise ``ToolError`` ``E_SOURCES_DISAGREE`` where two sources cannot both be right."""
    for one, other in combinations(said, 2):
        _counts(one, other)
        _rates(one, other)
    for each in said:
        _against(each, seen)


def _counts(one: Told, other: Told) -> None:
    here, there = (each.report.figures.get("tokens") for each in (one, other))
    if here is None or there is None:
        return
    if abs(here - there) > max(one.extra_tokens, other.extra_tokens):
        raise _disagree(
            one.report.source, f"{here:g} tokens", other.report.source, f"{there:g} tokens"
        )


def _rates(one: Told, other: Told) -> None:
    for name in ("tokens_per_second", "prefill_tokens_per_second"):
        here, there = (each.report.figures.get(name) for each in (one, other))
        if here is None or there is None:
            continue
        if abs(here - there) > RATES_ALIKE * max(here, there):
            raise _disagree(
                one.report.source,
                f"{here:g} {_words(name)}",
                other.report.source,
                f"{there:g} {_words(name)}",
            )


def _against(said: Told, seen: Observed) -> None:
    source, wall_ms = said.report.source, seen.wall_ns / 1e6
    if said.spent_ms > wall_ms * _TIME_SLACK + _TIME_SLACK_MS:
        raise _disagree(
            source, f"{said.spent_ms:.1f} ms", OBSERVER, f"{wall_ms:.1f} ms for the whole run"
        )
    tokens = said.report.figures.get("tokens", seen.tokens)
    # One that counts the end of the answer, and one that cuts its last line end off.
    if seen.tokens is not None and tokens is not None and abs(tokens - seen.tokens) > 1:
        raise _disagree(source, f"{tokens:g} tokens", OBSERVER, f"{seen.tokens} tokens")
    rate = said.report.figures.get("tokens_per_second")
    if rate is None:
        return
    _rate(source, rate, tokens, seen)


def _rate(source: str, rate: float, tokens: float | None, seen: Observed) -> None:
    """Refuse a rate that is not between that of the whole run and that of the decode alone."""
    wall_s = seen.wall_ns / 1e9
    if tokens is not None and tokens > 1 and rate * wall_s * _TIME_SLACK + 1 < tokens - 1:
        raise _disagree(
            source,
            f"{rate:g} tokens per second",
            OBSERVER,
            f"{tokens:g} tokens in {wall_s:.3f} s with start and load",
        )
    if (
        seen.tokens is None
        or seen.decode_ns is None
        or seen.decode_ns < _DECODE_TO_TELL_NS
        or seen.decode_tokens < _TOKENS_TO_TELL
    ):
        return
    fastest = seen.decode_tokens * 1e9 / seen.decode_ns
    if rate > fastest * (1.0 + CLOCKS_ALIKE):
        raise _disagree(
            source,
            f"{rate:g} tokens per second",
            OBSERVER,
            f"{fastest:.4g} tokens per second of decode",
        )


def _words(name: str) -> str:
    return name.replace("_", " ")


def _disagree(one: str, here: str, other: str, there: str) -> ToolError:
    return ToolError(
        "E_SOURCES_DISAGREE",
        f"{one} says {here}, and {other} says {there}.",
        "They are of one run: find out which is wrong. Choose one source with figures = "
        '"timing", "llama.cpp", "receipt" or "pattern", or say "none".',
    )
