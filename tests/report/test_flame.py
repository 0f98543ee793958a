from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.model import Frame, Stack
from pytest_flamegate.report.flame import (
    UNKNOWN,
    Box,
    chain_frame,
    choose_colours,
    layout,
    self_shares,
)

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


def test_too_narrow_boxes_are_folded_with_all_above_them_and_counted() -> None:
    stacks = {stack("main", "hot"): 997, stack("main", "tiny", "leaf"): 2, stack("main", "t"): 1}
    laid = layout(stacks, width=100, min_width=0.25)
    assert [box.frame.name for box in laid.boxes] == ["main", "hot"]
    assert (laid.folded_samples, laid.folded_branches) == (3, 2)
    assert laid.boxes[0].samples == 1000


def test_too_deep_boxes_are_folded_and_counted() -> None:
    deep = {stack(*(["f"] * depth)): 1 for depth in range(1, 101)}
    laid = layout(deep, width=100, max_depth=50)
    assert (laid.depth, laid.folded_samples, laid.folded_branches) == (50, 50, 1)


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
    assert all(box.samples <= total for box in laid.boxes)
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


# Chains of callers that do no work themselves


def test_three_idle_callers_are_one_box() -> None:
    stacks = {stack("a", "b", "c", "d", "x"): 3, stack("a", "b", "c", "d", "y"): 2}
    laid = layout(stacks, width=100)
    # The last caller branches, so that it stays a box of its own.
    assert [(box.frame.name, box.depth) for box in laid.boxes] == [
        ("a › b › c", 0), ("d", 1), ("x", 2), ("y", 2),
    ]  # fmt: skip
    assert laid.boxes[0].last == frame("c")
    assert laid.boxes[0].self_samples == 0


def test_callers_with_work_of_their_own_or_two_alone_stay() -> None:
    two = layout({stack("a", "b", "x"): 3, stack("a", "b", "y"): 2}, width=100)
    assert [box.frame.name for box in two.boxes] == ["a", "b", "x", "y"]
    busy = layout({stack("a", "b", "c", "d"): 3, stack("a", "b"): 2}, width=100)
    assert [box.frame.name for box in busy.boxes] == ["a", "b", "c", "d"]


def test_a_chain_of_any_length_has_a_short_name() -> None:
    assert chain_frame(stack("main", "f", "f", "f", "g")).name == "main › f ×3 › g"
    name = chain_frame(stack(*(f"f{index}" for index in range(2000)))).name
    assert name.startswith("f0 › f1 › ")
    assert name.endswith("… 1,989 more … › f1997 › f1998 › f1999")
    laid = layout({stack(*(["loop"] * 20_000)): 5}, width=100)
    assert [box.frame.name for box in laid.boxes] == ["loop ×19,999", "loop"]


# Colours


def categorise(given: Frame) -> str:
    return "matmul" if given.name == "gemm" else given.kind


def shares(gemm: float) -> dict[Frame, float]:
    ops, model = (1 - gemm) * 0.6, (1 - gemm) * 0.4
    return {
        Frame("gemm", "lib/ops.py", "python"): gemm,
        Frame("gelu", "lib/ops.py", "python"): ops,
        Frame("step", "model.py", "python"): model,
    }


def test_a_profile_of_no_known_kind_is_coloured_by_module() -> None:
    own = shares(0.1)
    colouring = choose_colours(own, categorise)
    assert [colouring.kind(each) for each in own] == ["matmul", "ops.py", "model.py"]
    assert colouring.tone("ops.py").name == "module1"
    assert colouring.tone("ops.py").meaning == "the module ops.py"
    assert colouring.tone("matmul").name == "matmul"
    # A module that is not among the hottest keeps its category.
    assert colouring.kind(frame("other")) == "python"


@pytest.mark.parametrize("own", [shares(0.6), {frame("a"): 0.5, frame("b"): 0.5}])
def test_a_profile_of_known_kinds_or_one_module_is_coloured_by_category(
    own: dict[Frame, float],
) -> None:
    colouring = choose_colours(own, categorise)
    assert colouring.modules == {}
    assert {colouring.kind(each) for each in own} <= {"matmul", "python"}
    assert colouring.tone("ops.py") is UNKNOWN
