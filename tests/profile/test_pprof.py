"""Pprof files, parsed again by protobuf."""

from __future__ import annotations

import gzip
import sys
from typing import Any

import pytest
from hypothesis import given

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.profile.folded import parse_folded
from pytest_flamegate.profile.formats.pprof import profile_message, write_pprof
from pytest_flamegate.profile.model import Stack
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


def test_functions_belong_to_their_files_and_libraries() -> None:
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
def test_the_file_states_unit_rate_and_conditions(unit: Any, kind: tuple[str, str]) -> None:
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
    comments = [texts[each] for each in message.comment]
    assert comments == ["perf 6.1", "call graph dwarf,32768", "sampled without pausing"]


def test_unknown_facts_are_not_written() -> None:
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
