"""Decode alone, by subtraction, as a page and a picture show it."""

from __future__ import annotations

from xml.etree import ElementTree

from pytest_flamegate.profile.decode import SequenceProfile, subtract_prefill
from pytest_flamegate.profile.model import Stack
from pytest_flamegate.report import flamegraph_markdown
from pytest_flamegate.report.markdown import TITLE, decode_picture, decode_section
from tests.report import factory

PREFILL = (factory.python("main"), factory.python("prefill"))
DECODE = (factory.python("main"), factory.python("rms_norm|<b>"))


def sequences(prefill: int, decode: int, tokens: int, cpu_s: float) -> SequenceProfile:
    stacks: dict[Stack, int] = {PREFILL: prefill, DECODE: decode}
    return SequenceProfile(factory.profile(stacks), tokens, cpu_s, 0.001 * cpu_s, 4)


FOUND = subtract_prefill(sequences(600, 440, 11, 1.04), sequences(620, 40, 1, 0.64))
PAGE = decode_section(FOUND, "decode.svg")


def test_the_section_says_what_was_subtracted_and_how_sure_it_is() -> None:
    assert "Sequences of 11 tokens less sequences of 1 token of the same prompt" in PAGE
    assert "each of the 10 tokens between: 40,000 ± 122 µs CPU/token" in PAGE
    assert "61.5 % of a longer one" in PAGE
    assert "shown and never gated" in PAGE
    assert "From 1,040 samples of the longer sequences and 660 of the shorter" in PAGE
    assert "![Flame graph of decode alone](decode.svg)" in PAGE


def test_a_row_has_its_error_and_its_share_before_and_after() -> None:
    (row,) = [line for line in PAGE.splitlines() if "rms_norm" in line]
    assert row.startswith(r"| `rms_norm\|<b>` | norm | ")
    own, inclusive = (cell.strip() for cell in row.replace(r"\|", "").split("|")[3:5])
    cost, error = own.replace(",", "").replace("\u00a0", " ").split(" ± ")
    assert own == inclusive
    found = next(each for each in FOUND.rows if each.name == "rms_norm|<b>")
    assert (int(cost), int(error)) == (
        round(found.self_s * 1e6),
        round(found.self_error_s * 1e6),
    )
    assert row.replace("\u00a0", " ").endswith("| 100.3 % | 42.3 % |")


def test_what_is_lost_in_its_error_is_counted_and_not_ranked() -> None:
    assert "prefill`" not in PAGE
    assert "2 further functions" in PAGE


def test_the_picture_says_that_it_is_derived() -> None:
    picture = decode_picture(FOUND, "flamegate.toml::decode")
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    title = "flamegate.toml::decode: decode alone, by subtraction: 11 tokens minus 1"
    assert f"<title>{title}</title>" in picture
    for words in ("40,000 ± 122 µs CPU/token", "derived, never gated", "61.5 % of a sequence"):
        assert words in picture
    assert "rms_norm|&lt;b&gt;" in picture
    assert "prefill" not in picture


def test_what_was_clipped_is_told() -> None:
    less = subtract_prefill(sequences(560, 480, 11, 1.04), sequences(620, 40, 1, 0.64))
    told = f"{less.clipped_s_per_token * 1e6:,.0f} µs/token too much"
    assert less.clipped_s_per_token > 0.001
    assert told in decode_picture(less, "w")
    assert told in decode_section(less, "decode.svg")


def test_the_page_holds_it_where_there_is_one() -> None:
    without, page = (
        flamegraph_markdown(
            factory.evidence(), factory.receipt(), None, regenerate="pytest", decode=decode
        )
        for decode in (None, FOUND)
    )
    assert f"## {TITLE}" in page
    assert TITLE not in without
    assert page.index("## Hottest frames") < page.index(TITLE) < page.index("## What stands out")
