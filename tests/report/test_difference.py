import dataclasses
import json
import re

import pytest

from pytest_flamegate.profile import difference
from pytest_flamegate.profile.model import Stack, Unit
from pytest_flamegate.report.difference import (
    BOX_FIGURE,
    change_legend,
    change_rows,
    change_shade,
    describe_difference,
    describe_total,
    difference_document,
    difference_layout,
    difference_text,
    unit_of,
)
from pytest_flamegate.report.difference_svg import difference_svg
from pytest_flamegate.report.flame import Drawn, join_chain
from pytest_flamegate.report.markup import xml_text
from pytest_flamegate.report.page import flamegraph_html
from tests.report import factory
from tests.report.factory import BASE, COMPARED, HEAD, compared, slowed


def renamed(old: str, new: str) -> dict[Stack, int]:
    return {
        (*stack[:-1], factory.python(new)) if stack[-1].name == old else stack: count
        for stack, count in COMPARED.items()
    }


@pytest.mark.parametrize(
    ("fewer", "where"),
    [
        (10, "no function certainly; most likely ternary_gemv costs 1,400 → 1,502 µs/token"),
        (40, "and the samples do not show in which function"),
    ],
)
def test_a_whole_that_changed_names_no_function_by_chance(fewer: int, where: str) -> None:
    base, head = (
        difference.ProfileSide(
            name, factory.profile({stack: n // fewer for stack, n in stacks.items()}), cost
        )
        for name, stacks, cost in (("a", COMPARED, 2.0e-3), ("b", slowed("rms_norm", 1.5), 2.2e-3))
    )
    found = difference.compare_profiles(base, head)
    assert found.changed == ()
    assert describe_difference(found).startswith("the whole costs 2,000 → 2,200 µs/token (+200 ± ")
    assert where in describe_difference(found)
    ((_, name, state, *_),) = change_rows(found)
    assert (name, state) == ("everything", "changed somewhere")


def test_new_and_gone_functions_are_called_so() -> None:
    found = compared(renamed("softmax", "softmax_fast"))
    sentence = describe_difference(found)
    assert "softmax is gone (140 µs/token before)" in sentence
    assert "softmax_fast is new and costs 140 µs/token" in sentence
    by_name = {name: cells for _, name, _, *cells in change_rows(found)}
    assert by_name["softmax"][:3] == ["140", "–", "−140 ± 17"]
    assert by_name["softmax_fast"][0] == "–"


def test_of_many_changes_three_are_named_and_the_others_counted() -> None:
    head = COMPARED
    for name in ("ternary_gemv", "rms_norm", "attention", "softmax", "decode_step"):
        head = slowed(name, 2.0, head)
    sentence = describe_difference(compared(head)).split("; ")
    assert [part.split()[0] for part in sentence] == ["ternary_gemv", "attention", "softmax", "2"]
    assert sentence[-1] == "2 more changed"


def test_figures_have_the_unit_of_the_profiles() -> None:
    def counted(unit: Unit) -> difference.ProfileDifference:
        before, after = (
            difference.ProfileSide(name, dataclasses.replace(factory.profile(stacks), unit=unit))
            for name, stacks in (("a", COMPARED), ("b", slowed("rms_norm", 3.0)))
        )
        return difference.compare_profiles(before, after)

    assert describe_difference(counted("instructions")).startswith(
        "rms_norm executes 1,000 → 3,000 instructions (+2,000 ± "
    )
    found = counted("nanoseconds")
    assert "% of the nanoseconds" in describe_difference(found)
    assert describe_total(found) == "20,000 and 22,000 nanoseconds"
    picture = difference_svg(found, title="t", subtitle="s")
    assert "600 → 1,800 nanoseconds" in picture
    assert "width: share of nanoseconds" in picture
    other = dataclasses.replace(found.base, profile=factory.profile())
    assert unit_of(difference.compare_profiles(other, found.head)) == "count"


def test_the_svg_and_the_page_have_one_legend() -> None:
    found = compared(slowed("rms_norm", 2.0))
    drawn = Drawn("toy", factory.profile(COMPARED), factory.TOKEN_S, found)
    page, picture = (
        flamegraph_html(drawn, subtitle="s"),
        difference_svg(found, title="", subtitle=""),
    )
    for _, words in change_legend(found):
        assert xml_text(words) in page
        assert xml_text(words) in picture
    assert BOX_FIGURE in page
    assert BOX_FIGURE in picture


def test_sides_without_any_cpu_time_are_drawn_by_their_shares() -> None:
    base, head = (difference.ProfileSide(name, factory.profile(), 0.0) for name in (BASE, HEAD))
    found = difference.compare_profiles(base, head)
    assert "Shares only" in difference_svg(found, title="", subtitle="")


def test_the_last_row_is_everything_else() -> None:
    first, rest = change_rows(compared(slowed("rms_norm", 2.0)))
    assert first[:-1] == (
        "1", "rms_norm", "costs more", "100", "200", "+100 ± 24.4", "5.0 % → 9.5 %", "+4.5 pp",
    )  # fmt: skip
    assert float(first[-1]) > 4
    assert rest[:6] == ("", "everything else", "unchanged", "1,900", "1,900", "0 ± 24.4")


def test_everything_else_that_changed_is_not_called_unchanged() -> None:
    """A function that was split is uncertain by its processes, and the whole of the rest is not."""
    run, gemv = factory.ROOT, factory.python("gemv")
    base = {(*run, gemv): 2330, run: 1700}
    parts = {(*run, gemv, factory.python(name)): n for name, n in (("top", 1460), ("low", 1360))}
    head = {**base, (*run, gemv): 180, **parts}
    old = difference.ProfileSide(BASE, factory.profile(base), 403e-6)
    new = difference.ProfileSide(HEAD, factory.profile(head), 470e-6)
    found = difference.compare_profiles(old, new, {"gemv": 0.7, "top": 3.0, "low": 3.0})
    assert describe_difference(found) == (
        "top is new and costs 146 µs/token; low is new and costs 136 µs/token; "
        "everything else costs 215 µs/token less"
    )
    *_, rest = change_rows(found)
    # It is no more certain than the two that are known: 48.7 and 45.3.
    assert rest[:6] == ("", "everything else", "costs less", "403", "188", "−215 ± 66.5")
    assert rest[-1] == "−9.8"
    # The share of all others falls by as much as any other one rises.
    old, new = (dataclasses.replace(side, cpu_s_per_token=None) for side in (old, new))
    assert "everything else" not in describe_difference(difference.compare_profiles(old, new))


def test_a_number_in_a_box_is_a_row_of_the_table() -> None:
    names = [f"x{number:02}" for number in range(16)]
    base, head = (
        {(*factory.ROOT, factory.python(name)): (1000, 3000)[(at + odd) % 2]
         for at, name in enumerate(names)}
        for odd in (0, 1)
    )  # fmt: skip
    found = compared(head, base)
    picture = difference_svg(found, title="", subtitle="")
    assert len(found.changed) == 16
    assert [row[:2] for row in change_rows(found)[:-1]] == [
        (f"{rank}", each.frame.name) for rank, each in enumerate(found.changed[:12], 1)
    ]
    labels = re.findall(r">(?:(\d+) )?(x\d\d)</", picture)
    assert {name: rank for rank, name in labels} == {
        each.frame.name: f"{rank}" if rank <= 12 else ""
        for rank, each in enumerate(found.changed, 1)
    }


def test_a_tint_grows_with_the_part_of_the_whole() -> None:
    assert [change_shade("up", part) for part in (0.009, 0.01, 0.03)] == ["up1", "up2", "up3"]


# As text and as plain data


def test_warnings_come_before_the_table() -> None:
    found = compared(slowed("rms_norm", 3.0), costs=False)
    head = dataclasses.replace(found.head.profile, profiler="perf")
    found = difference.compare_profiles(found.base, dataclasses.replace(found.head, profile=head))
    lines = difference_text(found, colour=True).splitlines()
    assert lines[0].startswith("\x1b[1;33mrms_norm")
    assert lines[1].startswith("  NOT COMPARABLE")
    assert "profiler: py-spy and perf" in lines[1]
    assert lines[2].startswith("  shares only")
    assert "smaller" in lines[-4]


def test_the_document_holds_every_function_and_is_plain_json() -> None:
    document = json.loads(json.dumps(difference_document(compared(slowed("rms_norm", 2.0)))))
    first = document["functions"][0]
    assert (first["name"], first["state"]) == ("rms_norm", "up")
    assert (first["own"]["base"], first["own"]["change"]) == (100e-6, 100e-6)
    assert {each["name"] for each in document["functions"]} == {
        frame.name for stack in COMPARED for frame in stack
    }
    assert (document["base"]["name"], document["head"]["name"]) == (BASE, HEAD)


def test_exact_counts_have_a_z_only_if_they_are_equal() -> None:
    for count in (1, 2):
        profiles = (factory.profile({(factory.python("f"),): n}) for n in (1, count))
        base, head = (
            difference.ProfileSide("a", dataclasses.replace(each, unit="instructions"))
            for each in profiles
        )
        document = difference_document(difference.compare_profiles(base, head))
        assert document["unit"] == "instructions"
        json.dumps(document, allow_nan=False)


# Layout


def test_callers_that_do_no_work_are_one_path() -> None:
    callers = tuple(factory.python(f"c{index}") for index in range(4_000))
    work = factory.python("work")
    base: dict[Stack, int] = {(*callers, work): 900, (*callers[:2], factory.python("b")): 100}
    found = compared({stack: 2 * count for stack, count in base.items()}, base)
    (outer, first), (branch, second) = (
        join_chain(path) for path in (found.roots[0], found.roots[0].children[0])
    )
    # Two callers in a row are short enough to be drawn; the second one branches.
    assert (outer.name, branch.name) == ("c0", "c1")
    assert first.children[0] is second
    inner = {frame.name: path for frame, path in map(join_chain, second.children)}
    (chain,) = (name for name in inner if name.startswith("c2 › c3"))
    assert chain.endswith("c3999")
    assert [path.frame.name for path in inner[chain].children] == ["work"]
    assert inner[chain].head_samples == 1800


def test_slivers_are_drawn_only_where_something_changed() -> None:
    slivers: dict[Stack, int] = {
        (*factory.ROOT, factory.python(name), factory.python(f"in_{name}")): 60
        for name in ("calm", "hot")
    }
    base = {**COMPARED, **slivers}
    head = slowed("in_hot", 0.0, base)
    assert sum(head.values()) == sum(base.values()) - 60
    found = compared(head, base)
    assert [each.frame.name for each in found.changed] == ["in_hot"]
    laid, _ = difference_layout(found, least_part=0.0005, calm_part=0.005)
    drawn = {box.frame.name for box in laid.boxes}
    assert {"hot", "in_hot"} <= drawn
    assert {"calm", "in_calm"}.isdisjoint(drawn)


def test_paths_are_compared_and_laid_out_without_an_error_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0
    change = difference.ProfileDifference.change

    def counted(found: difference.ProfileDifference, base: int, head: int) -> difference.Change:
        nonlocal calls
        calls += 1
        return change(found, base, head)

    monkeypatch.setattr(difference.ProfileDifference, "change", counted)
    # 18 functions on 1,022 paths.
    stacks: dict[Stack, int] = {
        tuple(factory.python(f"f{bit}_{number >> bit & 1}") for bit in range(9)): 10
        for number in range(512)
    }
    found = compared(stacks, stacks)
    difference_layout(found, least_part=0.0, calm_part=0.0)
    assert calls < 50
