"""Reading at full speed says what reading line by line says, whatever perf printed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.profile.profilers import perf_script
from pytest_flamegate.profile.profilers.errors import ProfilerError
from pytest_flamegate.profile.profilers.perf_script import Script, parse_script
from tests.profile.plain_perf_script import plain
from tests.profile.profiles import DATA

SYMBOLS = (
    b"sgemv (/usr/lib/libblas.so)",
    b"main (/usr/bin/engine)",
    b"[unknown] ([unknown])",
    b"[unknown] (/usr/lib/libblas.so)",
    b"py_trampoline_evaluator (/usr/lib/libpython3.13.so)",
    b"py::run:/home/me/a b.py (/tmp/jitted-7-1.so)",
    b"do_syscall_64 ([kernel.kallsyms])",
    b"odd\tname (/x)",
    b"1/1  3.000001: cpu-clock: ",
    b"\xff;\x1b[0m (/y)",
    b"",
)
ODD = (
    b"16760/16760  4006.293138: PERF_RECORD_LOST lost 71\n",
    b"16760/16760  4006.293138: PERF_RECORD_LOST_SAMPLES lost samples 80\n",
    b"1/1  3.000001: cpu-clock:             9045 sgemv (/usr/lib/libblas.so)\n",
    b"16592/16592  3955.045222: cpu-clock: \n\n",
    b"\n",
    b" \n",
    b"\r\n",
    b"words that perf does not say\n",
    b"99999999999/1  3.000001: cpu-clock: \n\n",
    b"1/1  9999999999999.000001: cpu-clock: \n\n",
    b"\tnot hexadecimal\n",
    b"\t  9 short (/a)\n",
    b"\t            9045 cut",
)
addresses = st.integers(0, 2**64 - 1).map(lambda ip: b"%16x" % ip)
frames = st.tuples(addresses, st.sampled_from(SYMBOLS)).map(lambda f: b"\t%b %b\n" % f)
headers = st.builds(
    lambda pid, tid, s, us, event: b"%5d/%-5d %5d.%06d: %10b: \n" % (pid, tid, s, us, event),
    st.sampled_from([-1, 7, 16592, 16593]),
    st.sampled_from([7, 16592]),
    st.integers(90, 120),
    st.integers(0, 999_999),
    st.sampled_from([b"cpu-clock", b"cpu-clock:u"]),
)
samples = st.tuples(headers, st.lists(frames, max_size=4)).map(
    lambda s: s[0] + b"".join(s[1]) + b"\n"
)
scripts = st.lists(samples, max_size=12)
windows = st.none() | st.tuples(st.integers(95, 105), st.integers(100, 115)).map(
    lambda w: (w[0] * 10**9, w[1] * 10**9)
)


def chunked(text: bytes, size: int) -> Iterator[bytes]:
    return (text[at : at + size] for at in range(0, len(text), size))


def agrees(text: bytes, size: int, window_ns: tuple[int, int] | None) -> None:
    expected = plain(text, window_ns)
    if expected is None:
        with pytest.raises(ProfilerError, match="E_PROFILER_OUTPUT"):
            parse_script(chunked(text, size), (), window_ns)
        return
    found = parse_script(chunked(text, size), (), window_ns)
    assert found.stacks == expected.stacks
    assert found.pids == expected.pids
    assert (found.lost_chunks, found.lost_samples) == (expected.lost[False], expected.lost[True])
    times = expected.times
    assert (found.first_ns, found.last_ns) == ((times[0], max(times)) if times else (None, 0))


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    """So that a few samples are many blocks, most of them of known functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perf_script, "BLOCK_BYTES", 150)
        yield


@given(scripts, st.integers(1, 400), windows)
def test_samples_are_read_as_line_by_line(
    script: list[bytes], size: int, window_ns: tuple[int, int] | None
) -> None:
    agrees(b"".join(script), size, window_ns)


@given(scripts, st.lists(st.tuples(st.integers(0), st.sampled_from(ODD)), max_size=2), windows)
def test_what_is_rare_is_read_or_refused_as_line_by_line(
    script: list[bytes], odd: list[tuple[int, bytes]], window_ns: tuple[int, int] | None
) -> None:
    lines = b"".join(script).splitlines(keepends=True)
    for at, line in odd:
        lines.insert(at % (len(lines) + 1), line)
    agrees(b"".join(lines), 100, window_ns)


@given(scripts, st.integers(0), st.binary(max_size=4))
def test_a_cut_or_a_foreign_byte_is_seen_as_line_by_line(
    script: list[bytes], at: int, junk: bytes
) -> None:
    text = b"".join(script * 3)
    at %= len(text) + 1
    line_start = text.rfind(b"\n", 0, at) + 1
    if text[line_start : line_start + 1] == b"\t" and at - line_start <= 17:
        at = line_start  # what stands in the place of a known function's address is not read
    agrees(text[:at] + junk + text[at:], 100, None)
    agrees(text[:at], 100, None)


@pytest.mark.parametrize("name", ["fp", "dwarf", "jit"])
@pytest.mark.parametrize("size", [1, 4096, 1 << 20])
def test_what_perf_printed(name: str, size: int) -> None:
    agrees((DATA / f"perf-script-{name}.txt").read_bytes() * 3, size, None)


def test_nearly_all_is_read_at_full_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[int] = []
    read = perf_script._Reader.samples

    def noted(self: Any, block: bytes) -> bool:
        slow.append(0 if (fast := read(self, block)) else len(block))
        return fast

    monkeypatch.setattr(perf_script._Reader, "samples", noted)
    monkeypatch.setattr(perf_script, "BLOCK_BYTES", 1 << 13)
    text = (DATA / "perf-script-dwarf.txt").read_bytes() * 50
    parse_script(chunked(text, 1 << 13))
    assert sum(slow) < len(text) / 5


def test_memory_stays_flat_as_the_input_grows() -> None:
    def peak(samples: int) -> int:
        tracemalloc.start()
        try:
            parse_script(made(samples))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2_000)  # the first call of some length pays once for what every later one uses
    few, many = peak(2_000), peak(20_000)
    assert many < 1.2 * few


def made(samples: int) -> Iterator[bytes]:
    """Samples of ten stacks, each at addresses of its own."""
    for at in range(samples):
        seconds, micros = divmod(at, 10**6)
        lines = [b"7/7 %5d.%06d: cpu-clock: \n" % (seconds, micros)]
        lines += [b"\t%16x f%d (/lib/a.so)\n" % (at * 64 + i, at % 10) for i in range(20)]
        yield b"".join([*lines, b"\n"])


def test_script_is_empty_where_nothing_was_printed() -> None:
    assert parse_script([]) == Script()
