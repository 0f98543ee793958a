from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.profile.model import Profile, Stack
from pytest_flamegate.report.flame_data import REST, Path, fewer, flame_data, require_cost
from tests.report import factory

FRAMES = st.sampled_from([factory.python(name) for name in "abcde"])
STACKS = st.dictionaries(
    st.lists(FRAMES, min_size=1, max_size=6).map(tuple), st.integers(1, 50), min_size=1, max_size=30
)


def made(profile: Profile) -> Any:
    return flame_data(profile, cpu_s_per_token=None, difference=None, categorise=factory.categorise)


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


@given(STACKS, st.integers(1, 12))
def test_what_is_too_small_is_told_together(stacks: dict[Stack, int], most: int) -> None:
    paths = plain(stacks)
    kept = fewer(paths, most)
    assert sum(path.own for path in kept) == sum(stacks.values())
    assert sum(path.frame != REST for path in kept) <= most
    depths = [path.depth for path in kept]
    assert all(after <= before + 1 for before, after in itertools.pairwise(depths))


def plain(stacks: dict[Stack, int]) -> list[Path]:
    data = made(factory.profile(stacks))
    frames = [factory.python(data["names"][name]) for name in data["frames"]["name"]]
    rows = zip(data["paths"]["depth"], data["paths"]["frame"], data["paths"]["own"], strict=True)
    paths = [Path(depth, frames[frame], own, own) for depth, frame, own in rows]
    return [sized(paths, index) for index in range(len(paths))]


def sized(paths: list[Path], index: int) -> Path:
    first = paths[index]
    size = first.own
    for path in paths[index + 1 :]:
        if path.depth <= first.depth:
            break
        size += path.own
    return Path(first.depth, first.frame, first.own, size)


@pytest.mark.parametrize("cost", [0.0, -1.0, math.nan, math.inf])
def test_a_cost_that_no_token_has(cost: float) -> None:
    with pytest.raises(ReceiptError, match="E_BAD_FIGURE"):
        require_cost(cost)
