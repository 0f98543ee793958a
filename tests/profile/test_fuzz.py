"""Any bytes, in any parser: read or refused with a code, in little time and memory."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_flamegate.profile.folded import fold_profile, parse_folded
from pytest_flamegate.profile.frames import make_native_frame, make_python_frame
from tests.profile.fuzz import INPUT_BYTES, allowed_bytes, cpu_s, fuzz, peak_bytes, read
from tests.profile.parser import Parser
from tests.profile.parsers import PARSERS
from tests.profile.profiles import profile

ALWAYS_THE_SAME = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
PIECES = (
    b"f",
    b"(",
    b")",
    b" [",
    b"]",
    b";",
    b"\\",
    b"\xff",
    "\u202e".encode(),
    b"\x1b[2J",
    b"0x7f",
)
each = pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)


def answered(parser: Parser, data: bytes) -> None:
    assert re.fullmatch(r"read|E_[A-Z_]+", read(parser, data))


@each
@ALWAYS_THE_SAME
@given(data=st.binary(max_size=400))
def test_any_bytes(parser: Parser, data: bytes) -> None:
    answered(parser, data)


@each
@ALWAYS_THE_SAME
@given(data=st.data())
def test_a_valid_file_with_something_else_in_it(parser: Parser, data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(parser.samples))
    start = data.draw(st.integers(0, len(sample)))
    end = data.draw(st.integers(start, len(sample)))
    new = data.draw(st.one_of(st.binary(max_size=20), st.sampled_from(parser.tokens)))
    answered(parser, sample[:start] + new + sample[end:])


@pytest.mark.parametrize(
    "parser", [each for each in PARSERS.values() if each.slots], ids=lambda each: "slots"
)
@ALWAYS_THE_SAME
@given(data=st.data())
def test_any_name_where_a_name_stands(parser: Parser, data: st.DataObject) -> None:
    before, after = data.draw(st.sampled_from(parser.slots))
    pieces = st.lists(st.sampled_from((*parser.tokens, *PIECES)), max_size=12)
    answered(parser, before + b"".join(data.draw(pieces)) + after)


@each
def test_the_samples_are_valid(parser: Parser) -> None:
    codes = {read(parser, sample) for sample in parser.samples}
    assert codes <= {"read"} or parser is PARSERS["perf script"]
    assert "read" in codes


@each
def test_64_kib_of_one_thing_take_little_time_and_memory(parser: Parser) -> None:
    """Each piece of the grammar on its own, again and again: at the start, and in a slot."""
    for token in parser.tokens:
        filling = token * (INPUT_BYTES // len(token))
        for before, after in (*parser.slots, (b"", b""), (parser.samples[0][:8192], b"\n")):
            room = INPUT_BYTES - len(before) - len(after)
            data = before + filling[:room] + after
            assert cpu_s(parser, data) <= parser.limit_s, (token, before)
        assert peak_bytes(parser, data) <= allowed_bytes(data), token


@each
def test_a_slice_of_the_fuzzer_is_survived(parser: Parser) -> None:
    tally = fuzz(parser, 1000, random.Random(4))
    assert tally.broken == []
    assert tally.read + tally.refused.total() == tally.inputs == 1000


def test_the_fuzzer_sees_what_breaks() -> None:
    def breaks(data: bytes) -> None:
        if b"\xff" in data:
            raise ZeroDivisionError

    tally = fuzz(Parser(breaks, (b"abc",), (b"\xff",)), 200, random.Random(1))
    assert {what for what, _ in tally.broken} == {"ZeroDivisionError()"}
    hungry = Parser(lambda data: bytes(20 << 20), (b"abc",), (b"d",))
    assert peak_bytes(hungry, b"abc") > allowed_bytes(b"abc")


@ALWAYS_THE_SAME
@given(
    st.one_of(st.text(), st.text(alphabet="f();[] \\\x1b\u202e\udcff@.:/'+0x", max_size=30)),
    st.text(alphabet="/lib.so[] ()kernel;\n", max_size=20),
)
def test_any_frame_folds_and_reads_back(name: str, module: str) -> None:
    stack = (
        make_python_frame(name, module),
        make_native_frame(name, module) or make_python_frame("f", "m"),
    )
    text = fold_profile(profile({stack: 3}))
    assert text.count("\n") == 1
    assert parse_folded(text) == {stack: 3}
