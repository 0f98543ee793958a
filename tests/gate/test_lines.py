"""Lines of the project that got slower, and whether the change touched them."""

from collections.abc import Mapping, Sequence

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.git import FileChange, Hunk
from pytest_flamegate.gate.edits import Place
from pytest_flamegate.gate.judge import GatedRun, GatePolicy, judge
from pytest_flamegate.gate.lines import LineChange, count_lines, line_changes
from pytest_flamegate.gate.paired_rate import PairedBase
from pytest_flamegate.gate.rule import ErrorRates
from pytest_flamegate.gate.statistics import Estimate
from pytest_flamegate.profile.model import LineStack, Profile, SourceLine
from tests.gate.factory import checked, codes, measurement, shifted, sides
from tests.profile.profiles import native, profile

CHANGES = (
    FileChange("run.c", "run.c", (Hunk(10, 1, 10, 2), Hunk(20, 2, 20, 0), Hunk(30, 0, 30, 3))),
    FileChange("old.py", "new.py", (Hunk(5, 1, 5, 1),)),
    FileChange("", "added.py", (Hunk(0, 0, 1, 40),)),
)
TIMES = [-7.0, -7.001, -6.999, -7.0005]
FLAT = Estimate(0.0, 0.0005, 9.0)
SLOWER = Estimate(0.182, 0.002, 9.0)
"""1.2 times the CPU time: what did not change has 833 samples instead of 1,000."""


def sampled(counts: Mapping[LineStack, int], samples: int = 1000) -> Profile:
    return profile({(native("run"),): samples}, lines=counts)


def stack(*places: tuple[str, int]) -> LineStack:
    return tuple(SourceLine(*place) for place in places)


def places(line: SourceLine) -> tuple[Place, Place]:
    """Return the places of the same line number of the base and of the head."""
    counted = count_lines([sampled({(line,): 1})], [sampled({(line,): 1})], CHANGES)
    (((base,),), ((head,),)) = (side[0].stacks for side in (counted.base, counted.head))
    return base, head


@pytest.mark.parametrize(
    ("line", "base", "head"),
    [
        (9, "run.c:9", "run.c:9"),
        (10, "run.c:10-11 changed", "run.c:10-11 changed"),
        (11, "run.c:12", "run.c:10-11 changed"),
        (19, "run.c:20", "run.c:19"),
        (20, "run.c:20 changed", "run.c:20"),
        (22, "run.c:21", "run.c:22"),
        (30, "run.c:29", "run.c:30-32 changed"),
        (31, "run.c:33", "run.c:30-32 changed"),
        (90, "run.c:92", "run.c:90"),
    ],
)
def test_lines_of_the_base_are_found_in_the_head(line: int, base: str, head: str) -> None:
    found = places(SourceLine("run.c", line))
    assert [f"{each}{' changed' * each.is_changed}" for each in found] == [base, head]


def test_files_that_moved_or_are_new() -> None:
    assert places(SourceLine("old.py", 9))[0] == Place("new.py", 9, 9, is_changed=False)
    assert places(SourceLine("old.py", 5))[0] == Place("new.py", 5, 5, is_changed=True)
    assert places(SourceLine("added.py", 3))[1].is_changed
    assert places(SourceLine("other.py", 3))[1] == Place("other.py", 3, 3, is_changed=False)


def judged(
    base: Mapping[LineStack, int],
    head: Mapping[LineStack, int],
    cpu: Estimate = FLAT,
    changes: Sequence[FileChange] = CHANGES,
) -> list[LineChange]:
    """Judge four processes of each side with nearly the same counts."""
    old, new = (
        [sampled({each: n + i for each, n in counts.items()}) for i in range(4)]
        for counts in (base, head)
    )
    samples = count_lines(old, new, changes)
    before, after = measurement(TIMES), measurement(TIMES)
    return list(line_changes(samples, before, after, ErrorRates(), cpu))


MAIN, LATER = ("run.c", 90), ("run.c", 92)
"""The same line of the base and of the head."""
OLD, NEW = ("old.py", 5), ("new.py", 5)
LINE, LIBRARY = ("run.c", 10), ("lib.c", 3)
ADDED = ("run.c", 31)


def test_a_changed_line_is_named_with_all_that_it_calls() -> None:
    """The base spends 200 of 1,000 samples below line 10, the head 333 of as many."""
    base = {stack(MAIN, ("run.c", 10), ("lib.c", 3)): 200, stack(MAIN): 790}
    head = {stack(("run.c", 92), ("run.c", 11), ("lib.c", 3)): 333, stack(("run.c", 92)): 657}
    first = judged(base, head, SLOWER)[0]
    assert str(first.place) == "run.c:10-11"
    assert first.place.is_changed
    assert first.cost.name == "run.c:10-11"
    assert first.cost.current_us / first.cost.baseline_us == pytest.approx(2.0, rel=0.05)
    assert first.cost.explains == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("base", "head", "cpu", "expected"),
    [
        # Equal sides.
        (
            {stack(MAIN, LINE): 200, stack(MAIN): 790},
            {stack(LATER, LINE): 200, stack(LATER): 790},
            FLAT,
            [],
        ),
        # No changed line explains it: the others are named.
        (
            {stack(MAIN, LIBRARY): 200, stack(MAIN): 790},
            {stack(LATER, LIBRARY): 333, stack(LATER): 657},
            SLOWER,
            ["lib.c:3"],
        ),
        # A changed line calls another one; half of the slowdown is below both, half in lib.c.
        (
            {stack(MAIN, LINE, OLD): 200, stack(MAIN, LIBRARY): 200, stack(MAIN): 600},
            {stack(LATER, LINE, NEW): 250, stack(LATER, LIBRARY): 250, stack(LATER): 500},
            SLOWER,
            ["new.py:5", "lib.c:3"],
        ),
        # The largest change comes first, and rare lines are left out.
        (
            {stack(MAIN, LINE): 100, stack(MAIN, OLD): 100, stack(MAIN): 800},
            {
                stack(LATER, LINE): 150,
                stack(LATER, NEW): 250,
                stack(LATER, ("added.py", 2)): 3,
                stack(LATER): 597,
            },
            SLOWER,
            ["new.py:5", "run.c:10-11"],
        ),
        # A changed line that only calls a slower one.
        (
            {stack(LINE, OLD): 200, stack(MAIN): 790},
            {stack(LINE, NEW): 333, stack(LATER): 657},
            SLOWER,
            ["new.py:5"],
        ),
        # An added call, and not the changed line that it calls.
        (
            {stack(MAIN, OLD): 200, stack(MAIN): 790},
            {stack(LATER, NEW): 167, stack(ADDED, NEW): 167, stack(LATER): 657},
            SLOWER,
            ["run.c:30-32"],
        ),
        # A function that got slower, in 1.3 times the CPU time, and not an added call to it.
        (
            {stack(MAIN, OLD): 200, stack(MAIN): 800},
            {stack(LATER, NEW): 231, stack(ADDED, NEW): 154, stack(LATER): 615},
            Estimate(0.262, 0.002, 9.0),
            ["new.py:5"],
        ),
        # What got faster while the whole got slower comes last.
        (
            {stack(LINE): 100, stack(OLD): 300, stack(MAIN): 600},
            {
                stack(("run.c", 11)): 258,
                stack(("added.py", 1)): 175,
                stack(NEW): 67,
                stack(LATER): 500,
            },
            SLOWER,
            ["added.py:1-40", "run.c:10-11", "new.py:5"],
        ),
    ],
)
def test_lines_that_are_to_blame_come_first(
    base: Mapping[LineStack, int],
    head: Mapping[LineStack, int],
    cpu: Estimate,
    expected: list[str],
) -> None:
    assert [str(each.place) for each in judged(base, head, cpu)] == expected


def test_a_changed_line_that_calls_a_slower_one_and_got_slower_itself_is_named_too() -> None:
    base = {stack(LINE, OLD): 100, stack(LINE): 100, stack(MAIN): 790}
    head = {stack(LINE, NEW): 167, stack(LINE): 167, stack(LATER): 657}
    found = judged(base, head, SLOWER)
    assert {str(each.place) for each in found} == {"run.c:10-11", "new.py:5"}
    assert sum(each.cost.explains or 0 for each in found) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("samples", "named"), [(7, []), (10, ["run.c:30-32"])])
def test_lines_with_one_percent_of_the_samples_are_judged(samples: int, named: list[str]) -> None:
    found = judged({stack(MAIN): 990}, {stack(ADDED): samples, stack(LATER): 980}, SLOWER)
    assert [str(each.place) for each in found if each.place.is_changed] == named


def test_many_changed_lines_are_each_judged_more_strictly() -> None:
    """A difference that one place alone would be certain of is none among forty."""
    hunks = tuple(Hunk(n, 1, n, 1) for n in range(1, 81, 2))
    changes = (FileChange("run.c", "run.c", hunks),)

    def count(wanted: int) -> int:
        lines = range(1, 2 * wanted, 2)
        base, head = (
            [
                sampled({stack(("run.c", n)): 20 + (n == 1) * more + i for n in lines})
                for i in (0, 1, 2, 3)
            ]
            for more in (0, 24)
        )
        samples = count_lines(base, head, changes)
        found = line_changes(samples, measurement(TIMES), measurement(TIMES), ErrorRates(), FLAT)
        return sum(each.place.is_changed for each in found)

    assert (count(1), count(40)) == (1, 0)


@pytest.mark.parametrize(
    ("is_slower", "has_lines", "expected"),
    [(True, True, {"I_LINES_OPEN"}), (True, False, {"I_NO_LINES"}), (False, False, set())],
)
def test_a_certain_change_without_any_line_says_so(
    *, is_slower: bool, has_lines: bool, expected: set[str]
) -> None:
    base, head = sides(shifted(0.2 if is_slower else 0.0))
    one = [sampled({stack(MAIN): 7} if has_lines else {})] * 4
    run = GatedRun(head, "OBSERVED", lines=count_lines(one, one, ()))
    verdict = checked(judge(run, PairedBase(base), GatePolicy(Thresholds())))
    assert (verdict.verdict == "regressed") == is_slower
    assert {code for code in codes(verdict) if "LINES" in code} == expected
    advised = [each.message for each in verdict.reasons if each.code == "I_NO_LINES"]
    assert all("Build with -g (C, C++) or debug = true (Rust)" in each for each in advised)


def test_without_lines_a_python_program_is_named() -> None:
    inside = [{"_PyEval_EvalFrameDefault": 900, "sample": 100}] * 4
    base, head = sides(shifted(0.2), inside, inside)
    run = GatedRun(head, "OBSERVED", lines=count_lines([sampled({})] * 4, [sampled({})] * 4, ()))
    verdict = checked(judge(run, PairedBase(base), GatePolicy(Thresholds())))
    (reason,) = (each for each in verdict.reasons if each.code == "I_NO_LINES")
    assert 'frames = "python"' in reason.message


LOOP = ("void f() {", "    for (i = 0; i < 5; i++) {", "        g();", "        h();", "    }", "}")
MORE_PASSES = (
    FileChange("f.c", "f.c", (Hunk(2, 1, 2, 1),), {2: "    for (i = 0; i < 3; i++) {"}, LOOP),
    FileChange("old.py", "new.py", (Hunk(5, 1, 5, 1),)),
)
EXIT = "            break;"
NO_EXIT = (FileChange("f.c", "f.c", (Hunk(5, 1, 4, 0),), {5: EXIT}, LOOP),)


@pytest.mark.parametrize(
    ("changes", "before", "after", "expected"),
    [
        (MORE_PASSES, (100, 100, 790), (166, 166, 657), ["f.c:2"]),
        (MORE_PASSES, (100, 100, 790), (83, 249, 657), ["new.py:5"]),
        (NO_EXIT, (100, 100, 790), (166, 166, 657), ["f.c:2-4"]),
        ((), (100, 100, 790), (166, 166, 657), ["f.c:3", "old.py:5"]),
        # A line in the loop that grew much more than the loop is named too.
        (MORE_PASSES, (300, 50, 640), (350, 125, 515), ["f.c:2", "new.py:5"]),
        # Less often: 0.8 times the CPU time.
        (MORE_PASSES, (200, 200, 600), (125, 125, 750), ["f.c:2"]),
    ],
)
def test_a_loop_that_runs_more_or_less_often_is_named_by_what_changed_in_it(
    changes: tuple[FileChange, ...],
    before: tuple[int, int, int],
    after: tuple[int, int, int],
    expected: list[str],
) -> None:
    """Line 3 takes time itself, and line 4 calls a changed line of another file."""
    call = NEW if changes == MORE_PASSES else OLD
    few = {stack(("f.c", 5)): 1}  # too few samples to say how this line grew
    base, head = (
        {stack(("f.c", 3)): own, stack(("f.c", 4), each): called, stack(MAIN): rest, **few}
        for each, (own, called, rest) in ((OLD, before), (call, after))
    )
    cpu = SLOWER if after[2] < before[2] else Estimate(-0.223, 0.002, 9.0)
    assert sorted(str(each.place) for each in judged(base, head, cpu, changes)) == expected
