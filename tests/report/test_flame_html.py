from __future__ import annotations

import base64
import hashlib
import itertools
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.model import Frame, Profile, Stack
from pytest_flamegate.report import html
from pytest_flamegate.report.flame import Drawn, choose_colours, self_shares
from pytest_flamegate.report.flame_html import PARTS, REST, flame_data, flamegraph_html
from tests.report import factory

HANDLER = re.compile(r"\bon[a-z]+=|\bstyle=|javascript:")
NAMES = st.one_of(
    st.text(min_size=1, max_size=40),
    st.text(alphabet="<>&\"'];\x00\x1b\u2028\u202e\ud800]]>/script", max_size=30),
)


class Parsed(HTMLParser):
    """The tags of a page, and what stands in its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.inside: list[tuple[dict[str, str | None], str]] = []
        self.open: dict[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open = dict(attrs) if tag in ("script", "style") else None
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]

    def handle_data(self, data: str) -> None:
        if self.open is not None:
            self.inside.append((self.open, data))
            self.open = None


def draw(profile: Profile | None = None, **changes: object) -> str:
    given: dict[str, object] = {**factory.SHOWN, **changes}
    subtitle = given.pop("subtitle")
    return flamegraph_html(Drawn(profile=profile or factory.profile(), **given), subtitle=subtitle)  # type: ignore[arg-type]


def test_the_policy_lets_in_what_stands_there_and_nothing_else() -> None:
    text = draw()
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    assert len(policy) == 1
    hashes = re.findall(r"'sha256-([^']+)'", policy[0])
    code = [data for attrs, data in Parsed(text).inside if attrs.get("type") != "application/json"]
    assert sorted(hashes) == sorted(
        base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in code
    )
    assert policy[0].startswith("default-src 'none'; ")


def test_it_asks_for_nothing() -> None:
    text = draw()
    assert not re.search(r"https?:|//[a-z]|@import|url\(|fetch\(|XMLHttpRequest|eval\(", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", html.script())
    assert "localStorage" not in html.script()


def test_the_frame_of_the_page_is_small() -> None:
    assert len(html.script().encode()) + len(html.style().encode()) <= 60_000


def test_no_samples() -> None:
    with pytest.raises(FlamegateError, match="E_NO_SAMPLES"):
        draw(factory.profile({}))


# Data


FRAMES = st.sampled_from([factory.python(name) for name in "abcde"])
STACKS = st.dictionaries(
    st.lists(FRAMES, min_size=1, max_size=6).map(tuple), st.integers(1, 50), min_size=1, max_size=30
)


def made(profile: Profile) -> Any:
    colouring = choose_colours(self_shares(profile.stacks), factory.categorise)
    return flame_data(Drawn("t", profile), rank_hotspots(profile), colouring)


def expand(label: str) -> list[str]:
    """Return the names of a box: ``a › b ×2`` is a, b, b."""
    names: list[str] = []
    for part in label.split(" › "):
        name, _, times = part.partition(" ×")
        names += [name] * int(times or 1)
    return names


def stacks_of(data: Any) -> dict[tuple[str, ...], int]:
    """Read the stacks back as the page does: the depth alone determines every caller."""
    found: dict[tuple[str, ...], int] = {}
    stack: list[str] = []
    paths = data["paths"]
    for depth, frame, own in zip(paths["depth"], paths["frame"], paths["own"], strict=True):
        stack[depth:] = [data["names"][data["frames"]["name"][frame]]]
        if own:
            found[tuple(name for part in stack for name in expand(part))] = own
    return found


@given(STACKS)
def test_every_stack_reads_back(stacks: dict[Stack, int]) -> None:
    data = made(factory.profile(stacks))
    names = {tuple(frame.name for frame in stack): count for stack, count in stacks.items()}
    assert stacks_of(data) == names
    assert data["total"] == sum(stacks.values())
    assert data["left"] == 0


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
def test_too_small_paths_are_one(stacks: dict[Stack, int]) -> None:
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
