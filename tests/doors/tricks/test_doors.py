"""Each trick of a slower change at pytest's door and at the check's; no process is measured."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest

from pytest_flamegate.commands import check
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.run import required_check
from tests.commands.asked import Captured, ask
from tests.doors.project import IGNORED, workload, write_toy
from tests.doors.tricks.__main__ import PATH, page
from tests.doors.tricks.table import ALL, SLOWER, WITHOUT_MEASURING, Trick
from tests.doors.tricks.uploads import GREEN, UPLOADS, Upload
from tests.run import fakes
from tests.workload.repositories import git

TODAY = date(2020, 6, 1)


def write(root: Path, files: Mapping[str, str | None]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
    git(root, "add", "-A", "-f", ".")
    git(root, "commit", "-q", "--allow-empty", "-m", "a change")


@pytest.fixture(autouse=True)
def under_ci(environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """CI, and a day in 2020."""
    monkeypatch.setenv("CI", "true")
    for module in (required_check, check):
        monkeypatch.setattr(module, "today_utc", lambda: TODAY)
    monkeypatch.setattr(Verdict, "fails_test", Verdict.fails_test)  # undone if a trick patches it


def prepare(root: Path, trick: Trick, world: fakes.World) -> None:
    """Make a repository whose commit ``base`` has the workload ``toy``, and play the trick."""
    git(root, "init", "-q", "-b", "main")
    write_toy(root)
    declared = {"flamegate.toml": workload("toy"), ".gitignore": IGNORED}
    write(root, {**declared, **trick.base})
    git(root, "tag", "base")
    write(root, {"toy.py": (root / "toy.py").read_text() + "# slower\n", **trick.head})
    for name, value in trick.world.items():
        setattr(world, name, value)


def tricks(door: str) -> list[object]:
    """Return the tricks at a door; those that the check does not even see are left to the night."""
    return [
        pytest.param(trick, id=trick.name, marks=[pytest.mark.nightly] * is_unseen)
        for trick in WITHOUT_MEASURING
        if getattr(trick, f"by_{door}")
        for is_unseen in [door == "check" and trick.by_pytest == "E_NOTHING_GATED"]
    ]


@pytest.mark.parametrize("trick", tricks("pytest"))
def test_pytest(trick: Trick, pytester: pytest.Pytester, world: fakes.World) -> None:
    prepare(pytester.path, trick, world)
    arguments = ("--flamegate", "--flamegate-against=base", *trick.arguments)
    run = pytester.runpytest_subprocess if trick.is_alone else pytester.runpytest_inprocess
    result = run(*arguments)
    shown = result.stdout.str() + result.stderr.str()
    assert (result.ret == 0) == (trick.by_pytest == GREEN), shown
    assert trick.by_pytest in (GREEN, *_words(shown, pytester.path)), shown


def _words(shown: str, root: Path) -> set[str]:
    """Return the words of the answer, and the codes and verdicts of its documents."""
    texts = [shown, *(path.read_text() for path in root.glob(".flamegate/latest/*/verdict.json"))]
    return {word.strip(".,:;\"'()[]") for text in texts for word in text.split()}


@pytest.mark.parametrize("trick", tricks("check"))
def test_check(
    trick: Trick,
    pytester: pytest.Pytester,
    world: fakes.World,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare(pytester.path, trick, world)
    if trick.name == "root-moved":
        monkeypatch.chdir(pytester.path / "sub")
    code = ask("check", "--base=base")
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert (code == 0) == (trick.by_check == GREEN), shown
    assert trick.by_check in (GREEN, *_words(shown, pytester.path)), shown
    found = json.loads((pytester.path / ".flamegate/check.json").read_text())
    assert found["passed"] == (code == 0)
    assert "conftest" not in sys.modules


@pytest.fixture
def checked(
    pytester: pytest.Pytester, world: fakes.World, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The current directory: a repository whose slower head failed the check. Measured once."""
    stored = tmp_path_factory.getbasetemp() / "checked"
    if stored.exists():
        shutil.copytree(stored, pytester.path, symlinks=True, dirs_exist_ok=True)
        world.token_ns = SLOWER["token_ns"]
    else:
        prepare(pytester.path, Trick("upload", "Uploads files."), world)
        assert ask("check", "--base=base") == 1
        shutil.copytree(pytester.path, stored, symlinks=True)
    return pytester.path


@pytest.mark.parametrize("upload", UPLOADS, ids=lambda upload: upload.name)
def test_uploads(upload: Upload, checked: Path, world: fakes.World, capsys: Captured) -> None:
    if upload.is_lucky:
        world.token_ns = fakes.TOKEN_NS
        assert ask("check", "--base=base") == 0
    runs = checked.parent / f"{checked.name}-runs"
    shutil.copytree(checked / ".flamegate/latest", runs / "latest")
    if "--key" in "".join(upload.options):
        ask("keygen", "-o", "../key")
    upload.change(runs / "latest/toy")
    capsys.readouterr()
    code = ask("check", "--base=base", f"--receipts={runs}", *upload.options)
    shown = capsys.readouterr()
    assert (code == 0) == (upload.by_check == GREEN), shown.out
    words = _words(shown.out + shown.err, checked)
    assert upload.by_check in (GREEN, *words), shown.out
    if upload.options:
        # Nothing else is wrong with it.
        expected = 0 if upload.is_lucky else 1
        assert ask("check", "--base=base", f"--receipts={runs}") == expected


def test_the_pages_list_every_trick_and_no_other() -> None:
    assert len({each.name for each in ALL}) == len(ALL)
    assert PATH.read_text() == page(), "python -m tests.doors.tricks"
    text = (PATH.parents[1] / "SECURITY.md").read_text()
    _, _, section = text.partition("### Tricks beyond reach")
    declared = re.findall(
        r"^\| `([a-z-]+)` \| .{30,} \|$", section.partition("\n#")[0], re.MULTILINE
    )
    assert sorted(declared) == sorted(
        each.name for each in ALL if GREEN in each.by_check.split(" or ")
    )
