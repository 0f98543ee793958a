from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.folded import fold_profile
from pytest_flamegate.profile.profilers.errors import ProfilerError
from pytest_flamegate.profile.profilers.pyspy import parse_pyspy_file
from tests.profile.profiles import DATA, native, profile, python

ROOTS = ("/home/me/project/",)


def document(*frames: dict[str, Any], samples: Any = ((0,),), weights: Any = (0.005,)) -> bytes:
    thread = {"name": 'Thread 12 "MainThread"', "samples": samples, "weights": weights}
    return json.dumps({"shared": {"frames": frames}, "profiles": [thread]}).encode()


def test_what_py_spy_wrote_is_read() -> None:
    sampled = parse_pyspy_file((DATA / "py-spy-speedscope.json").read_bytes(), ROOTS)
    assert fold_profile(profile(dict(sampled.stacks))).splitlines() == [
        "<module> (spin.py);main (spin.py);measured_sequences (spin.py) 3",
        "<module> (spin.py);main (spin.py);measured_sequences (spin.py);matvec (spin.py) 3",
        "<module> (spin.py);main (spin.py);measured_sequences (spin.py);soft (spin.py) 3",
        "<module> (spin.py);main (spin.py);measured_sequences (spin.py);soft (spin.py);"
        "_amax (numpy/_core/_methods.py) 2",
        "<module> (spin.py);main (spin.py);measured_sequences (spin.py);soft (spin.py);"
        "_sum (numpy/_core/_methods.py) 1",
    ]
    assert sampled.threads == (17235,)
    assert sampled.duration_ns == 60_000_000


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("i2s_gemv;cuda_gemm", "i2s_gemv\\x3bcuda_gemm"),
        ("f (x.py:1) 5\ng (y.py:2)", "f (x.py:1) 5\\x0ag (y.py:2)"),
        ("\u202egemm", "\\u202egemm"),
        ("\x1b[2J", "\\x1b[2J"),
    ],
)
def test_a_hostile_name_stays_one_frame(name: str, escaped: str) -> None:
    sampled = parse_pyspy_file(document({"name": name, "file": "x.py"}))
    assert sampled.stacks == {(python(escaped, "x.py"),): 1}


def test_an_empty_stack_is_a_sample_all_the_same() -> None:
    assert parse_pyspy_file(document(samples=[[]])).stacks == {(native("[unknown]", "unknown"),): 1}


def test_no_samples_are_no_error_here() -> None:
    assert parse_pyspy_file(b'{"profiles": [], "shared": {"frames": []}}').stacks == {}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        (DATA / "py-spy-speedscope.json").read_bytes()[:-100],
        b"[" * 100_000,
        b"null",
        b"{}",
        b"\xff\xfe",
        document({"name": 1, "file": "x.py"}),
        document({"name": "f", "file": "x.py"}, samples=[[1]]),
        document({"name": "f", "file": "x.py"}, samples=[[-1]]),
        document({"name": "f", "file": "x.py"}, samples=[[True]]),
        document({"name": "f", "file": "x.py"}, samples=[["0"]]),
        document({"name": "f", "file": "x.py"}, samples=5),
        document({"name": "f", "file": "x.py"}, weights=["heavy"]),
        document({"name": "f", "file": "x.py"}, weights=[float("nan")]),
        document({"name": "f", "file": "x.py"}, weights=[float("inf")]),
    ],
)
def test_what_py_spy_does_not_write_is_refused(raw: bytes) -> None:
    with pytest.raises(FlamegateError, match="E_PROFILER_OUTPUT"):
        parse_pyspy_file(raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["shared", "frames", "profiles", "samples", "weights", "name", "file"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_parsed_or_refused(raw: bytes) -> None:
    with suppress(ProfilerError):
        sampled = parse_pyspy_file(raw)
        assert all(stack and count > 0 for stack, count in sampled.stacks.items())
