"""Reading what ``perf script`` prints.

One sample is a header line, its frames from leaf to root, and an empty line. Blocks of
nothing else, which is nearly all there is, are read at once; the others line by line.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.core.text import decode_name, escape_name
from pytest_flamegate.profile.frames import UNKNOWN, make_native_frame
from pytest_flamegate.profile.profilers.errors import ProfilerError, output_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_flamegate.profile.model import Frame, Stack


PERF_LINES_NAME = "perf"
HEADER = re.compile(rb"\s*(-?\d+)/(-?\d+)\s+(\d+\.\d{6,9}):\s+([\w:.\-/]+):\s*([0-9a-f]+ .*)?")
"""Process, thread, time, event, and the only frame of a sample without a call chain."""

_LOST = re.compile(rb"PERF_RECORD_LOST(?P<samples>_SAMPLES)? lost (?:samples )?(?P<count>\d{1,18})")
_FRAME = re.compile(rb"\t *[0-9a-f]+ (.*)", re.DOTALL)
_PID_DIGITS = 10
_SECOND_DIGITS = 12


class Loss(NamedTuple):
    """Samples lost: told by a kernel that counts them, or of a chunk that was overwritten."""

    samples: int
    counted: bool


def parse_header(line: bytes) -> re.Match[bytes]:
    """Match a header. Raises ``ProfilerError`` where the line is none or out of range."""
    found = HEADER.fullmatch(line.rstrip())
    if found is None:
        raise unexpected(line)
    if len(found[1]) > _PID_DIGITS or found[3].index(b".") > _SECOND_DIGITS:
        raise output_error(PERF_LINES_NAME, "a process id or time is out of range")
    return found


def nanoseconds(time: bytes) -> int:
    """Return a header's time in nanoseconds."""
    seconds, _, fraction = time.partition(b".")
    return int(seconds) * 10**9 + int(fraction.ljust(9, b"0"))


def loss(line: bytes) -> Loss | None:
    """Return what a line between samples says of lost ones; None where it says nothing."""
    found = _LOST.search(line)
    return Loss(int(found["count"]), found["samples"] is not None) if found else None


def frame_text(line: bytes) -> bytes:
    """Return what follows the address in a frame's line. Raises ``ProfilerError``."""
    found = _FRAME.fullmatch(line.rstrip(b"\n"))
    if found is None:
        raise unexpected(line)
    return found[1]


def parse_frame(described: bytes, roots: Sequence[str]) -> Frame | None:
    """Return the frame of what follows an address; None for a trampoline."""
    text = decode_name(described)
    # Symbols and paths may hold " (" themselves; a path starts with "/" or "[".
    at = max(text.rfind(" (/"), text.rfind(" (["))
    if at < 0:
        at = text.rfind(" (")
    if at < 0 or not text.endswith(")"):
        return make_native_frame(text, "", roots)
    return make_native_frame(text[:at], text[at + 2 : -1], roots)


def unexpected(line: bytes) -> ProfilerError:
    """Return the refusal of a line that is none of perf's."""
    return output_error(
        PERF_LINES_NAME, f"unexpected line {escape_name(decode_name(line.strip()))!r}"
    )


_ZEROS = bytes.maketrans(b"123456789", b"000000000")


class Group(NamedTuple):
    """Headers whose processes and whose times have as many digits."""

    pid: Callable[[bytes], bytes]
    time: Callable[[bytes], bytes]
    headers: Sequence[bytes]

    @property
    def pids(self) -> set[int]:
        """The processes that were sampled."""
        return {int(pid) for pid in set(map(self.pid, self.headers))}

    @property
    def last_ns(self) -> int:
        """The latest time; texts of one length are in the order of their numbers."""
        return nanoseconds(max(map(self.time, self.headers)))


class Headers:
    """Headers of the same shape are all right, or none of them is: one is looked at."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, Group | None] = {}

    def groups(self, headers: Sequence[bytes]) -> list[Group] | None:
        """Return headers by their shapes; None where a line among them is none.

        They stand without line breaks, and none of them holds the frame of its sample.
        """
        zeros = b"\n".join(headers).translate(_ZEROS)
        shape = zeros[: len(headers[0])]
        if zeros == b"\n".join([shape] * len(headers)):
            parted = {shape: headers}
        else:
            alike = zeros.split(b"\n")
            parted = {
                shape: [line for line, its in zip(headers, alike, strict=True) if its == shape]
                for shape in dict.fromkeys(alike)
            }
        groups = []
        for shape, alike_in_shape in parted.items():
            if shape not in self._shapes:
                self._shapes[shape] = _read(shape)
            group = self._shapes[shape]
            if group is None:
                return None
            groups.append(group._replace(headers=alike_in_shape))
        return groups


def time_ns(header: bytes) -> int:
    """Return the time of a header that belongs to a group."""
    return nanoseconds(parse_header(header)[3])


def _read(line: bytes) -> Group | None:
    """Return where headers like this one hold what is read; None where it is no header."""
    if loss(line):
        return None
    try:
        found = parse_header(line)
    except ProfilerError:
        return None  # read line by line, it is refused in its own words
    if found[5] is not None:
        return None
    pid, time = (itemgetter(slice(*found.span(part))) for part in (1, 3))
    return Group(pid, time, ())


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
        text = frame_text(line)
        key = b" " + text + b"\n"
        known = self._letters.get(key)
        if known is not None:
            return known
        frame = parse_frame(text, self._roots)
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
                raise output_error(PERF_LINES_NAME, "it names more than a million functions")
            letter = self._given[frame] = chr(number)
            self._frames[letter] = frame
        return letter


FIELDS = "pid,tid,time,event,ip,sym,dso"
"""No ``comm``: a process names itself, and may put a line break in it."""

NAME = PERF_LINES_NAME
BLOCK_BYTES = 1 << 16


@dataclass(slots=True)
class Script:
    """What was read: stacks with samples, losses, processes, times."""

    stacks: dict[Stack, int] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    first_ns: int | None = None
    last_ns: int = 0
    lost_chunks: int = 0
    lost_samples: int = 0

    @property
    def span_ns(self) -> int:
        """Time from the first sample to the last, in nanoseconds."""
        return 0 if self.first_ns is None else max(self.last_ns - self.first_ns, 0)

    @property
    def lost(self) -> int:
        """Samples lost: kernels that count them count the same loss in the chunks."""
        return max(self.lost_chunks, self.lost_samples)


def parse_script(
    chunks: Iterable[bytes],
    roots: Sequence[str] = (),
    window_ns: tuple[int, int] | None = None,
) -> Script:
    """Read the output of ``perf script -F FIELDS --show-lost-events``, in pieces of any length.

    Of samples outside ``window_ns``, first and last time in nanoseconds, nothing is kept.

    Raises ``ProfilerError`` ``E_PROFILER_OUTPUT`` at a line that is none of perf's, and
    where the last sample is cut off.
    """
    reader = _Reader(roots, window_ns)
    for block in _blocks(chunks):
        if not reader.samples(block):
            for line in BytesIO(block):
                reader.line(line)
    return reader.script()


def _blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut at empty lines, so that all blocks but the last hold whole samples."""
    held: list[bytes | memoryview] = []
    size, enough = 0, BLOCK_BYTES
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size < enough:
            continue
        if (end := chunk.rfind(b"\n\n") + 2) < 2:  # a long sample, or chunks of a line each
            held = [chunk := b"".join(held)]
            if (end := chunk.rfind(b"\n\n") + 2) < 2:
                enough = 2 * size
                continue
        held[-1] = memoryview(chunk)[:end]
        yield b"".join(held)
        held, size, enough = [chunk[end:]], len(chunk) - end, BLOCK_BYTES
    yield b"".join(held)


class _Reader:
    """Counts stacks as words, and is within a sample or between two."""

    def __init__(self, roots: Sequence[str], window_ns: tuple[int, int] | None) -> None:
        self._letters = Letters(roots)
        self._headers = Headers()
        self._window_ns = window_ns
        self._words: Counter[str] = Counter()
        self._read = Script()
        self._word: list[str] | None = None
        self._wanted = True

    def samples(self, block: bytes) -> bool:
        """Read whole samples at once; False, and nothing is read, where there is more."""
        found = None if self._word is not None else self._letters.words(block)
        if found is None:
            return False
        words, headers = found
        groups = self._headers.groups(headers)
        if groups is None:
            return False
        if self._window_ns is not None:
            wanted = [self._is_wanted(time_ns(header)) for header in headers]
            words = list(compress(words, wanted))
            headers = list(compress(headers, wanted))
            groups = self._headers.groups(headers) if headers else []
        self._words.update(words)
        if headers and self._read.first_ns is None:
            self._read.first_ns = time_ns(headers[0])
        for group in groups or ():
            self._read.pids |= group.pids
            self._read.last_ns = max(self._read.last_ns, group.last_ns)
        return True

    def line(self, line: bytes) -> None:
        """Read a line with its line break. Raises ``ProfilerError``."""
        if self._word is not None and line.startswith(b"\t"):
            self._word.append(self._letters.letter(line))
        elif line.strip():
            if self._word is not None:
                raise unexpected(line)
            self._between(line)
        elif self._word is not None:
            self._ended("".join(self._word))

    def script(self) -> Script:
        """Return what was read. Raises ``ProfilerError`` within a sample."""
        if self._word is not None:
            raise output_error(NAME, "the last sample is cut off")
        stacks = self._read.stacks
        while self._words:  # as the stacks grow the words go: never are both there in full
            word, samples = self._words.popitem()
            stack = self._letters.stack(word)
            stacks[stack] = stacks.get(stack, 0) + samples
        return self._read

    def _between(self, line: bytes) -> None:
        if (lost := loss(line)) is not None:
            if lost.counted:
                self._read.lost_samples += lost.samples
            else:
                self._read.lost_chunks += lost.samples
            return
        header = parse_header(line)
        at_ns = nanoseconds(header[3])
        self._wanted = self._is_wanted(at_ns)
        if self._wanted:
            self._read.pids.add(int(header[1]))
            if self._read.first_ns is None:
                self._read.first_ns = at_ns
            self._read.last_ns = max(self._read.last_ns, at_ns)
        if header[5] is None:
            self._word = []
        else:
            self._ended(self._letters.letter(b"\t" + header[5]))

    def _ended(self, word: str) -> None:
        if self._wanted:
            self._words[word] += 1
        self._word = None

    def _is_wanted(self, at_ns: int) -> bool:
        return self._window_ns is None or self._window_ns[0] <= at_ns <= self._window_ns[1]
