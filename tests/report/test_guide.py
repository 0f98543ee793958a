from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_flamegate.report.flame import PALETTE
from pytest_flamegate.report.markdown import GuideEntry, guide_readme
from tests.report import factory


def entry(name: str) -> GuideEntry:
    return GuideEntry.of(name, factory.evidence(), picture=f"{name}.svg", page=f"{name}.md")


def test_an_entry_is_filled_from_the_evidence() -> None:
    assert entry("10tok") == GuideEntry(
        name="10tok",
        picture="10tok.svg",
        page="10tok.md",
        generated="2026-01-02T03:04:06Z",
        about="embedded engine, tiny.gguf, prompt “What is 2+2?”, 10 tokens",
        hardware="AMD EPYC 7B13, 2 cores",
    )


def test_baselines_are_listed_by_name_with_both_files() -> None:
    readme = guide_readme([entry("1tok"), entry("10tok")])
    found = re.findall(r"^\| \[(\w+)\]\((\S+)\) \| \[page\]\((\S+)\)", readme, re.MULTILINE)
    assert found == [("10tok", "10tok.svg", "10tok.md"), ("1tok", "1tok.svg", "1tok.md")]
    assert readme == guide_readme([entry("10tok"), entry("1tok")])


def test_an_empty_folder_says_so() -> None:
    assert "## Current baselines\n\nNone yet." in guide_readme([])


def test_every_part_of_the_guide_is_there() -> None:
    readme = guide_readme([entry("1tok")], regenerate="flamegate flamegraph model.gguf")
    assert re.findall(r"^## (.*)$", readme, re.MULTILINE) == [
        "Current baselines",
        "Make them again",
        "How to view and read them",
        "The colours",
        "From a picture to a faster engine",
        "Before and after",
        "When something is wrong",
    ]
    assert "```bash\nflamegate flamegraph model.gguf\n```" in readme
    assert all(f"| `{name}` | `{tone.fill}` |" in readme for name, tone in PALETTE.items())


@given(st.text(max_size=30))
def test_hostile_names_stay_text(name: str) -> None:
    evil = GuideEntry(name, name, name, name, name, name)
    html = str(MarkdownIt("commonmark").enable("table").render(guide_readme([evil])))
    assert html.count("<table>") == 2
    assert html.count("<h2>") == 7
    assert "<script" not in html
    first = html.split("<tbody>")[1].split("</tbody>")[0]
    assert first.count("<td") == 5
