"""The model of every report: sections of sentences, tables and pictures, as plain data.

The sections of a run are made once (``verdict``, ``evidence``, ``hotspots``, ``bricks``,
``run_report``) and rendered three times: as text (``terminal``), as Markdown (``markdown``) and as
HTML (``page``). Strings are foreign text until a renderer has escaped them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_flamegate.gate.verdict import Tone
from pytest_flamegate.report import text
from pytest_flamegate.report.flame import Drawn

NONE = "–"
"""A cell without a value."""


@dataclass(frozen=True, slots=True)
class Code:
    """A name or a value in a fixed-width font.

    On a page ``tone`` is the class of its colour, and ``target`` the id of what it links to.
    """

    text: str
    tone: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, 0 to 1. On a page a bar of that length and colour is next to it."""

    value: float
    tone: str


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict in a word or two."""

    text: str
    tone: Tone


Cell = str | Code | Share | Badge
Line = str | tuple[str | Code, ...]
"""A sentence, in parts if it holds names."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One sentence or a few. A muted one explains the figures and is none of the answer."""

    line: Line
    muted: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a head; the columns numbered in ``right`` hold figures.

    ``kind`` is the class of the table on a page.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    right: Sequence[int] = ()
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines as they are, such as a command to copy; ``language`` colours them in Markdown.

    ``summary`` names a long listing, which a page folds under it.
    """

    text: str
    language: str = "text"
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: a file next to a Markdown page, or data that a page draws itself."""

    title: str
    path: str = ""
    drawn: Drawn | None = None
    markup: str = ""
    """A finished picture as SVG; it is this package's own and is not escaped."""


Block = Paragraph | Items | Table | Listing | Picture


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a report. Pages fold sections that are seldom read."""

    title: str
    blocks: tuple[Block, ...]
    folded: bool = False


def make_section(title: str, blocks: Iterable[Block | None], *, folded: bool = False) -> Section:
    """Return a section of those of ``blocks`` that have content."""
    content = ("line", "lines", "rows", "text", "path", "drawn", "markup")
    filled = (each for each in blocks if any(getattr(each, name, None) for name in content))
    return Section(title, tuple(each for each in filled if each is not None), folded)


def table_of_facts(facts: Iterable[tuple[str, Cell]]) -> Table:
    """Return a table of names and values, without those that have no value."""
    return Table(("fact", "value"), [(name, value) for name, value in facts if value])


def cell_text(cell: Cell) -> str:
    """Return a cell as bare text."""
    if isinstance(cell, Share):
        return text.share(cell.value)
    return cell if isinstance(cell, str) else cell.text


def join_line(line: Line, plain: Callable[[str], str], code: Callable[[str], str]) -> str:
    """Return a line whose parts went through ``plain``, and its names through ``code``."""
    parts = (line,) if isinstance(line, str) else line
    return "".join(code(each.text) if isinstance(each, Code) else plain(each) for each in parts)


def list_names(names: Sequence[str]) -> list[str | Code]:
    """Return names as the parts of a line: ``a``, ``b`` and ``c``."""
    parts: list[str | Code] = []
    for index, name in enumerate(names):
        if index:
            parts.append(" and " if index == len(names) - 1 else ", ")
        parts.append(Code(name))
    return parts


def list_sentences(block: Block) -> list[str]:
    """Return the sentences of a paragraph or a list as bare text; none for any other block."""
    lines = block.lines if isinstance(block, Items) else ()
    lines = (block.line,) if isinstance(block, Paragraph) else lines
    return [join_line(line, str, str) for line in lines]
