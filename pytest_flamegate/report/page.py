"""Reports as HTML: sections, and the page of all workloads of a run."""

from collections.abc import Sequence

from pytest_flamegate.report import html, sections, text
from pytest_flamegate.report.evidence import (
    common_note,
    machine_note,
    picture_subtitle,
    revision_note,
    speed_cells,
)
from pytest_flamegate.report.flame_html import flame, named
from pytest_flamegate.report.run_report import RunReport, run_sections, variant_sections
from pytest_flamegate.report.svg import number
from pytest_flamegate.report.text import visible
from pytest_flamegate.report.verdict import signal_cells

_LONG = 4000


def run_page(runs: Sequence[RunReport], *, title: str) -> str:
    """Return one self-contained HTML document of all workloads, the same bytes each time."""
    about = html.lines("p", [_about(runs)], class_="muted")
    header = html.element("div", html.lines("h1", [title]), about)
    body = [html.element("header", header, html.element("div", class_="theme"))]
    if runs:
        families = "".join(render_section(each, "", tag="h2") for each in variant_sections(runs))
        parts = [_overview(runs), families, *map(_workload, runs, range(1, len(runs) + 1))]
    else:
        parts = [html.lines("p", ["No workload was measured."])]
    return html.document(title, [*body, html.element("main", *parts)])


def _about(runs: Sequence[RunReport]) -> str:
    """Return the number of workloads, and their machine, revision, time and version.

    The latest runs of a directory need not be of one revision: then their number is given.
    """
    found = [run.evidence for run in runs if run.evidence is not None]
    times = sorted({evidence.created for evidence in found})
    versions = (f"flamegate {evidence.flamegate_version}" for evidence in found)
    notes = [
        text.plural(len(runs), "workload"),
        common_note(map(machine_note, found), "different machines"),
        common_note((revision_note(each.commit) for each in found), "different revisions"),
        " to ".join(dict.fromkeys(times[:1] + times[-1:])),
        common_note(versions, "different versions of flamegate"),
    ]
    return " · ".join(filter(None, notes))


def _overview(runs: Sequence[RunReport]) -> str:
    rows = []
    for index, run in enumerate(runs, 1):
        rate = run.verdict.signal() if run.verdict is not None else None
        change, interval = (sections.NONE,) * 2 if rate is None else signal_cells(rate)[2:4]
        name = html.element("a", html.text(run.name), href=f"#workload-{index}")
        cells = (change, *speed_cells(run.receipt, run.evidence, run.verdict), interval, run.grade)
        rows.append([name, _chip(run), *map(html.text, cells)])
    # The change comes early, so that a narrow page shows it without scrolling.
    head = ["workload", "verdict", "change", "quiet clock (gated)", "wall tokens/s (not gated)",
            "interval", "receipt"]  # fmt: skip
    return html.table(head, rows, right=range(2, 6), class_="overview")


def _chip(run: RunReport) -> str:
    return html.element("span", html.text(run.word), class_=f"verdict {run.tone}")


def _workload(run: RunReport, index: int) -> str:
    subtitle = picture_subtitle(run.evidence, run.receipt) if run.evidence is not None else ""
    # The headline begins with the verdict, which is next to the name already.
    answer = run.headline.partition(": ")[2]
    return html.element(
        "article",
        html.element("h2", html.text(run.name), " ", _chip(run)),
        html.lines("p", [visible(answer, _LONG)], class_="headline"),
        html.lines("p", [subtitle], class_="muted"),
        html.lines("p", run.warnings, class_="warning", role="alert"),
        *(render_section(section, f"flame-{index}") for section in run_sections(run)),
        class_="workload",
        id=f"workload-{index}",
        data_verdict=run.word.replace(" ", "_"),
    )


def render_section(section: sections.Section, flame_name: str, *, tag: str = "h3") -> str:
    """Return a section; ``flame_name`` names its flame graph on the page."""
    body = "".join(_block(content, flame_name) for content in section.blocks)
    if section.folded:
        return html.element("details", html.lines("summary", [section.title]), body)
    return html.lines(tag, [section.title]) + body if body else ""


def _block(content: sections.Block, flame_name: str) -> str:
    match content:
        case sections.Paragraph(line=line, muted=muted):
            return html.element("p", _line(line), **({"class_": "muted"} if muted else {}))
        case sections.Items(lines=lines):
            return html.element("ul", *(html.element("li", _line(line)) for line in lines))
        case sections.Table(head=head, rows=rows, right=right, kind=kind):
            attributes = {"class_": kind} if kind else {}
            return html.table(head, [list(map(_cell, row)) for row in rows], right=right,
                              **attributes)  # fmt: skip
        case sections.Listing(text=lines, summary=summary):
            shown = html.element("pre", "\n".join(html.text(line, _LONG) for line in
                                                  lines.split("\n")))  # fmt: skip
            if not summary:
                return shown
            return html.element("details", html.lines("summary", [summary]), shown)
        case sections.Picture(drawn=drawn, markup=markup):
            return flame(drawn, flame_name) if drawn is not None else markup


def _line(line: sections.Line) -> str:
    return sections.join_line(
        line,
        lambda part: html.text(part, _LONG),
        lambda name: html.element("code", html.text(name)),
    )


def _cell(cell: sections.Cell) -> str:
    match cell:
        case sections.Code(text=name, tone=tone):
            return named(name, tone) if tone else html.element("code", html.text(name))
        case sections.Share(value=value, tone=tone):
            return html.text(text.share(value)) + _bar(value, tone)
        case str():
            return html.text(cell, _LONG)


def _bar(share: float, tone: str) -> str:
    """Return a bar as long as a share; the figure is next to it, so it is not read aloud."""
    drawn = html.element(
        "rect", width=number(100 * min(max(share, 0.0), 1.0)), height="10", class_=tone
    )
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f"{drawn}</svg>"
    )
