"""Pprof files, parsed again by protobuf and read by the real tool where there is one."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.profile.folded import fold_profile, parse_folded
from pytest_flamegate.profile.formats.pprof import profile_message, write_pprof
from pytest_flamegate.profile.formats.registry import export_profile
from pytest_flamegate.profile.model import Profile, Stack
from tests.profile.profiles import native, profile, python, system
from tests.profile.test_folded import STACKS

TAKEN = profile(
    {
        (python("<module>"), python("run"), native("sgemv", "libblas.so")): 3,
        (python("<module>"), native("read", "libc.so.6"), system("vfs_read")): 1,
    }
)


def parsed(raw: bytes) -> Any:
    message = profile_message()()
    message.ParseFromString(gzip.decompress(raw))
    return message


def stacks_of(message: Any) -> dict[Stack, int]:
    texts = message.string_table
    functions = {each.id: texts[each.system_name] for each in message.function}
    places = {each.id: functions[each.line[0].function_id] for each in message.location}
    lines = [
        f"{';'.join(places[number] for number in reversed(each.location_id))} {each.value[0]}\n"
        for each in message.sample
    ]
    return dict(parse_folded("".join(lines)))


@given(STACKS)
def test_any_profile_reads_back_from_its_messages(stacks: dict[Stack, int]) -> None:
    raw = write_pprof(profile(stacks), "10tok")
    assert stacks_of(parsed(raw)) == stacks
    backwards = dict(reversed(stacks.items()))
    assert write_pprof(profile(backwards), "10tok") == raw


def test_a_name_that_is_no_text_is_escaped() -> None:
    assert "run\\udcff" in parsed(write_pprof(TAKEN, "run\udcff")).string_table


def test_functions_say_where_they_stand() -> None:
    message = parsed(write_pprof(TAKEN, "10tok"))
    texts = message.string_table
    assert texts[0] == ""
    assert {(texts[f.name], texts[f.filename]) for f in message.function} == {
        ("<module>", "engine.py"),
        ("run", "engine.py"),
        ("sgemv", ""),
        ("read", ""),
        ("vfs_read", ""),
    }
    libraries = {each.id: texts[each.filename] for each in message.mapping}
    names = {each.id: texts[each.name] for each in message.function}
    within = {
        names[each.line[0].function_id]: libraries[each.mapping_id] for each in message.location
    }
    assert within == {
        "<module>": "10tok",
        "run": "10tok",
        "sgemv": "libblas.so",
        "read": "libc.so.6",
        "vfs_read": "kernel",
    }


@pytest.mark.parametrize(
    ("unit", "kind"),
    [
        ("samples", ("samples", "count")),
        ("instructions", ("instructions", "count")),
        ("nanoseconds", ("time", "nanoseconds")),
        ("bytes", ("space", "bytes")),
    ],
)
def test_the_file_says_what_was_counted_and_how(unit: Any, kind: tuple[str, str]) -> None:
    taken = profile({(python("f"),): 5}, unit=unit, degraded=("sampled without pausing",))
    message = parsed(write_pprof(taken, "10tok"))
    texts = message.string_table
    (only,) = message.sample_type
    assert (texts[only.type], texts[only.unit]) == kind
    assert (texts[message.period_type.type], texts[message.period_type.unit]) == (
        "cpu-clock",
        "nanoseconds",
    )
    assert message.period == 1_001_001
    assert message.duration_nanos == taken.duration_ns
    told = [texts[each] for each in message.comment]
    assert told == ["perf 6.1", "call graph dwarf,32768", "sampled without pausing"]


def test_what_is_not_known_is_not_written() -> None:
    unknown = {"profiler": "unknown", "profiler_version": "", "call_graph": "unknown"}
    message = parsed(write_pprof(profile({(python("f"),): 5}, rate_hz=0, **unknown), "x"))
    assert not message.HasField("period_type")
    assert message.period == 0
    assert list(message.comment) == []


def test_without_protobuf_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    profile_message.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    try:
        with pytest.raises(ToolError, match=r"E_NO_PROTOBUF.*pip install 'pytest-flamegate\[pprof"):
            write_pprof(TAKEN, "10tok")
    finally:
        profile_message.cache_clear()


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no go here")
def test_the_real_tool_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "10tok.pb.gz"
    path.write_bytes(write_pprof(TAKEN, "10tok"))
    done = subprocess.run(
        ["go", "tool", "pprof", "-top", "-nodecount=9", str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    table = [line.split() for line in done.stdout.splitlines()]
    assert ["File:", "10tok"] in table
    assert ["3", "75.00%", "75.00%", "3", "75.00%", "sgemv"] in table
    assert ["0", "0%", "100%", "4", "100%", "<module>"] in table


def test_every_format_writes_the_same_bytes_for_the_same_profile() -> None:
    again = Profile(**{name: getattr(TAKEN, name) for name in TAKEN.__slots__})
    for form in ("folded", "speedscope", "pprof"):
        assert export_profile(TAKEN, form, "10tok") == export_profile(again, form, "10tok")
    assert export_profile(TAKEN, "folded", "10tok") == fold_profile(TAKEN).encode()
