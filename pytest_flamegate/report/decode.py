"""Decode alone, by subtraction, as it is shown: always with what was taken away, and its error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report import figures
from pytest_flamegate.report.flamegraph_svg import flamegraph
from pytest_flamegate.report.markup import code, escape, link, table

if TYPE_CHECKING:
    from pytest_flamegate.profile.subtraction import DecodeProfile

TOP = 20
TITLE = "Decode alone (by subtraction)"
_NS = 1e9


def decode_picture(decode: DecodeProfile, name: str) -> str:
    """Return the flame graph as SVG: a frame is as wide as the time it takes of each token."""
    long, short = decode.tokens
    notes = [
        f"{_with_error(decode.cpu_s_per_token, decode.cpu_error_s_per_token)} µs CPU/token",
        f"taken away: {figures.share(decode.prefill_share)} of a sequence, "
        f"as those of {figures.plural(short, 'token')} take",
        _samples(decode),
        f"{_clipped(decode)} too much, where noise went below 0",
        "derived, never gated",
    ]
    return flamegraph(
        decode.profile,
        title=f"{name}: decode alone, by subtraction: {figures.plural(long, 'token')} minus "
        f"{figures.count(short)}",
        subtitle=" · ".join(notes),
        cpu_s_per_token=decode.profile.samples / _NS,
    )


def decode_section(decode: DecodeProfile, picture: str) -> str:
    """Return the section's text as Markdown; ``picture`` is the SVG's address from the page."""
    long, short = decode.tokens
    said = (
        f"Sequences of {figures.plural(long, 'token')} less sequences of "
        f"{figures.plural(short, 'token')} of the same prompt, for each of the "
        f"{figures.count(long - short)} tokens between: "
        f"{_with_error(decode.cpu_s_per_token, decode.cpu_error_s_per_token)} µs CPU/token. "
        f"What the shorter ones take, {figures.share(decode.prefill_share)} of a longer one, is "
        "taken away. Derived, with standard errors; shown and never gated."
    )
    shown = [row for row in decode.rows if abs(row.self_s) >= row.self_error_s][:TOP]
    rows = [
        [
            code(row.name),
            escape(row.category),
            _with_error(row.self_s, row.self_error_s),
            _with_error(row.inclusive_s, row.inclusive_error_s),
            figures.share(row.decode_share),
            figures.share(row.sampled_share),
        ]
        for row in shown
    ]
    head = ["function", "category", "self µs/token", "with callees µs/token", "of decode",
            "before subtraction"]  # fmt: skip
    left = len(decode.rows) - len(shown)
    less = [
        f"From {_samples(decode)}; errors assume that shares vary "
        f"{figures.significant(decode.phi)} times as much as independent samples would.",
        f"The picture shows {_clipped(decode)} too much, where noise took a stack below 0.",
    ]
    if left:
        less.append(
            f"{figures.plural(left, 'further function')}, cheaper or lost in their error, in "
            "`decode.json`."
        )
    return "\n\n".join(
        [
            said,
            f"!{link('Flame graph of decode alone', picture)}",
            table(head, rows, right=range(2, len(head))),
            " ".join(less),
        ]
    )


def _with_error(value_s: float, error_s: float) -> str:
    return f"{figures.micros(value_s)} ± {figures.micros(error_s)}"


def _samples(decode: DecodeProfile) -> str:
    long, short = (figures.count(each) for each in decode.samples)
    return f"{long} samples of the longer sequences and {short} of the shorter"


def _clipped(decode: DecodeProfile) -> str:
    return f"{figures.micros(decode.clipped_s_per_token)} µs/token"
