"""Which lines a change really replaced: less than git's diff says.

A comment, a renamed variable, another indentation or a moved function makes no line slower. Lines
that differ in nothing else are matched with each other, so that a cost in them is compared with
their own cost before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from pytest_flamegate.core.git import FileChange, Hunk
from pytest_flamegate.profile.model import SourceLine

_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<name>[A-Za-z_]\w*)|[\d.]\w*|[^\s\w]"""
)
_BEFORE_HASH = re.compile(r"""((?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^"'#])*)#""")
_BEFORE_SLASHES = re.compile(r"""((?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^"'/]|/(?!/))*)//""")
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/")
_INDENTED = (".py", ".pyx")
"""Files whose indentation is part of the code, and whose comments begin with ``#``."""
_NO_TYPES = re.compile(
    r"and|assert|await|case|default|defer|del|do|elif|else|from|go|if|import|in|is|new|not|or|print"
    r"|raise|return|sizeof|then|throw|while|yield"
)
"""Words before a name that is used; any other word before a name declares it."""
_TYPES = re.compile(r"char|double|float|int|long|short|signed|unsigned|void|\w+_t")
"""Words before a star that declares a pointer, and multiplies nothing."""
_LOOP = re.compile(r"\b(?:for|while|loop|do)\b")
_EXIT = re.compile(r"\b(?:break|return|continue|goto)\b")
_LARGEST, _MANY, _SMALL = 250_000, 4_000_000, 10_000
"""Lines of both sides of a hunk, multiplied: the largest that is compared, and only small ones if
all hunks together are many. Comparing takes some seconds at most."""
_LONGEST = 1000
"""Characters of a line; a longer one was generated, and is compared as a whole."""
_MOST_MOVES = 16
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
class LineMap:
    """Where the lines of both sides are in the head.

    Attributes:
        blocks: The lines of a loop by the changed place that says how often it runs: its header,
            or an exit that is gone.
    """

    by_base: Mapping[str, FileChange]
    by_head: Mapping[str, FileChange]
    moved: Mapping[SourceLine, Place] = field(default_factory=dict)
    arrived: Mapping[SourceLine, Place] = field(default_factory=dict)
    blocks: Mapping[Place, tuple[int, int]] = field(default_factory=dict)

    def base_place(self, line: SourceLine) -> Place:
        """Return the place in the head of a line of the base."""
        if (place := self.moved.get(line)) is not None:
            return place
        change = self.by_base.get(line.file)
        return unchanged_place(*line) if change is None else _move(change, line.line)

    def head_place(self, line: SourceLine) -> Place:
        """Return the place of a line of the head."""
        if (place := self.arrived.get(line)) is not None:
            return place
        change = self.by_head.get(line.file)
        for hunk in change.hunks if change is not None else ():
            if hunk.head_start <= line.line < hunk.head_start + hunk.head_count:
                return changed_place(line.file, hunk.head_start, hunk.head_count)
        return unchanged_place(*line)


def _move(change: FileChange, line: int) -> Place:
    file, moved = change.head_file or change.base_file, 0
    for hunk in change.hunks:
        if hunk.base_count and hunk.base_start <= line < hunk.base_start + hunk.base_count:
            return changed_place(file, hunk.head_start, hunk.head_count)
        if line >= hunk.base_start + max(hunk.base_count, 1):
            moved += hunk.head_count - hunk.base_count
    return unchanged_place(file, line + moved)


def map_lines(changes: Sequence[FileChange]) -> LineMap:
    """Return where the lines of both sides are in the head, whose changes ``changes`` are."""
    renames = [_find_renames(change) for change in changes]
    functions = {old: new for each in renames for old, new in each.functions.items()}
    compared = sum(hunk.base_count * hunk.head_count for each in changes for hunk in each.hunks)
    largest = _LARGEST if compared <= _MANY else _SMALL
    refined = [
        _refine(change, functions | each.variables, largest)
        for change, each in zip(changes, renames, strict=True)
    ]
    moved: dict[SourceLine, Place] = {}
    arrived: dict[SourceLine, Place] = {}
    for base, head in _pair_moves(refined):
        _match_moved(base, head, moved, arrived)
    return LineMap(
        {change.base_file: change for change in refined if change.base_file},
        {change.head_file: change for change in refined if change.head_file},
        moved,
        arrived,
        dict(block for change in refined for block in _find_blocks(change)),
    )


# --- tokens --------------------------------------------------------------------------------


def _tokenize(line: str, file: str) -> _Tokens:
    """Return the tokens of a line without its comment; none if nothing else is in it."""
    if len(line) > _LONGEST:
        return (line.strip(),)
    is_indented = file.endswith(_INDENTED)
    if not is_indented:
        line = _BLOCK_COMMENT.sub(" ", line)
    before = (_BEFORE_HASH if is_indented else _BEFORE_SLASHES).match(line)
    code = before[1] if before else line
    tokens = tuple(found[0] for found in _TOKEN.finditer(code))
    if tokens and is_indented:
        return (f" {len(code) - len(code.lstrip())}", *tokens)
    return tokens


def _is_declaration(tokens: _Tokens, index: int) -> bool:
    """Whether a name is given here: ``float x``, ``x = 1``, ``for x``, ``def f(x)``, ``def f``."""
    before = tokens[index - 1] if index else " "
    behind = tokens[index + 1 : index + 3]
    if before[0] == " ":  # the statement begins here
        return behind[:1] == ("=",) and behind[1:] != ("=",)
    if behind and (behind[0] in "*&<" or _is_name(behind[0])):
        return False  # a type
    if before == "*" and index > 1:
        word = tokens[index - 2]
        return _TYPES.fullmatch(word) is not None or "const" in tokens[max(index - 3, 0) : index]
    if before in ("(", ","):
        return any(word in ("def", "fn") for word in tokens[:3])
    return _is_name(before)


def _is_name(token: str) -> bool:
    return token.isidentifier() and not _NO_TYPES.fullmatch(token)


class _Renames(NamedTuple):
    """New names by old ones: of variables in one file, and of functions in all."""

    variables: dict[str, str]
    functions: dict[str, str]


def _find_renames(change: FileChange) -> _Renames:
    """Return the names that were replaced where they are given."""
    renames = _Renames({}, {})
    for hunk in change.hunks:
        base, head = ([each for each in side if each] for side in _tokens_of(change, hunk))
        # Lines that were added or removed have no counterpart.
        for old, new in zip(base, head, strict=True) if len(base) == len(head) else ():
            pairs = list(zip(old, new, strict=False))
            differing = [index for index, (one, other) in enumerate(pairs) if one != other]
            if len(old) == len(new) and all(_is_name(each) for i in differing for each in pairs[i]):
                for index in filter(lambda index: _is_declaration(old, index), differing):
                    is_function = old[index + 1 : index + 2] == ("(",)
                    names = renames.functions if is_function else renames.variables
                    names[old[index]] = new[index]
    return renames


def _tokens_of(change: FileChange, hunk: Hunk) -> tuple[list[_Tokens], list[_Tokens]]:
    base = range(hunk.base_start, hunk.base_start + hunk.base_count)
    head = change.head_lines[hunk.head_start - 1 : hunk.head_start - 1 + hunk.head_count]
    return (
        [
            _tokenize(change.base_lines[line], change.base_file)
            for line in base
            if line in change.base_lines
        ],
        [_tokenize(line, change.head_file) for line in head] if hunk.head_count else [],
    )


# --- smaller hunks -------------------------------------------------------------------------


def _refine(change: FileChange, renames: Mapping[str, str], largest: int) -> FileChange:
    """Return ``change`` without the lines in which nothing but names and comments differ."""
    hunks: list[Hunk] = []
    for hunk in change.hunks:
        if hunk.head_count > len(change.head_lines) > 0:  # a file that git does not track
            hunk = hunk._replace(head_count=len(change.head_lines))
        base, head = _tokens_of(change, hunk)
        has_text = (len(base), len(head)) == (hunk.base_count, hunk.head_count)
        if not has_text or len(base) * len(head) > largest:
            hunks.append(hunk)
            continue
        renamed = [tuple(renames.get(token, token) for token in tokens) for tokens in base]
        matcher = SequenceMatcher(None, renamed, head, autojunk=False)
        for kind, b1, b2, h1, h2 in matcher.get_opcodes():
            if kind != "equal":
                hunks += _split(hunk, (b1, renamed[b1:b2]), (h1, head[h1:h2]))
    return replace(change, hunks=tuple(hunks))


def _split(
    hunk: Hunk, base: tuple[int, list[_Tokens]], head: tuple[int, list[_Tokens]]
) -> Iterator[Hunk]:
    """Split off the lines before and behind that have no code."""
    (base_at, base_tokens), (head_at, head_tokens) = base, head
    base_cuts, head_cuts = _find_code(base_tokens), _find_code(head_tokens)
    for (b1, b2), (h1, h2) in zip(pairwise(base_cuts), pairwise(head_cuts), strict=True):
        if b1 < b2 or h1 < h2:
            yield Hunk(
                *_start(hunk.base_start, hunk.base_count, base_at + b1, b2 - b1),
                *_start(hunk.head_start, hunk.head_count, head_at + h1, h2 - h1),
            )


def _find_code(tokens: list[_Tokens]) -> tuple[int, int, int, int]:
    code = [index for index, each in enumerate(tokens) if each]
    first, last = (code[0], code[-1] + 1) if code else (len(tokens), len(tokens))
    return 0, first, last, len(tokens)


def _start(start: int, count: int, offset: int, length: int) -> tuple[int, int]:
    """Return a hunk's start and count; with a count of 0 the start is the line before."""
    first = start + (count == 0) + offset
    return (first if length else first - 1), length


# --- moved functions -----------------------------------------------------------------------


class _Lines(NamedTuple):
    """Replaced lines of one side: the file, the first line's number, and the tokens of each."""

    file: str
    first: int
    tokens: list[_Tokens]


def _pair_moves(changes: Sequence[FileChange]) -> list[tuple[_Lines, _Lines]]:
    """Return which removed lines are added elsewhere, most of them as they were."""
    removed, added = list[_Lines](), list[_Lines]()
    for change in changes:
        for hunk in change.hunks:
            base, head = _tokens_of(change, hunk)
            if sum(map(bool, base)) >= _FEWEST_MOVED > sum(map(bool, head)):
                removed.append(_Lines(change.base_file, hunk.base_start, base))
            if sum(map(bool, head)) >= _FEWEST_MOVED > sum(map(bool, base)):
                added.append(_Lines(change.head_file, hunk.head_start, head))
    if len(removed) * len(added) > _MOST_MOVES**2:
        return []
    alike = [
        (same, b, h)
        for b, base_lines in enumerate(removed)
        for h, head_lines in enumerate(added)
        if (same := _count_same(base_lines, head_lines))
    ]
    pairs, taken = [], set[int]()
    for _, b, h in sorted(alike, reverse=True):
        if b not in taken and ~h not in taken:
            taken |= {b, ~h}
            pairs.append((removed[b], added[h]))
    return pairs


def _matcher(base: _Lines, head: _Lines) -> SequenceMatcher[_Tokens]:
    bare = [
        [tokens[1:] if tokens and tokens[0][0] == " " else tokens for tokens in side.tokens]
        for side in (base, head)
    ]
    return SequenceMatcher(None, bare[0], bare[1], autojunk=False)


def _count_same(base: _Lines, head: _Lines) -> int:
    """Return how many lines are the same; 0 if it is less than half of the smaller side."""
    if len(base.tokens) * len(head.tokens) > _SMALL:
        return 0
    blocks = _matcher(base, head).get_matching_blocks()
    same = sum(sum(map(bool, base.tokens[b : b + size])) for b, _, size in blocks)
    smaller = min(sum(map(bool, side.tokens)) for side in (base, head))
    return same if same >= max(_FEWEST_MOVED, smaller / 2) else 0


def _match_moved(
    base: _Lines,
    head: _Lines,
    moved: dict[SourceLine, Place],
    arrived: dict[SourceLine, Place],
) -> None:
    for kind, b1, b2, h1, h2 in _matcher(base, head).get_opcodes():
        for offset in range(max(b2 - b1, h2 - h1)):
            place = changed_place(head.file, head.first + h1 - (h1 == h2), h2 - h1)
            if kind == "equal":
                place = unchanged_place(head.file, head.first + h1 + offset)
            if offset < b2 - b1:
                moved[SourceLine(base.file, base.first + b1 + offset)] = place
            if offset < h2 - h1:
                arrived[SourceLine(head.file, head.first + h1 + offset)] = place


# --- loops ---------------------------------------------------------------------------------


def _find_blocks(change: FileChange) -> Iterator[tuple[Place, tuple[int, int]]]:
    """Yield the lines of each loop whose header changed, or that lost an exit."""
    lines = change.head_lines
    for hunk in change.hunks:
        place = changed_place(change.head_file, hunk.head_start, hunk.head_count)
        if hunk.head_count and lines:
            header = place.last
            if place.last <= len(lines) and _LOOP.search(lines[header - 1]):
                last = _end_of_block(lines, header)
                if last > header:
                    yield place, (place.first, last)
        elif lines and hunk.base_count:
            numbers = range(hunk.base_start, hunk.base_start + hunk.base_count)
            gone = [change.base_lines.get(number, "") for number in numbers]
            if any(map(_EXIT.search, gone)) and (header := _find_loop(lines, place.last, gone[0])):
                yield place, (header, _end_of_block(lines, header))


def _indentation(line: str) -> int:
    expanded = line.expandtabs(8)
    return len(expanded) - len(expanded.lstrip())


def _end_of_block(lines: Sequence[str], header: int) -> int:
    """Return the last line that is indented more than the line ``header``."""
    last = header
    for number in range(header + 1, min(len(lines), header + _LONGEST_BLOCK) + 1):
        line = lines[number - 1]
        if line.strip() and _indentation(line) <= _indentation(lines[header - 1]):
            if line.strip() != "{":
                break
        elif line.strip():
            last = number
    return last


def _find_loop(lines: Sequence[str], before: int, gone: str) -> int:
    """Return the header of the innermost loop around lines that are gone; 0 without one."""
    indentation = _indentation(gone)
    for number in range(min(before, len(lines)), max(before - _LONGEST_BLOCK, 0), -1):
        line = lines[number - 1]
        if line.strip() and _indentation(line) < indentation:
            indentation = _indentation(line)
            if _LOOP.search(line):
                return number
    return 0
