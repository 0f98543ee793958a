"""The output of ``perf script``, as stacks."""

import struct
import tracemalloc
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.model import SampledStacks
from pytest_flamegate.profile.profilers import perf_data
from pytest_flamegate.profile.profilers.perf_data import parse_script
from pytest_flamegate.profile.stacks import trim_stacks
from tests.profile.profiles import DATA, native, profile, python

JITDUMP = struct.pack("=4I2Q2I", 0x4A695444, 1, 40, 62, 0, 7, 0, 0)[:40]


def record(kind: int, body: bytes) -> bytes:
    return struct.pack("=2IQ", kind, 16 + len(body), 1) + body


def loaded(name: bytes) -> bytes:
    return record(0, b"\x11" * 40 + name + b"\0" + b"\x48\x0a\x09\xc3")


def scrubbed(path: Path, content: bytes) -> bytes:
    path.write_bytes(content)
    perf_data.scrub_names(path)
    return path.read_bytes()


def test_control_characters_leave_names_and_nothing_else(tmp_path: Path) -> None:
    unwinding = record(4, b"\x0a\x00\x09")
    begun = JITDUMP + loaded(b"py::f:/x.py") + unwinding
    after = begun + loaded("py::a??ü?".encode())
    assert scrubbed(tmp_path / "jit.dump", begun + loaded("py::a\n\tü\x7f".encode())) == after


@pytest.mark.parametrize(
    "content",
    [
        *(b"short", JITDUMP, JITDUMP + loaded(b"py::a\n")[:50]),
        JITDUMP + struct.pack("=2IQ", 0, 0, 1),
        JITDUMP + struct.pack("=2IQ", 0, 2**32 - 1, 1),
        b"no jitdump at all, but long enough to hold a header of one",
    ],
)
def test_a_damaged_dump_is_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    assert scrubbed(tmp_path / "jit.dump", content) == content


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(JITDUMP + loaded(b"a\nb"))
    (tmp_path / "jit.dump").symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        perf_data.scrub_names(tmp_path / "jit.dump")
    assert b"a\nb" in target.read_bytes()


def test_only_the_files_of_one_process_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perf_data, "DIRECTORY", tmp_path)
    for name in ("jit-7.dump", "jitted-7-1.so", "jitted-7-22.so", "jit-77.dump", "jitted-77-1.so"):
        (tmp_path / name).touch()
    perf_data.remove_jit_files(7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jit-77.dump", "jitted-77-1.so"]


HEADER = b"16592/16592  3955.045222: cpu-clock: \n"
FRAME = b"\t            9045 sgemv (/usr/lib/libblas.so)\n"
SGEMV = native("sgemv", "libblas.so")


def parse(text: bytes, window_ns: tuple[int, int] | None = None) -> SampledStacks:
    return parse_script([text], ("/home/me/project/",), window_ns)


def recorded(name: str) -> bytes:
    return (DATA / f"perf-script-{name}.txt").read_bytes()


def test_dwarf_stacks_reach_from_the_start_of_the_process_to_the_kernel() -> None:
    script = parse(recorded("dwarf"))
    assert (sum(script.stacks.values()), script.pids) == (6, (16592,))
    assert {stack[0] for stack in script.stacks} == {native("_start", "python3.11")}
    (gemv,) = [stack for stack in script.stacks if stack[-1].name == "dgemv_kernel_4x4"]
    assert gemv[-1].module == "libscipy_openblas64_.so"
    assert script.stacks[gemv] == 2
    in_kernel = {stack[-1].name for stack in script.stacks if stack[-1].kind == "system"}
    assert in_kernel == {"mas_walk", "finish_task_switch"}


def test_a_run_of_frames_without_an_address_is_one_frame() -> None:
    unknown = native("[unknown]", "unknown")
    added = native("PyNumber_InPlaceAdd", "libpython3.11.so.1.0")
    assert (unknown, added) in parse(recorded("fp")).stacks


def test_python_frames_come_from_the_jitdump_without_trampolines() -> None:
    script = parse(recorded("jit"))
    names = {frame.name for stack in script.stacks for frame in stack if frame.kind == "python"}
    assert names == {
        "<module>",
        "measured_sequences",
        "Model.rms_norm",
        "Model.attention",
        "x\\x3by (/a.so)??      123 i2s_gemv (/lib/ggml.so)",
    }
    assert not any(f.name == "py_trampoline_evaluator" for stack in script.stacks for f in stack)
    whole = trim_stacks(profile(dict(script.stacks)))
    assert whole.completeness == 1.0
    assert {stack[0] for stack in whole.stacks} == {python("measured_sequences", "purespin.py")}


def test_times_and_losses_are_counted() -> None:
    lost = b"\n7/7  4006.293138: PERF_RECORD_LOST lost 71\n7/7  4006.3: PERF_RECORD_LOST lost 12\n"
    lost += b"7/7  4006.297124: PERF_RECORD_LOST_SAMPLES lost samples 80\n"
    other = b"16593/16592  3956.045223: cpu-clock:u: \n"
    script = parse(HEADER + FRAME + lost + other + FRAME + b"\n")
    assert (script.lost, script.duration_ns, script.pids) == (83, 1_000_001_000, (16592, 16593))
    assert script.stacks == {(SGEMV,): 2}


def test_samples_outside_of_the_window_do_not_count() -> None:
    times = (b"3955.000000", b"3956.5", b"3957.000000000", b"3958.123456")
    text = b"".join(
        HEADER.replace(b"3955.045222", t.ljust(11, b"0")) + FRAME + b"\n" for t in times
    )
    script = parse(text, (3_956_500_000_000, 3_957_000_000_000))
    assert script.stacks == {(SGEMV,): 2}
    assert script.duration_ns == 500_000_000
    outside = parse(text, (0, 1))
    assert (outside.stacks, outside.pids, outside.duration_ns) == ({}, (), 0)


@pytest.mark.parametrize(
    ("line", "name", "module"),
    [
        (b"\t  9 f(int) (/usr/lib/libx (1)/libx.so)\n", "f", "libx.so"),
        (b"\t  9 a b (/usr/lib/libx.so (deleted))\n", "a b", "libx.so"),
        (b"\t  9 [unknown] (/usr/lib/libx.so)\n", "[libx.so]", "libx.so"),
        (b"\t  9 odd (inlined)\n", "odd", "inlined"),
        (b"\t  9 bare\n", "bare", "unknown"),
        (b"\t  9 odd\tname (/usr/lib/libx.so)\n", "odd\\x09name", "libx.so"),
        (b"\t  9 \xff (/usr/lib/libx.so)\n", "\\udcff", "libx.so"),
    ],
)
def test_symbol_and_library_are_separated(line: bytes, name: str, module: str) -> None:
    assert list(parse(HEADER + line + b"\n").stacks) == [(native(name, module),)]


def test_a_sample_without_a_call_chain_is_a_sample() -> None:
    inline = b"1/1  3.000001: cpu-clock:             9045 sgemv (/usr/lib/libblas.so)\n"
    assert parse(inline).stacks == {(SGEMV,): 1}
    assert parse(HEADER + b"\n").stacks == {(native("[unknown]", "unknown"),): 1}


@pytest.mark.parametrize(
    "text",
    [
        *(HEADER + FRAME, HEADER, FRAME, b"\x00\xff\n"),
        HEADER + b"\tnot hexadecimal\n\n",
        HEADER + b"words that perf does not say\n",
        b"99999999999/1  3.000001: cpu-clock: \n\n",
        b"1/1  9999999999999.000001: cpu-clock: \n\n",
        b"1/1  3.000001: cpu-clock: no frame\n",
    ],
)
def test_a_line_that_perf_does_not_write_is_an_error(text: bytes) -> None:
    with pytest.raises(FlamegateError, match="E_PROFILER_OUTPUT"):
        parse(text)


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_chunks_may_end_anywhere(size: int) -> None:
    text = recorded("fp") + recorded("dwarf")
    whole = parse(text)
    pieces = parse_script(
        (text[at : at + size] for at in range(0, len(text), size)), ("/home/me/project/",)
    )
    assert (pieces.stacks, pieces.pids) == (whole.stacks, whole.pids)
    assert pieces.duration_ns == whole.duration_ns


def test_memory_stays_flat_as_the_input_grows() -> None:
    """10,000 samples of ten stacks, each at addresses of its own: 9 MB."""
    frame = b"\t%16x f%d (/lib/a.so)\n"
    samples = (
        b"7/7 %5d.%06d: cpu-clock: \n" % divmod(at, 10**6)
        + b"".join(frame % (at * 64 + i, at % 10) for i in range(20))
        + b"\n"
        for at in range(10_000)
    )
    tracemalloc.start()
    try:
        parse_script(samples)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
