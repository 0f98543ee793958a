from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.profile.profilers.errors import ProfilerError
from pytest_flamegate.profile.profilers.perf_script import parse_script
from pytest_flamegate.profile.stacks import trim_stacks
from tests.profile.profiles import DATA, native, profile, python

HEADER = b"16592/16592  3955.045222: cpu-clock: \n"
FRAME = b"\t            9045 sgemv (/usr/lib/libblas.so)\n"


def captured(name: str) -> list[bytes]:
    return (DATA / name).read_bytes().splitlines(keepends=True)


def test_dwarf_stacks_reach_from_the_start_of_the_process_to_the_kernel() -> None:
    script = parse_script(captured("perf-script-dwarf.txt"))
    assert sum(script.stacks.values()) == 6
    assert script.pids == {16592}
    assert {stack[0] for stack in script.stacks} == {native("_start", "python3.11")}
    gemv = [stack for stack in script.stacks if stack[-1].name == "dgemv_kernel_4x4"]
    assert gemv[0][-1] == native("dgemv_kernel_4x4", "libscipy_openblas64_.so")
    assert script.stacks[gemv[0]] == 2
    kernel = {stack[-1] for stack in script.stacks if stack[-1].kind == "system"}
    assert kernel == {
        Frame("mas_walk", "kernel", "system"),
        Frame("finish_task_switch", "kernel", "system"),
    }


def test_a_frame_without_an_address_stands_once_for_a_run_of_them() -> None:
    script = parse_script(captured("perf-script-fp.txt"))
    unknown = native("[unknown]", "unknown")
    assert (unknown, native("PyNumber_InPlaceAdd", "libpython3.11.so.1.0")) in script.stacks


def test_python_frames_come_from_the_jitdump_and_trampolines_go() -> None:
    script = parse_script(captured("perf-script-jit.txt"), ("/home/me/project/",))
    names = {frame.name for stack in script.stacks for frame in stack if frame.kind == "python"}
    hostile = "x\\x3by (/a.so)??      123 i2s_gemv (/lib/ggml.so)"
    assert names == {
        "<module>",
        "measured_sequences",
        "Model.rms_norm",
        "Model.attention",
        hostile,
    }
    assert not any(f.name == "py_trampoline_evaluator" for stack in script.stacks for f in stack)
    whole = trim_stacks(profile(script.stacks))
    assert whole.completeness == 1.0
    assert {stack[0] for stack in whole.stacks} == {python("measured_sequences", "purespin.py")}


def test_times_and_losses_are_counted() -> None:
    lines = [
        HEADER,
        FRAME,
        b"\n",
        b"16760/16760  4006.293138: PERF_RECORD_LOST lost 71\n",
        b"16760/16760  4006.297124: PERF_RECORD_LOST lost 12\n",
        b"16760/16760  4006.297124: PERF_RECORD_LOST_SAMPLES lost samples 80\n",
        b"16592/16592  3956.045223: cpu-clock:u: \n",
        FRAME,
        b"\n",
    ]
    script = parse_script(lines)
    assert script.lost == 83
    assert script.span_ns == 1_000_001_000
    assert script.stacks == {(native("sgemv", "libblas.so"),): 2}


@pytest.mark.parametrize(
    ("line", "name", "module"),
    [
        (b"\t  9 f(int) (/usr/lib/libx (1)/libx.so)\n", "f", "libx.so"),
        (b"\t  9 a b (/usr/lib/libx.so (deleted))\n", "a b", "libx.so"),
        (b"\t  9 [unknown] (/usr/lib/libx.so)\n", "[libx.so]", "libx.so"),
        (b"\t  9 odd (inlined)\n", "odd", "inlined"),
        (b"\t  9 bare\n", "bare", "unknown"),
        (b"\t  9 \xff (/usr/lib/libx.so)\n", "\\udcff", "libx.so"),
    ],
)
def test_symbol_and_library_are_told_apart(line: bytes, name: str, module: str) -> None:
    assert list(parse_script([HEADER, line, b"\n"]).stacks) == [(native(name, module),)]


def test_a_sample_without_a_call_chain_is_a_sample() -> None:
    inline = b"1/1  3.000001: cpu-clock:             9045 sgemv (/usr/lib/libblas.so)\n"
    assert parse_script([inline]).stacks == {(native("sgemv", "libblas.so"),): 1}
    assert parse_script([HEADER, b"\n"]).stacks == {(native("[unknown]", "unknown"),): 1}


@pytest.mark.parametrize(
    "lines",
    [
        [HEADER, FRAME],
        [HEADER],
        [FRAME],
        [HEADER, b"\tnot hexadecimal\n", b"\n"],
        [HEADER, b"words that perf does not say\n"],
        [b"99999999999/1  3.000001: cpu-clock: \n", b"\n"],
        [b"\x00\xff\n"],
    ],
)
def test_what_perf_does_not_write_is_refused(lines: list[bytes]) -> None:
    with pytest.raises(FlamegateError, match="E_PROFILER_OUTPUT"):
        parse_script(lines)


@given(st.binary(max_size=300), st.integers(0, 20))
def test_any_bytes_are_parsed_or_refused(junk: bytes, at: int) -> None:
    lines = captured("perf-script-fp.txt")
    lines[at:at] = junk.splitlines(keepends=True)
    for candidate in (lines, junk.splitlines(keepends=True), [b"\t" + junk]):
        with suppress(ProfilerError):
            script = parse_script(candidate)
            assert all(stack and count > 0 for stack, count in script.stacks.items())
