"""Source lines and inlined functions from DWARF, and samples by line as text."""

import os
import random
import shutil
import struct
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.profile import source_lines
from pytest_flamegate.profile.frames import make_source_line
from pytest_flamegate.profile.model import Frame, LineStack, Profile, SourceLine, Stack
from pytest_flamegate.profile.profilers import perf_data
from pytest_flamegate.profile.profilers.perf_data import parse_script
from pytest_flamegate.profile.source_lines import FunctionLine, find_symbolizer, has_lines, locate
from pytest_flamegate.receipt.baseline import DIGESTED_FILES, LINES
from tests.tools import require

PROGRAM = """\
static inline __attribute__((always_inline)) int inner(int x) {
    return x * x + 3;
}
static inline __attribute__((always_inline)) int middle(int x) {
    return inner(x) ^ 5;
}
__attribute__((noinline)) int outer(int x) {
    return middle(x) + 1;
}
int main(int argc, char **argv) { return outer(argc); }
"""
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")
OUTER = ("outer", 8), ("middle", 5), ("inner", 2)


def build(directory: Path, *options: str) -> Path:
    require(shutil.which("gcc") is not None, "gcc is not installed")
    require(find_symbolizer() is not None, "neither llvm-symbolizer nor addr2line is there")
    (directory / "a.c").write_text(PROGRAM)
    argv = ["gcc", "-O2", *options, "-o", "a", "a.c"]
    assert process.run(argv, timeout_s=60, cwd=directory).returncode == 0
    return directory / "a"


def described(places: tuple[FunctionLine, ...]) -> tuple[tuple[str, int], ...]:
    return tuple((place.function, place.line) for place in reversed(places))


def all_places(program: Path) -> Counter[tuple[tuple[str, int], ...]]:
    located = locate(str(program), range(program.stat().st_size))
    return Counter(described(places) for places in located.values())


@pytest.mark.parametrize("options", [("-g",), ("-g", "-no-pie"), ("-gdwarf-4",)])
def test_inlined_functions_have_places_of_their_own(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    found = all_places(build(tmp_path, *options))
    assert found[OUTER] > 0
    assert any(places[0][0] == "main" for places in found)
    located = locate(str(tmp_path / "a"), range(8192))
    assert {place.file for places in located.values() for place in places} == {
        str(tmp_path / "a.c")
    }


def test_both_symbolizers_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(
        all(shutil.which(name) for name in ("llvm-symbolizer", "addr2line")), "one is not installed"
    )
    program = build(tmp_path, "-g")
    one = all_places(program)
    monkeypatch.setattr(source_lines, "find_symbolizer", lambda: ("addr2line",))
    monkeypatch.setattr(source_lines, "_known", {})
    assert all_places(program)[OUTER] == one[OUTER]


def test_a_program_without_debug_information_has_no_places(tmp_path: Path) -> None:
    assert not all_places(build(tmp_path, "-s"))


def test_the_same_file_at_another_path_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = build(tmp_path, "-g")
    first = locate(str(program), [0x1140, 0x1150])
    shutil.copy(program, tmp_path / "copy")
    monkeypatch.setattr(process, "run", lambda *_, **__: pytest.fail("asked again"))
    assert locate(str(tmp_path / "copy"), [0x1140, 0x1150]) == first


def answer(program: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> int:
    """Return how many of an address's places are known if ``code`` runs before it is answered."""
    script = program.with_name("symbolizer.py")
    script.write_text(
        f"import sys, time\n{code}\nprint(sys.argv[-1], 'main', '/p/a.c:1', sep='\\n')\n"
    )
    monkeypatch.setattr(
        source_lines, "find_symbolizer", lambda: (sys.executable, "-S", str(script))
    )
    monkeypatch.setattr(source_lines, "_known", {})
    return len(locate(str(program), [0x1140]))


def test_a_symbolizer_that_hangs_or_takes_all_memory_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = build(tmp_path, "-g")
    assert answer(program, monkeypatch, "") == 1
    # The limit is set a moment after the start.
    limited = (
        "import resource\nfor _ in range(500):\n"
        "    if resource.getrlimit(resource.RLIMIT_AS)[0] > 0:\n        break\n"
        "    time.sleep(0.01)\n"
    )
    assert answer(program, monkeypatch, f"{limited}taken = bytearray(4 << 30)") == 0
    monkeypatch.setattr(source_lines, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(source_lines, "_hanging", set())
    assert answer(program, monkeypatch, "time.sleep(60)") == 0
    monkeypatch.setattr(process, "run", lambda *_, **__: pytest.fail("asked again"))
    assert not locate(str(program), [0x1150])


def test_a_separate_debug_file_is_read_only_if_it_belongs_to_the_program(tmp_path: Path) -> None:
    require(shutil.which("objcopy") is not None, "binutils is not installed")
    program = build(tmp_path, "-g")
    whole = all_places(program)
    for argv in (
        ["objcopy", "--only-keep-debug", "a", "a.debug"],
        ["objcopy", "--strip-debug", "--add-gnu-debuglink=a.debug", "a"],
    ):
        assert process.run(argv, timeout_s=60, cwd=tmp_path).returncode == 0
    assert all_places(program)[OUTER] == whole[OUTER] > 0
    source_lines._known.clear()
    other = (tmp_path / "a.debug").read_bytes().replace(b"inner", b"INNER")
    (tmp_path / "a.debug").write_bytes(other)  # the checksum in the program is another
    assert not all_places(program)


def test_a_name_with_control_characters_is_one_line_of_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = build(tmp_path, "-g")
    code = r"print(sys.argv[-1], 'a\x0b\x85b', '/p/b.c:9', sep='\n'); sys.argv[-1] = '0x1'"
    assert answer(program, monkeypatch, code) == 1
    (places,) = locate(str(program), [0x1140]).values()
    assert places == (FunctionLine("a\x0b\x85b", "/p/b.c", 9),)


def test_damaged_files_have_no_places_and_end_soon(tmp_path: Path) -> None:
    """Headers, section tables and debug sections, cut off or overwritten at random."""
    data = build(tmp_path, "-g").read_bytes()
    draw = random.Random(7)
    for number in range(30):
        broken = bytearray(data[: draw.randrange(len(data))] if number % 3 == 0 else data)
        for _ in range(draw.choice((1, 8, 200))):
            if broken:
                broken[draw.randrange(min(len(broken), draw.choice((64, len(data)))))] = (
                    draw.randrange(256)
                )
        (tmp_path / "broken").write_bytes(broken)
        assert len(locate(str(tmp_path / "broken"), range(0x1000, 0x1200, 4))) <= 128


def elf(names: bytes, names_size: int | None = None) -> bytes:
    """Return a file with one loaded part, its offset 0x1000 at address 0x401000, and no code."""
    header = HEADER.pack(b"\x7fELF\x02\x01", 2, 62, 1, 0, 64, 120, 0, 64, 56, 1, 64, 1, 0)
    segment = SEGMENT.pack(1, 5, 0x1000, 0x401000, 0x401000, 0x100, 0x100, 0x1000)
    size = len(names) if names_size is None else names_size
    return header + segment + SECTION.pack(0, 3, 0, 0, 184, size, 0, 0, 1, 0) + names


@pytest.mark.parametrize(
    ("data", "asked"),
    [
        (elf(b"\0.debug_line\0"), True),
        (elf(b"\0.gnu_debuglink\0"), True),
        (elf(b"\0.gnu_debugaltlink\0"), True),
        (elf(b"\0.text\0"), False),
        (elf(b"\0.debug_line\0", 2**62), False),
        (elf(b"\0.debug_line\0", 2**64 - 1), False),
    ],
    ids=["debug", "debug file", "shared debug file", "none", "too long", "no length"],
)
def test_a_symbolizer_is_asked_for_files_that_have_or_name_debug_information(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, *, asked: bool
) -> None:
    argv: list[str] = []

    def answer(words: list[str], **_: object) -> SimpleNamespace:
        argv.extend(words)
        text = b"0x401010\nmain\n/p/a.c:3\n0x1100\nafter\n/p/a.c:9\n"
        return SimpleNamespace(stdout=text, timed_out=False)

    monkeypatch.setattr(process, "run", answer)
    monkeypatch.setattr(source_lines, "find_symbolizer", lambda: ("symbolizer",))
    monkeypatch.setattr(source_lines, "_known", {})
    (tmp_path / "a").write_bytes(data)
    # The second offset lies behind the part that is loaded.
    found = locate(str(tmp_path / "a"), [0x1010, 0x1100])
    if asked:
        assert argv[-2:] == ["0x401010", "0x1100"]
        assert found[0x1010] == (FunctionLine("main", "/p/a.c", 3),)
        assert found[0x1100] == (FunctionLine("after", "/p/a.c", 9),)
    else:
        assert (argv, found) == ([], {})


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ("/home/me/project/run", True),
        ("/home/me/project/.venv/lib/x.so", True),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", False),
        ("/lib64/ld-linux-x86-64.so.2", False),
        ("/libraries/engine.so", True),
        ("/developer/engine", True),
        ("/tmp/jitted-12-3.so", False),
        ("/tmp/perf-12.map", False),
        ("[kernel.kallsyms]", False),
        ("//anon", False),
        ("", False),
    ],
)
def test_only_compiled_files_outside_of_the_distribution_may_have_lines(
    library: str, *, expected: bool
) -> None:
    assert has_lines(library) == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/p/src/run.c", "src/run.c"),
        ("/p/.venv/lib/python3.12/site-packages/numpy/a.py", None),
        ("/usr/lib/python3.11/json/__init__.py", None),
        ("/other/run.c", None),
        ("run.c", None),
        ("/p/a\nb.c", None),
        ("/p/a\x1b[31m.c", None),
        ("/p/build/../src/run.c", "src/run.c"),
        ("/p/src/../../etc/passwd", None),
    ],
)
def test_a_line_belongs_to_the_project(file: str, expected: str | None) -> None:
    line = make_source_line(file, 7, ("/p/",))
    assert line == (None if expected is None else SourceLine(expected, 7))
    assert make_source_line("/p/src/run.c", 0, ("/p/",)) is None


def test_perf_samples_become_frames_and_lines_of_inlined_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = {
        0x10: (FunctionLine("in\x1b;ner", "/p/a.c", 2), FunctionLine("outer", "/p/a.c", 8)),
        0x20: (FunctionLine("main", "/p/a.c", 10),),
    }
    monkeypatch.setattr(perf_data, "locate", lambda library, _: places if library == "/p/a" else {})
    sample = (
        b"1/1 1.000000: cpu-clock: \n\t%16x inner_sym (/usr/lib/libm.so)\n\t%16x outer (/p/a)\n"
        b"\t%16x main (/p/a)\n\n" % (0x10, 0x10, 0x20)
    )
    other = sample.replace(b"%16x outer" % 0x10, b"%16x outer" % 0x30)
    parsed = parse_script([sample, sample, other], ("/p/",))
    names = {tuple(frame.name for frame in stack): n for stack, n in parsed.stacks.items()}
    assert names == {
        ("main", "outer", r"in\x1b\x3bner", "inner_sym"): 2,
        ("main", "outer", "inner_sym"): 1,
    }
    assert parsed.lines == {
        (SourceLine("a.c", 10), SourceLine("a.c", 8), SourceLine("a.c", 2)): 2,
        (SourceLine("a.c", 10),): 1,
    }


def test_an_address_behind_a_call_is_that_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frame pointers hold where a function returns to: the next line, if the call ends its own."""
    places = {
        0x10: (FunctionLine("inner", "/p/a.c", 2),),
        0x1F: (FunctionLine("main", "/p/a.c", 10),),
        0x20: (FunctionLine("main", "/p/a.c", 11),),
    }
    monkeypatch.setattr(perf_data, "locate", lambda *_: places)
    sample = b"1/1 1.000000: cpu-clock: \n\t%16x inner (/p/a)\n\t%16x main (/p/a)\n\n" % (
        0x10,
        0x20,
    )
    for returns, line in ((True, 10), (False, 11)):
        parsed = parse_script([sample], ("/p/",), returns=returns)
        assert parsed.lines == {(SourceLine("a.c", line), SourceLine("a.c", 2)): 1}


def test_files_that_never_end_have_no_places(tmp_path: Path) -> None:
    require(find_symbolizer() is not None, "neither llvm-symbolizer nor addr2line is installed")
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(40 << 30)
    for name in ("fifo", "sparse", "absent"):
        assert locate(str(tmp_path / name), [1]) == {}
    assert locate("/dev/zero", [1]) == {}


# Samples by line as text: what is written reads back, and nothing else is read.


MAIN, GEMV = SourceLine("src/run.c", 670), SourceLine("src/run.c", 196)
PATHS = st.lists(st.text(st.characters() | st.sampled_from("./:; ")), min_size=1).map("/".join)


def test_stacks_are_written_root_first_and_sorted() -> None:
    text = source_lines.fold_lines({(MAIN, GEMV): 191, (GEMV,): 2})
    assert text == "src/run.c:196 2\nsrc/run.c:670;src/run.c:196 191\n"
    assert LINES not in DIGESTED_FILES


def test_a_profile_by_line_has_the_same_samples() -> None:
    twin = SourceLine("lib/run.c", 8)
    stacks: dict[Stack, int] = {(Frame("main", "run", "native"),): 40}
    profile = Profile("perf", "6.1", "cycles", "fp", stacks, lines={(MAIN, GEMV): 30, (MAIN,): 4})
    main, gemv = (Frame(f"run.c:{line}", "src/run.c", "native") for line in (670, 196))
    by_line = source_lines.fold_by_line(profile)
    assert by_line.stacks == {(main, gemv): 30, (main,): 4, (source_lines.OUTSIDE,): 6}
    assert by_line.samples == profile.samples
    both = source_lines.fold_by_line(replace(profile, lines={(MAIN, twin): 40}))
    assert [frame.name for stack in both.stacks for frame in stack] == [
        "src/run.c:670",
        "lib/run.c:8",
    ]


def as_stack(places: list[tuple[str, int]]) -> LineStack:
    made = (make_source_line(f"/project/{file}", line, ["/project/"]) for file, line in places)
    return tuple(line for line in made if line is not None)


STACKS = st.lists(st.tuples(PATHS, st.integers(-1, 10**10)), max_size=4).map(as_stack)


@given(st.dictionaries(STACKS.filter(bool), st.integers(1, 10**14), max_size=5))
def test_lines_read_back_exactly(stacks: dict[LineStack, int]) -> None:
    """Whatever paths and numbers a compiler left: they stay in the project."""
    data = source_lines.fold_lines(stacks).encode()
    assert source_lines.parse_lines(data, sum(stacks.values())) == stacks


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a.c:1 3", "cut off"),
        (b"\n", "number of samples"),
        (b"a.c:1 0\n", "number of samples"),
        (b"a.c:1 -3\n", "number of samples"),
        (b"a.c:1 1234567890123456\n", "number of samples"),
        (b"a.c:1 3\na.c:1 4\n", "occurred before"),
        (b"a.c:1 8\n", "8 samples by line, and the profile 7"),
        (b"\xff:1 3\n", "UTF-8"),
        *(
            (f"{part} 3\n".encode(), "no line of the project")
            for part in (
                *("a.c", "a.c:", "a.c:0", "a.c:-1", "a.c:1e3", "a.c:9999999999", ":1", ""),
                *("/etc/passwd:1", "../a.c:1", "a/../../b.c:1", "./a.c:1", "a//b.c:1", "a/:1"),
                *("a\x1b[31m.c:1", "a\u202e.c:1", "a\r.c:1", "a.c:1;", ";a.c:1"),
            )
        ),
    ],
)
def test_other_text_is_an_error(data: bytes, reason: str) -> None:
    with pytest.raises(ReceiptError, match="E_PROFILE_FILE") as caught:
        source_lines.parse_lines(data, 7)
    assert reason in str(caught.value)
    assert str(caught.value).isascii()


def test_a_line_counts_once_in_a_stack_that_passes_it_twice() -> None:
    found = source_lines.count_samples({(MAIN, GEMV, MAIN): 5, (MAIN, GEMV): 2})
    assert (found.own, found.passed) == ({MAIN: 5, GEMV: 2}, {MAIN: 7, GEMV: 7})
