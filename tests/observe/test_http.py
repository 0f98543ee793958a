"""Server-sent events are parsed from pieces cut anywhere, up to a limit."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.observe.http import LINE_LIMIT_BYTES, EventParser, TooLongError

STREAM = (
    b": hello\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: \xc3\xa9\n\nid: 1\n\n"
    b"data\rdata: three\r\rdata: never ended"
)
EVENTS = ["one", "two\né", "\nthree"]


@given(st.lists(st.integers(0, len(STREAM))))
def test_events_do_not_depend_on_the_cuts(cuts: list[int]) -> None:
    parser = EventParser()
    places = [0, *sorted(cuts), len(STREAM)]
    found = [event for start, end in pairwise(places) for event in parser.feed(STREAM[start:end])]
    assert found == EVENTS


@given(st.binary())
def test_any_bytes_are_read(data: bytes) -> None:
    EventParser().feed(data)


def test_a_line_and_an_event_without_end_are_errors() -> None:
    line = b"data: " + b"x" * (LINE_LIMIT_BYTES - 6)
    for pieces in ([line, b"x"], [line + b"\n"] * 5):
        parser = EventParser()
        for piece in pieces[:-1]:
            parser.feed(piece)
        with pytest.raises(TooLongError):
            parser.feed(pieces[-1])
