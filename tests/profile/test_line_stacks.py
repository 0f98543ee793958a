"""Samples by line as text: what is written reads back, and nothing else is read."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.profile import line_stacks
from pytest_flamegate.profile.frames import make_source_line
from pytest_flamegate.profile.model import Frame, LineStack, Profile, SourceLine, Stack
from pytest_flamegate.receipt.baseline import DIGESTED_FILES, LINES

MAIN, GEMV = SourceLine("src/run.c", 670), SourceLine("src/run.c", 196)
PATHS = st.lists(st.text(st.characters() | st.sampled_from("./:; ")), min_size=1).map("/".join)


def test_stacks_are_written_root_first_and_sorted() -> None:
    text = line_stacks.fold_lines({(MAIN, GEMV): 191, (GEMV,): 2})
    assert text == "src/run.c:196 2\nsrc/run.c:670;src/run.c:196 191\n"
    assert LINES not in DIGESTED_FILES


def test_a_profile_by_line_has_the_same_samples() -> None:
    twin = SourceLine("lib/run.c", 8)
    stacks: dict[Stack, int] = {(Frame("main", "run", "native"),): 40}
    profile = Profile("perf", "6.1", "cycles", "fp", stacks, lines={(MAIN, GEMV): 30, (MAIN,): 4})
    main, gemv = (Frame(f"run.c:{line}", "src/run.c", "native") for line in (670, 196))
    by_line = line_stacks.fold_by_line(profile)
    assert by_line.stacks == {(main, gemv): 30, (main,): 4, (line_stacks.OUTSIDE,): 6}
    assert by_line.samples == profile.samples
    both = line_stacks.fold_by_line(replace(profile, lines={(MAIN, twin): 40}))
    assert [frame.name for stack in both.stacks for frame in stack] == [
        "src/run.c:670",
        "lib/run.c:8",
    ]


def as_stack(places: list[tuple[str, int]]) -> LineStack:
    made = (make_source_line(f"/project/{file}", line, ["/project/"]) for file, line in places)
    return tuple(line for line in made if line is not None)


STACKS = st.lists(st.tuples(PATHS, st.integers(-1, 10**10)), max_size=4).map(as_stack)


@given(st.dictionaries(STACKS.filter(bool), st.integers(1, 10**14), max_size=5))
def test_lines_read_back_exactly(stacks: dict[LineStack, int]) -> None:
    """Whatever paths and numbers a compiler left: they stay in the project."""
    data = line_stacks.fold_lines(stacks).encode()
    assert line_stacks.parse_lines(data, sum(stacks.values())) == stacks


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a.c:1 3", "cut off"),
        (b"\n", "number of samples"),
        (b"a.c:1 0\n", "number of samples"),
        (b"a.c:1 -3\n", "number of samples"),
        (b"a.c:1 1234567890123456\n", "number of samples"),
        (b"a.c:1 3\na.c:1 4\n", "occurred before"),
        (b"a.c:1 8\n", "8 samples by line, and the profile 7"),
        (b"\xff:1 3\n", "UTF-8"),
        *(
            (f"{part} 3\n".encode(), "no line of the project")
            for part in (
                *("a.c", "a.c:", "a.c:0", "a.c:-1", "a.c:1e3", "a.c:9999999999", ":1", ""),
                *("/etc/passwd:1", "../a.c:1", "a/../../b.c:1", "./a.c:1", "a//b.c:1", "a/:1"),
                *("a\x1b[31m.c:1", "a\u202e.c:1", "a\r.c:1", "a.c:1;", ";a.c:1"),
            )
        ),
    ],
)
def test_other_text_is_an_error(data: bytes, reason: str) -> None:
    with pytest.raises(ReceiptError, match="E_PROFILE_FILE") as caught:
        line_stacks.parse_lines(data, 7)
    assert reason in str(caught.value)
    assert str(caught.value).isascii()


def test_a_line_counts_once_in_a_stack_that_passes_it_twice() -> None:
    found = line_stacks.count_samples({(MAIN, GEMV, MAIN): 5, (MAIN, GEMV): 2})
    assert (found.own, found.passed) == ({MAIN: 5, GEMV: 2}, {MAIN: 7, GEMV: 7})
