"""Which lines a change replaced, without renamed variables, comments and moved functions."""

from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core.git import FileChange, Hunk, read_changes
from pytest_flamegate.gate import edits
from pytest_flamegate.gate.edits import LineMap, map_lines
from pytest_flamegate.profile.model import SourceLine
from tests.workload.repositories import repository, write

PYTHON = """\
import sys


def total(rows, limit):
    found = 0
    for row in rows:
        found += row * limit
        if found > 1000:
            break
    return found


def mix(rows):
    for row in rows:
        row = row * 3
        row = row - 1
    return rows
"""
C = """\
#include <math.h>
static float sum_of(const float *x, const Block *w, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * SMALL;
    if (w &&
        n == sum)
        n = 0;
    return sum; // all of it
}
static void scale(float *out, const half *in, long n)
{
    const Block *w = in;
    for (;;)
    {
        for (int i = 0; i < n; i++) out[i] = in[i] * SCALE;

        n += 1;
    }
    while (n > 1) {
        for (int i = 0; i < n; i++) out[i] += 1;
        if (n == 7) break;
        n /= 2;
    }
    const long last = n * rows;
}
"""


def mapped(directory: Path, base: dict[str, str], head: dict[str, str]) -> LineMap:
    project = repository(directory, base)
    for name in base.keys() - head.keys():
        (project / name).unlink()
    write(project, head)
    changes = read_changes(project, "HEAD")
    assert changes is not None
    return map_lines(changes)


def changed_lines(lines: LineMap, files: dict[str, str]) -> dict[str, list[str]]:
    """Return the text of the lines of the head that count as changed."""
    return {
        name: [
            line.strip()
            for number, line in enumerate(text.splitlines(), start=1)
            if line.strip() and lines.head_place(SourceLine(name, number)).is_changed
        ]
        for name, text in files.items()
    }


def swapped(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("name", "edits", "expected"),
    [
        ("a.py", [("found", "hits")], []),
        ("a.py", [("rows", "items")], []),
        ("a.py", [("for row in", "for each in"), ("+= row ", "+= each ")], []),
        ("a.py", [("def mix(", "def blend(")], []),
        ("a.py", [("import sys\n", "import os\nimport sys\n\n# Why.\n")], ["import os"]),
        ("a.py", [("    found = 0", "    found = 0  # none yet")], []),
        ("a.py", [("* limit", "* limits")], ["found += row * limits"]),
        ("a.py", [("row * limit", "sum(rows)")], ["found += sum(rows)"]),
        ("a.py", [("> 1000", "> 2000")], ["if found > 2000:"]),
        ("a.py", [("        row = row - 1", "    row = row - 1")], ["row = row - 1"]),
        ("a.py", [("found", "hits"), ("> 1000", "> 2000")], ["if hits > 2000:"]),
        ("a.py", [("found = 0", "found = 0 + limit"), ("found", "hits")], ["hits = 0 + limit"]),
        ("a.c", [("sum ", "result "), ("sum;", "result;")], []),
        ("a.c", [("*x,", "*input,"), ("x[i]", "input[i]")], []),
        (
            "a.c",
            [("    ", "\t"), ("int n)\n{", "int n) {")],
            ["static float sum_of(const float *x, const Block *w, int n) {"],
        ),
        ("a.c", [("// all of it", "/* all */")], []),
        ("a.c", [("SMALL", "LARGE")], ["sum += x[i] * LARGE;"]),
        ("a.c", [("x[i] * SMALL", "f(x[i])")], ["sum += f(x[i]);"]),
        ("a.c", [("float sum =", "double sum =")], ["double sum = 0;"]),
        (
            "a.c",
            [("const float", "const half")],
            ["static float sum_of(const half *x, const Block *w, int n)"],
        ),
        ("a.c", [("*w,", "*weights,"), ("(w ", "(weights ")], []),
        ("a.c", [("n == sum", "k == sum")], ["k == sum)"]),
        ("a.c", [("sum_of", "add_all")], []),
        ("a.c", [("*out,", "*to,"), ("out[", "to[")], []),
        ("a.c", [("*w =", "*block =")], []),
        # Another type, or another start, is no other name.
        (
            "a.c",
            [("const half", "const byte")],
            ["static void scale(float *out, const byte *in, long n)"],
        ),
        (
            "a.c",
            [("static void", "static int")],
            ["static int scale(float *out, const half *in, long n)"],
        ),
        (
            "a.py",
            [("found = 0", "hits = 1"), ("found >", "hits >")],
            ["hits = 1", "if hits > 1000:"],
        ),
        ("a.c", [("n * rows", "n * columns")], ["const long last = n * columns;"]),
        ("a.c", [("n += 1", "n += 1 + n")], ["n += 1 + n;"]),
    ],
)
def test_only_lines_that_do_something_else_are_changed(
    name: str, edits: list[tuple[str, str]], expected: list[str], tmp_path: Path
) -> None:
    base = {name: PYTHON if name == "a.py" else C}
    head = {name: swapped(base[name], *edits)}
    found = changed_lines(mapped(tmp_path, base, head), head)[name]
    assert [line for line in found if line[0] not in "#{"] == expected


@pytest.mark.parametrize(
    ("name", "line", "is_changed"),
    [
        ("a.py", "with fast(n) as f:", True),
        ("a.py", "match fast(n):", True),
        ("a.py", "x = size_t * fast(n)", True),
        ("a.rs", "match fast(n) {", True),
        ("a.go", "for range fast(n) {", True),
        ("a.cc", "co_await fast(n);", True),
        ("a.swift", "try fast(n)", True),
        ("a.c", "x = a_t * fast(n);", True),
        ("a.c", "*fast(n) = 3;", True),
        ("a.c", "static size_t *fast(int n) {", False),
        ("a.py", "def fast(n):", False),
        ("a.pyx", "cdef float *fast(int n):", False),
        # Two slashes divide, or begin a comment.
        ("a.tpp", "x += 1 // fast(n)", False),
        ("a.lua", "return n // fast(n)", True),
        ("a.pxd", "return n // fast(n)", True),
        ("a.rs", "x += 1 // fast(n)", False),
    ],
)
def test_a_function_that_is_called_instead_is_no_other_name(
    name: str, line: str, tmp_path: Path, *, is_changed: bool
) -> None:
    call = "y = fast(x)\n"
    texts = [f"# A.\n{each}\n" for each in (line, line.replace("fast", "slow"))]
    base, head = ({name: text, "hot.py": call} for text in texts)
    head["hot.py"] = call.replace("fast", "slow")
    found = changed_lines(mapped(tmp_path, base, head), head)
    assert bool(found[name]) is is_changed
    assert bool(found["hot.py"]) is is_changed or "//" in line


@pytest.mark.parametrize(("called", "is_same"), [("blend(found)", True), ("mix(hits)", False)])
def test_a_function_has_one_name_in_all_files_and_a_variable_in_its_own(
    called: str, tmp_path: Path, *, is_same: bool
) -> None:
    base = {"a.py": PYTHON, "b.py": "import a\n\nprint(mix(found))\n"}
    renamed = swapped(PYTHON, ("def mix(", "def blend("), ("found", "hits"))
    head = {"a.py": renamed, "b.py": f"import a\n\nprint({called})\n"}
    found = changed_lines(mapped(tmp_path, base, head), head)
    assert (found["a.py"], found["b.py"] == []) == ([], is_same)


def test_lines_behind_a_comment_and_a_renamed_variable_are_found_in_the_head(
    tmp_path: Path,
) -> None:
    base = {"a.py": PYTHON}
    head = {"a.py": swapped(PYTHON, ("def total", "# Why.\n\ndef total"), ("found", "hits"))}
    lines = mapped(tmp_path, base, head)
    for number, line in enumerate(PYTHON.splitlines(), start=1):
        place = lines.base_place(SourceLine("a.py", number))
        there = head["a.py"].splitlines()[place.first - 1]
        assert there.replace("hits", "found") == line
        assert not place.is_changed


def test_a_line_that_a_comment_replaced_is_where_the_code_before_it_is(tmp_path: Path) -> None:
    head = swapped(PYTHON, ("        row = row - 1", "        # Gone."))
    place = mapped(tmp_path, {"a.py": PYTHON}, {"a.py": head}).base_place(SourceLine("a.py", 16))
    assert (str(place), place.is_changed) == ("a.py:15", True)


@pytest.mark.parametrize("file", ["a.py", "b.py", "untracked.py"])
def test_a_moved_function_is_the_same_but_for_what_changed_in_it(file: str, tmp_path: Path) -> None:
    base = {"a.py": PYTHON, "b.py": "import os\n"}
    at = PYTHON.index("def mix")
    moved = PYTHON[at:].replace("row * 3", "row ** 3")
    head = {**base, "a.py": PYTHON[:at].rstrip() + "\n"}
    if file == "a.py":
        head["a.py"] = PYTHON[:11] + "\n\n" + moved + PYTHON[11:at].rstrip() + "\n"
    else:
        head[file] = base.get(file, "") + "\n\n" + moved
    lines = mapped(tmp_path, base, head)
    assert changed_lines(lines, head)[file] == ["row = row ** 3"]
    number = PYTHON.splitlines().index("        row = row - 1") + 1
    place = lines.base_place(SourceLine("a.py", number))
    assert head[file].splitlines()[place.first - 1] == "        row = row - 1"
    assert (place.file, place.is_changed) == (file, False)


def test_functions_that_moved_to_other_places_are_the_same(tmp_path: Path) -> None:
    """One goes into a class, where it is indented, and the other to a file of its own."""
    at = PYTHON.index("def mix")
    total, mix = PYTHON[PYTHON.index("def total") : at].rstrip() + "\n", PYTHON[at:]
    base = {"a.py": f"{total}\n\nKEPT = 1\n\n\n{mix}"}
    inner = "".join(f"    {line}\n" for line in mix.splitlines())
    head = {"a.py": "KEPT = 1\n", "b.py": f"class Mixer:\n{inner}", "c.py": total}
    lines = mapped(tmp_path, base, head)
    assert changed_lines(lines, head) == {"a.py": [], "b.py": ["class Mixer:"], "c.py": []}
    number = base["a.py"].splitlines().index("        found += row * limit") + 1
    assert str(lines.base_place(SourceLine("a.py", number))) == "c.py:4"


@pytest.mark.parametrize(("count", "is_same"), [(16, True), (17, False)])
def test_so_many_moves_are_not_looked_for(count: int, tmp_path: Path, *, is_same: bool) -> None:
    """Every removed piece would have to be compared with every added one."""
    kept, moved = (
        [f"{name}{number} = {number}\n" for number in range(count)] for name in ("kept", "other")
    )
    pieces = ["".join(f"x.step{n}_{line}()\n" for line in range(3)) for n in range(count)]
    with_pieces = [map("".join, zip(each, pieces, strict=True)) for each in (kept, moved)]
    base = {"a.py": "".join(with_pieces[0]), "b.py": "".join(moved)}
    head = {"a.py": "".join(kept), "b.py": "".join(with_pieces[1])}
    found = changed_lines(mapped(tmp_path, base, head), head)
    assert len(found["b.py"]) == (0 if is_same else 3 * count)


@pytest.mark.parametrize(
    ("count", "others", "is_same"), [(3, 0, True), (2, 0, False), (3, 2, True), (3, 3, False)]
)
def test_three_lines_moved_unless_as_many_took_their_place(
    count: int, others: int, tmp_path: Path, *, is_same: bool
) -> None:
    few, other = (
        "".join(f"    x.{name}{number}(2)\n" for number in range(lines))
        for name, lines in (("step", count), ("other", others))
    )
    here, there = {"a.py": f"A = 1\n{few}B = 1\n"}, {"a.py": f"A = 1\n{other}B = 1\n", "b.py": few}
    for base, head, file in ((here, there, "b.py"), (there, here, "a.py")):
        found = changed_lines(mapped(tmp_path / file, base, head), head)[file]
        assert (found == []) is is_same


@pytest.mark.parametrize(
    ("same", "others", "is_moved"), [(3, 3, True), (3, 4, False), (2, 2, False), (0, 3, False)]
)
def test_half_of_the_lines_of_what_moved_are_the_same(
    same: int, others: int, tmp_path: Path, *, is_moved: bool
) -> None:
    old, new = (
        "".join(f"    x.step{number}(2)\n" for number in range(same))
        + "".join(f"    x.{name}{number}(2)\n" for number in range(others))
        for name in ("old", "new")
    )
    base, head = {"a.py": f"A = 1\n{old}B = 1\n"}, {"a.py": "A = 1\nB = 1\n", "b.py": new}
    lines = mapped(tmp_path, base, head)
    for number in (2, 1 + same + others):
        assert lines.base_place(SourceLine("a.py", number)).file == ("b.py" if is_moved else "a.py")


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ([("in rows:\n        found", "in rows + rows:\n        found")], {"a.py:6": (6, 9)}),
        ([("        if found > 1000:\n            break\n", "")], {"a.py:7": (6, 7)}),
        ([("        row = row - 1\n", "")], {}),
        ([("> 1000", "> 2000")], {}),
        ([("found = 0", "found = 1")], {}),
        ([("(;;)", "(;n < 9;)")], {"a.c:15": (15, 19)}),
        ([("n > 1)", "n > 0)")], {"a.c:21": (21, 24)}),
        ([("        if (n == 7) break;\n", "")], {"a.c:22": (21, 23)}),
        ([("in sys.argv", "in LONGER")], {"a.py:19": (19, 21)}),
        ([("i < n; i++) out", "i < w; i++) out")], {}),
    ],
)
def test_the_lines_of_a_loop_that_runs_more_often(
    edits: list[tuple[str, str]], expected: dict[str, tuple[int, int]], tmp_path: Path
) -> None:
    script = f"{PYTHON}\nfor name in sys.argv:\n    mix(name)\n    mix(name)\n"
    name, text = ("a.py", script) if edits[0][0] in script else ("a.c", C)
    lines = mapped(tmp_path, {name: text}, {name: swapped(text, *edits)})
    assert {str(place): block for place, block in lines.blocks.items()} == expected


def test_a_change_without_its_text_is_as_git_says() -> None:
    hunk = Hunk(3, 2, 3, 4)
    for change in (
        FileChange("a.c", "a.c", (hunk,)),
        FileChange("a.c", "a.c", (hunk,), {3: "x"}, ("",) * 9),
        FileChange("a.c", "a.c", (hunk,), {3: "x", 4: "y"}, ("",) * 5),
    ):
        lines = map_lines([change])
        assert str(lines.base_place(SourceLine("a.c", 4))) == "a.c:3-6"
        places = [str(lines.head_place(SourceLine("a.c", number))) for number in (2, 3, 6, 7)]
        assert places == ["a.c:2", "a.c:3-6", "a.c:3-6", "a.c:7"]
    added = map_lines([FileChange("a.c", "a.c", (Hunk(3, 0, 4, 2),))])
    places = [str(added.base_place(SourceLine("a.c", number))) for number in (3, 4)]
    assert places == ["a.c:3", "a.c:6"]


def test_a_tab_is_eight_columns_and_a_loop_two_hundred_lines_at_most() -> None:
    for spaces, count, blocks in ((8, 1, []), (9, 1, [(1, 2)]), (9, 300, [(1, 201)])):
        head = ("\tfor (;n;)", *[" " * spaces + "x();"] * count)
        change = FileChange("a.c", "a.c", (Hunk(1, 1, 1, 1),), {1: "\tfor (;;)"}, head)
        assert [*map_lines([change]).blocks.values()] == blocks


def test_a_file_that_git_does_not_track_is_changed_as_a_whole(tmp_path: Path) -> None:
    lines = mapped(tmp_path, {"a.c": C}, {"a.c": C, "b.c": "int x;\nint y;\n"})
    place = lines.head_place(SourceLine("b.c", 2))
    assert (str(place), place.is_changed) == ("b.c:1-2", True)


def test_a_long_line_of_spaces_is_an_empty_line(tmp_path: Path) -> None:
    added = f"int x;\n{' ' * 1500}\nint y;\n{' ' * 1500}\n"
    lines = mapped(tmp_path, {"a.c": C}, {"a.c": C + added, "b.py": added})
    assert lines.head_place(SourceLine("a.c", len(C.splitlines()) + 1)).is_changed


def test_lines_that_a_program_wrote_are_compared_as_a_whole(tmp_path: Path) -> None:
    line = "'" * 200_001 + "//" * 200_000 + "\n"
    lines = mapped(tmp_path, {"a.c": line}, {"a.c": f"y{line}"})
    assert lines.head_place(SourceLine("a.c", 1)).is_changed


def test_repeated_lines_are_compared_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise 1,900 lines of a few kinds take 22 s."""

    def match(junk: None, a: list[Any], b: list[Any], autojunk: bool) -> SequenceMatcher[Any]:
        assert len(a) * len(b) <= 250_000
        return SequenceMatcher(junk, a, b, autojunk)

    monkeypatch.setattr(edits, "SequenceMatcher", match)
    for count in (400, 1900):
        base = {number: "}" if number % 4 else "x;" for number in range(1, count + 1)}
        head = ("}", "}", "y;") * (count // 3)
        hunk = Hunk(1, len(base), 1, len(head))
        lines = map_lines([FileChange("a.c", "a.c", (hunk,), base, head)])
        changed = [lines.head_place(SourceLine("a.c", number)).is_changed for number in (1, 3)]
        assert changed == [count > 400, True]


def test_a_rewritten_file_takes_no_minutes(tmp_path: Path) -> None:
    base = {"a.c": "".join(f"x{number} = {number};\n" for number in range(20_000))}
    head = {"a.c": "".join(f"y{number} = {number * 7};\n" for number in range(20_000))}
    assert mapped(tmp_path, base, head).head_place(SourceLine("a.c", 9)).is_changed
