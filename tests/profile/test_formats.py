"""Folded stacks of any tool, and the errors for files that hold no profile."""

import gzip
import resource
import time
import zlib
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import ReceiptError, ToolError, UndecidedError
from pytest_flamegate.core.text import NAME_BYTES
from pytest_flamegate.profile import formats
from pytest_flamegate.profile.formats import collapsed, parse_profile, read_file, unpack
from pytest_flamegate.profile.frames import fold_profile
from pytest_flamegate.profile.model import Frame, Stack
from tests.profile.profiles import DATA, native, profile, python, system

UNKNOWN = native("[unknown]", "unknown")


def plain(name: str) -> Frame:
    return native(name, "unknown")


def stacks(text: str, *roots: str) -> dict[Stack, int]:
    return dict(parse_profile(text.encode("utf-8", "surrogateescape"), roots).stacks)


def test_names_that_were_escaped_once_are_not_escaped_again() -> None:
    written = {(python("a\\x3bb"), native("g\\x0ah")): 3, (system("read"),): 1}
    assert parse_profile(fold_profile(profile(written)).encode()).stacks == written


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        ("main;f", (plain("main"), plain("f"))),
        ("f (/home/me/project/src/a.py:12)", (python("f", "a.py"),)),
        ("<module> (<string>:1)", (python("<module>", "<string>"),)),
        ("main (/usr/local/bin/pytest:8)", (python("main", "pytest"),)),
        ("sgemv_n (/x/libopenblas-0cf96a72.so)", (native("sgemv_n", "libopenblas.so"),)),
        ("0x7f133204524a (/lib/libc.so.6)", (native("[libc.so.6]", "libc.so.6"),)),
        ("step (kernels.c:88)", (native("step", "kernels.c"),)),
        ('process 12:"python x.py";thread (12)', (plain("process"), plain("thread"))),
        ("thread (0x7F00): pool", (plain("thread pool"),)),
        ("do_syscall_64_[k]", (system("do_syscall_64"),)),
        ("java/lang/Thread.run_[j]", (native("java/lang/Thread.run", "jit"),)),
        ("py::f:/home/me/project/a.py_[j]", (python("f", "a.py"),)),
        ("py::f:/home/me/project/a.py", (python("f", "a.py"),)),
        ("inner_[i]", (plain("inner"),)),
        ("[libfoo.so]", (native("[libfoo.so]", "libfoo.so"),)),
        ("[kernel.kallsyms]", (system("[kernel]"),)),
        ("[kernels.so]", (native("[kernels.so]", "kernels.so"),)),
        ("[unknown]", (UNKNOWN,)),
        ("read [libc.so.6];vfs_read [kernel]", (native("read", "libc.so.6"), system("vfs_read"))),
        ("runtime.main;main.(*T).run", (plain("runtime.main"), plain("main.(*T).run"))),
        ("a;;b", (plain("a"), UNKNOWN, plain("b"))),
        ("a b\tc", (plain("a b c"),)),
        ("a\udcffb", (plain("a\\udcffb"),)),
    ],
)
def test_a_frame_of_another_tool(text: str, frames: Stack) -> None:
    # The root is in no notation of ours, so that the whole file is another tool's.
    found = stacks(f"root;{text} 5\n", "/home/me/project/")
    assert found == {(plain("root"), *frames): 5}


def test_a_long_name_is_cut() -> None:
    for text in ("f" * 2000, f"{'f' * 1000} ({'d' * 900}/a.py:1)", f"{'f' * 1100} (/a.py)"):
        ((stack, _),) = stacks(f"root;{text} 5\n").items()
        assert all(len(frame.name.encode()) <= NAME_BYTES for frame in stack)


def test_a_sample_without_a_frame_counts_and_a_brace_is_no_json() -> None:
    assert stacks("{closure#0};{{impl}} 3\n") == {(plain("{closure#0}"), plain("{{impl}}")): 3}
    assert stacks("a;b (x.py:1) 2\n 5\n") == {(plain("a"), python("b", "x.py")): 2, (UNKNOWN,): 5}


def test_line_numbers_are_merged_into_the_function() -> None:
    read = parse_profile((DATA / "py-spy-raw.txt").read_bytes())
    assert fold_profile(read).splitlines() == [
        "<module> (spin.py);rec (spin.py);work (spin.py) 3",
        "<module> (spin.py);rec (spin.py);work (spin.py);leaf (spin.py) 106",
    ]
    assert (read.profiler, read.event, read.python, read.rate_hz) == ("unknown", "unknown", "", 0)
    assert (read.pids, len(read.degraded) > 0) == ((), True)


def test_comments_blank_lines_and_line_ends_of_other_systems() -> None:
    text = "\ufeff# made by a tool\r\n#\r\n\r\na;b 1\r\na;b\t2  \r\n"
    assert stacks(text) == {(plain("a"), plain("b")): 3}
    for end, is_noted in (("\n", False), ("", True)):
        notes = parse_profile(f"a;b 12{end}".encode()).degraded
        assert any("no end" in note for note in notes) == is_noted


@pytest.mark.parametrize(
    ("text", "counts", "rounded"),
    [
        ("a 1.0\nb 2.\n", [1, 2], False),
        ("a 1000.4\nb 2e3\n", [1000, 2000], True),
        ("a 1000\nb 0\nc 0.2\n", [1000], True),
    ],
)
def test_counts_with_a_point(text: str, counts: list[int], *, rounded: bool) -> None:
    read = parse_profile(text.encode())
    assert list(read.stacks.values()) == counts
    assert any("rounded" in note for note in read.degraded) == rounded


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a;b 1\na;c\n", 'Line 2 .*"a;c"'),
        ("a 1\nb -1\n", "Line 2"),
        ("a 1\nb nan\n", "Line 2"),
        ("a 1\nb 1" + "0" * 17 + ".0e99\n", "counts more than"),
        ("a 1\nb ٣\n", "Line 2"),
        ("a 1\nb " + "9" * 30 + "\n", "Line 2"),
        ("a " + "9" * 16 + "\n", "counts more than"),
        ("a 999999999999999\na 1\n", "counts more than"),
        ("a 1.5\nb 2\n", "fractions"),
        ("a;b 10 12\na;c 3 4\n", "two counts"),
        (";".join("f" * (collapsed.MAX_DEPTH + 1)) + " 1\n", "deeper than"),
        (";".join(["f (a.py)"] * (collapsed.MAX_DEPTH + 1)) + " 1\n", "deeper than"),
    ],
)
def test_malformed_folded_stacks_are_an_error(text: str, words: str) -> None:
    with pytest.raises(ReceiptError, match=f"(?s)E_PROFILE_FILE.*{words}"):
        stacks(text)


def test_names_that_end_in_a_number_are_no_difference() -> None:
    assert sum(stacks("main;layer 0 5\nmain;layer 1 7\n").values()) == 12


def test_all_stacks_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collapsed, "MAX_FRAMES", 5)
    assert stacks("a;b 1\na;b 2\na;c;d 1\n")
    with pytest.raises(ReceiptError, match=r"E_PROFILE_FILE.*together"):
        stacks("a;b 1\na;c 2\na;d 1\n")
    with pytest.raises(ReceiptError, match=r"E_PROFILE_FILE.*together"):
        stacks("".join(f"a (m.py);{name} (m.py) 1\n" for name in "bcd"))
    with pytest.raises(UndecidedError, match="E_NO_SAMPLES"):
        stacks("a;b 0\n")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b" \n\r\n", "empty"),
        (b"# only a comment\n", "no known format"),
        (b"PERFILE2\x00\x01", "perf's own recording.*perf script"),
        (b"# callgrind format\nversion: 1\n", "callgrind"),
        (b'{"traceEvents": []}', "trace of events.*speedscope.app"),
        (b'{"a": 1}', "no known format"),
        (b"\x00\x01 12\n", "no known format"),
        ("a;b 12\n".encode("utf-16"), "no known format"),
        (gzip.compress(b"a 1\n", mtime=0)[:-9], "cut off"),
        (gzip.compress(b"a 1\n", mtime=0) + b"b 2\n", "damaged"),
        (gzip.compress(b"a 1\n", mtime=0)[:-8] + b"\0" * 8, "damaged"),
        (gzip.compress(b"\x0a\x04\x08\x01\x10\x02\x00", mtime=0), "no known format"),
    ],
)
def test_a_file_that_is_no_profile_is_described(data: bytes, words: str) -> None:
    with pytest.raises(ReceiptError, match=f"(?s)E_UNKNOWN_FORMAT.*{words}"):
        parse_profile(data)


def test_a_compressed_profile_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.folded.gz"
    path.write_bytes(gzip.compress(b"a;b 3\n", mtime=0) + gzip.compress(b"a 2\n"))
    read = parse_profile(read_file(path))
    assert read.stacks == {(plain("a"), plain("b")): 3, (plain("a"),): 2}
    with pytest.raises(ToolError, match="E_CANNOT_READ"):
        read_file(tmp_path / "gone")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_that_is_too_large_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: type[bytes]
) -> None:
    monkeypatch.setattr(formats, "MAX_BYTES", 1000)
    path = tmp_path / "large"
    path.write_bytes(pack(b"a;b 3\n" * 200))
    with pytest.raises(ReceiptError, match="E_TOO_LARGE"):
        parse_profile(read_file(path))


MIB = 1 << 20


def test_a_gzip_bomb_is_rejected_early() -> None:
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    head = packer.flush(zlib.Z_FULL_FLUSH)
    data = head + (packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)) * 1024
    assert len(data) < 1.1e6
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    with pytest.raises(ReceiptError, match="E_TOO_LARGE"):
        unpack(data)
    assert time.process_time() - began < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib < 100 * 1024
    began = time.process_time()
    assert unpack(gzip.compress(b"") * 20_000) == b""
    assert time.process_time() - began < 5.0


def test_packed_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_TRUSTED_BYTES", 1 * MIB)
    lines = b"".join(b"main;step_%d;kernel_%d %d\n" % (i, i % 97, i) for i in range(60_000))
    assert len(lines) > formats._TRUSTED_BYTES
    assert unpack(gzip.compress(lines)) == lines
    assert unpack(gzip.compress(lines[:9]) + gzip.compress(lines[9:])) == lines
