"""The commands that the documentation shows are read as they are meant."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_flamegate.config.options import OPTIONS

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md")))
BARE = {f"--{knob.name.replace('_', '-')}" for knob in OPTIONS if knob.bare is not None}


def commands(page: str) -> list[list[str]]:
    """The words of each line of the page's shell blocks."""
    blocks = re.findall(r"^```(?:bash|sh)\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def swallows(words: list[str]) -> bool:
    """Whether an option whose value may be left out takes the next word for it."""
    return any(
        word.replace("--flamegate-", "--") in BARE and not following.startswith("-")
        for word, following in pairwise(words)
    )


@pytest.mark.parametrize("page", PAGES)
def test_no_option_takes_the_word_behind_it_for_its_value(page: str) -> None:
    assert not [words for words in commands(page) if swallows(words)]


def test_what_is_looked_for_is_found() -> None:
    assert "--bricks" in BARE
    assert swallows(["pytest", "--flamegate-bricks", "embedded::passage"])
    assert swallows(["flamegate", "run", "--bricks", "decode"])
    assert not swallows(["pytest", "embedded::passage", "--flamegate-bricks", "--flamegate"])
    assert sum(map(len, map(commands, PAGES))) > 20
