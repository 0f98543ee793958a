"""Reading what ``perf script`` prints.

One sample is a header line, its frames from leaf to root, and an empty line. Blocks of
nothing else, which is nearly all there is, are read at once; the others line by line.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO
from itertools import compress
from typing import TYPE_CHECKING

from pytest_flamegate.profile import perf_lines
from pytest_flamegate.profile.perf_headers import Headers, time_ns
from pytest_flamegate.profile.perf_letters import Letters
from pytest_flamegate.profile.words import unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_flamegate.profile.model import Stack

FIELDS = "pid,tid,time,event,ip,sym,dso"
"""No ``comm``: a process names itself, and may put a line break in it."""

NAME = perf_lines.NAME
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
                raise perf_lines.unexpected(line)
            self._between(line)
        elif self._word is not None:
            self._ended("".join(self._word))

    def script(self) -> Script:
        """Return what was read. Raises ``ProfilerError`` within a sample."""
        if self._word is not None:
            raise unreadable(NAME, "the last sample is cut off")
        stacks = self._read.stacks
        while self._words:  # as the stacks grow the words go: never are both there in full
            word, samples = self._words.popitem()
            stack = self._letters.stack(word)
            stacks[stack] = stacks.get(stack, 0) + samples
        return self._read

    def _between(self, line: bytes) -> None:
        if (lost := perf_lines.loss(line)) is not None:
            if lost.counted:
                self._read.lost_samples += lost.samples
            else:
                self._read.lost_chunks += lost.samples
            return
        header = perf_lines.header(line)
        at_ns = perf_lines.nanoseconds(header[3])
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
