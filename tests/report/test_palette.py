"""Every kind of sight separates the colours, and their ink reads on their fill."""

from __future__ import annotations

import itertools
import math
import re

import pytest

from pytest_flamegate.report import html
from pytest_flamegate.report.difference import SHADES
from pytest_flamegate.report.flame import PALETTE, UNKNOWN, choose_colours, shades
from pytest_flamegate.report.svg import INK

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
SIGHT = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
Triple = tuple[float, float, float]


def linear(colour: str) -> Triple:
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in values)
    return red, green, blue


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(light: Triple) -> Triple:
    red, green, blue = light
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    a, b, c = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * b - 16, 500 * (a - b), 200 * (b - c)


def seen(colour: str, sight: str) -> Triple:
    light = linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, light, strict=True))))
        for row in SIGHT[sight]
    )
    return lab((red, green, blue))


@pytest.mark.parametrize("paper", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_every_two_categories_differ(sight: str, paper: str) -> None:
    shown = {name: seen(getattr(each.shade, paper), sight) for name, each in PALETTE.items()}
    too_close = [
        (one, other)
        for one, other in itertools.combinations(shown, 2)
        if math.dist(shown[one], shown[other]) < 20
    ]
    assert too_close == []


@pytest.mark.parametrize("name", shades())
def test_names_read_on_their_fill(name: str) -> None:
    shade = shades()[name]
    assert contrast(shade.light, shade.light_ink) >= 4.5
    assert contrast(shade.dark, shade.dark_ink) >= 4.5


@pytest.mark.parametrize("paper", [0, 1])
def test_words_read_on_the_paper(paper: int) -> None:
    assert contrast(INK["ink"][paper], INK["paper"][paper]) >= 12
    assert contrast(INK["muted"][paper], INK["paper"][paper]) >= 4.5


@pytest.mark.parametrize("paper", [0, 1])
def test_words_read_on_the_callers_of_what_is_zoomed_to(paper: int) -> None:
    """The page draws them on their fill thinned by the paper, in the page's own ink."""
    css = html.style()
    (mixed,) = re.findall(
        r"\.above \{ background: color-mix\(in srgb, var\(--fill\) (\d+)%, var\(--paper\)\); "
        r"color: var\(--ink\) \}",
        css,
    )
    ground, ink = (
        re.findall(rf"--{name}: light-dark\((#\w+), (#\w+)\)", css)[0][paper]
        for name in ("paper", "ink")
    )
    part = int(mixed) / 100
    for shade in [*shades().values(), *SHADES.values()]:
        fill = (shade.light, shade.dark)[paper]
        pairs = [(int(fill[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5)]
        mixture = [round(part * one + (1 - part) * other) for one, other in pairs]
        thinned = "#" + bytes(mixture).hex()
        assert contrast(thinned, ink) >= 4.5


def test_an_unknown_category_has_a_tone_of_its_own() -> None:
    assert choose_colours({}, lambda _: "python").tone("telepathy") is UNKNOWN
    assert UNKNOWN.fill not in {each.fill for each in PALETTE.values()}


@pytest.mark.parametrize("name", SHADES)
def test_words_read_on_every_fill_of_a_difference(name: str) -> None:
    shade = SHADES[name]
    assert contrast(shade.light, shade.light_ink) >= 4.5
    assert contrast(shade.dark, shade.dark_ink) >= 4.5


@pytest.mark.parametrize("paper", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_more_less_and_unchanged_differ(sight: str, paper: str) -> None:
    """The weakest tints differ by as little as 6, next to words and a solid part."""
    shown = {name: seen(getattr(each, paper), sight) for name, each in SHADES.items()}
    for step, least in (("1", 6), ("2", 15), ("3", 25)):
        up, down, same = shown[f"up{step}"], shown[f"down{step}"], shown["same"]
        assert math.dist(up, down) >= least
        assert math.dist(up, same) >= least - 1
    for tint in ("up1", "up2", "up3", "same", "less"):
        assert math.dist(shown["more"], shown[tint]) >= 15


@pytest.mark.parametrize("sight", SIGHT)
def test_modules_differ(sight: str) -> None:
    shown = [seen(shade.light, sight) for name, shade in shades().items() if "module" in name]
    assert min(math.dist(*pair) for pair in itertools.combinations(shown, 2)) >= 7
