"""Reports as HTML: sections, and whole pages that load nothing.

A page's security policy admits its own script and style by their hashes and nothing more: no
network, no inline handler, no style attribute.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache

from pytest_flamegate.report import markup, sections, text
from pytest_flamegate.report.difference import SHADES
from pytest_flamegate.report.evidence import machine_note, picture_subtitle, revision_note
from pytest_flamegate.report.flame import Drawn, shades
from pytest_flamegate.report.flame_html import flame, named
from pytest_flamegate.report.markup import Shade, number
from pytest_flamegate.report.run_report import (
    RunReport,
    run_sections,
    summary_section,
    variant_sections,
)
from pytest_flamegate.report.text import read_asset, visible

_LONG = 4000


def run_page(runs: Sequence[RunReport], *, title: str) -> str:
    """Return one self-contained HTML document of all workloads, the same bytes each time."""
    about_all = (summary_section(runs), *variant_sections(runs))
    parts = [render_section(each, "", tag="h2") for each in about_all]
    parts += map(_workload, runs, range(1, len(runs) + 1))
    return _page(title, title, _about(runs), parts)


def flamegraph_html(drawn: Drawn, *, subtitle: str, answer: str = "") -> str:
    """Return the page of one flame graph, below the ``answer`` of the gate if there is one.

    Raises as ``colour_hotspots`` does.
    """
    parts = [markup.lines("p", [visible(answer, _LONG)], class_="headline")] if answer else []
    parts.append(flame(drawn, "flame-1"))
    return _page(f"{drawn.title} · flame graph", drawn.title, subtitle, parts)


def _page(title: str, heading: str, about: str, parts: Iterable[str]) -> str:
    """Return a whole page: a heading, a line about it, then ``parts``, which are markup."""
    policy = (
        f"default-src 'none'; script-src {_hash(script())}; style-src {_hash(style())}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    top = markup.lines("h1", [heading]) + markup.lines("p", [about], class_="muted")
    theme = markup.element("div", class_="theme")
    # The icon is empty, so that no browser asks for one.
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{markup.xml_text(title)}</title>
<style>{style()}</style>
</head>
<body>
{markup.element("header", markup.element("div", top), theme)}
{markup.element("main", *parts)}
<script>{script()}</script>
</body>
</html>
"""


def _about(runs: Sequence[RunReport]) -> str:
    """Return the number of workloads, and their machine, revision, time and version.

    The latest runs of a directory need not be of one revision: then their number is given.
    """
    found = [run.evidence for run in runs if run.evidence is not None]
    times = sorted({evidence.created for evidence in found})
    versions = (f"flamegate {evidence.flamegate_version}" for evidence in found)
    notes = [
        text.plural(len(runs), "workload"),
        _common_note(map(machine_note, found), "different machines"),
        _common_note((revision_note(each.commit) for each in found), "different revisions"),
        " to ".join(dict.fromkeys(times[:1] + times[-1:])),
        _common_note(versions, "different versions of flamegate"),
    ]
    return " · ".join(filter(None, notes))


def _common_note(notes: Iterable[str], several: str) -> str:
    """Return the note that all runs share, or how many different ones there are."""
    different = dict.fromkeys(notes)
    return next(iter(different), "") if len(different) < 2 else f"{len(different)} {several}"


def _workload(run: RunReport, index: int) -> str:
    subtitle = picture_subtitle(run.evidence, run.receipt) if run.evidence is not None else ""
    badge = sections.Badge(run.word, run.tone)
    # The headline begins with the verdict, which is next to the name already.
    answer = run.headline.partition(": ")[2]
    return markup.element(
        "article",
        markup.element("h2", markup.xml_text(run.name), " ", _cell(badge)),
        markup.lines("p", [visible(answer, _LONG)], class_="headline"),
        markup.lines("p", [subtitle], class_="muted"),
        markup.lines("p", run.warnings, class_="warning", role="alert"),
        *(render_section(section, f"flame-{index}") for section in run_sections(run)),
        class_="workload",
        id=f"workload-{index}",
        data_verdict=run.word.replace(" ", "_"),
    )


def render_section(section: sections.Section, flame_name: str, *, tag: str = "h3") -> str:
    """Return a section; ``flame_name`` names its flame graph on the page."""
    body = "".join(_block(content, flame_name) for content in section.blocks)
    if section.folded:
        return markup.element("details", markup.lines("summary", [section.title]), body)
    return markup.lines(tag, [section.title]) + body if body else ""


def _block(content: sections.Block, flame_name: str) -> str:
    match content:
        case sections.Paragraph(line=line, muted=muted):
            return markup.element("p", _line(line), **({"class_": "muted"} if muted else {}))
        case sections.Items(lines=lines):
            return markup.element("ul", *(markup.element("li", _line(line)) for line in lines))
        case sections.Table(head=head, rows=rows, right=right, kind=kind):
            attributes = {"class_": kind} if kind else {}
            return markup.table(head, [list(map(_cell, row)) for row in rows], right=right,
                              **attributes)  # fmt: skip
        case sections.Listing(text=lines, summary=summary):
            shown = markup.element("pre", "\n".join(markup.xml_text(line, _LONG) for line in
                                                  lines.split("\n")))  # fmt: skip
            if not summary:
                return shown
            return markup.element("details", markup.lines("summary", [summary]), shown)
        case sections.Picture(drawn=drawn, markup=finished):
            return flame(drawn, flame_name) if drawn is not None else finished


def _line(line: sections.Line) -> str:
    return sections.join_line(
        line,
        lambda part: markup.xml_text(part, _LONG),
        lambda name: markup.element("code", markup.xml_text(name)),
    )


def _cell(cell: sections.Cell) -> str:
    match cell:
        case sections.Code(text=name, tone=tone, target=target):
            shown = named(name, tone) if tone else markup.element("code", markup.xml_text(name))
            return markup.element("a", shown, href=f"#{target}") if target else shown
        case sections.Badge(text=word, tone=tone):
            return markup.element("span", markup.xml_text(word), class_=f"verdict {tone}")
        case sections.Share(value=value, tone=tone):
            return markup.xml_text(text.share(value)) + _bar(value, tone)
        case str():
            return markup.xml_text(cell, _LONG)


def _bar(share: float, tone: str) -> str:
    """Return a bar as long as a share; the figure is next to it, so it is not read aloud."""
    drawn = markup.element(
        "rect", width=number(100 * min(max(share, 0.0), 1.0)), height="10", class_=tone
    )
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f"{drawn}</svg>"
    )


# Script and style


SCRIPTS = ("dom", "profile", "chart", "tip", "search", "table", "words", "flame", "page")
"""In the order in which they are joined: each uses those before it."""


@cache
def script() -> str:
    """Return all scripts as one, in a scope of its own."""
    parts = [read_asset(f"{name}.js") for name in SCRIPTS]
    return "\n".join(['(() => {\n"use strict";', *parts, "})();"])


@cache
def style() -> str:
    """Return the style sheet with the palette's colours."""
    rules = [_rule(f"tone-{name}", shade) for name, shade in shades().items()]
    rules += [_rule(f"change-{name}", shade) for name, shade in SHADES.items()]
    return "\n".join([read_asset("page.css"), read_asset("flame.css"), *rules, ""])


def _rule(name: str, shade: Shade) -> str:
    fill = f"light-dark({shade.light},{shade.dark})"
    ink = f"light-dark({shade.light_ink},{shade.dark_ink})"
    edge = f";--outline:light-dark({shade.edge[0]},{shade.edge[1]})" if shade.edge else ""
    return f".{name}{{--fill:{fill};--on-fill:{ink}{edge}}}"


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"
