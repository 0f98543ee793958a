"""Stacks as words: every function is a letter, so that a stack is one short string.

Most lines repeat a function at another address. What follows the address is looked up
as bytes; a hundred thousand lines are joined, split and counted by a few calls, none of
which runs Python code for a line.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from pytest_flamegate.profile import perf_lines
from pytest_flamegate.profile.normalise import UNKNOWN
from pytest_flamegate.profile.words import unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.profile.model import Frame, Stack

END = "\n"
"""Ends a word; no letter is it."""

_ADDRESS_END = 16
_SHORTEST = _ADDRESS_END + 2
"""Bytes of a frame's line: an address, a blank and something."""
_AFTER_ADDRESS = itemgetter(slice(_ADDRESS_END, None))
_FIRST_LETTER, _LAST_LETTER = 0x100, 0x10FFFF


class _Letters(dict[bytes, str]):
    """What follows an address, with its line break, to the function's letter.

    What was never seen ends the word, and is kept in ``ends``: the last frame of a sample,
    with what stands before the next one, if it is nothing else.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[bytes] = []

    def __missing__(self, piece: bytes) -> str:
        self.ends.append(piece)
        return END


class Letters:
    """A letter for each function, given in the order of appearance."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots
        self._letters = _Letters()
        self._last: dict[bytes, str] = {}
        self._frames: dict[str, Frame] = {}
        self._given: dict[Frame, str] = {}

    def letter(self, line: bytes) -> str:
        """Return the letter of a frame's line, nothing for a trampoline.

        Raises ``ProfilerError`` where the line is no frame's.
        """
        text = perf_lines.frame_text(line)
        key = b" " + text + b"\n"
        known = self._letters.get(key)
        if known is not None:
            return known
        frame = perf_lines.frame(text, self._roots)
        letter = "" if frame is None else self._letter_of(frame)
        self._letters[key] = letter
        self._last[b"\t" + key[:-1]] = letter
        return letter

    def words(self, block: bytes) -> tuple[list[str], list[bytes]] | None:
        """Return the words of whole samples and the line before each, at full speed.

        None where there is anything else in ``block``, or a function that was never seen:
        read it line by line. Addresses, in a field of their own, are not looked at.
        """
        if block.count(b"\t") * _SHORTEST > len(block):
            return None  # no frames, and as many objects as bytes
        pieces = block.split(b"\t")
        first = pieces.pop(0)
        ends = self._letters.ends = []
        text = "".join(map(self._letters.__getitem__, map(_AFTER_ADDRESS, pieces)))
        if not ends or not block.endswith(b"\n\n") or first.find(b"\n") != len(first) - 1:
            return None
        if block.count(b"\n\n") != len(ends):
            return None  # before they are joined: what is no sample may be as many objects
        # Of each: the last frame, an empty line and the next sample's header. No piece holds
        # a tab, so that one stands before every last frame and nowhere else.
        lines = b"\t".join([b"", *ends]).split(b"\n")
        frames, empty, headers = lines[::3], lines[1::3], lines[2::3]
        if not len(frames) == len(headers) == len(ends) or any(empty) or headers.pop():
            return None
        try:
            words = list(map(str.__add__, text.split(END), map(self._last.__getitem__, frames)))
        except KeyError:
            return None
        return words, [first[:-1], *headers]

    def stack(self, word: str) -> Stack:
        """Return the frames of a word, root first."""
        stack: list[Frame] = []
        for letter in reversed(word):
            frame = self._frames[letter]
            # Frames that lost their address tell nothing apart: one stands for a run of them.
            if not (stack and frame == stack[-1] and frame.name.startswith("[")):
                stack.append(frame)
        return tuple(stack) or (UNKNOWN,)

    def _letter_of(self, frame: Frame) -> str:
        letter = self._given.get(frame)
        if letter is None:
            number = _FIRST_LETTER + len(self._given)
            if number > _LAST_LETTER:
                raise unreadable(perf_lines.NAME, "it names more than a million functions")
            letter = self._given[frame] = chr(number)
            self._frames[letter] = frame
        return letter
