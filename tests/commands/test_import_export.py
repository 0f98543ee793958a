"""``flamegate import`` and ``flamegate export``: their output, their files and their errors."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.run.open import open_profile
from tests.commands.asked import Command
from tests.made import bundle

FOLDED = "main;decode (toy.py:3);gemv (libggml.so) 30\nmain;decode (toy.py:4) 10\n"
FILES = {"profile.folded", "profile.speedscope.json", "flamegraph.svg", "flamegraph.html"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def speedscope(*frames: dict[str, Any], unit: str = "seconds", weight: float = 0.25) -> str:
    track = {"type": "sampled", "name": "t", "unit": unit, "samples": [[0]], "weights": [weight]}
    return json.dumps(
        {"$schema": "speedscope.app", "shared": {"frames": frames}, "profiles": [track]}
    )


def test_the_documentation_shows_what_import_prints(here: Path, command: Command) -> None:
    page = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text()
    _, block = page.split("$ cat run.folded\n", 1)
    folded, shown = block.split("$ flamegate import run.folded\n", 1)
    (here / "run.folded").write_text(folded)
    printed = command(0, "import", "run.folded").out.replace(f"{here}", "/home/you/project")
    assert shown.startswith(printed)


def test_an_imported_profile_is_written_drawn_and_printed(here: Path, command: Command) -> None:
    (here / "run.folded").write_text(FOLDED)
    printed = command(0, "import", "run.folded").out
    directory = here / ".flamegate" / "imported" / "run"
    assert "40 samples in 2 functions" in printed
    assert [line.split() for line in printed.splitlines()[1:3]] == [
        ["75.0", "%", "gemv", "libggml.so"],
        ["25.0", "%", "decode", "toy.py"],
    ]
    assert printed.splitlines()[-1] == str(directory)
    assert {path.name for path in directory.iterdir()} == FILES
    assert (directory / "profile.folded").read_text() == (
        "main [unknown];decode (toy.py) 10\nmain [unknown];decode (toy.py);gemv [libggml.so] 30\n"
    )
    picture = ET.parse(directory / "flamegraph.svg").getroot()
    titles = [each.text or "" for each in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert any(title.startswith("gemv\n") for title in titles)
    # Unknown facts are left out.
    words = " ".join(picture.itertext())
    assert "imported from run.folded" in words
    assert "0 Hz" not in words
    assert "0 processes" not in words
    assert "gemv" in (directory / "flamegraph.html").read_text()
    assert (here / ".flamegate" / ".gitignore").is_file()


def test_the_facts_of_the_file_survive_in_the_directory(here: Path, command: Command) -> None:
    (here / "x.json").write_text(speedscope({"name": "f", "file": "a.py"}))
    assert "250 ms in 1 function" in command(0, "import", "x.json", "--name", "mine").out
    directory = here / ".flamegate" / "imported" / "mine"
    # Neither picture calls nanoseconds samples.
    for picture in ("flamegraph.svg", "flamegraph.html"):
        assert "250,000,000 sample" not in (directory / picture).read_text()
    for path in (directory, directory / "profile.folded"):
        opened = open_profile(path)
        assert opened.profile.unit == "nanoseconds"
        assert opened.profile.samples == 250_000_000
        assert opened.evidence is None
    assert open_profile(directory).title == "mine"
    (directory / "profile.folded").write_text("f (a.py) 3\n")
    command.read()
    assert "E_RECEIPT_CHANGED" in command(3, "export", str(directory), "--format=folded").err


def test_another_directory_is_used_unless_it_holds_a_measured_run(
    here: Path, command: Command
) -> None:
    (here / "run.folded").write_text(FOLDED)
    (here / "out").mkdir()
    (here / "out" / "mine.txt").write_text("mine")
    assert main(["import", "run.folded", "-o", "out"]) == 0
    assert {path.name for path in (here / "out").iterdir()} == {*FILES, "mine.txt"}
    assert not (here / ".flamegate").exists()
    bundle().write(here / "measured")
    before = {path: path.read_bytes() for path in (here / "measured").iterdir()}
    assert "E_NOT_OVERWRITTEN" in command(2, "import", "run.folded", "-o", "measured").err
    assert {path: path.read_bytes() for path in (here / "measured").iterdir()} == before


def test_the_name_is_that_of_the_file_and_may_be_invalid(here: Path, command: Command) -> None:
    for file, name in (
        ("run.speedscope.json.gz", "run"), ("a.b.txt", "a.b"), ("plain", "plain"), ("v1.2", "v1.2")
    ):  # fmt: skip
        (here / file).write_text(FOLDED)
        assert main(["import", file]) == 0
        assert (here / ".flamegate" / "imported" / name).is_dir()
    assert main(["import", "plain", "--name=mine.txt"]) == 0
    assert (here / ".flamegate" / "imported" / "mine.txt").is_dir()
    (here / "-x y.folded").write_text(FOLDED)
    for name in (".json", "..gz"):
        (here / name).write_text(FOLDED)
    for arguments in (
        ["--", "-x y.folded"], ["plain", "--name=../up"], ["--", ".json"], ["--", "..gz"]
    ):  # fmt: skip
        assert "E_BAD_NAME" in command(2, "import", *arguments).err


def test_a_run_is_exported_by_any_of_its_names(here: Path, command: Command) -> None:
    triple = bundle()
    triple.write(here / "run")
    for name in ("", "receipt.json", "evidence.json", "profile.folded"):
        assert command(0, "export", f"run/{name}", "--format=folded").out.encode() == triple.folded
        document = json.loads(command(0, "export", f"run/{name}", "--format=speedscope").out)
        assert (document["name"], document["flamegate"]["profiler"]) == ("4tok", "py-spy")
