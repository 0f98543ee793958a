"""Server-sent events are parsed from chunks cut anywhere, up to a limit."""

import io
from http.client import HTTPResponse
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.observe.http import LINE_LIMIT_BYTES, TooLongError, read_events

STREAM = (
    b": hello\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: \xc3\xa9\n\nid: 1\n\n"
    b"data\ndata: three\n\ndata: never ended"
)
EVENTS = ["one", "two\né", "\nthree"]


class Received:
    """Stands in for a socket that has received all of a response."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def makefile(self, _: str) -> Any:
        raw: Any = io.BytesIO(self.data)
        return io.BufferedReader(raw)


def chunked(pieces: list[bytes]) -> HTTPResponse:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
    received: Any = Received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
    response = HTTPResponse(received)
    response.begin()
    return response


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_events_do_not_depend_on_the_cuts(cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(places)]
    assert [*read_events(chunked(pieces))] == EVENTS == [*read_events(io.BytesIO(STREAM))]


@given(st.binary())
def test_any_bytes_are_read(data: bytes) -> None:
    list(read_events(io.BytesIO(data)))


@pytest.mark.parametrize("pieces", [1, 5])
def test_a_line_and_an_event_without_end_are_errors(pieces: int) -> None:
    line = b"data: " + b"x" * (LINE_LIMIT_BYTES - 7 + (pieces == 1)) + b"\n"
    with pytest.raises(TooLongError):
        list(read_events(io.BytesIO(line * pieces)))
