"""The headers of many samples at once: those that differ in digits alone are one shape."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.profile import perf_lines
from pytest_flamegate.profile.words import ProfilerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        return perf_lines.nanoseconds(max(map(self.time, self.headers)))


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
    return perf_lines.nanoseconds(perf_lines.header(header)[3])


def _read(line: bytes) -> Group | None:
    """Return where headers like this one hold what is read; None where it is no header."""
    if perf_lines.loss(line):
        return None
    try:
        found = perf_lines.header(line)
    except ProfilerError:
        return None  # read line by line, it is refused in its own words
    if found[5] is not None:
        return None
    pid, time = (itemgetter(slice(*found.span(part))) for part in (1, 3))
    return Group(pid, time, ())
