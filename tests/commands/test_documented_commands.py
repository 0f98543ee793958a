"""No command of the documentation has an option that takes the word behind it for its value."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

from pytest_flamegate.config.options import OPTIONS

ROOT = Path(__file__).parents[2]
BARE = {f"--{each.name.replace('_', '-')}" for each in OPTIONS if each.bare is not None}


def swallows(words: list[str]) -> bool:
    return any(
        word.replace("--flamegate-", "--") in BARE and not following.startswith("-")
        for word, following in pairwise(words)
    )


def test_no_option_takes_the_word_behind_it_for_its_value() -> None:
    pages = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md"))
    text = "\n".join(page.read_text() for page in pages)
    blocks = re.findall(r"^```(?:bash|sh)\n(.*?)^```", text, re.M | re.S)
    commands = "".join(blocks).replace("\\\n", " ").splitlines()
    assert len(commands) > 20
    assert [line for line in commands if swallows(shlex.split(line, comments=True))] == []
    assert swallows(["pytest", "--flamegate-bricks", "embedded::passage"])
