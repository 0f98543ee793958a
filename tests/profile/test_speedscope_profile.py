"""Speedscope files of any tool, and our own read back."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pytest_flamegate.core.errors import FlamegateError, ReceiptError, UndecidedError
from pytest_flamegate.profile.formats import speedscope
from pytest_flamegate.profile.formats.imported import MAX_DEPTH
from pytest_flamegate.profile.formats.registry import parse_profile
from pytest_flamegate.profile.formats.speedscope_profile import write_speedscope
from pytest_flamegate.profile.model import Frame, Stack
from tests.profile.profiles import DATA, native, profile, python, system
from tests.profile.test_fold import STACKS
from tests.profile.test_speedscope import JSON

A, B, C = (native(name, "unknown") for name in "abc")
FRAMES = [{"name": "a"}, {"name": "b"}, {"name": "c", "file": None, "line": None}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "activeProfileIndex": {"type": "integer"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {
                "frames": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "file": {"type": "string"},
                            "line": {"type": "number"},
                            "col": {"type": "number"},
                        },
                    },
                }
            },
        },
        "profiles": {
            "type": "array",
            "items": {
                "type": "object",
                "required": [
                    "type",
                    "name",
                    "unit",
                    "startValue",
                    "endValue",
                    "samples",
                    "weights",
                ],
                "properties": {
                    "type": {"const": "sampled"},
                    "name": {"type": "string"},
                    "unit": {
                        "enum": [
                            "bytes",
                            "microseconds",
                            "milliseconds",
                            "nanoseconds",
                            "none",
                            "seconds",
                        ]
                    },
                    "startValue": {"type": "number"},
                    "endValue": {"type": "number"},
                    "samples": {
                        "type": "array",
                        "items": {"type": "array", "items": {"type": "number"}},
                    },
                    "weights": {"type": "array", "items": {"type": "number"}},
                },
            },
        },
    },
}
"""What the published schema asks of a file whose profiles are sampled."""


def sampled(samples: Any, weights: Any, unit: Any = "none", **more: Any) -> dict[str, Any]:
    return {
        "type": "sampled",
        "name": "t",
        "unit": unit,
        "startValue": 0,
        "endValue": 1,
        "samples": samples,
        "weights": weights,
        **more,
    }


def evented(*events: Any, unit: str = "none") -> dict[str, Any]:
    spelled = [
        {"type": event[0], "frame": event[1], "at": event[2]} if isinstance(event, tuple) else event
        for event in events
    ]
    return {"type": "evented", "name": "t", "unit": unit, "events": spelled}


def file(*profiles: Any, frames: Any = FRAMES, **more: Any) -> bytes:
    document = {"$schema": speedscope.SCHEMA, "shared": {"frames": frames}, **more}
    return json.dumps({**document, "profiles": list(profiles)}).encode()


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
def test_weights_keep_what_they_count(
    unit: str, weights: list[float], counts: list[int], becomes: str
) -> None:
    read = parse_profile(file(sampled([[0], [0, 1]], weights, unit)))
    assert read.stacks == {(A,): counts[0], (A, B): counts[1]}
    assert read.unit == becomes
    assert read.duration_ns == (sum(counts) if becomes == "nanoseconds" else 0)
    assert (read.profiler, read.rate_hz, read.event, read.pids) == ("unknown", 0, "unknown", ())
    assert any("without a unit" in note for note in read.degraded) == (unit == "none")


def test_threads_are_added_up() -> None:
    read = parse_profile(
        file(
            sampled([[0], [0, 1]], [0.5, 1], "milliseconds"),
            evented(("O", 0, 2), ("C", 0, 5), unit="microseconds"),
            sampled([], [], "none"),
        )
    )
    assert read.stacks == {(A,): 503_000, (A, B): 1_000_000}
    assert read.duration_ns == 1_500_000


def test_events_count_the_time_between_them() -> None:
    read = parse_profile(
        file(
            evented(
                ("O", 0, 10),
                ("O", 1, 12),
                ("O", 1, 13),
                ("C", 1, 17),
                ("C", 1, 17),
                ("O", 2, 18),
                ("C", 2, 19),
                ("C", 0, 20),
                ("O", 0, 30),  # nothing was open for ten
                ("C", 0, 31),
                unit="nanoseconds",
            )
        )
    )
    assert read.stacks == {(A,): 2 + 1 + 1 + 1, (A, B): 1, (A, B, B): 4, (A, C): 1}
    assert read.duration_ns == 11


def test_a_rate_that_nothing_samples_at_is_none() -> None:
    raw = file(sampled([[0]], [7], "seconds"), exporter="py-spy@0.4.3")
    assert parse_profile(raw.replace(b"[7]", b"[1e-320]")).rate_hz == 0
    assert parse_profile(raw.replace(b"[7]", b"[0.01]")).rate_hz == 100
    with pytest.raises(ReceiptError, match=r"E_SPEEDSCOPE.*thirty years"):
        parse_profile(raw.replace(b"[7]", b"[1e10]"))


def test_samples_of_py_spy_are_counted_and_not_weighed() -> None:
    read = parse_profile((DATA / "py-spy-speedscope.json").read_bytes(), ("/home/me/project/",))
    assert read.samples == 12
    assert read.unit == "samples"
    assert (read.profiler, read.profiler_version, read.rate_hz) == ("py-spy", "0.4.3", 200)
    assert read.duration_ns == 60_000_000
    assert (read.event, read.python) == ("unknown", "")


@pytest.mark.parametrize(
    ("frame", "is_read_as"),
    [
        (
            {"name": "f", "file": "/x/site-packages/numpy/a.py", "line": 3},
            python("f", "numpy/a.py"),
        ),
        ({"name": "f", "file": "/home/me/project/a.py"}, python("f", "a.py")),
        ({"name": "sgemv", "file": "/usr/lib/libblas.so.3"}, native("sgemv", "libblas.so.3")),
        ({"name": "render", "file": "https://x.org/app.js"}, native("render", "app.js")),
        ({"name": "f (a.py:12)"}, python("f", "a.py")),
        ({"name": "read_[k]"}, system("read")),
        ({"name": "a;b\n", "file": "x.py"}, python("a\\x3bb\\x0a", "x.py")),
        ({"name": "\ud800"}, native("\\ud800", "unknown")),
    ],
)
def test_a_frame_is_normalised(frame: dict[str, Any], is_read_as: Frame) -> None:
    read = parse_profile(file(sampled([[0]], [1]), frames=[frame]), ("/home/me/project/",))
    assert read.stacks == {(is_read_as,): 1}


def without(key: str) -> bytes:
    document = json.loads(file(sampled([[0]], [1])))
    del document[key]
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (file(sampled([[0]], [1]))[:-9], "no JSON"),
        (file().replace(b'"name"', b'"name": "x", "name"', 1), "twice"),
        (b'{"$schema": "https://www.speedscope.app/x", "a":' + b"[" * 100_000, "nested too deeply"),
        (without("shared"), "shared is no object"),
        (without("profiles"), "profiles is no list"),
        (file(5), "a profile is no object"),
        (file(frames=5), "frames is no list"),
        (file(frames=[{}]), "a frame has no name"),
        (file(frames=[{"name": "f", "file": 3}]), "file is no text"),
        (file(sampled([[0]], [1], "parsecs")), "'parsecs' is no unit"),
        (file(sampled([[0]], [1], 5)), "unit is no text"),
        (file(sampled([[0]], [1], type="heap")), "'heap', neither sampled nor evented"),
        (file(sampled([[0]], [])), "1 samples have 0 weights"),
        (file(sampled(5, [])), "samples is no list"),
        (file(sampled([[0]], [-1])), "negative"),
        (file(sampled([[0]], ["1"])), "a weight is no number"),
        (file(sampled([[0]], [True])), "a weight is no number"),
        (file(sampled([[0]], [float("nan")])), "NaN is no number"),
        (file(sampled([[0]], [float("inf")])), "Infinity is no number"),
        (file(sampled([[0]], [7])).replace(b"7", b"1e999"), "out of range"),
        (file(sampled([[0]], [7])).replace(b"[7]", b"[" + b"7" * 5000 + b"]"), "no JSON"),
        (file(sampled([[0]], [10**19])), "counts more than"),
        (file(sampled([[0]], [0.5])), "fractions"),
        (file(sampled([0], [1])), "no list of frame numbers"),
        (file(sampled([[3]], [1])), "3 is the number of no frame"),
        (file(sampled([[-1]], [1])), "-1 is the number of no frame"),
        (file(sampled([[0.0]], [1])), "number of no frame"),
        (file(sampled([[[0]]], [1])), "no frame numbers"),
        (file(sampled([[0]], [1]), sampled([[0]], [1], "bytes")), "different things: bytes"),
        (file(sampled([[0] * (MAX_DEPTH + 1)], [1])), "deeper than"),
        (file(evented(("O", 0, 1))), "never closed"),
        (file(evented(("C", 0, 1))), "not the last one opened"),
        (file(evented(("O", 0, 1), ("O", 1, 2), ("C", 0, 3), ("C", 1, 4))), "not the last one"),
        (file(evented(("O", 0, 2), ("C", 0, 1))), "earlier than"),
        (file(evented(("O", 9, 1), ("C", 9, 2))), "9 is the number of no frame"),
        (file(evented(("X", 0, 1))), "neither opens nor closes"),
        (file(evented(("O", 0, "1"))), "the time of an event is no number"),
        (file(evented(5)), "an event is no object"),
        (file(evented(*(("O", 0, at) for at in range(MAX_DEPTH + 1)))), "open at once"),
    ],
)
def test_a_malformed_file_is_refused(raw: bytes, words: str) -> None:
    with pytest.raises(ReceiptError, match=f"E_SPEEDSCOPE.*{words}"):
        parse_profile(raw)


def test_all_stacks_of_events_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = file(evented(("O", 0, 0), ("O", 1, 1), ("C", 1, 2), ("C", 0, 3)))
    monkeypatch.setattr(speedscope, "MAX_FRAMES", 3)
    assert parse_profile(raw).samples == 3
    monkeypatch.setattr(speedscope, "MAX_FRAMES", 2)
    with pytest.raises(ReceiptError, match=r"E_SPEEDSCOPE.*together"):
        parse_profile(raw)


@pytest.mark.parametrize("raw", [file(), file(sampled([], [])), file(sampled([[0]], [0]))])
def test_a_file_without_samples_is_refused(raw: bytes) -> None:
    with pytest.raises(UndecidedError, match="E_NO_SAMPLES"):
        parse_profile(raw)


TEXT = st.text(max_size=20)


@given(
    STACKS.filter(bool),
    TEXT.filter(str.isprintable),
    st.sampled_from(["samples", "instructions", "nanoseconds", "bytes"]),
)
def test_any_profile_reads_back_as_it_was(stacks: dict[Stack, int], note: str, unit: str) -> None:
    written = profile(stacks, unit=unit, degraded=("one; two",), lost=3, errors=2, pids=(1, 2))
    raw = write_speedscope(written, note)
    assert parse_profile(raw) == written
    assert (
        write_speedscope(profile(dict(reversed(stacks.items())), **changes(written)), note) == raw
    )


def changes(written: Any) -> dict[str, Any]:
    names = ("unit", "degraded", "lost", "errors", "pids", "complete")
    return {name: getattr(written, name) for name in names}


@given(STACKS)
def test_what_is_written_is_valid_by_the_published_schema(stacks: dict[Stack, int]) -> None:
    document = json.loads(write_speedscope(profile(stacks), "10tok"))
    Draft202012Validator(SCHEMA).validate(document)
    (only,) = document["profiles"]
    assert len(only["samples"]) == len(only["weights"])
    assert only["endValue"] == sum(only["weights"])
    frames = document["shared"]["frames"]
    assert all(0 <= index < len(frames) for sample in only["samples"] for index in sample)


def test_other_readers_get_names_and_files_without_what_flamegate_adds() -> None:
    raw = write_speedscope(profile({(python("f"), native("g")): 3, (system("h"),): 1}), "10tok")
    document = json.loads(raw)
    del document["flamegate"]
    read = parse_profile(json.dumps(document).encode())
    assert read.stacks == {(python("f"), native("g")): 3, (system("h"),): 1}


def tampered(**changed: Any) -> bytes:
    document = json.loads(write_speedscope(profile({(python("f"),): 3}), "10tok"))
    document["flamegate"] |= changed
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "raw",
    [
        tampered(kinds=[]),
        tampered(kinds=["java"]),
        tampered(kinds=[["python"]]),
        tampered(kinds=["system"]),
        tampered(unit="parsecs"),
        tampered(unit=[]),
        tampered(rate_hz=-1),
        tampered(rate_hz=True),
        tampered(pids=["1"]),
        tampered(degraded="x"),
        tampered(profiler=None),
        tampered(covers=None),
    ],
)
def test_what_flamegate_added_is_checked(raw: bytes) -> None:
    with pytest.raises(ReceiptError, match="E_SPEEDSCOPE"):
        parse_profile(raw)


def test_words_put_there_by_hand_are_escaped() -> None:
    read = parse_profile(tampered(profiler="\x1b[2J", degraded=["a\nb"]))
    assert read.profiler == "\\x1b[2J"
    assert read.degraded == ("a\\x0ab",)


@given(JSON.map(lambda value: b'{"$schema": "speedscope.app", "shared": %s}' % dump(value)))
def test_any_document_is_read_or_refused(raw: bytes) -> None:
    with suppress(FlamegateError):
        assert parse_profile(raw).samples > 0


def dump(value: object) -> bytes:
    return json.dumps({"frames": FRAMES}).encode() + b', "profiles": ' + json.dumps(value).encode()
