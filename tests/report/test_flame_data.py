from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.model import Frame, Profile, Stack
from pytest_flamegate.report.flame_html import PARTS, REST, flame_data
from pytest_flamegate.report.text import require_cost
from tests.report import factory

FRAMES = st.sampled_from([factory.python(name) for name in "abcde"])
STACKS = st.dictionaries(
    st.lists(FRAMES, min_size=1, max_size=6).map(tuple), st.integers(1, 50), min_size=1, max_size=30
)


def made(profile: Profile) -> Any:
    return flame_data(
        profile,
        spots=rank_hotspots(profile),
        cpu_s_per_token=None,
        difference=None,
        categorise=factory.categorise,
    )


def stacks_of(data: Any) -> dict[tuple[str, ...], int]:
    """Read the stacks back as the page does: the depth alone tells every caller."""
    found: dict[tuple[str, ...], int] = {}
    stack: list[str] = []
    paths = data["paths"]
    for depth, frame, own in zip(paths["depth"], paths["frame"], paths["own"], strict=True):
        stack[depth:] = [data["names"][data["frames"]["name"][frame]]]
        if own:
            found[tuple(stack)] = own
    return found


@given(STACKS)
def test_every_stack_reads_back(stacks: dict[Stack, int]) -> None:
    data = made(factory.profile(stacks))
    names = {tuple(frame.name for frame in stack): count for stack, count in stacks.items()}
    assert stacks_of(data) == names
    assert data["total"] == sum(stacks.values())
    assert data["left"] == 0


def test_siblings_stand_in_the_order_of_their_names() -> None:
    root = factory.python("root")
    data = made(factory.profile({(root, factory.python(name)): 1 for name in "cab"}))
    assert [data["names"][data["frames"]["name"][f]] for f in data["paths"]["frame"]] == [
        "root", "a", "b", "c",
    ]  # fmt: skip


def test_functions_count_recursion_once_and_merge_what_has_one_name() -> None:
    fib, other = factory.python("fib", "a.py"), factory.python("fib", "b.py")
    data = made(factory.profile({(fib, fib): 3, (other,): 2}))
    assert data["names"] == ["fib"]
    assert data["functions"] == {"own": [5], "all": [5]}
    assert data["modules"] == ["a.py", "b.py"]


def test_names_are_made_visible_and_stay_apart() -> None:
    longs = ["x" * 500 + str(number) for number in range(2)]
    data = made(factory.profile({(factory.python(name),): 1 for name in ["a\u202eb", *longs]}))
    assert "a\\u202eb" in data["names"]
    assert len(data["names"]) == len(data["paths"]["own"]) == 3


@given(STACKS)
def test_what_is_too_small_is_told_together(stacks: dict[Stack, int]) -> None:
    hot: Stack = (factory.python("hot"),)
    data = made(factory.profile({**stacks, hot: 20 * PARTS}))
    read = stacks_of(data)
    assert sum(read.values()) == data["total"]
    least = data["total"] / PARTS
    small = {stack[0] for stack in stacks if sum_below(stacks, stack[0]) < least}
    assert not {frame.name for frame in small} & {stack[0] for stack in read}
    assert read.get((REST.name,), 0) == sum(sum_below(stacks, frame) for frame in small)
    depths = data["paths"]["depth"]
    assert all(after <= before + 1 for before, after in itertools.pairwise(depths))
    assert (data["left"] > 0) == any(REST.name in stack for stack in read)


def sum_below(stacks: dict[Stack, int], root: Frame) -> int:
    return sum(count for stack, count in stacks.items() if stack[0] == root)


@pytest.mark.parametrize("cost", [0.0, -1.0, math.nan, math.inf])
def test_a_cost_that_no_token_has(cost: float) -> None:
    with pytest.raises(ReceiptError, match="E_BAD_FIGURE"):
        require_cost(cost)
