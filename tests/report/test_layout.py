from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.model import Frame, Stack
from pytest_flamegate.report.flame import Box, layout, self_shares

STACKS = st.dictionaries(
    st.lists(st.sampled_from("abcd"), max_size=6).map(lambda names: stack(*names)),
    st.integers(1, 50),
    min_size=1,
    max_size=20,
)


def frame(name: str) -> Frame:
    return Frame(name, "m.py", "python")


def stack(*names: str) -> Stack:
    return tuple(frame(name) for name in names)


def named(boxes: tuple[Box, ...]) -> list[tuple[str, int, float, float, int, int]]:
    return [(b.frame.name, b.depth, b.x, b.width, b.samples, b.self_samples) for b in boxes]


def test_equal_prefixes_merge_in_the_order_of_names() -> None:
    laid = layout({stack("main", "z"): 2, stack("main", "b"): 5, stack("main"): 3}, width=100)
    assert named(laid.boxes) == [
        ("main", 0, 0, 100, 10, 3),
        ("b", 1, 0, 50, 5, 5),
        ("z", 1, 50, 20, 2, 2),
    ]
    assert (laid.samples, laid.depth, laid.folded_branches) == (10, 2, 0)


def test_frames_of_one_name_in_two_modules_stay_apart() -> None:
    one, other = Frame("f", "a.py", "python"), Frame("f", "b.so", "native")
    laid = layout({(other,): 1, (one,): 1}, width=10)
    assert [box.frame for box in laid.boxes] == [one, other]


def test_what_is_too_narrow_is_folded_with_all_above_it_and_counted() -> None:
    stacks = {stack("main", "hot"): 997, stack("main", "tiny", "leaf"): 2, stack("main", "t"): 1}
    laid = layout(stacks, width=100, min_width=0.25)
    assert [box.frame.name for box in laid.boxes] == ["main", "hot"]
    assert (laid.folded_samples, laid.folded_branches) == (3, 2)
    assert laid.boxes[0].samples == 1000


def test_what_is_too_deep_is_folded_and_counted() -> None:
    deep = stack(*(["f"] * 5000))
    laid = layout({deep: 4, stack("g"): 1}, width=100, max_depth=50)
    assert (laid.depth, laid.folded_samples, laid.folded_branches) == (50, 4, 1)


def test_of_too_many_boxes_the_widest_are_drawn() -> None:
    stacks = {stack("main", f"f{i:02}"): 1 + i for i in range(20)}
    laid = layout(stacks, width=100, min_width=0, max_boxes=4)
    assert [box.frame.name for box in laid.boxes] == ["main", "f17", "f18", "f19"]
    assert laid.folded_branches == 17
    assert sum(box.self_samples for box in laid.boxes) + laid.folded_samples == laid.samples


def test_samples_without_a_stack_take_room_and_are_counted() -> None:
    laid = layout({(): 5, stack("main"): 5}, width=100)
    assert named(laid.boxes) == [("main", 0, 0, 50, 5, 5)]
    assert laid.stackless == 5


@given(STACKS)
def test_widths_sum_and_nothing_leaves_its_caller(stacks: dict[Stack, int]) -> None:
    laid = layout(stacks, width=1000, min_width=0)
    total = sum(stacks.values())
    assert sum(box.self_samples for box in laid.boxes) + laid.stackless == total
    path: list[Box] = []
    for box in laid.boxes:
        del path[box.depth :]
        assert len(path) == box.depth
        if path:
            assert path[-1].x - 1e-6 <= box.x
            assert box.x + box.width <= path[-1].x + path[-1].width + 1e-6
        assert box.width == pytest.approx(1000 * box.samples / total)
        path.append(box)
    roots = sum(box.width for box in laid.boxes if box.depth == 0)
    assert roots == pytest.approx(1000 * (total - laid.stackless) / total)


@given(STACKS)
def test_the_order_of_the_stacks_does_not_matter(stacks: dict[Stack, int]) -> None:
    turned = dict(reversed(stacks.items()))
    assert layout(stacks, width=1000) == layout(turned, width=1000)


@pytest.mark.parametrize(
    ("stacks", "code"),
    [
        ({}, "E_NO_SAMPLES"),
        ({stack("a"): 0}, "E_NO_SAMPLES"),
        ({stack("a"): 3, stack("b"): -1}, "E_NEGATIVE_SAMPLES"),
    ],
)
def test_nonsense_is_refused(stacks: dict[Stack, int], code: str) -> None:
    with pytest.raises(FlamegateError) as refused:
        layout(stacks, width=100)
    assert refused.value.code == code


def test_self_shares_are_of_all_samples() -> None:
    stacks = {stack("main", "b"): 5, stack("other", "b"): 2, stack("main"): 1, (): 2}
    assert self_shares(stacks) == {frame("b"): 0.7, frame("main"): 0.1}
