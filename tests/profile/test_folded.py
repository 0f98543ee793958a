"""Folded text in flamegate's own notation, and profiles that are pooled."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile import frames
from pytest_flamegate.profile.model import Frame, Stack, merge_profiles
from tests.profile.profiles import native, profile, python, system

HOSTILE = st.text(st.sampled_from(list("ab ;()[]\n\r\t\\x3b\u202e\u2028\x00ü")) | st.characters())
FRAMES = st.one_of(
    st.builds(frames.make_python_frame, HOSTILE, HOSTILE),
    st.builds(frames.make_native_frame, HOSTILE, HOSTILE | st.just("[kernel.kallsyms]")).filter(
        bool
    ),
)
STACKS = st.dictionaries(
    st.lists(FRAMES, max_size=5).map(tuple), st.integers(1, 10**15 - 1), max_size=6
)


def test_the_text_is_sorted_and_marks_the_kind_of_each_frame() -> None:
    run, read = python("run"), native("read", "libc.so.6")
    gemv = native("sgemv", "libblas.so")
    taken = profile({(run, gemv): 3, (run, read, system("vfs_read")): 1, (run,): 12})
    assert frames.fold_profile(taken) == (
        "run (engine.py) 12\n"
        "run (engine.py);read [libc.so.6];vfs_read [kernel] 1\n"
        "run (engine.py);sgemv [libblas.so] 3\n"
    )


@given(STACKS)
def test_folded_text_reads_back_exactly(stacks: dict[Stack, int]) -> None:
    text = frames.fold_profile(profile(stacks))
    assert frames.parse_folded(text) == stacks
    assert frames.fold_profile(profile(dict(reversed(stacks.items())))) == text
    assert text.count("\n") == len(stacks)


def test_a_frame_that_would_not_read_back_is_not_written() -> None:
    names = [python("a;b"), python("a\nb"), python("f", "copy (1).py")]
    modules = [native("f", "kernel"), native("f", "a [b"), Frame("f", "libc.so.6", "system")]
    for frame in names + modules:
        with pytest.raises(ValueError, match="not normalised"):
            frames.format_frame(frame)


@pytest.mark.parametrize(
    "text",
    [
        *("f (a.py) 1", "\n", "f (a.py)\n", "f (a.py) 0\n", "f (a.py) -1\n", "f (a.py) 01\n"),
        *("f (a.py) 1e3\n", "f (a.py) ٣\n", "f (a.py) 1234567890123456\n", "f 1\n"),
        *("f (a.py) 1\nf (a.py) 2\n", "f (a.py);;g (a.py) 1\n", "(a.py) 1\n"),
        *("f\u202e (a.py) 1\n", "f\r (a.py) 1\n"),
    ],
)
def test_malformed_text_is_an_error(text: str) -> None:
    with pytest.raises(FlamegateError, match="E_PROFILE_FILE"):
        frames.parse_folded(text)


def test_pooled_profiles_add_up() -> None:
    f, g = (python("f"),), (python("g"),)
    left = profile({f: 2}, pids=(1,), errors=1, degraded=("a",), started_ticks=(8,))
    more: dict[str, Any] = {"pids": (2,), "lost": 4, "complete": 3, "started_ticks": (None,)}
    right = profile({f: 3, g: 1}, degraded=("a", "b"), **more)
    whole = merge_profiles([left, right])
    assert whole.stacks == {f: 5, g: 1}
    assert (whole.samples, whole.complete, whole.errors, whole.lost) == (6, 5, 1, 4)
    assert (whole.pids, whole.started_ticks) == ((1, 2), (8, None))
    assert whole.degraded == ("a", "b")
    assert whole.duration_ns == 2_000_000_000
