"""Which lines a change really replaced: less than git's diff says.

A comment, a renamed variable or a moved function makes no line slower. Lines that differ in nothing
else are matched with each other, so that a cost in them is compared with their own cost before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import NamedTuple

from msgspec import Struct

from pytest_flamegate.core.git import FileChange
from pytest_flamegate.profile.model import SourceLine

_WORDS = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[A-Za-z_]\w*|[\d.]\w*|[^\s\w]"""
_PLAIN = re.compile(_WORDS)
_HASHED = re.compile(rf"#.*|{_WORDS}")
_SLASHED = re.compile(rf"//.*|/\*.*?\*/|{_WORDS}")
_INDENTED = (".mojo", ".pxd", ".pxi", ".py", ".pyi", ".pyx")
"""Files whose indentation is part of the code, and whose comments begin with ``#``."""
_NO_SLASHES = re.compile(r".*\.(?:ex|exs|f|f\d\d|hs|jl|lua|ml|nim|pl|r|rb|sh|sql)", re.IGNORECASE)
"""Files in which ``//`` begins no comment. Their comments count as code."""
_NO_TYPES = re.compile(
    r"and|assert|await|case|catch|co_await|co_return|co_yield|default|defer|del|do|elif|else|elsif"
    r"|except|exec|from|go|if|import|in|is|match|new|not|or|print|raise|range|return|select|sizeof"
    r"|switch|then|throw|try|typeof|unless|until|when|while|with|yield"
)
"""Words before a name that is used; any other word before a name declares it."""
_NAMES = frozenset({"match", "range", "select"})
"""Those that name a variable in most languages."""
_TYPES = re.compile(r"char|double|float|int|long|short|signed|unsigned|void|\w+_t")
"""Words before a star that declares a pointer, and multiplies nothing."""
_LOOPS = frozenset({"for", "while", "loop", "do"})
_EXITS = frozenset({"break", "return", "continue", "goto"})
_LONGEST = 1000
"""Characters of a line; a longer one was generated, and is compared as a whole."""
_MOST_PAIRS = 4_000_000
"""Lines of both sides that are compared, multiplied, over all pieces: some seconds at most."""
_MOST_PAIRS_OF_PIECE = 250_000
"""The same of one piece: lines that repeat take time by the third power of their number."""
_MOST_MOVES = 256
_FEWEST_MOVED = 3
_LONGEST_BLOCK = 200

_Tokens = tuple[str, ...]


class Place(Struct, frozen=True, order=True):
    """Lines of a file of the head, or one; ``is_changed`` if the change replaced them."""

    file: str
    first: int
    last: int
    is_changed: bool

    def __str__(self) -> str:
        lines = f"{self.first}" if self.last <= self.first else f"{self.first}-{self.last}"
        return f"{self.file}:{lines}"


def changed_place(file: str, first: int, count: int) -> Place:
    """Return the place of ``count`` changed lines; of none: the line before them."""
    return Place(file, max(first, 1), first + max(count, 1) - 1, is_changed=True)


def unchanged_place(file: str, line: int) -> Place:
    """Return the place of one line that the change did not replace."""
    return Place(file, line, line, is_changed=False)


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines of one side that follow each other: the file, the first one's number, the tokens."""

    file: str
    first: int
    tokens: Sequence[_Tokens]

    def __iter__(self) -> Iterator[SourceLine]:
        return (SourceLine(self.file, self.first + index) for index in range(len(self.tokens)))

    @property
    def code(self) -> list[_Tokens]:
        """The tokens of the lines that hold more than a comment."""
        return [each for each in self.tokens if each]

    def part(self, start: int, end: int) -> _Lines:
        """Return the lines from index ``start`` up to ``end``."""
        return _Lines(self.file, self.first + start, self.tokens[start:end])

    def with_names(self, names: Mapping[str, str]) -> _Lines:
        """Return the lines with new names by old ones."""
        tokens = [tuple(names.get(word, word) for word in each) for each in self.tokens]
        return replace(self, tokens=tokens)

    def trim(self) -> _Lines:
        """Return the lines without those before and behind that hold no code."""
        code = [index for index, each in enumerate(self.tokens) if each]
        return self.part(code[0], code[-1] + 1) if code else self.part(0, 0)

    def trim_indentation(self) -> _Lines:
        """Return the lines as they compare in another function or class."""
        bare = [each[1:] if each and each[0][0] == " " else each for each in self.tokens]
        return replace(self, tokens=bare).trim()


class _Piece(NamedTuple):
    """Lines of the base that lines of the head took the place of."""

    base: _Lines
    head: _Lines


@dataclass(frozen=True, slots=True)
class LineMap:
    """Where the lines of both sides are in the head.

    Attributes:
        base: The places of lines of the base that git reports as replaced.
        head: The same of the head.
        blocks: The lines of a loop by the changed place that says how often it runs: its header,
            or an exit that is gone.
    """

    by_base: Mapping[str, FileChange]
    by_head: Mapping[str, FileChange]
    base: dict[SourceLine, Place] = field(default_factory=dict)
    head: dict[SourceLine, Place] = field(default_factory=dict)
    blocks: dict[Place, tuple[int, int]] = field(default_factory=dict)

    def base_place(self, line: SourceLine) -> Place:
        """Return the place in the head of a line of the base."""
        if (place := self.base.get(line)) is not None:
            return place
        change = self.by_base.get(line.file)
        return unchanged_place(*line) if change is None else _shift(change, line.line)

    def head_place(self, line: SourceLine) -> Place:
        """Return the place of a line of the head."""
        if (place := self.head.get(line)) is not None:
            return place
        change = self.by_head.get(line.file)
        for hunk in change.hunks if change is not None else ():
            if hunk.head_start <= line.line < hunk.head_start + hunk.head_count:
                return changed_place(line.file, hunk.head_start, hunk.head_count)
        return unchanged_place(*line)


def _shift(change: FileChange, line: int) -> Place:
    file, moved = change.head_file or change.base_file, 0
    for hunk in change.hunks:
        if hunk.base_count and hunk.base_start <= line < hunk.base_start + hunk.base_count:
            return changed_place(file, hunk.head_start, hunk.head_count)
        if line >= hunk.base_start + max(hunk.base_count, 1):
            moved += hunk.head_count - hunk.base_count
    return unchanged_place(file, line + moved)


def map_lines(changes: Sequence[FileChange]) -> LineMap:
    """Return where the lines of both sides are in the head, whose changes ``changes`` are."""
    lines = LineMap(
        {change.base_file: change for change in changes if change.base_file},
        {change.head_file: change for change in changes if change.head_file},
    )
    pieces = _read_pieces(changes)
    most = min(_MOST_PAIRS // max(len(pieces), 1), _MOST_PAIRS_OF_PIECE)
    left = [part for piece in pieces for part in _compare(piece, lines, most)]
    left += [part for piece in _pair_moves(left) for part in _compare(piece, lines, most)]
    places = {*lines.base.values(), *lines.head.values()}
    for piece in left:
        place = _find_place(piece)
        if place in places and (block := _find_loop(piece, place, lines)):
            lines.blocks[place] = block
    return lines


def _compare(piece: _Piece, lines: LineMap, most: int) -> list[_Piece]:
    """Enter the places of a piece's lines into ``lines``; return the parts that differ."""
    base, head = piece
    if len(base.tokens) * len(head.tokens) > most:
        return [piece]  # its lines are in the hunk as a whole
    differing = []
    matcher = SequenceMatcher(None, base.tokens, head.tokens, autojunk=False)
    for kind, b1, b2, h1, h2 in matcher.get_opcodes():
        part = _Piece(base.part(b1, b2), head.part(h1, h2))
        if kind == "equal":
            places = [unchanged_place(*line) for line in part.head]
            lines.base.update(zip(part.base, places, strict=True))
        else:
            place = _find_place(part)
            places = [place] * (h2 - h1)
            lines.base.update(dict.fromkeys(part.base, place))
            differing.append(part)
        lines.head.update(zip(part.head, places, strict=True))
    return differing


def _find_place(piece: _Piece) -> Place:
    """Return the place of a piece that differs, without comments before and behind."""
    head = piece.head.trim()
    count = len(head.tokens)
    return changed_place(head.file or piece.base.file, head.first - (count == 0), count)


# --- pieces --------------------------------------------------------------------------------


def _tokenize(line: str, file: str) -> _Tokens:
    """Return the tokens of a line without its comment; none if nothing else is in it."""
    if len(line) > _LONGEST:
        return tuple(filter(None, [line.strip()]))
    is_indented = file.endswith(_INDENTED)
    pattern, comment = _PLAIN, tuple[str, ...]()
    if is_indented:
        pattern, comment = _HASHED, ("#",)
    elif not _NO_SLASHES.fullmatch(file):
        pattern, comment = _SLASHED, ("//", "/*")
    tokens = tuple(each for each in pattern.findall(line) if not each.startswith(comment))
    if tokens and is_indented:
        return (f" {len(line) - len(line.lstrip())}", *tokens)
    return tokens


def _read_pieces(changes: Sequence[FileChange]) -> list[_Piece]:
    """Return the hunks whose text is known, with renamed variables as they are called now."""
    pieces = [[*_read_hunks(change)] for change in changes]
    renames = [_find_renames(each) for each in pieces]
    functions = {old: new for each in renames for old, new in each.functions.items()}
    return [
        _Piece(base.with_names(functions | each.variables), head)
        for each, found in zip(renames, pieces, strict=True)
        for base, head in found
    ]


def _read_hunks(change: FileChange) -> Iterator[_Piece]:
    for hunk in change.hunks:
        base = range(hunk.base_start, hunk.base_start + hunk.base_count)
        old = [
            _tokenize(change.base_lines[line], change.base_file)
            for line in base
            if line in change.base_lines
        ]
        first = hunk.head_start + (not hunk.head_count)
        text = change.head_lines[first - 1 : first - 1 + hunk.head_count]
        new = [_tokenize(line, change.head_file) for line in text]
        # Of a file that git does not track, the hunk does not say how many lines it has.
        is_whole = len(new) == hunk.head_count or (new and not change.base_file)
        if len(old) == hunk.base_count and is_whole:
            removed = _Lines(change.base_file, hunk.base_start + (not hunk.base_count), old)
            yield _Piece(removed, _Lines(change.head_file, first, new))


class _Renames(NamedTuple):
    """New names by old ones: of variables in one file, and of functions in all."""

    variables: dict[str, str]
    functions: dict[str, str]


def _is_declaration(tokens: _Tokens, index: int) -> bool:
    """Whether a name is given here: ``float x``, ``x = 1``, ``for x``, ``def f(x)``, ``def f``."""
    before = tokens[index - 1] if index else " "
    behind = tokens[index + 1 : index + 3]
    if before[0] == " ":  # the statement begins here
        return behind[:1] == ("=",) and behind[1:] != ("=",)
    if behind and (behind[0] in "*&<" or _is_name(behind[0])):
        return False  # a type
    if before == "*":
        *_, earlier, word = (" ", " ", *tokens[: index - 1])
        is_first = earlier[0] in " (,;" or _is_name(earlier)
        return is_first and (_TYPES.fullmatch(word) is not None or "const" in (earlier, word))
    if before in ("(", ","):
        return any(word in ("def", "fn") for word in tokens[:3])
    return _is_name(before) and before not in _NAMES


def _is_name(token: str) -> bool:
    return token.isidentifier() and (token in _NAMES or not _NO_TYPES.fullmatch(token))


def _find_renames(pieces: Sequence[_Piece]) -> _Renames:
    """Return the names that were replaced where they are given."""
    renames = _Renames({}, {})
    for piece in pieces:
        base, head = piece.base.code, piece.head.code
        # Lines that were added or removed have no counterpart.
        for old, new in zip(base, head, strict=True) if len(base) == len(head) else ():
            pairs = list(zip(old, new, strict=False))
            differing = [index for index, (one, other) in enumerate(pairs) if one != other]
            if all(_is_name(each) for index in differing for each in pairs[index]):
                for index in filter(lambda index: _is_declaration(old, index), differing):
                    is_function = old[index + 1 : index + 2] == ("(",)
                    names = renames.functions if is_function else renames.variables
                    names[old[index]] = new[index]
    return renames


# --- moved functions -----------------------------------------------------------------------


def _pair_moves(pieces: Sequence[_Piece]) -> Iterator[_Piece]:
    """Yield removed lines next to those added elsewhere that are mostly the same."""
    removed, added = list[_Lines](), list[_Lines]()
    for base, head in pieces:
        if len(base.code) >= _FEWEST_MOVED > len(head.code):
            removed.append(base.trim_indentation())
        elif len(head.code) >= _FEWEST_MOVED > len(base.code):
            added.append(head.trim_indentation())
    if len(removed) * len(added) > _MOST_MOVES:
        return
    alike = [
        ((Counter(base.code) & Counter(head.code)).total(), b, h)
        for b, base in enumerate(removed)
        for h, head in enumerate(added)
    ]
    taken = set[int]()
    for same, b, h in sorted(alike, reverse=True):
        base, head = removed[b], added[h]
        smaller = min(len(base.code), len(head.code))
        if same >= max(_FEWEST_MOVED, smaller / 2) and b not in taken and ~h not in taken:
            taken |= {b, ~h}
            yield _Piece(base, head)


# --- loops ---------------------------------------------------------------------------------


def _find_loop(piece: _Piece, place: Place, lines: LineMap) -> tuple[int, int] | None:
    """Return the lines of the loop whose header changed, or that lost an exit; None without one."""
    text = lines.by_head[place.file].head_lines if place.file in lines.by_head else ()
    if piece.head.code:
        last = _end_of_block(text, place.last)
        is_header = not _LOOPS.isdisjoint(piece.head.code[-1])
        return (place.first, last) if is_header and last > place.last else None
    if _EXITS.isdisjoint(word for tokens in piece.base.tokens for word in tokens):
        return None
    gone = lines.by_base[piece.base.file].base_lines[piece.base.first]
    header = _find_header(text, place.last, _indentation(gone), place.file)
    return (header, _end_of_block(text, header)) if header else None


def _find_header(text: Sequence[str], before: int, indentation: int, file: str) -> int:
    """Return the header of the innermost loop around a line that is gone; 0 without one."""
    for number in range(min(before, len(text)), max(before - _LONGEST_BLOCK, 0), -1):
        line = text[number - 1]
        if line.strip() and _indentation(line) < indentation:
            indentation = _indentation(line)
            if not _LOOPS.isdisjoint(_tokenize(line, file)):
                return number
    return 0


def _end_of_block(lines: Sequence[str], header: int) -> int:
    """Return the last line that is indented more than the line ``header``."""
    last = header
    for number in range(header + 1, min(len(lines), header + _LONGEST_BLOCK) + 1):
        code = lines[number - 1].strip()
        if code and _indentation(lines[number - 1]) > _indentation(lines[header - 1]):
            last = number
        elif code not in ("", "{"):
            break
    return last


def _indentation(line: str) -> int:
    expanded = line.expandtabs(8)
    return len(expanded) - len(expanded.lstrip())
