from __future__ import annotations

import dataclasses
import random
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.model import Frame, Profile, Stack
from pytest_flamegate.report.flame import PALETTE
from pytest_flamegate.report.flame_svg import flamegraph
from pytest_flamegate.report.svg import INNER, MARGIN, WIDTH
from tests.report import factory

NAMES = st.one_of(
    st.text(min_size=1, max_size=40),
    st.text(alphabet="<>&\"'];\x00\x1b\x7f\u202e\ufffe\ud800\U0001ffff]]> /", max_size=20),
    st.just("x" * 10_000),
)


def draw(profile: Profile | None = None, **changes: object) -> str:
    return flamegraph(profile or factory.profile(), **{**factory.SHOWN, **changes})  # type: ignore[arg-type]


def parse(svg: str) -> ET.Element:
    return ET.fromstring(re.sub(r' xmlns="[^"]*"', "", svg, count=1))


def assert_well_formed(svg: str) -> None:
    """It parses, holds nothing but the elements of a picture, and hides nothing."""
    root = parse(svg.encode("utf-8").decode("utf-8"))
    assert {element.tag for element in root.iter()} <= {
        "svg", "title", "desc", "style", "rect", "g", "text", "tspan"
    }  # fmt: skip
    assert not set(svg) & set("\x00\x1b\u202e\ufffe")


def boxes(root: ET.Element) -> dict[str, ET.Element]:
    """The drawn frames by the first line of their title; other titles have no second one."""
    found = {}
    for element in root.iter("rect"):
        title = element.findtext("title")
        if title and "\n" in title:
            found[title.split("\n")[0]] = element
    return found


def label(root: ET.Element, name: str) -> str:
    """What is written on the box of the frame called ``name``."""
    box = boxes(root)[name]
    place = {"x": float(box.get("x") or "nan"), "y": float(box.get("y") or "nan")}
    for text in root.iter("text"):
        if (float(text.get("x") or 0), float(text.get("y") or 0)) == (
            place["x"] + 5,
            place["y"] + 14,
        ):
            return "".join(text.itertext())
    return ""


def legend(root: ET.Element) -> list[str]:
    titles = [group.findtext("title") or "" for group in root.iter("g")]
    return [title.split(":")[0] for title in titles if title and "\n" not in title]


def texts(root: ET.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter("text")]


def test_equal_inputs_give_equal_bytes() -> None:
    turned = dict(reversed(factory.STACKS.items()))
    assert draw(factory.profile(turned)) == draw()


def test_it_scales_and_describes_itself() -> None:
    root = parse(draw())
    assert root.get("role") == "img"
    assert root.get("width") == "100%"
    assert (root.get("viewBox") or "").startswith(f"0 0 {WIDTH:g} ")
    assert root.findtext("title") == "embedded::10tok"
    assert "1,312 samples" in (root.findtext("desc") or "")
    assert "ternary_gemv 71.6 %" in (root.findtext("desc") or "")


def test_it_runs_and_loads_nothing() -> None:
    svg = draw()
    assert "<script" not in svg
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"\son\w+=", svg)


def test_the_title_of_a_frame() -> None:
    title = boxes(parse(draw()))["ternary_gemv"].findtext("title")
    assert title == (
        "ternary_gemv\nkernels.py · matmul\n940 samples · 71.6 % · 1.38 ms/token\nall of it itself"
    )


def test_without_cpu_time_there_is_no_cost() -> None:
    assert "/token" not in draw(cpu_s_per_token=None)
    assert "CPU time" not in draw(cpu_s_per_token=None)


def test_a_counted_profile_has_its_own_unit() -> None:
    counted = dataclasses.replace(
        factory.profile(),
        unit="instructions",
        profiler="callgrind",
        event="Ir",
        rate_hz=0,
        call_graph="callers,10",
    )
    svg = draw(counted, cpu_s_per_token=None)
    assert "sample" not in svg
    assert " Hz" not in svg
    assert "Ir counted · call graph callers,10 · 1,312 instructions from" in svg
    assert "width: share of instructions" in svg
    title = boxes(parse(svg))["ternary_gemv"].findtext("title") or ""
    assert "940 instructions · 71.6 %" in title


def test_names_are_clipped_to_their_box() -> None:
    stacks: dict[Stack, int] = {
        (factory.python("main"), factory.python("a_rather_long_function_name")): 8,
        (factory.python("main"), factory.python("行列ベクトル積の量子化された計算")): 8,
        (factory.python("main"), factory.python("z")): 84,
    }
    labels = [text for text in texts(parse(draw(factory.profile(stacks)))) if text.endswith("…")]
    assert labels == ["a_rather…", "行列ベク…"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Transformer._forward", "_forward"),
        ("ggml::cpu::gemm", "gemm"),
        ("void tinyBLAS<float>::gemm(long)", "void tiny…"),
    ],
)
def test_a_qualified_name_gives_up_its_qualifier_before_it_is_cut(name: str, shown: str) -> None:
    def written(samples: int) -> str:
        stacks: dict[Stack, int] = {
            (factory.native(name),): samples,
            (factory.native("z"),): 100 - samples,
        }
        return re.split(r"\d", label(parse(draw(factory.profile(stacks))), name))[0]

    assert written(90) == name
    assert written(9) == shown


def test_boxes_stay_in_the_picture_and_above_their_callers() -> None:
    root = parse(draw())
    placed = {}
    for name, element in boxes(root).items():
        placed[name] = {k: float(element.get(k) or "nan") for k in ("x", "y", "width", "height")}
        assert placed[name]["x"] >= MARGIN
        assert placed[name]["x"] + placed[name]["width"] <= MARGIN + INNER + 0.01
    assert placed["main"]["y"] > placed["decode_step"]["y"] > placed["ternary_gemv"]["y"]
    height = float((root.get("viewBox") or "").split()[3])
    assert all(box["y"] + box["height"] < height for box in placed.values())


def test_the_legend_lists_the_categories_largest_first() -> None:
    assert legend(parse(draw())) == [
        "matmul",
        "quantisation",
        "attention",
        "norm",
        "python",
        "memory",
        "system",
    ]
    only: dict[Stack, int] = {(factory.python("main"), factory.python("ternary_gemv")): 10}
    root = parse(draw(factory.profile(only)))
    assert legend(root) == ["matmul"]
    assert "100.0 %1.93 ms" in texts(root)
    assert PALETTE["norm"].shade.light not in draw(factory.profile(only))


def test_the_footer_states_how_the_profile_was_taken() -> None:
    shown = " ".join(texts(parse(draw(factory.profile(degraded=("no ptrace",))))))
    for note in (
        "py-spy 0.4.3",
        "wall-clock at 100 Hz",
        "1,312 samples from 3 processes",
        "99.9 % of stacks complete",
        "0 lost",
        "2 errors",
        "degraded: no ptrace",
    ):
        assert note in shown


def test_too_small_frames_are_counted() -> None:
    stacks = factory.STACKS | {(*factory.ROOT, factory.python(f"tiny{i}")): 1 for i in range(9)}
    stacks = {stack: count if count == 1 else count * 10 for stack, count in stacks.items()}
    svg = draw(factory.profile(stacks))
    assert "10 samples in 10 branches too small to draw" in svg
    assert "too small to draw" not in draw()
    assert "tiny3" not in svg


@settings(deadline=None)
@given(NAMES, NAMES, NAMES)
def test_hostile_names_leave_it_well_formed(name: str, module: str, category: str) -> None:
    hostile: dict[Stack, int] = {
        (factory.python("main"), Frame(name, module, "python")): 9,
        (factory.python("main"), Frame("safe", module, "native")): 1,
    }
    profile = dataclasses.replace(
        factory.profile(hostile), event=name, profiler_version=module, degraded=(name, module)
    )
    svg = draw(profile, title=name, subtitle=f"{module} · {name}", categorise=lambda _: category)
    assert_well_formed(svg)
    assert len(svg) < 30_000


@pytest.mark.parametrize(
    ("stacks", "cpu_s_per_token", "code"),
    [
        ({}, 1e-3, "E_NO_SAMPLES"),
        (None, 0.0, "E_IMPOSSIBLE_FIGURE"),
        (None, float("nan"), "E_IMPOSSIBLE_FIGURE"),
        (None, float("inf"), "E_IMPOSSIBLE_FIGURE"),
        (None, -1.0, "E_IMPOSSIBLE_FIGURE"),
    ],
)
def test_impossible_figures_are_errors(
    stacks: dict[Stack, int] | None, cpu_s_per_token: float, code: str
) -> None:
    with pytest.raises(FlamegateError) as refused:
        draw(factory.profile(stacks), cpu_s_per_token=cpu_s_per_token)
    assert refused.value.code == code


def test_a_deep_stack_is_drawn_as_far_as_it_reads() -> None:
    deep = tuple(factory.python(f"f{i}") for i in range(300))
    svg = draw(factory.profile({deep[:depth]: 5 for depth in range(1, 300)}))
    assert "495 samples in 1 branch too small to draw or too deep" in svg
    assert float((parse(svg).get("viewBox") or "").split()[3]) < 4400


def test_letters_of_any_width_are_clipped_to_their_box() -> None:
    wide: dict[Stack, int] = {(factory.python("行列"),): 1, (factory.python("main"),): 1}
    root = parse(draw(factory.profile(wide)))
    clipped = [svg for svg in root.iter("svg") if svg is not root]
    assert ["".join(svg.itertext()) for svg in clipped] == ["行列50.0 %engine.py"]
    box = boxes(root)["行列"]
    assert [clipped[0].get(k) for k in ("x", "y", "width")] == [
        box.get(k) for k in ("x", "y", "width")
    ]


def test_it_follows_the_theme_and_stands_without_its_style_sheet() -> None:
    root = parse(draw())
    sheet = root.findtext("style") or ""
    light, dark = sheet.split("@media(prefers-color-scheme:dark)")
    for kind in ("paper", "ink", "muted", "floor"):
        assert f".{kind}{{fill:" in light
        assert f".{kind}{{fill:" in dark
    drawn = {each.get("class") for each in root.iter("g")} - {None}
    assert all(f".{kind}{{fill:" in sheet for kind in drawn)
    assert all(each.get("fill") for each in root.iter("g") if each.get("class"))


@pytest.mark.nightly
def test_a_hundred_thousand_stacks_stay_a_small_file() -> None:
    chance = random.Random(5)
    frames = [factory.python(f"function_{i}", f"module_{i % 9}.py") for i in range(60)]
    stacks: dict[Stack, int] = {}
    while len(stacks) < 100_000:
        stack = (*factory.ROOT, *chance.choices(frames, k=chance.randint(2, 6)))
        stacks[stack] = stacks.get(stack, 0) + chance.randint(1, 9)
    svg = draw(factory.profile(stacks))
    assert len(svg.encode()) <= 1_500_000
    assert len(boxes(parse(svg))) > 60
    assert "too small to draw" in svg
