"""What an engine says of itself: figures by its own clocks, kernels by its own count.

None of it was observed. It is kept beside what was, with the name of who said it, and where
the two can be compared they have to agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Protocol

from pytest_flamegate.core import limit
from pytest_flamegate.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence


_LONGEST = 256
_MOST = 4096
_MOST_FACTS = 64


@dataclass(frozen=True, slots=True)
class Report:
    """What one source said of one run, or of one sequence of it.

    ``source`` names who said it and how it was read, such as ``llama.cpp:perf``. ``figures``
    carry their unit in their name: ``tokens``, ``prompt_tokens``, ``decode_tokens`` (counts;
    the last is of what came in ``decode_ms``, which the first token may not have), ``load_ms``,
    ``prefill_ms``, ``decode_ms``, ``total_ms``, ``embed_us``, ``forward_us``, ``logits_us``,
    ``sample_us``, ``tokens_per_second``, ``prefill_tokens_per_second``. ``kernels`` maps the
    name of a kernel to how often the engine says it ran.
    """

    source: Annotated[str, limit(min_length=1)]
    figures: Mapping[str, Annotated[float, limit(ge=0)]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    kernels: Mapping[str, Annotated[int, limit(ge=0)]] = field(
        default_factory=lambda: MappingProxyType({})
    )


def read_report(told: object) -> Report:
    """Return the report that plain data describes: ``source``, ``figures`` and ``kernels``.

    ``ToolError`` ``E_BAD_REPORT`` for another shape, and for what ``report`` refuses.
    """
    if not isinstance(told, Mapping) or not told.keys() <= {"source", "figures", "kernels"}:
        raise _bad("it is no object of source, figures and kernels")
    return report(told.get("source"), told.get("figures"), told.get("kernels"))


def report(source: object, figures: object = None, kernels: object = None) -> Report:
    """Return what ``source`` said; whoever reads an engine's word makes its report here.

    ``ToolError`` ``E_BAD_REPORT`` for a nameless source, a figure that is no finite number from
    0 up, a count that is no whole one, and for more names or longer ones than any engine has.
    """
    if not _is_name(source):
        raise _bad(f"its source is {_shown(source)}")
    figures, kernels = figures or {}, kernels or {}
    for part in (figures, kernels):
        if not isinstance(part, Mapping) or len(part) > _MOST or not all(map(_is_name, part)):
            raise _bad("its figures and kernels are not values by name")
    assert isinstance(figures, Mapping)
    assert isinstance(kernels, Mapping)
    for name, value in figures.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value <= 2**63:
            raise _bad(f"the figure {_shown(name)} is {_shown(value)}")
    for name, value in kernels.items():
        if type(value) is not int or not 0 <= value <= 2**63:
            raise _bad(f"the kernel {_shown(name)} ran {_shown(value)} times")
    return Report(
        str(source),
        MappingProxyType({name: float(value) for name, value in figures.items()}),
        MappingProxyType(dict(kernels)),
    )


def read_facts(told: object) -> Mapping[str, str]:
    """Return what an engine says that it is: texts by name. ``ToolError`` ``E_BAD_FACTS``."""
    if (
        not isinstance(told, Mapping)
        or len(told) > _MOST_FACTS
        or not all(map(_is_name, told))
        or not all(isinstance(value, str) and len(value) <= _MOST for value in told.values())
    ):
        raise ToolError(
            "E_BAD_FACTS",
            f"What the engine says that it is cannot be read: {_shown(told)}.",
            "Have its facts be a mapping of short names to texts, such as the library's version.",
        )
    return MappingProxyType(dict(told))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= _LONGEST


def _shown(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "not finite"
    return ascii(value)[:80]


def _bad(why: str) -> ToolError:
    return ToolError(
        "E_BAD_REPORT",
        f"What the engine reports of itself cannot be read: {why}.",
        "Have it report a source, figures that are finite numbers from 0 up, and whole counts.",
    )


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


PHASES = ("embed_us", "forward_us", "logits_us", "sample_us")
COUNTS = ("tokens", "prompt_tokens", "decode_tokens")
RATES = ("tokens_per_second", "prefill_tokens_per_second")
FIGURES = (*COUNTS, "load_ms", "prefill_ms", "decode_ms", "total_ms", *PHASES, *RATES)
"""The names a figure can have; each says its unit."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What one run of a program left to be read.

    ``lines`` are those that are no part of its answer: its messages, and the lines of its
    standard output that a source knows. ``stdout`` and ``stderr`` are the last of what it
    wrote, as text. ``written`` is the content of the receipt file that it wrote in this run,
    None where it wrote none.
    """

    lines: tuple[str, ...] = ()
    stdout: str = ""
    stderr: str = ""
    written: bytes | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What one source said of one run, as far as it can be held against others.

    ``spent_ms`` is the time that all it timed took together. ``extra_tokens`` is how many
    tokens it may count that an answer does not show: the one that ends it.
    """

    report: Report
    spent_ms: float = 0.0
    extra_tokens: int = 0


class Source(Protocol):
    """One form in which programs report. Implementations hold no state of a run."""

    @property
    def name(self) -> str:
        """What ``figures`` asks for it by."""

    @property
    def markers(self) -> tuple[bytes, ...]:
        """How its lines on standard output begin: those are no part of the answer."""

    def read(self, heard: Heard) -> Told | None:
        """Return what is said; None where nothing is. ``ToolError`` for what cannot be."""


def told(
    source: str,
    figures: Mapping[str, float],
    kernels: Mapping[str, int] | None = None,
    extra_tokens: int = 0,
) -> Told:
    """Return ``figures`` as they were said, with the time that they add up to."""
    spent_ms = max(
        figures.get("load_ms", 0.0),
        figures.get("total_ms", 0.0),
        figures.get("prefill_ms", 0.0) + figures.get("decode_ms", 0.0),
        sum(figures.get(phase, 0.0) for phase in PHASES) / 1e3,
    )
    return Told(report(source, figures, kernels), spent_ms, extra_tokens)


def figure(source: str, name: str, said: str | float) -> float:
    """Return what was said of the figure ``name``.

    ``ToolError`` ``E_BAD_FIGURE`` for what is no number, not finite or negative, for a rate
    or a number of generated tokens that is zero, and for a count that is no whole number.
    """
    try:
        value = float(said)
    except (ValueError, OverflowError):
        raise bad_figure(source, f"{str(said)[:40]!r} for {name}, which is no number") from None
    if not math.isfinite(value):
        raise bad_figure(source, f"{value} for {name}")
    if value < 0.0 or (value == 0.0 and (name in RATES or name == "tokens")):
        raise bad_figure(source, f"{value:g} for {name}")
    if name in COUNTS and value != int(value):
        raise bad_figure(source, f"{value:g} for {name}, which is a count")
    return value


def bad_figure(source: str, what: str) -> ToolError:
    """Return the refusal of a figure that cannot be."""
    return ToolError(
        "E_BAD_FIGURE",
        f"The program reports ({source}) {what}.",
        "One token alone has no rate: ask for two or more. Repair what the program prints, or "
        'say figures = "none" and what it says of itself is not read.',
    )


def bad_source(source: str, what: str, remedy: str) -> ToolError:
    """Return the refusal of a report that cannot be read."""
    return ToolError("E_BAD_SOURCE", f"What the program reports ({source}) {what}.", remedy)
