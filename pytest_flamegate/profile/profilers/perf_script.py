r"""Parse the output of ``perf script``.

One sample is a header line, one line for each frame from leaf to root, and an empty line::

    16592/16592  3955.045222: cpu-clock:
    \t    7f2233445566 sgemv (/usr/lib/libblas.so)
    \t    55d0c0de1234 main (/usr/bin/engine)

"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pytest_flamegate.core.text import decode_name, escape_name
from pytest_flamegate.profile.frames import make_native_frame, make_stack
from pytest_flamegate.profile.model import Frame, Stack
from pytest_flamegate.profile.profilers.tools import ProfilerError, output_error

NAME = "perf"
FIELDS = "pid,tid,time,event,ip,sym,dso"
"""No ``comm``: a process names itself, and may put a line break in its name."""
CHUNK_BYTES = 1 << 16

_HEADER = re.compile(rb"\s*(-?\d{1,10})/-?\d+\s+(\d{1,12})\.(\d{6,9}):\s+[\w:.\-/]+:\s*(.*)")
"""Process, seconds, fraction, and the only frame of a sample without a call chain."""
_FRAME = re.compile(rb"\t *[0-9a-f]+( .*)", re.DOTALL)
_LOST = re.compile(rb"PERF_RECORD_LOST(_SAMPLES)? lost (?:samples )?(\d{1,18})")
_ADDRESS_END = 17
"""perf pads the address to 16 columns behind a tab."""


class ParsedScript:
    """Stacks with their samples, the processes and times of the samples, and losses.

    Feed it ``lines`` without their line breaks, then call ``finish``. Samples outside of
    ``window_ns`` (monotonic times of the first and last wanted one) are skipped.
    """

    def __init__(self, roots: Sequence[str] = (), window_ns: tuple[int, int] | None = None) -> None:
        self.stacks: dict[Stack, int] = {}
        self.pids: set[int] = set()
        self.first_ns: int | None = None
        self.last_ns = 0
        self._roots = roots
        self._window_ns = window_ns
        self._lost: Counter[bool] = Counter()
        self._frames: list[Frame | None] = []
        self._numbers: dict[bytes, int] = {}
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._sample: list[int] | None = None
        self._is_wanted = True

    @property
    def span_ns(self) -> int:
        """Time from the first sample to the last, in nanoseconds."""
        return 0 if self.first_ns is None else max(self.last_ns - self.first_ns, 0)

    @property
    def lost(self) -> int:
        """Samples lost: a kernel that counts them reports the lost chunks as well."""
        return max(self._lost.values(), default=0)

    def feed(self, lines: Iterable[bytes]) -> None:
        """Parse more lines. Raises ``ProfilerError`` ``E_PROFILER_OUTPUT``."""
        # Names repeat, addresses do not: whatever follows the address is looked up whole. This
        # loop takes most of the time of folding, so it does no more than that for a known name.
        numbers, sample = self._numbers, self._sample
        for line in lines:
            if sample is not None and line[:1] == b"\t":
                number = numbers.get(line[_ADDRESS_END:])
                sample.append(self._add_frame(line) if number is None else number)
            elif not line or line.isspace():
                if sample is not None:
                    self._end_sample(sample)
                    sample = None
            elif sample is None:
                sample = self._begin_sample(line)
            else:
                raise _unexpected_line(line)
        self._sample = sample

    def finish(self) -> None:
        """Fill ``stacks``. Raises ``ProfilerError`` if the last sample is cut off."""
        if self._sample is not None:
            raise output_error(NAME, "the last sample is cut off")
        for numbers, samples in self._counts.items():
            stack = make_stack(self._frames[number] for number in reversed(numbers))
            self.stacks[stack] = self.stacks.get(stack, 0) + samples

    def _begin_sample(self, line: bytes) -> list[int] | None:
        """Return the frames of the sample that ``line`` begins, None if it is whole already."""
        header = _HEADER.fullmatch(line)
        if header is None:
            lost = _LOST.search(line)
            if lost is None:
                raise _unexpected_line(line)
            self._lost[lost[1] is not None] += int(lost[2])
            return None
        pid, seconds, fraction, only_frame = header.groups()
        time_ns = int(seconds + fraction.ljust(9, b"0"))
        window_ns = self._window_ns
        self._is_wanted = window_ns is None or window_ns[0] <= time_ns <= window_ns[1]
        if self._is_wanted:
            self.pids.add(int(pid))
            if self.first_ns is None:
                self.first_ns = time_ns
            if time_ns > self.last_ns:
                self.last_ns = time_ns
        if not only_frame:
            return []
        self._end_sample([self._add_frame(b"\t" + only_frame)])
        return None

    def _end_sample(self, sample: list[int]) -> None:
        if self._is_wanted:
            self._counts[tuple(sample)] += 1

    def _add_frame(self, line: bytes) -> int:
        """Return the number of the frame in ``line``; a new one is given to a new name."""
        found = _FRAME.fullmatch(line)
        if found is None:
            raise _unexpected_line(line)
        number = self._numbers.setdefault(found[1], len(self._frames))
        if number == len(self._frames):
            self._frames.append(_parse_frame(found[1][1:], self._roots))
        return number


def parse_script(
    chunks: Iterable[bytes], roots: Sequence[str] = (), window_ns: tuple[int, int] | None = None
) -> ParsedScript:
    """Parse what ``perf script -F FIELDS --show-lost-events`` printed, in chunks of any length.

    Raises ``ProfilerError`` ``E_PROFILER_OUTPUT`` at a line that perf does not write, and if
    the last sample is cut off.
    """
    parsed = ParsedScript(roots, window_ns)
    for lines in _split_lines(chunks):
        parsed.feed(lines)
    parsed.finish()
    return parsed


def _split_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    begun: list[bytes] = []  # pieces of a line that no chunk has ended yet
    for chunk in chunks:
        first, *lines = chunk.split(b"\n")
        begun.append(first)
        if lines:
            last = lines.pop()
            yield [b"".join(begun), *lines]
            begun = [last]
    if rest := b"".join(begun):
        yield [rest]


def _parse_frame(described: bytes, roots: Sequence[str]) -> Frame | None:
    """Return the frame of ``symbol (library)``; None for a trampoline."""
    text = decode_name(described)
    # Symbols and paths may hold " (" themselves; a path starts with "/" or "[".
    at = max(text.rfind(" (/"), text.rfind(" (["))
    if at < 0:
        at = text.rfind(" (")
    if at < 0 or not text.endswith(")"):
        return make_native_frame(text, "", roots)
    return make_native_frame(text[:at], text[at + 2 : -1], roots)


def _unexpected_line(line: bytes) -> ProfilerError:
    return output_error(NAME, f"unexpected line {escape_name(decode_name(line.strip()))!r}")
