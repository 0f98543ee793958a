"""The whole run as one page: verdicts first, then of each workload why, where and how sure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.engines.declare import split_variant_name
from pytest_flamegate.report import html, text
from pytest_flamegate.report.bricks import TITLE as BRICKS
from pytest_flamegate.report.bricks import bricks_section
from pytest_flamegate.report.families import family_pages, speed_cells
from pytest_flamegate.report.flame_html import Drawn, flame
from pytest_flamegate.report.sections import (
    HEAD,
    RIGHT,
    cost_cells,
    hardware,
    metric_title,
    metric_value,
    observed,
    own_rows,
    picture_subtitle,
    program_notes,
    revision,
    signal_cells,
    what_ran,
)
from pytest_flamegate.report.sections import TITLE as OWN_WORD
from pytest_flamegate.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_flamegate.gate.document import StoredVerdict
    from pytest_flamegate.receipt.types import Evidence, Receipt
    from pytest_flamegate.report.bricks import BricksShown


_GOOD, _BAD = frozenset({"pass", "improved"}), frozenset({"regressed", "dishonest", "error"})
_LONG = 4000


@dataclass(frozen=True, slots=True)
class Reported:
    """One workload of the run. ``drawn`` is its flame graph, None where there is no profile.

    ``again`` is the command that measures it again, ``accept`` the one that accepts it as
    the baseline; ``warnings`` say what went wrong beside it, one sentence each. ``bricks`` are
    None where none were clocked.
    """

    name: str
    told: StoredVerdict
    receipt: Receipt | None = None
    evidence: Evidence | None = None
    drawn: Drawn | None = None
    again: str | None = None
    accept: str | None = None
    warnings: tuple[str, ...] = ()
    bricks: BricksShown | None = None

    @property
    def workload(self) -> str:
        """The workload's name."""
        return self.name

    @property
    def family(self) -> str | None:
        """The template that it is a variant of, None where it is none."""
        return split_variant_name(self.name)[0]

    @property
    def variant(self) -> str | None:
        """What it is called within its family."""
        return split_variant_name(self.name)[1]


def run_page(reported: Sequence[Reported], *, title: str) -> str:
    """Return the page of all workloads, one self-contained HTML document.

    Equal arguments give equal bytes.
    """
    header = html.element(
        "div",
        html.lines("h1", [title]),
        html.lines("p", [_about(reported)], class_="muted"),
    )
    body = [html.element("header", header, html.element("div", class_="theme"))]
    if reported:
        workloads = (_workload(each, number) for number, each in enumerate(reported, 1))
        parts = [_overview(reported), *family_pages(reported), *workloads]
    else:
        parts = [html.lines("p", ["No workload was measured."])]
    return html.document(title, [*body, html.element("main", *parts)])


def _about(reported: Sequence[Reported]) -> str:
    """Return how many there are, and their machine, revision, time and version.

    The latest runs of a directory need not be of one revision: then there are several.
    """
    seen = [each.evidence for each in reported if each.evidence is not None]
    times = sorted({each.created for each in seen})
    told = [
        text.plural(len(reported), "workload"),
        _common([", ".join(hardware(each)) for each in seen], "machines"),
        _common(["".join(revision(each)) for each in seen], "revisions"),
        " to ".join(dict.fromkeys(times[:1] + times[-1:])),
        _common([f"flamegate {each.flamegate_version}" for each in seen], "versions of flamegate"),
    ]
    return " · ".join(filter(None, told))


def _common(values: Sequence[str], one: str) -> str:
    """Return the value where it is one, ``2 different revisions`` where they are several."""
    different = set(values)
    return "".join(different) if len(different) < 2 else f"{len(different)} different {one}"


def _word(told: StoredVerdict) -> str:
    verdict = told.verdict.verdict
    kind = "good" if verdict in _GOOD else "bad" if verdict in _BAD else "unsure"
    return html.element("strong", html.text(verdict.replace("_", " ")), class_=f"verdict {kind}")


def _overview(reported: Sequence[Reported]) -> str:
    rows = []
    for number, each in enumerate(reported, 1):
        rate = each.told.verdict.signal()
        changed = rate is not None and rate.change_pct is not None
        speed, quiet = speed_cells(each.receipt, each.evidence)
        rows.append(
            [
                html.element("a", html.text(each.name), href=f"#workload-{number}"),
                _word(each.told),
                html.text(speed),
                html.text(quiet),
                html.text(signal_cells(rate)[3] if rate is not None and changed else "–"),
                html.text(each.told.verdict.grade),
            ]
        )
    head = ["workload", "verdict", "tokens/s", "quiet clock", "change", "receipt"]
    return html.table(head, rows, right=(2, 3, 4), class_="overview")


def _workload(reported: Reported, number: int) -> str:
    verdict, evidence = reported.told.verdict, reported.evidence
    heading = html.element("h2", html.text(reported.name), " ", _word(reported.told))
    subtitle = picture_subtitle(evidence, reported.receipt) if evidence is not None else ""
    # The headline begins with the verdict, which stands beside the name already.
    _, _, answer = reported.told.headline.partition(": ")
    parts = [
        heading,
        html.lines("p", [visible(answer, _LONG)], class_="headline"),
        html.lines("p", [subtitle], class_="muted"),
        html.lines("p", reported.warnings, class_="warning", role="alert"),
        _reasons(reported),
        *_titled("Signals", _signals(reported)),
        *_titled("Where it went", _costs(reported)),
        *_titled("Where the time goes", _flame(reported, number)),
        *_titled(BRICKS, bricks_section(reported.bricks) if reported.bricks else ""),
        _more("Metrics", _metrics(evidence)),
        _more(OWN_WORD, _own_word(evidence)),
        _more("How sure", html.lines("p", _sureness(reported))),
        _more("What ran, and on what", _what_ran(evidence)),
        _more("What to do next", _next(reported)),
    ]
    return html.element(
        "article", *parts, class_="workload", id=f"workload-{number}", data_verdict=verdict.verdict
    )


def _titled(title: str, body: str) -> list[str]:
    return [html.lines("h3", [title]), body] if body else []


def _more(title: str, body: str) -> str:
    if not body:
        return ""
    return html.element("details", html.lines("summary", [title]), body)


def _reasons(reported: Reported) -> str:
    told = [
        html.element("li", html.lines("code", [each.code]), " ", html.text(each.message, _LONG))
        for each in reported.told.verdict.reasons
    ]
    return html.element("ul", *told, class_="reasons")


def _signals(reported: Reported) -> str:
    rows = [list(map(html.text, signal_cells(each))) for each in reported.told.verdict.signals]
    head = ["signal", "baseline", "now", "change", "interval", "allowed", "could have seen",
            "decision"]  # fmt: skip
    return html.table(head, rows, right=range(1, 7)) if rows else ""


def _costs(reported: Reported) -> str:
    rows = [list(map(html.text, cost_cells(each))) for each in reported.told.verdict.attribution]
    head = ["function", "before µs/token", "after µs/token", "change µs/token", "explains"]
    return html.table(head, rows, right=range(1, 5)) if rows else ""


def _flame(reported: Reported, number: int) -> str:
    return flame(reported.drawn, f"flame-{number}") if reported.drawn is not None else ""


def _metrics(evidence: Evidence | None) -> str:
    found = observed(evidence) if evidence is not None else ()
    rows = [
        [metric_title(each), metric_value(each), each.clock, text.count(each.samples),
         each.provenance]
        for each in found
    ]  # fmt: skip
    head = ["figure", "value", "clock", "samples", "provenance"]
    cells = [list(map(html.text, row)) for row in rows]
    return html.table(head, cells, right=(1, 3)) if rows else ""


def _own_word(evidence: Evidence | None) -> str:
    rows = own_rows(evidence) if evidence is not None else []
    cells = [list(map(html.text, row)) for row in rows]
    return html.table(list(HEAD), cells, right=RIGHT) if rows else ""


def _sureness(reported: Reported) -> Iterable[str]:
    verdict = reported.told.verdict
    yield f"Receipt: {verdict.grade}."
    if verdict.error_rate_basis:
        yield f"Error rates: {verdict.error_rate_basis}."
    if verdict.smallest_detectable_pct is not None:
        seen = text.percent(verdict.smallest_detectable_pct)
        yield f"The smallest change that could have been seen: {seen}."
    if verdict.pairs is not None:
        yield f"Measured in {text.plural(verdict.pairs, 'pair')} against {verdict.against}."
    elif verdict.current_processes:
        yield (
            f"Timed processes: {verdict.baseline_processes} at the baseline, "
            f"{verdict.current_processes} now."
        )


def _what_ran(evidence: Evidence | None) -> str:
    if evidence is None:
        return ""
    machine: Mapping[str, str] = {
        name.replace("_", " "): value for name, value in evidence.machine.items()
    }
    told = {"workload": " · ".join(what_ran(evidence))}
    told |= {f"engine's {name}": value for name, value in evidence.engine.items()}
    if evidence.program is not None:
        told["program"] = " · ".join(program_notes(evidence.program))
    told |= {**machine, "measured": evidence.created}
    rows = [[html.text(name), html.text(value, _LONG)] for name, value in told.items()]
    return html.table(["what", "value"], rows)


def _next(reported: Reported) -> str:
    told = {"Measure it again": reported.again, "Accept it as the baseline": reported.accept}
    return "".join(
        html.lines("p", [f"{what}:"]) + html.element("pre", html.text(command, _LONG))
        for what, command in told.items()
        if command
    )
