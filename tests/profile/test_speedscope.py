"""Speedscope files: those of py-spy, of any other tool, and flamegate's own."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pytest_flamegate.core.errors import FlamegateError, ReceiptError, UndecidedError
from pytest_flamegate.profile.formats import collapsed, parse_profile, speedscope
from pytest_flamegate.profile.formats.speedscope import write_speedscope
from pytest_flamegate.profile.frames import fold_profile, format_frame
from pytest_flamegate.profile.model import Frame, SourceLine, Stack
from pytest_flamegate.profile.profilers.pyspy import parse_recording
from tests.profile.profiles import DATA, native, profile, python, system
from tests.profile.test_folded import STACKS

A, B, C = (native(name, "unknown") for name in "abc")
FRAMES = [{"name": "a"}, {"name": "b"}, {"name": "c", "file": None, "line": None}]
ROOTS = ("/home/me/project/",)
RECORDED = (DATA / "py-spy-speedscope.json").read_bytes()
SCHEMA = json.loads((DATA / "speedscope-schema.json").read_text())
"""The part of the published schema that is about sampled profiles."""


def sampled(samples: Any, weights: Any, unit: Any = "none", **more: Any) -> dict[str, Any]:
    fields = {"type": "sampled", "name": "t", "unit": unit, "startValue": 0, "endValue": 1}
    return {**fields, "samples": samples, "weights": weights, **more}


def evented(*events: tuple[str, int, float], unit: str = "none") -> dict[str, Any]:
    spelled = [dict(zip(("type", "frame", "at"), event, strict=True)) for event in events]
    return {"type": "evented", "name": "t", "unit": unit, "events": spelled}


def file(*profiles: Any, frames: Any = FRAMES, **more: Any) -> bytes:
    document = {"$schema": speedscope.SCHEMA, "shared": {"frames": frames}, **more}
    return json.dumps({**document, "profiles": list(profiles)}).encode()


# py-spy's own files.


def recording(name: str, sample: Any = (0,)) -> bytes:
    thread = {**sampled([sample], [0.005], "seconds"), "name": 'Thread 12 "MainThread"'}
    return file(thread, frames=[{"name": name, "file": "x.py"}])


def test_a_recording_of_py_spy() -> None:
    taken = parse_recording(RECORDED, ROOTS)
    assert fold_profile(profile(dict(taken.stacks))).splitlines() == [
        "<module> (spin.py);main (spin.py);measured_sequences (spin.py) 3",
        "<module> (spin.py);main (spin.py);measured_sequences (spin.py);matvec (spin.py) 3",
        "<module> (spin.py);main (spin.py);measured_sequences (spin.py);soft (spin.py) 3",
        "<module> (spin.py);main (spin.py);measured_sequences (spin.py);soft (spin.py);"
        "_amax (numpy/_core/_methods.py) 2",
        "<module> (spin.py);main (spin.py);measured_sequences (spin.py);soft (spin.py);"
        "_sum (numpy/_core/_methods.py) 1",
    ]
    assert (taken.pids, taken.duration_ns) == ((17235,), 60_000_000)
    empty = parse_recording(recording("f", []))
    assert empty.stacks == {(native("[unknown]", "unknown"),): 1}


@pytest.mark.parametrize(
    ("name", "path", "samples"),
    [
        ("_PollLikeSelector.select", "/usr/lib/python3.11/selectors.py", 0),
        ("wait", "/opt/lib/python3.9/threading.py", 0),
        ("select", "/home/me/project/selectors.py", 1),
        ("wait", "/opt/python3_kernels/threading.py", 1),
        ("wait", "/home/me/project/lib/python3.11/threading.py", 1),
        ("Condition.notify", "/usr/lib/python3.11/threading.py", 1),
    ],
)
def test_a_thread_that_only_waits_is_left_out(name: str, path: str, samples: int) -> None:
    frames = [{"name": "main", "file": "x.py"}, {"name": name, "file": path, "line": 3}]
    waiting, busy = (sampled([each], [0.01], "seconds") for each in ([0, 1], [0]))
    taken = parse_recording(file(waiting, busy, frames=frames), ROOTS)
    assert sum(taken.stacks.values()) == 1 + samples
    # A thread that is alone may ask again and again whether something is ready.
    assert sum(parse_recording(file(waiting, frames=frames)).stacks.values()) == 1


def test_a_hostile_name_stays_one_frame() -> None:
    read = parse_recording(recording("f;h (x.py:1) 5\ng\u202e (y.py:2)"))
    assert read.stacks == {(python("f\\x3bh (x.py:1) 5\\x0ag\\u202e (y.py:2)", "x.py"),): 1}


def test_native_frames_of_a_recording_are_normalised() -> None:
    libc = "/usr/lib/x86_64-linux-gnu/libc.so.6"
    named = [("0x7f5d851ed24a", libc, 0), ("0x7f5d851ed99a", libc, 0), ("matvec", "/a/e.py", 7)]
    named += [("<module>", "<string>", 0), ("0x7f5d83276518", "?", 0)]
    frames = [{"name": name, "file": file, "line": line} for name, file, line in named]
    raw = file(sampled([[*range(5)]], [0.01], "seconds"), frames=frames)
    (stack,) = parse_recording(raw, native=True).stacks
    shown = "[libc.so.6] [libc.so.6];matvec (e.py);<module> (<string>);[unknown] [unknown]"
    assert ";".join(map(format_frame, stack)) == shown


@pytest.mark.parametrize("raw", [b"", RECORDED[:-100], b"{}", b"\xff\xfe", recording("f", [1])])
def test_a_malformed_recording_is_an_error_of_the_profiler(raw: bytes) -> None:
    with pytest.raises(FlamegateError, match=r"E_PROFILER_OUTPUT.*py-spy cannot be read"):
        parse_recording(raw)


def test_samples_of_an_imported_recording_are_counted_and_not_weighed() -> None:
    read = parse_profile(RECORDED, ROOTS)
    assert (read.samples, read.unit, read.duration_ns) == (12, "samples", 60_000_000)
    assert (read.profiler, read.profiler_version, read.rate_hz) == ("py-spy", "0.4.3", 200)
    assert (read.event, read.python) == ("unknown", "")


@pytest.mark.parametrize(("weights_s", "rate_hz"), [([1e-320], 0), ([0.01], 100), ([0.01, 1], 0)])
def test_the_rate_is_that_of_the_one_interval(weights_s: list[float], rate_hz: int) -> None:
    taken = sampled([[0] for _ in weights_s], weights_s, "seconds")
    assert parse_profile(file(taken, exporter="py-spy@0.4.3")).rate_hz == rate_hz


# Files of any tool.


@pytest.mark.parametrize(
    ("unit", "weights", "counts", "becomes"),
    [
        ("none", [1, 2.0], [1, 2], "samples"),
        ("bytes", [4096, 1], [4096, 1], "bytes"),
        ("nanoseconds", [7, 5], [7, 5], "nanoseconds"),
        ("microseconds", [1.5, 2], [1500, 2000], "nanoseconds"),
        ("milliseconds", [0.1, 2], [100_000, 2_000_000], "nanoseconds"),
        ("seconds", [0.01, 0.25], [10_000_000, 250_000_000], "nanoseconds"),
    ],
)
def test_weights_are_converted_by_their_unit(
    unit: str, weights: list[float], counts: list[int], becomes: str
) -> None:
    read = parse_profile(file(sampled([[0], [0, 1]], weights, unit)))
    assert (read.stacks, read.unit) == ({(A,): counts[0], (A, B): counts[1]}, becomes)
    assert read.duration_ns == (sum(counts) if becomes == "nanoseconds" else 0)
    assert (read.profiler, read.rate_hz, read.event, read.pids) == ("unknown", 0, "unknown", ())
    assert any("without a unit" in note for note in read.degraded) == (unit == "none")


def test_threads_are_added_up_and_events_count_the_time_between_them() -> None:
    thread = sampled([[0], [0, 1]], [0.5, 1], "milliseconds")
    events = evented(("O", 0, 2), ("C", 0, 5), unit="microseconds")
    read = parse_profile(file(thread, events, sampled([], [], "none")))
    assert read.stacks == {(A,): 503_000, (A, B): 1_000_000}
    assert read.duration_ns == 1_500_000
    nested = [("O", 0, 10), ("O", 1, 12), ("O", 1, 13), ("C", 1, 17), ("C", 1, 17), ("O", 2, 18)]
    # For ten nothing is open.
    nested += [("C", 2, 19), ("C", 0, 20), ("O", 0, 30), ("C", 0, 31)]
    read = parse_profile(file(evented(*nested, unit="nanoseconds")))
    assert read.stacks == {(A,): 2 + 1 + 1 + 1, (A, B): 1, (A, B, B): 4, (A, C): 1}
    assert read.duration_ns == 11


@pytest.mark.parametrize(
    ("frame", "is_read_as"),
    [
        ({"name": "f", "file": "/home/me/project/a.py"}, python("f", "a.py")),
        ({"name": "render", "file": "https://x.org/app.js"}, native("render", "app.js")),
        ({"name": "a;b\n", "file": "x.py"}, python("a\\x3bb\\x0a", "x.py")),
    ],
)
def test_a_frame_is_normalised(frame: dict[str, Any], is_read_as: Frame) -> None:
    read = parse_profile(file(sampled([[0]], [1]), frames=[frame]), ROOTS)
    assert read.stacks == {(is_read_as,): 1}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (file(sampled([[0]], [1]))[:-9], "E_JSON_SYNTAX"),
        (b'{"$schema": "speedscope.app", "profiles": []}', '"shared" is missing'),
        (file(sampled([[0]], [1], type="heap")), "heap"),
        (file(sampled([[-1]], [1])), "profiles[0].samples[0][0]"),
        (file(sampled([[0]], [1], "parsecs")), "'parsecs' is no unit"),
        (file(sampled([[0]], [])), "1 samples have 0 weights"),
        (file(sampled([[0]], [-1])), "negative"),
        (file(sampled([[0]], [10**20])), "out of range"),
        (file(sampled([[0]], [10**18])), "counts more than"),
        (file(sampled([[0]], [0.5])), "fractions"),
        (file(sampled([[3]], [1])), "frame 3 of 3"),
        (file(sampled([[0]], [1]), sampled([[0]], [1], "bytes")), "different things: bytes"),
        (file(sampled([[0] * (collapsed.MAX_DEPTH + 1)], [1])), "deeper than"),
        (file(sampled([[0]], [1e10], "seconds"), exporter="py-spy@1"), "thirty years"),
        (file(evented(("O", 0, 1))), "never closed"),
        (file(evented(("C", 0, 1))), "not the last one opened"),
        (file(evented(("O", 0, 1), ("O", 1, 2), ("C", 0, 3), ("C", 1, 4))), "not the last one"),
        (file(evented(("O", 0, 2), ("C", 0, 1))), "earlier than"),
        (file(evented(("O", 9, 1), ("C", 9, 2))), "frame 9 of 3"),
        (file(evented(*(("O", 0, at) for at in range(collapsed.MAX_DEPTH + 1)))), "open at once"),
    ],
)
def test_a_malformed_file_is_an_error(raw: bytes, words: str) -> None:
    with pytest.raises(ReceiptError) as caught:
        parse_profile(raw)
    assert words in str(caught.value)
    assert words.startswith("E_") or caught.value.code == "E_PROFILE_FILE"


def test_all_stacks_of_events_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = file(evented(("O", 0, 0), ("O", 1, 1), ("C", 1, 2), ("C", 0, 3)))
    monkeypatch.setattr(collapsed, "MAX_FRAMES", 3)
    assert parse_profile(raw).samples == 3
    monkeypatch.setattr(collapsed, "MAX_FRAMES", 2)
    with pytest.raises(ReceiptError, match=r"E_PROFILE_FILE.*together"):
        parse_profile(raw)


@pytest.mark.parametrize("raw", [file(), file(sampled([], [])), file(sampled([[0]], [0]))])
def test_a_file_without_samples_is_an_error(raw: bytes) -> None:
    with pytest.raises(UndecidedError, match="E_NO_SAMPLES"):
        parse_profile(raw)


# Flamegate's own files.


@settings(max_examples=40)
@given(
    STACKS.filter(bool),
    st.text(max_size=20).filter(str.isprintable),
    st.sampled_from(["samples", "instructions", "nanoseconds", "bytes"]),
)
def test_any_profile_reads_back_as_it_was(stacks: dict[Stack, int], title: str, unit: str) -> None:
    taken = profile(
        stacks, unit=unit, degraded=("one; two",), lost=3, errors=2, pids=(1, 2), complete=4
    )
    raw = write_speedscope(taken, title)
    assert parse_profile(raw) == taken
    backwards = replace(taken, stacks=dict(reversed(stacks.items())))
    assert write_speedscope(backwards, title) == raw
    document = json.loads(raw)
    Draft202012Validator(SCHEMA).validate(document)
    (only,) = document["profiles"]
    assert only["endValue"] == sum(only["weights"])


def test_other_readers_get_names_and_files() -> None:
    taken = profile({(python("f"), native("g")): 3, (system("h"),): 1})
    document = json.loads(write_speedscope(taken, "10tok"))
    del document["flamegate"]
    assert parse_profile(json.dumps(document).encode()).stacks == taken.stacks


def tampered(**changed: Any) -> bytes:
    document = json.loads(write_speedscope(profile({(python("f"),): 3}), "10tok"))
    document["flamegate"] |= changed
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "changed",
    [
        *({"kinds": []}, {"kinds": ["java"]}, {"kinds": ["system"]}),
        *({"unit": "parsecs"}, {"rate_hz": -1}, {"profiler": None}),
    ],
    ids=str,
)
def test_the_facts_that_flamegate_adds_are_checked(changed: dict[str, Any]) -> None:
    with pytest.raises(ReceiptError, match="E_PROFILE_FILE"):
        parse_profile(tampered(**changed))


def test_texts_that_were_edited_by_hand_are_escaped() -> None:
    read = parse_profile(tampered(profiler="\x1b[2J", degraded=["a\nb"]))
    assert (read.profiler, read.degraded) == ("\\x1b[2J", ("a\\x0ab",))


def test_lines_of_the_project_are_counted_in_a_file_of_py_spy() -> None:
    frames = [
        {"name": "main", "file": "/home/me/project/src/a.py", "line": 9},
        {"name": "main", "file": "/home/me/project/src/a.py", "line": 12},
        {"name": "sum", "file": "/usr/lib/python3.11/statistics.py", "line": 5},
    ]
    samples = sampled([[0], [1, 2], [1], [2]], [1, 1, 1, 1], name='Thread 7 "MainThread"')
    counted = parse_recording(file(samples, frames=frames), ROOTS)
    assert counted.stacks == {
        (python("main", "a.py"),): 2,
        (python("main", "a.py"), python("sum", "statistics.py")): 1,
        (python("sum", "statistics.py"),): 1,
    }
    assert counted.lines == {(SourceLine("src/a.py", 9),): 1, (SourceLine("src/a.py", 12),): 2}
