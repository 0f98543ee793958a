"""Hostile workload files, names and options: nothing outside the artifact directory changes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.cli import main
from tests.snapshots import snapshot

NAMES = (
    *("../outside/precious", "/etc/x", "a/b", "a\\b", ".git", "..", "", "-rf", "a b", "ünï"),
    *("a\0b", "a\nb", "a\x1b[31mb", "a\u202eb", "x" * 300, "$(touch pwned)"),
)
Printed = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project among other people's files; the current directory is in it."""
    for name in ("outside", "project", "home"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_text("precious")
    (tmp_path / "project" / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def declare(place: Path, name: str = "w", **more: object) -> None:
    keys = {"command": ["./no-such-program"], "prompt": "p", "max_tokens": 1, **more}
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    text = "\n".join([f"[workloads.{json.dumps(name)}]", *lines])
    (place / "project" / "flamegate.toml").write_text(text)


def run(place: Path, *arguments: str) -> tuple[int, bool]:
    """Return the exit code, and whether anything changed outside the artifact directory."""
    own = place / "project" / ".flamegate"
    before = snapshot(place, own)
    code = main(["run", "--profiler=none", "--budget=1", *arguments])
    return code, snapshot(place, own) != before


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_of_workloads_and_variants(place: Path, name: str, capsys: Printed) -> None:
    variant: dict[str, Any] = {f"variants.{json.dumps(name)}.max_tokens": 2}
    for workload, keys in ((name, {}), ("w", variant)):
        declare(place, workload, **keys)
        assert run(place) == (2, False)
        error = capsys.readouterr().err
        assert "E_BAD_NAME" in error
        assert "\x1b" not in error


@pytest.mark.parametrize(
    ("given", "code"),
    [
        *((given, 2) for given in ("/", ".", "..", "../project", "~/../project", "./")),
        *((given, 5) for given in ("precious", "link", "precious/below")),
    ],
)
def test_artifacts_are_written_into_no_directory_that_is_not_ours(
    place: Path, given: str, code: int, capsys: Printed
) -> None:
    declare(place)
    (place / "project" / "link").symlink_to(place / "outside")
    assert run(place, f"--dir={given}") == (code, False)
    told = capsys.readouterr()
    assert ("E_BAD_OPTION" in told.err) if code == 2 else ("E_CANNOT_WRITE" in told.out)


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_workload_file_that_has_no_end(place: Path, kind: str, capsys: Printed) -> None:
    path = place / "project" / "flamegate.toml"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    assert main(["run", "--profiler=none"]) == 2
    assert "E_BAD_TOML" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "directory"])
@pytest.mark.parametrize("option", ["export", "report", "diff", "import"])
def test_what_is_named_for_output_is_no_link(place: Path, kind: str, option: str) -> None:
    (place / "project" / "x.folded").write_text("a;b 1\n")
    named = place / "project" / "out"
    commands = {
        "export": (["export", "x.folded", "--format=folded", "-o", "out"], named),
        "report": (["run", "--profiler=none", "--report=out"], named),
        "diff": (["diff", "x.folded", "x.folded", "-o", "out.svg"], named.with_suffix(".svg")),
        "import": (["import", "x.folded", "-o", "out"], named / "profile.folded"),
    }
    arguments, path = commands[option]
    path.parent.mkdir(exist_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(place / "outside" / ("precious" if kind == "link" else "new"))
    declare(place)
    before = snapshot(place)
    assert main(arguments) in (2, 5)
    after = snapshot(place)
    assert {name: after.get(name) for name in before} == before
    assert (place / "outside").joinpath("new").exists() is False


def test_a_readme_of_somebody_else_is_left_alone(place: Path) -> None:
    from pytest_flamegate.commands.pictures import _is_our_guide
    from pytest_flamegate.report.markdown import guide_readme

    path = place / "project" / "README.md"
    assert _is_our_guide(path)
    path.write_text("# My project\n")
    assert not _is_our_guide(path)
    path.write_text(guide_readme([]))
    assert _is_our_guide(path)
    path.unlink()
    path.symlink_to(place / "outside" / "precious")
    assert not _is_our_guide(path)
