"""The layout of flame graphs, and their colours: every kind of sight separates them."""

import itertools
import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.profile.model import Frame, Stack
from pytest_flamegate.report import flame
from pytest_flamegate.report.difference import SHADES
from pytest_flamegate.report.markup import INK, UNKNOWN
from tests.report import factory

STACKS = st.dictionaries(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=6).map(lambda names: stack(*names)),
    st.integers(1, 50),
    min_size=1,
    max_size=20,
)


def frame(name: str) -> Frame:
    return Frame(name, "m.py", "python")


def stack(*names: str) -> Stack:
    return tuple(frame(name) for name in names)


def layout(stacks: dict[Stack, int], least_part: float = 0.005) -> flame.Layout[flame.CallPath]:
    return flame.layout(factory.profile(stacks), least_part=least_part)


def boxes(laid: flame.Layout[flame.CallPath]) -> list[tuple[str, int, float, float, int]]:
    return [(b.frame.name, b.depth, b.start, b.weight, b.path.self_samples) for b in laid.boxes]


def names(laid: flame.Layout[flame.CallPath]) -> list[str]:
    return [box.frame.name for box in laid.boxes]


def test_equal_prefixes_merge_in_the_order_of_names_and_then_modules() -> None:
    laid = layout({stack("main", "z"): 2, stack("main", "b"): 5, stack("main"): 3, (): 5})
    assert boxes(laid) == [("main", 0, 0, 10, 3), ("b", 1, 0, 5, 5), ("z", 1, 5, 2, 2)]
    assert (laid.depth, laid.left_out) == (2, 0)
    one, other = Frame("f", "a.py", "python"), Frame("f", "b.so", "native")
    assert [box.frame for box in layout({(other,): 1, (one,): 1}).boxes] == [one, other]


def test_too_narrow_and_too_many_boxes_are_left_out_with_all_above_them_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stacks = {stack("main", "hot"): 997, stack("main", "tiny", "leaf"): 2, stack("main", "t"): 1}
    laid = layout(stacks, 0.0025)
    assert (names(laid), laid.left_out) == (["main", "hot"], 2)
    assert laid.boxes[0].weight == 1000
    monkeypatch.setattr(flame, "MAX_BOXES", 4)
    laid = layout({stack("main", f"f{i:02}"): 1 + i for i in range(20)}, 0)
    assert (names(laid), laid.left_out) == (["main", "f17", "f18", "f19"], 17)


@given(STACKS)
def test_widths_sum_and_nothing_leaves_its_caller(stacks: dict[Stack, int]) -> None:
    laid = layout(stacks, 0)
    total = sum(stacks.values())
    assert sum(box.path.self_samples for box in laid.boxes) == total
    assert sum(box.weight for box in laid.boxes if box.depth == 0) == total
    path: list[flame.Placed[flame.CallPath]] = []
    for box in laid.boxes:
        del path[box.depth :]
        assert len(path) == box.depth
        if path:
            assert path[-1].start <= box.start
            assert box.start + box.weight <= path[-1].start + path[-1].weight
        path.append(box)
    assert boxes(layout(dict(reversed(stacks.items())), 0)) == boxes(laid)


# Chains of callers that do no work themselves


def test_three_idle_callers_are_one_box() -> None:
    laid = layout({stack("a", "b", "c", "d", "x"): 3, stack("a", "b", "c", "d", "y"): 2})
    # The last caller branches, so that it stays a box of its own.
    assert [row[:2] for row in boxes(laid)] == [("a › b › c", 0), ("d", 1), ("x", 2), ("y", 2)]
    assert laid.boxes[0].path.frame == frame("c")
    assert laid.boxes[0].path.self_samples == 0
    # Two alone, and callers with work of their own, stay.
    two = layout({stack("a", "b", "x"): 3, stack("a", "b", "y"): 2})
    assert names(two) == ["a", "b", "x", "y"]
    assert names(layout({stack(*"abcd"): 3, stack("a", "b"): 2})) == ["a", "b", "c", "d"]


def test_a_chain_of_any_length_has_a_short_name() -> None:
    assert names(layout({stack(*"mfffg", "work"): 5})) == ["m › f ×3 › g", "work"]
    name = names(layout({stack(*(f"f{index}" for index in range(2001))): 5}))[0]
    assert name.startswith("f0 › f1 › ")
    assert name.endswith("… 1,989 more … › f1997 › f1998 › f1999")
    assert names(layout({stack(*(["loop"] * 20_000)): 5})) == ["loop ×19,999", "loop"]


# Colours


def profile(gemm: int) -> dict[Stack, int]:
    return {
        (Frame("gemm", "lib/ops.py", "python"),): gemm,
        (Frame("act", "lib/ops.py", "python"),): (100 - gemm) * 6 // 10,
        (Frame("step", "model.py", "python"),): (100 - gemm) * 4 // 10,
    }


def colour(stacks: dict[Stack, int]) -> tuple[flame.Colouring, list[str]]:
    colouring, spots = flame.colour_hotspots(flame.Drawn("t", factory.profile(stacks)))
    return colouring, [spot.category for spot in spots]


def test_a_profile_of_no_known_kind_is_coloured_by_module() -> None:
    colouring, kinds = colour(profile(10))
    assert kinds == ["ops.py", "model.py", "matmul"]
    tone = colouring.tone("ops.py")
    assert (tone.name, tone.meaning) == ("module1", "the module ops.py")
    assert colouring.tone("matmul").name == "matmul"
    # A module that is not among the hottest keeps its category.
    assert colouring.kind(frame("other")) == "python"


def test_a_module_with_the_name_of_a_category_is_not_that_category() -> None:
    colouring, spots = flame.colour_hotspots(
        flame.Drawn("t", factory.profile({
            (Frame("layer_norm", "norm", "native"),): 30,
            (Frame("foo", "norm", "native"),): 50,
            (Frame("bar", "libx.so", "native"),): 45,
        }))
    )  # fmt: skip
    shares = flame.category_shares(spots)
    assert shares == {"norm (module)": 0.4, "libx.so": 0.36, "norm": 0.24}
    tones = [colouring.tone(kind) for kind in shares]
    assert [tone.name for tone in tones] == ["module1", "module2", "norm"]
    assert tones[0].meaning == "the module norm"


def test_a_profile_of_known_kinds_or_one_module_is_coloured_by_category() -> None:
    for stacks in (profile(60), {stack("a"): 5, stack("b"): 5}):
        colouring, kinds = colour(stacks)
        assert colouring.modules == {}
        assert set(kinds) <= {"matmul", "python"}
        assert colouring.tone("ops.py") is UNKNOWN


# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
SIGHT = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
                   (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                     (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
                   (0.004733, 0.691367, 0.303900)),
}  # fmt: skip
Triple = tuple[float, float, float]


def linear(colour: str) -> Triple:
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in values)
    return red, green, blue


def contrast(one: str, other: str) -> float:
    lights = (linear(each) for each in (one, other))
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in lights)
    return (high + 0.05) / (low + 0.05)


def seen(colour: str, sight: str) -> Triple:
    """Return a colour as an eye with that sight sees it, in CIELAB."""
    light = linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, light, strict=True))))
        for row in SIGHT[sight]
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    a, b, c = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * b - 16, 500 * (a - b), 200 * (b - c)


@pytest.mark.parametrize("paper", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_categories_modules_and_changes_differ_for_every_sight(sight: str, paper: str) -> None:
    """The weakest tints differ by as little as 6, next to words and a solid part."""
    all_shades = {**flame.shades(), **SHADES}
    shown = {name: seen(getattr(shade, paper), sight) for name, shade in all_shades.items()}

    def too_near(names: Iterable[str], least: float) -> list[tuple[str, str]]:
        pairs = itertools.combinations(names, 2)
        return [(a, b) for a, b in pairs if math.dist(shown[a], shown[b]) < least]

    assert too_near(flame.PALETTE, 20) == []
    assert too_near((name for name in flame.shades() if "module" in name), 7) == []
    for step, least in (("1", 6), ("2", 15), ("3", 25)):
        assert too_near((f"up{step}", f"down{step}"), least) == []
        assert too_near((f"up{step}", "same"), least - 1) == []
    for tint in ("up1", "up2", "up3", "same", "less"):
        assert too_near(("more", tint), 15) == []


@pytest.mark.parametrize("paper", [0, 1])
def test_words_read_on_boxes_and_on_the_paper(paper: int) -> None:
    assert contrast(INK["ink"][paper], INK["paper"][paper]) >= 12
    assert contrast(INK["muted"][paper], INK["paper"][paper]) >= 4.5
    for shade in [*flame.shades().values(), *SHADES.values()]:
        fill, ink = ((shade.light, shade.light_ink), (shade.dark, shade.dark_ink))[paper]
        assert contrast(fill, ink) >= 4.5
