"""The source around the hottest and the changed lines, with the cost of each, as text and HTML.

A terminal and a narrow page show a unified diff, a wide page base and head next to each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pytest_flamegate.report import markup, text
from pytest_flamegate.report.sections import Paragraph, Picture, Section, make_section
from pytest_flamegate.report.text import clip, visible

_LONG = 400
"""Characters of a line that are shown."""
_TAB = 4
_HEAT_STEPS = 9
_LEAST_HEAT = 0.005
_GAP = "    ⋮"
_CALLEES = "self includes calls into libraries, total all calls"


@dataclass(frozen=True, slots=True)
class SourceCell:
    """A line of one side. ``own`` and ``total`` are shares of that side's samples, 0 to 1.

    ``own`` has in it what the line calls outside of the project, ``total`` all that it calls.
    """

    number: int
    text: str
    own: float = 0.0
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class SourceRow:
    """The same line on both sides, or lines that the change replaced; one side may be None."""

    base: SourceCell | None
    head: SourceCell | None
    is_changed: bool = False


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Rows that follow each other; ``functions`` are those of the profile that they belong to."""

    rows: tuple[SourceRow, ...]
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The excerpts of a file; ``notes`` are sentences on why there are none, or what to know."""

    path: str
    excerpts: tuple[Excerpt, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def indent(self) -> int:
        """How many spaces all lines of its excerpts begin with.

        It is one for the whole file, so that a method does not look like a function.
        """
        rows = [row for excerpt in self.excerpts for row in excerpt.rows]
        cells = [cell for row in rows for cell in (row.base, row.head) if cell is not None]
        texts = [cell.text.expandtabs(_TAB) for cell in cells if cell.text.strip()]
        return min((len(each) - len(each.lstrip()) for each in texts), default=0)


@dataclass(frozen=True, slots=True)
class SideCost:
    """A side's name, and the CPU time of one token in seconds, None if it is not known."""

    name: str
    s_per_token: float | None

    def figure(self, share: float) -> str:
        """Return what a share of the samples costs in µs per token; empty for nothing."""
        if not share:
            return ""
        if self.s_per_token is None:
            return text.share(share)
        return text.micros(share * self.s_per_token)

    def own_figure(self, cell: SourceCell | None) -> str:
        """Return the own cost of a line; empty for nothing, and if the side has no such line."""
        return self.figure(cell.own) if cell is not None else ""


@dataclass(frozen=True, slots=True)
class SourceView:
    """The sources of a run, the costliest file first; ``base`` is None without another side."""

    files: tuple[SourceFile, ...]
    head: SideCost
    base: SideCost | None = None
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What the figures are of."""
        sides = [side.name for side in (self.base, self.head) if side is not None and side.name]
        unit = "share of the samples" if self.head.s_per_token is None else "µs/token"
        return " · ".join([" → ".join(sides) or "this run", unit])


# Text


def source_lines(view: SourceView, width: int) -> list[str]:
    """Return the excerpts as lines, a unified diff if there is a base.

    Lines of the source have at most ``width`` columns, sentences may have more.
    """
    lines = [visible(view.title), _CALLEES]
    lines += [visible(note, 1000) for note in view.notes]
    for file in view.files:
        lines += ["", visible(file.path), *(f"  {visible(note, 1000)}" for note in file.notes)]
        if file.excerpts:
            before = f"{'self before':>11} → {'after':>7}" if view.base else f"{'self':>9}"
            lines.append(f"{before} {'share':>7} {'total':>7}   {'line':>4}")
        for index, excerpt in enumerate(file.excerpts):
            lines += [_GAP] if index else []
            rows = _draw_rows(view, excerpt.rows, file.indent)
            lines += [clip(line, width).rstrip() for line in rows]
    return lines


def _draw_rows(view: SourceView, rows: Sequence[SourceRow], indent: int) -> Iterator[str]:
    for row in _unify(rows):
        side, cell, mark = view.head, row.head, "+"
        if cell is None:
            assert view.base is not None  # a row has one of its sides
            assert row.base is not None
            side, cell, mark = view.base, row.base, "-"
        own = f"{side.figure(cell.own):>9}"
        if view.base is not None:
            before, after = view.base.own_figure(row.base), view.head.own_figure(row.head)
            own = f"{before or '0':>11} → {after or '0':>7}" if before or after else " " * 21
        share = text.share(cell.own) if cell.own else ""
        mark = mark if row.is_changed else " "
        code = _shown_text(cell, indent)
        yield f"{own} {share:>7} {side.figure(cell.total):>7} {mark} {cell.number:>4} {code}"


def _unify(rows: Sequence[SourceRow]) -> Iterator[SourceRow]:
    """Yield the rows of one side each if they changed: those of the base first."""
    for is_changed, block in groupby(rows, key=lambda row: row.is_changed):
        found = list(block)
        if not is_changed:
            yield from found
            continue
        yield from (SourceRow(row.base, None, True) for row in found if row.base is not None)
        yield from (SourceRow(None, row.head, True) for row in found if row.head is not None)


def _shown_text(cell: SourceCell, indent: int) -> str:
    return visible(cell.text.expandtabs(_TAB)[indent:], _LONG)


# HTML


def source_section(view: SourceView | None, name: str) -> Section:
    """Return the excerpts for a page, base and head next to each other."""
    if view is None:
        return Section("Source", ())
    files = "".join(_draw_file(view, file) for file in view.files)
    own = "Self is" if view.base is None else "Before and after are"
    about = f"{view.title}. {own} the cost of the line; {_CALLEES}."
    return make_section(
        "Source",
        [
            *(Paragraph(note) for note in view.notes),
            Paragraph(about, muted=True),
            Picture(f"Source of {name}", markup=files),
        ],
    )


def _draw_file(view: SourceView, file: SourceFile) -> str:
    parts = [markup.lines("h4", [file.path]), markup.lines("p", file.notes, class_="muted")]
    own = "self" if view.base is None else "after"
    sides = [(view.base, "base", "before"), (view.head, "head", own)]
    heads = [
        markup.element("th", markup.xml_text(word), class_=f"{role} {kind}", scope="col")
        for side, role, own in sides
        if side is not None
        for word, kind in ((own, "own"), ("total", "total"), ("", "no"), (side.name, "code"))
    ]
    for excerpt in file.excerpts:
        rows = "".join(_draw_row(view, row, file.indent) for row in excerpt.rows)
        body = markup.element("thead", markup.element("tr", *heads)) + markup.element("tbody", rows)
        # The name of a frame holds no ";".
        functions = ";".join(excerpt.functions)
        parts.append(markup.element("table", body, class_="source", data_functions=functions))
    return "".join(parts)


def _draw_row(view: SourceView, row: SourceRow, indent: int) -> str:
    kind, *marks = ("changed", "−", "+") if row.is_changed else ("same", "", "")
    sides = ((view.base, row.base, "base"), (view.head, row.head, "head"))
    cells = [
        _draw_cells(side, cell, role, mark, indent)
        for (side, cell, role), mark in zip(sides, marks, strict=True)
        if side is not None
    ]
    return markup.element("tr", *cells, class_=kind)


def _draw_cells(side: SideCost, cell: SourceCell | None, role: str, mark: str, indent: int) -> str:
    """Return the four cells of one side; an empty one for a line that it does not have."""
    if cell is None:
        return markup.element("td", class_=f"{role} none", colspan="4")
    heat = f" heat{max(round(_HEAT_STEPS * cell.own), 1)}" if cell.own >= _LEAST_HEAT else ""
    about = {"title": f"{text.share(cell.own)} of the samples"} if cell.own else {}
    code = markup.xml_text(_shown_text(cell, indent), _LONG + 50)
    return "".join(
        [
            markup.element("td", side.figure(cell.own), class_=f"{role} own{heat}", **about),
            markup.element("td", side.figure(cell.total), class_=f"{role} total"),
            markup.element("td", f"{mark}{cell.number}", class_=f"{role} no"),
            markup.element("td", code, class_=f"{role} code"),
        ]
    )
