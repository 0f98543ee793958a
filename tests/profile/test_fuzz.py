"""Any bytes, in any parser: read or an error with a code, in little time and memory."""

import re
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError
from tests.profile.parsers import PARSERS, Parser

INPUT_BYTES = 65536
ALLOWANCE_BYTES = 1 << 20
"""For tables that are filled once, and what the interpreter takes for any call."""
DAILY = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
NIGHTLY = settings(DAILY, max_examples=1_000, derandomize=False)
often = pytest.mark.parametrize(
    "effort", [DAILY, pytest.param(NIGHTLY, marks=pytest.mark.nightly)], ids=["daily", "nightly"]
)
PIECES = (b"f", b"(", b")", b" [", b"]", b";", b"\\", b"\xff", "\u202e".encode(), b"\x1b[2J", b"0x")
each = pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)


def read(parser: Parser, data: bytes) -> str:
    """Return ``read`` or the code of the error; any other exception passes through."""
    try:
        parser.read(data)
    except FlamegateError as error:
        return error.code
    return "read"


def cpu_s(parser: Parser, data: bytes) -> float:
    """Return the CPU time of one reading, the least of three: a busy machine adds to it."""
    least = float("inf")
    for _ in range(3):
        began = time.process_time()
        read(parser, data)
        least = min(least, time.process_time() - began)
        if least <= parser.limit_s:
            break
    return least


def peak_bytes(parser: Parser, data: bytes) -> int:
    tracemalloc.start()
    try:
        read(parser, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def draw_file(parser: Parser, data: st.DataObject) -> bytes:
    """Return any bytes, or a valid file with up to three parts replaced or any name in a slot."""
    shape = data.draw(st.sampled_from(["bytes", "parts", "parts", "slot"]))
    if shape == "bytes":
        return data.draw(st.binary(max_size=400))
    if shape == "slot" and parser.slots:
        before, after = data.draw(st.sampled_from(parser.slots))
        pieces = st.lists(st.sampled_from((*parser.tokens, *PIECES)), max_size=12)
        return before + b"".join(data.draw(pieces)) + after
    sample = data.draw(st.sampled_from(parser.samples))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(sample)))
        end = data.draw(st.integers(start, len(sample)))
        new = data.draw(st.one_of(st.binary(max_size=20), st.sampled_from(parser.tokens)))
        sample = sample[:start] + new + sample[end:]
    return sample


@each
@often
def test_any_bytes_and_files_that_are_nearly_valid(parser: Parser, effort: settings) -> None:
    @effort
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        assert re.fullmatch(r"read|E_[A-Z_]+", read(parser, draw_file(parser, data)))

    check()


@each
def test_the_samples_are_valid(parser: Parser) -> None:
    codes = {read(parser, sample) for sample in parser.samples}
    assert codes <= {"read"} or parser is PARSERS["perf script"]
    assert "read" in codes


@pytest.mark.parametrize(
    "parser",
    [
        # Results of other tools share their readers: one format of lines and one of JSON is enough.
        pytest.param(parser, id=name, marks=[pytest.mark.nightly] * is_like_another)
        for name, parser in PARSERS.items()
        for is_like_another in [name.startswith("import ") and not name.endswith((".md", ".jsonl"))]
    ],
)
def test_64_kib_of_one_thing_take_little_time_and_memory(parser: Parser) -> None:
    """Each piece of the grammar on its own, again and again: at the start, and in a slot."""
    for token in parser.tokens:
        filling = token * (INPUT_BYTES // len(token))
        for before, after in (*parser.slots, (b"", b""), (parser.samples[0][:8192], b"\n")):
            room = INPUT_BYTES - len(before) - len(after)
            data = before + filling[:room] + after
            assert cpu_s(parser, data) <= parser.limit_s, (token, before)
        assert peak_bytes(parser, data) <= 10 * len(data) + ALLOWANCE_BYTES, token
