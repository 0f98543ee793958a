"""What a source of figures is: something that reads what a program said of itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload.reported import report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.workload.reported import Report

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


def bad_source(source: str, what: str, todo: str) -> ToolError:
    """Return the refusal of a report that cannot be read."""
    return ToolError("E_BAD_SOURCE", f"What the program reports ({source}) {what}.", todo)
