"""Flame graphs and differences as static SVG."""

import dataclasses
import math
import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.difference import ProfileDifference
from pytest_flamegate.profile.model import Frame, Profile, Stack
from pytest_flamegate.report.difference_svg import difference_svg
from pytest_flamegate.report.flame import PALETTE, Drawn
from pytest_flamegate.report.flame_svg import flamegraph
from pytest_flamegate.report.markup import INNER
from pytest_flamegate.report.page import flamegraph_html
from tests.report import factory
from tests.report.factory import COMPARED, compared, slowed

NAMES = st.one_of(
    st.text(min_size=1, max_size=40),
    st.text(alphabet="<>&\"'];\x00\x1b\x7f\u202e\ufffe\ud800\U0001ffff]]> /", max_size=20),
    st.just("x" * 10_000),
)


def draw(profile: Profile | None = None, subtitle: str = "embedded", **changes: Any) -> str:
    given = {"title": "10tok", "cpu_s_per_token": factory.TOKEN_S, **changes}
    return flamegraph(Drawn(profile=profile or factory.profile(), **given), subtitle=subtitle)


def draw_stacks(**samples: int) -> ET.Element:
    """Draw leaves below one root."""
    main = factory.python("main")
    return parse(draw(factory.profile({(main, factory.python(k)): n for k, n in samples.items()})))


def draw_difference(found: ProfileDifference) -> ET.Element:
    return parse(difference_svg(found, title="decode: what changed", subtitle="embedded engine"))


def parse(svg: str) -> ET.Element:
    return ET.fromstring(re.sub(r' xmlns="[^"]*"', "", svg, count=1))


def assert_well_formed(svg: str, longest: int) -> None:
    """It parses, holds nothing but the elements of a picture, hides nothing and is short."""
    root = parse(svg.encode("utf-8").decode("utf-8"))
    assert {element.tag for element in root.iter()} <= {
        "svg", "title", "desc", "style", "rect", "g", "text", "tspan"
    }  # fmt: skip
    assert not set(svg) & set("\x00\x1b\u202e\ufffe")
    assert len(svg) < longest


def boxes(root: ET.Element) -> dict[str, ET.Element]:
    """The drawn frames by the first line of their title; other titles have no second one."""
    titled = [(each.findtext("title") or "", each) for each in root.iter("rect")]
    return {title.split("\n")[0]: each for title, each in titled if "\n" in title}


def legend(root: ET.Element) -> list[str]:
    titles = [group.findtext("title") or "" for group in root.iter("g")]
    return [title.split(":")[0] for title in titles if title and "\n" not in title]


def texts(root: ET.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter("text")]


def test_equal_inputs_give_equal_bytes() -> None:
    assert draw(factory.profile(dict(reversed(factory.STACKS.items())))) == draw()
    one, other = (
        difference_svg(compared(slowed("rms_norm", 2.0, stacks)), title="t", subtitle="")
        for stacks in (COMPARED, dict(reversed(COMPARED.items())))
    )
    assert one == other


def test_it_describes_itself_follows_the_theme_and_runs_and_loads_nothing() -> None:
    svg = draw()
    root = parse(svg)
    description = root.findtext("desc") or ""
    assert "1,312 samples" in description
    assert "ternary_gemv 71.6 %" in description
    assert boxes(root)["ternary_gemv"].findtext("title") == (
        "ternary_gemv\nkernels.py · matmul\n940 samples · 71.6 % · 1.38 ms/token\nall of it itself"
    )
    assert "/token" not in draw(cpu_s_per_token=None)
    assert "<script" not in svg
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"\son\w+=", svg)
    sheet = root.findtext("style") or ""
    light, dark = sheet.split("@media(prefers-color-scheme:dark)")
    for kind in ("paper", "ink", "muted", "floor"):
        assert f".{kind}{{fill:" in light
        assert f".{kind}{{fill:" in dark
    # It stands without its style sheet too.
    groups = [each for each in root.iter("g") if each.get("class")]
    assert all(f".{each.get('class')}{{fill:" in light and each.get("fill") for each in groups)


def test_a_counted_profile_has_its_own_unit() -> None:
    counted = dataclasses.replace(
        factory.profile(), unit="instructions", profiler="callgrind", event="Ir", rate_hz=0
    )
    svg = draw(counted, cpu_s_per_token=None)
    assert "sample" not in svg
    assert " Hz" not in svg
    assert "Ir counted · call graph python · 1,312 instructions from" in svg
    assert "width: share of instructions" in svg
    title = boxes(parse(svg))["ternary_gemv"].findtext("title") or ""
    assert "940 instructions · 71.6 %" in title


def test_names_are_clipped_to_their_box_and_lose_their_qualifier_first() -> None:
    root = draw_stacks(a_rather_long_function_name=8, 行列ベクトル積の量子化された計算=8, z=84)
    assert [text for text in texts(root) if text.endswith("…")] == ["a_rather…", "行列ベク…"]
    for name, shown in (
        ("Transformer._forward", "_forward"),
        ("ggml::cpu::gemm", "gemm"),
        ("void tinyBLAS<float>::gemm(long)", "void tiny…"),
    ):
        for samples, written in ((90, name), (9, shown)):
            root = draw_stacks(**{name: samples, "z": 100 - samples})
            assert written in {re.split(r"\d", text)[0] for text in texts(root)}
    # The width of other letters is not known.
    root = draw_stacks(行列=1, main=1)
    (clipped,) = (svg for svg in root.iter("svg") if svg is not root)
    assert "".join(clipped.itertext()) == "行列50.0 %engine.py"
    assert all(clipped.get(key) == boxes(root)["行列"].get(key) for key in ("x", "y", "width"))


def test_the_legend_lists_the_categories_largest_first() -> None:
    assert legend(parse(draw())) == [
        "matmul", "quantisation", "attention", "norm", "python", "memory", "system",
    ]  # fmt: skip
    root = draw_stacks(ternary_gemv=10)
    assert legend(root) == ["matmul"]
    assert "100.0 %1.93 ms" in texts(root)
    assert PALETTE["norm"].light not in ET.tostring(root, "unicode")


def test_the_footer_states_how_the_profile_was_taken_and_how_to_read_it() -> None:
    shown = " ".join(texts(parse(draw(factory.profile(degraded=("no ptrace",))))))
    for note in (
        "py-spy 0.4.3", "wall-clock at 100 Hz", "1,312 samples from 3 processes",
        "99.9 % of stacks complete", "0 lost", "2 errors", "degraded: no ptrace",
    ):  # fmt: skip
        assert note in shown
    callers = tuple(factory.python(name, f"{name}.py") for name in "abcd")
    chain: dict[Stack, int] = {callers: 5, (factory.python("e"),): 5, (): 2}
    imported = dataclasses.replace(factory.profile(chain), pids=(), profiler="unknown", rate_hz=7)
    shown = " ".join(texts(parse(draw(imported))))
    for note in ("7 Hz · 12 samples", "colour: module", "a › b: callers", "2 samples without a"):
        assert note in shown


def test_too_small_and_too_deep_frames_are_counted() -> None:
    stacks = factory.STACKS | {(*factory.ROOT, factory.python(f"tiny{i}")): 1 for i in range(9)}
    svg = draw(factory.profile({k: n if n == 1 else n * 10 for k, n in stacks.items()}))
    assert "10 samples in 10 branches too small to draw" in svg
    assert "tiny3" not in svg
    assert "too small to draw" not in draw()
    # Rows that have no room for one word between them would leave the picture white.
    tower = tuple(factory.python(f"up{i}") for i in range(9))
    for samples, names in ((31, ["main", tower[0].name]), (30, ["main"])):
        stacks = {(factory.ROOT[0],): 1000 - samples, (factory.ROOT[0], *tower): samples}
        root = parse(draw(factory.profile(stacks)))
        assert [name.partition(" › ")[0] for name in boxes(root)][:2] == names
    assert "30 samples in 1 branch too small to draw" in " ".join(texts(root))
    deep = tuple(factory.python(f"f{i}") for i in range(300))
    svg = draw(factory.profile({deep[:depth]: 5 for depth in range(1, 300)}))
    assert "495 samples in 1 branch too small to draw or too deep" in svg
    assert float((parse(svg).get("viewBox") or "").split()[3]) < 4400


@settings(deadline=None)
@given(NAMES, NAMES)
def test_hostile_names_leave_it_well_formed(name: str, module: str) -> None:
    main = factory.python("main")
    hostile: dict[Stack, int] = {
        (main, Frame(name, module, "python")): 900,
        (main, Frame("safe", module, "native")): 900,
    }
    profile = dataclasses.replace(
        factory.profile(hostile), event=name, profiler_version=module, degraded=(name, module)
    )
    subtitle = f"{module} · {name}"
    assert_well_formed(draw(profile, title=name, subtitle=subtitle), 30_000)
    found = compared(slowed(name, 3.0, hostile), hostile)
    found = dataclasses.replace(found, base=dataclasses.replace(found.base, name=name))
    assert_well_formed(difference_svg(found, title=name, subtitle=module), 40_000)


def test_impossible_figures_are_errors() -> None:
    empty: list[dict[Stack, int]] = [{}, {(): 0}]
    for stacks, cost_s, code in (
        *((stacks, 1e-3, "E_NO_SAMPLES") for stacks in empty),
        *((None, cost_s, "E_IMPOSSIBLE_FIGURE") for cost_s in (0.0, math.nan, math.inf, -1.0)),
    ):
        drawn = Drawn("t", factory.profile(stacks), cost_s)
        for draw_it in (flamegraph, flamegraph_html):
            with pytest.raises(FlamegateError, match=code):
                draw_it(drawn, subtitle="")


# Differences


def classes(root: ET.Element) -> dict[str, set[str]]:
    """The classes in which each function is drawn: the boxes that have a title."""
    found: dict[str, set[str]] = {}
    for group in root.iter("g"):
        for box in group.findall("rect"):
            title = box.findtext("title") or ""
            if "\n" in title:
                found.setdefault(title.split("\n")[0], set()).add(group.get("class") or "")
    return found


def marks(root: ET.Element, kind: str) -> list[float]:
    """The widths of the added or removed parts, as the boxes show them."""
    groups = root.findall(f".//g[@pointer-events='none'][@class='{kind}']")
    return [float(box.get("width") or "nan") for group in groups for box in group.findall("rect")]


def test_only_the_function_that_changed_is_coloured_and_its_callers_stay_grey() -> None:
    root = draw_difference(compared(slowed("rms_norm", 1.3)))
    shown = classes(root)
    assert shown.pop("rms_norm") == {"up1"}  # each of its boxes by its own change
    assert set().union(*shown.values()) == {"same"}
    assert set(shown) == {
        "main", "generate", "decode_step", "swiglu_ffn", "ternary_gemv", "attention", "softmax"
    }  # fmt: skip
    # Its boxes are 5 % of the picture, and the added part is solid, a hundredth of it.
    added = marks(root, "more")
    assert len(added) == 2
    assert sum(added) == pytest.approx(INNER * 0.3 * 0.05 / 1.015, abs=4)
    assert not marks(root, "less")


def with_softmax(*frames: Frame) -> dict[Stack, int]:
    """Return the stacks with other frames in the place of ``softmax``."""
    return {
        (*stack[:-1], *frames) if stack[-1].name == "softmax" else stack: n
        for stack, n in COMPARED.items()
    }


def test_a_cheaper_a_new_and_a_gone_function_and_one_that_is_only_called_elsewhere() -> None:
    root = draw_difference(compared(slowed("ternary_gemv", 0.5)))
    assert (classes(root)["ternary_gemv"], classes(root)["attention"]) == ({"down3"}, {"same"})
    assert marks(root, "less") == [pytest.approx(INNER * 0.35, abs=2)]
    root = draw_difference(compared(with_softmax(factory.python("softmax_fast"))))
    assert (classes(root)["softmax"], classes(root)["softmax_fast"]) == ({"less"}, {"more"})
    shown = " ".join(texts(root))
    assert "1 gone" in shown
    assert "2 new" in shown
    found = compared(with_softmax(factory.python("wrapper"), factory.python("softmax")))
    root = draw_difference(found)
    assert (classes(root)["softmax"], classes(root)["wrapper"]) == ({"came", "went"}, {"came"})
    assert not marks(root, "more")


def test_the_picture_reads_by_the_answer_the_table_and_the_title() -> None:
    root = draw_difference(compared(slowed("rms_norm", 2.0)))
    shown = texts(root)
    assert any(text.startswith("rms_norm costs 100 → 200 µs/token (+100 ± ") for text in shown)
    (row,) = (text.split() for text in shown if text.startswith("1  rms_norm"))
    expected = "1 rms_norm costs more 100 200 +100 ± 24.4 5.0 % → 9.5 % +4.5 pp"
    assert " ".join(row).startswith(expected)
    assert "rms_norm costs 100 → 200" in (root.findtext("desc") or "")
    title = boxes(root)["attention"].findtext("title") or ""
    assert title.split("\n")[1] == "engine.py · itself unchanged"
    assert "with all it calls: 440 → 440 µs/token" in title
    # A label on a mark takes ink that reads on it.
    groups = [each for each in root.iter("g") if "rms" in "".join(each.itertext())]
    inks = {each.get("class") for each in groups if each.find("text") is not None}
    assert "on-more" in inks
    assert not inks & {"on-same", "on-up3", "on-came"}


def test_bars_and_boxes_are_on_one_scale_inside_the_card() -> None:
    """Noise alone can make the head's whole wider than boxes that are as wide as the mean."""
    head = {stack: round(count * 1.02) for stack, count in COMPARED.items()}
    for found in (compared(head), compared(slowed("rms_norm", 4.0))):
        bars: dict[str, float] = {}
        for bar in draw_difference(found).findall("rect"):
            if bar.get("height") == "9":
                row = bar.get("y") or ""
                bars[row] = bars.get(row, 0.0) + float(bar.get("width") or 0) + 0.5
        before, after = bars.values()
        assert after <= INNER + 2
        assert before / after == pytest.approx(found.total.base / found.total.head, abs=0.005)
