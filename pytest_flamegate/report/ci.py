"""What a hosted runner shows: annotations on a line of code, and the job's summary page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.gate.headline import headline
from pytest_flamegate.report.bricks import bricks_summary
from pytest_flamegate.report.families import family_sections
from pytest_flamegate.report.markup import code, escape, table
from pytest_flamegate.report.sections import NONE, signal_cells
from pytest_flamegate.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.gate.verdict import Verdict
    from pytest_flamegate.report.terminal import Outcome


_MESSAGE = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_PROPERTY = (*_MESSAGE, (":", "%3A"), (",", "%2C"))
_LINE_LIMIT = 1000
_GREEN = frozenset({"pass", "improved"})


def _command(text: str, replacements: tuple[tuple[str, str], ...]) -> str:
    for char, written in replacements:
        text = text.replace(char, written)
    return text


def _lines(text: str) -> str:
    """Return ``text`` with its line breaks and nothing else that is hidden."""
    return "\n".join(visible(line, _LINE_LIMIT) for line in text.splitlines())


def error_annotation(file: str, line: int | None, title: str, message: str) -> str:
    """Return the workflow command that puts an error on ``file`` (and ``line``, from 1).

    It is one line without a line break at its end; ``message`` may have several. What
    the command's syntax uses is escaped in every part, so no text can start another
    command.
    """
    properties = [f"file={_command(visible(file), _PROPERTY)}"] if file else []
    if file and line is not None:
        properties.append(f"line={max(line, 1)}")
    properties.append(f"title={_command(visible(title), _PROPERTY)}")
    return f"::error {','.join(properties)}::{_command(_lines(message), _MESSAGE)}"


def step_summary(outcomes: Sequence[Outcome]) -> str:
    """Return the job's summary as Markdown, ending in a line break.

    One row a workload; then each verdict that is neither pass nor improved in a line, and
    the variants of each family side by side, and the costliest bricks.
    The caller appends it to the file that ``GITHUB_STEP_SUMMARY`` names.
    """
    rows = [
        [
            code(each.workload),
            _verdict(each.verdict),
            *map(escape, _rate(each.verdict)),
            escape(each.verdict.grade),
        ]
        for each in outcomes
    ]
    head = ["workload", "verdict", "baseline", "now", "change", "interval", "allowed",
            "could have seen", "receipt"]  # fmt: skip
    said = [
        f"- {code(each.workload)} {escape(headline(each.verdict))}"
        for each in outcomes
        if each.verdict.verdict not in _GREEN
    ]
    parts = ["## flamegate"]
    parts.append(table(head, rows, right=range(2, 8)) if rows else "Nothing was measured.")
    if said:
        parts.append("\n".join(said))
    parts += family_sections(outcomes)
    parts += [bricks_summary(each.workload, each.bricks) for each in outcomes if each.bricks]
    return "\n\n".join(parts) + "\n"


def _verdict(verdict: Verdict) -> str:
    word = verdict.verdict.replace("_", " ")
    return word if verdict.verdict in _GREEN else f"**{word}**"


def _rate(verdict: Verdict) -> tuple[str, ...]:
    """Return six cells on tokens per second, dashes where they were not judged."""
    signal = verdict.signal()
    return (NONE,) * 6 if signal is None else signal_cells(signal)[1:7]
