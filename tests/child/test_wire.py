import os

from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.child import wire


@given(
    tokens=st.lists(st.one_of(st.integers(), st.text(), st.binary()), max_size=20),
    cut=st.integers(1, 7),
)
def test_tokens_survive_any_cutting_of_the_stream(tokens: list[object], cut: int) -> None:
    read_fd, write_fd = os.pipe()
    try:
        for token in tokens:
            wire.send_token(write_fd, token)
        wire.send(write_fd, wire.DONE)
        data = os.read(read_fd, 1 << 20)
    finally:
        os.close(read_fd)
        os.close(write_fd)
    parser = wire.Parser()
    records = []
    for at in range(0, len(data), cut):
        records += parser.feed(data[at : at + cut])
    assert len(records) == len(tokens) + 1
    assert records[-1][0] == wire.DONE
    for token, (kind, value, text) in zip(tokens, records, strict=False):
        if isinstance(token, int) and -(2**31) <= token < 2**31:
            assert (kind, value) == (wire.TOKEN, token)
        elif isinstance(token, int):
            assert text == str(token)
        else:
            assert kind == wire.TEXT


def test_receive_tells_the_end_of_the_stream() -> None:
    read_fd, write_fd = os.pipe()
    wire.send(write_fd, wire.BLOCK, 3)
    os.close(write_fd)
    assert wire.receive(read_fd) == (wire.BLOCK, 3)
    assert wire.receive(read_fd) is None
    os.close(read_fd)
