"""Commands, exit codes and engines of the documentation are those of the program."""

import re
import shlex
import signal
from itertools import pairwise
from pathlib import Path

from pytest_flamegate.config.options import OPTIONS
from pytest_flamegate.core.progress import Terminated, terminable
from pytest_flamegate.engines import ENGINES

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


def row(begin: str) -> list[str]:
    """Return the cells of the row of docs/reference.md that begins like this."""
    lines = (ROOT / "docs/reference.md").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith(f"| {begin}"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_the_exit_codes_of_a_command_that_a_signal_ends_are_documented() -> None:
    codes = {128 + signal.SIGINT}
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with terminable():
            handler = signal.getsignal(number)
        if getattr(handler, "__module__", "") == Terminated.__module__:
            codes.add(128 + number)
    assert {int(code) for code in row("129")[0].split(", ")} == codes


def test_the_engines_that_get_the_seed_are_documented() -> None:
    by_variable = {
        name
        for name, each in ENGINES.items()
        if any("{seed}" in value for value in each.variables.values())
    }
    # llama-cpp gets it with each request in its process.
    documented = {*re.findall(r"`([\w-]+)`", row("`seed`")[2])}
    assert documented == by_variable | {"llama-cpp"}
