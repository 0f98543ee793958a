"""Server-sent events, as they come in: a stream of lines, cut anywhere, without end or sense."""

from __future__ import annotations

LINE_LIMIT_BYTES = 1 << 20
EVENT_LIMIT_BYTES = 4 << 20


class EndlessError(ValueError):
    """A line or an event is longer than any that a token could make."""


class Parser:
    """Collects lines into events; ``feed`` returns the data of those that are whole.

    Lines end in LF, CR LF or CR, as the standard has it. Comments and all fields but ``data``
    are left out, and an event without data is none. A last event that no empty line ends is
    not one either: its end was not seen. ``EndlessError`` past the limits in bytes.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._held_bytes = 0
        self._after_cr = False

    def feed(self, data: bytes) -> list[str]:
        """Take what came; return the data of each event that it ended, in order."""
        if self._after_cr and data:
            # The LF of a CR LF that was cut in two.
            data = data.removeprefix(b"\n")
            self._after_cr = False
        self._after_cr = data.endswith(b"\r")
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[str] = []
        for line in lines[:-1]:
            self._line += line
            self._ended(bytes(self._line), events)
            self._line.clear()
        self._line += lines[-1]
        if len(self._line) > LINE_LIMIT_BYTES:
            raise EndlessError(f"a line of more than {LINE_LIMIT_BYTES >> 20} MiB")
        return events

    def _ended(self, line: bytes, events: list[str]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data).decode("utf-8", "replace"))
            self._data, self._held_bytes = [], 0
            return
        name, _, value = line.partition(b":")
        if name != b"data":
            return
        self._data.append(value.removeprefix(b" "))
        self._held_bytes += len(value)
        if self._held_bytes > EVENT_LIMIT_BYTES:
            raise EndlessError(f"an event of more than {EVENT_LIMIT_BYTES >> 20} MiB")
