from __future__ import annotations

import dataclasses
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings

from pytest_flamegate.profile.difference import ProfileDifference, compare_profiles
from pytest_flamegate.profile.model import Frame, Stack
from pytest_flamegate.report.difference_svg import difference_svg
from pytest_flamegate.report.svg import INNER
from tests.report import factory
from tests.report.differences import STACKS, compared, slowed
from tests.report.test_flame_svg import NAMES, assert_well_formed, parse, texts


def draw(found: ProfileDifference) -> ET.Element:
    return parse(difference_svg(found, title="decode: what changed", subtitle="embedded engine"))


def classes(root: ET.Element) -> dict[str, set[str]]:
    """The classes in which each function is drawn: the boxes that have a title."""
    found: dict[str, set[str]] = {}
    for group in root.iter("g"):
        for box in group.findall("rect"):
            title = box.findtext("title")
            if title and "\n" in title:
                name = title.split("\n")[0]
                found.setdefault(name, set()).add(group.get("class") or "")
    return found


def marks(root: ET.Element, kind: str) -> list[float]:
    """The widths of the parts that came or went, as the boxes show them."""
    return [
        float(box.get("width") or "nan")
        for group in root.iter("g")
        if group.get("class") == kind and group.get("pointer-events") == "none"
        for box in group.findall("rect")
    ]


def test_equal_inputs_give_equal_bytes() -> None:
    turned = dict(reversed(STACKS.items()))
    one, other = (
        difference_svg(compared(slowed("rms_norm", 2.0, stacks)), title="t", subtitle="")
        for stacks in (STACKS, turned)
    )
    assert one == other


def test_only_the_function_that_changed_is_coloured_and_its_callers_stay_grey() -> None:
    shown = classes(draw(compared(slowed("rms_norm", 1.3))))
    assert shown.pop("rms_norm") == {"up2"}
    assert set().union(*shown.values()) == {"same"}
    assert set(shown) == {
        "main", "generate", "decode_step", "swiglu_ffn", "ternary_gemv", "attention", "softmax"
    }  # fmt: skip


def test_a_function_of_five_per_cent_a_third_slower_is_to_be_seen() -> None:
    """Its boxes are 5 % of the picture, and what came is solid, a hundredth of it."""
    root = draw(compared(slowed("rms_norm", 1.3)))
    came = marks(root, "more")
    assert len(came) == 2
    assert sum(came) == pytest.approx(INNER * 0.3 * 0.05 / 1.015, abs=4)
    assert not marks(root, "less")


def test_a_cheaper_function_keeps_its_width_and_shows_the_removed_part() -> None:
    root = draw(compared(slowed("ternary_gemv", 0.5)))
    assert classes(root)["ternary_gemv"] == {"down3"}
    assert marks(root, "less") == [pytest.approx(INNER * 0.35, abs=2)]
    assert classes(root)["attention"] == {"same"}


def test_new_and_gone_functions_stand_beside_each_other_and_say_so() -> None:
    head = {
        (*stack[:-1], factory.python("softmax_fast")) if stack[-1].name == "softmax" else stack: n
        for stack, n in STACKS.items()
    }
    root = draw(compared(head))
    assert classes(root)["softmax"] == {"less"}
    assert classes(root)["softmax_fast"] == {"more"}
    shown = " ".join(texts(root))
    assert "1 gone" in shown
    assert "2 new" in shown


def test_a_function_that_is_only_called_elsewhere_is_outlined_and_not_coloured() -> None:
    wrapped = {
        (*stack[:-1], factory.python("wrapper"), stack[-1])
        if stack[-1].name == "softmax"
        else stack: n
        for stack, n in STACKS.items()
    }
    root = draw(compared(wrapped))
    shown = classes(root)
    assert shown["softmax"] == {"came", "went"}
    assert shown["wrapper"] == {"came"}
    assert "no difference beyond sampling noise" in " ".join(texts(root))
    assert not marks(root, "more")


def test_without_a_certain_change_everything_is_grey_and_it_says_so() -> None:
    noisy = {
        stack: count + (-1) ** index * 9 for index, (stack, count) in enumerate(STACKS.items())
    }
    root = draw(compared(noisy))
    assert set().union(*classes(root).values()) == {"same"}
    assert any(text.startswith("no difference beyond sampling noise") for text in texts(root))


def test_the_picture_reads_by_the_answer_the_table_and_the_title() -> None:
    root = draw(compared(slowed("rms_norm", 2.0)))
    shown = texts(root)
    assert any(text.startswith("rms_norm costs 100 → 200 µs/token (+100 ± ") for text in shown)
    for cell in (
        "1",
        "costs more",
        "100",
        "200",
        "+100",
        "5.0 % → 9.5 %",
        "+4.5 pp",
        "everything else",
    ):
        assert cell in shown
    assert "rms_norm costs 100 → 200" in (root.findtext("desc") or "")
    titles = [box.findtext("title") or "" for box in root.iter("rect")]
    attention = next(title for title in titles if title.startswith("attention\n"))
    assert attention.split("\n")[1] == "engine.py · itself unchanged"
    assert "with all it calls: 440 → 440 µs/token" in attention


def test_sides_taken_differently_are_marked_loudly() -> None:
    found = compared(slowed("rms_norm", 2.0))
    assert "NOT COMPARABLE" not in " ".join(texts(draw(found)))
    head = dataclasses.replace(found.head.profile, profiler="perf", rate_hz=999)
    root = draw(compare_profiles(found.base, dataclasses.replace(found.head, profile=head)))
    shown = " ".join(texts(root))
    assert "NOT COMPARABLE" in shown
    assert "profiler: py-spy and perf" in shown
    assert "rate (Hz): 100 and 999" in shown
    assert "Not comparable" in (root.findtext("desc") or "")


@settings(deadline=None)
@given(NAMES, NAMES)
def test_hostile_names_leave_it_well_formed(name: str, module: str) -> None:
    hostile: dict[Stack, int] = {
        (factory.python("main"), Frame(name, module, "python")): 900,
        (factory.python("main"), Frame("safe", module, "native")): 900,
    }
    found = compared(slowed(name, 3.0, hostile), hostile)
    found = dataclasses.replace(found, base=dataclasses.replace(found.base, name=name))
    svg = difference_svg(found, title=name, subtitle=module)
    assert_well_formed(svg)
    assert len(svg) < 40_000


def test_bars_and_boxes_are_on_one_scale_inside_the_card() -> None:
    """Noise alone can make the head's whole wider than boxes that are as wide as the mean."""
    head = {stack: round(count * 1.02) for stack, count in STACKS.items()}
    for found in (compared(head), compared(slowed("rms_norm", 4.0))):
        bars: dict[str, float] = {}
        root = draw(found)
        for bar in (each for each in root.findall("rect") if each.get("height") == "9"):
            row = bar.get("y") or ""
            bars[row] = bars.get(row, 0.0) + float(bar.get("width") or 0) + 0.5
        before, after = bars.values()
        assert after <= INNER + 2
        assert before / after == pytest.approx(found.total.base / found.total.head, abs=0.005)


def test_a_label_on_a_mark_takes_ink_that_reads_on_it() -> None:
    root = draw(compared(slowed("rms_norm", 3.0)))
    inks = {
        group.get("class")
        for group in root.iter("g")
        for text in group.findall("text")
        if "rms" in "".join(text.itertext())
    }
    assert "on-more" in inks
    assert not inks & {"on-same", "on-up3", "on-came"}
