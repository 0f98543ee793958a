"""The sources of a run: what is shown of them, and every source that cannot be shown."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.git import Commit
from pytest_flamegate.core.json import encode_json, replace
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.report.source import SourceView, source_lines
from pytest_flamegate.run import sources
from pytest_flamegate.run.sources import annotate
from tests.made import bundle
from tests.report import verdicts
from tests.workload.repositories import git, repository, write

BEFORE = """\
def gemv(x):
    for row in x:
        total = row
    return total
"""
AFTER = BEFORE.replace("def", "import os\n\n\ndef").replace("total = row", "total = row * len(x)")
Captured = pytest.CaptureFixture[str]


def write_run(
    directory: Path, revision: str, lines: str, *, prefix: str = "", dirty: int = 0
) -> None:
    """Write evidence of that commit and samples: ``total`` stands for all, ``half`` for 50 %."""
    made = bundle(shares={"gemv": 0.9, "attention": 0.1})
    evidence = replace(made.evidence, commit=Commit(revision, "main", dirty))
    made = replace(made, evidence=evidence).sealed()
    assert evidence.profile is not None
    total = evidence.profile.samples
    directory.mkdir(exist_ok=True, parents=True)
    for name, data in made.files.items():
        (directory / f"{prefix}{name}").write_bytes(data)
    text = lines.replace("total", str(total)).replace("half", str(total // 2))
    (directory / f"{prefix}lines.folded").write_text(text)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory: a project below the top of its repository."""
    root = tmp_path / "top/project"
    repository(tmp_path / "top", {"project/k.py": BEFORE}, {"project/k.py": AFTER})
    monkeypatch.chdir(root)
    return root


def show(project: Path, lines: str, *, dirty: int = 0) -> SourceView:
    """Return the sources of a run of the commit that is checked out."""
    run = project / ".flamegate/latest/toy"
    write_run(run, git(project, "rev-parse", "HEAD"), lines, dirty=dirty)
    return annotate(run, project)


def compare(project: Path, before: str, after: str) -> SourceView:
    """Return the sources of a run of the last commit, compared with the one before it."""
    write_run(
        project / ".flamegate/latest/toy",
        git(project, "rev-parse", "HEAD~1"),
        before,
        prefix="base-",
    )
    return show(project, after)


def notes(view: SourceView) -> list[str]:
    assert all(not file.excerpts for file in view.files)
    return [note for file in view.files for note in file.notes]


@pytest.mark.parametrize("width", [80, 160])
def test_both_sides_of_a_line_stand_together(project: Path, width: int) -> None:
    view = compare(project, "k.py:3 half\n", "k.py:5 1\nk.py:6 half\n")
    assert view.base is not None
    cost = f"{view.head.figure(0.5)}"
    found = [line for line in source_lines(view, width) if line]
    rows = [line for line in found if "total = row" in line]
    assert len(rows) == 2
    assert rows[0].split() == [cost, "→", "0", "50.0", "%", cost, "-", "3", "total", "=", "row"]
    assert rows[1].split()[:7] == ["0", "→", cost, "50.0", "%", cost, "+"]
    # An inserted line shifts nothing: the loop is the same line on both sides.
    (loop,) = (line for line in found if "for row" in line)
    assert " 5     for row in x:" in loop
    assert not {"+", "-"} & set(loop)
    assert max(map(len, found)) <= width


def test_the_function_of_a_line_is_found_by_its_name_in_the_profile(project: Path) -> None:
    (file,) = show(project, "k.py:6 total\n").files
    assert [excerpt.functions for excerpt in file.excerpts] == [("gemv",)]
    assert file.excerpts[0].rows[0].head is not None


def test_sources_are_those_of_the_commit_and_not_of_the_working_tree(project: Path) -> None:
    (project / "k.py").write_text("changed = 1\n" * 9)
    text = "\n".join(source_lines(show(project, "k.py:6 total\n"), 80))
    assert "len(x)" in text
    assert "changed" not in text


def test_an_uncommitted_file_is_read_itself_and_a_newer_one_says_so(project: Path) -> None:
    (project / "new.py").write_text("x = 1\n")
    os.utime(project / "new.py", (0, 0))
    (file,) = show(project, "new.py:1 total\n", dirty=1).files
    assert file.notes == ()
    assert file.excerpts
    os.utime(project / "new.py")
    (file,) = show(project, "new.py:1 total\n", dirty=1).files
    assert file.notes == ("Written after the run: its lines may have moved.",)


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "It is not in that commit."),
    "binary": (lambda path: path.write_bytes(b"a\0b\n"), "It is binary."),
    "not UTF-8": (lambda path: path.write_bytes(b"\xff\xfe\n"), "It is not UTF-8."),
    "long": (lambda path: path.write_text("\n" * 1_000_000), "It has 1,000,000 lines, at most"),
    "large": (lambda path: path.write_text("x" * (2 << 20)), "It has 2,097,152 bytes, at most"),
    "link": (link, "It is a symbolic link in that commit."),
    "directory": (lambda path: write(path, {"inner": "x"}), "It is no file in that commit."),
    "key": (
        lambda path: path.write_text(
            "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----\n"
        ),
        "It holds a text like a secret's.",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_source_that_cannot_be_shown_is_a_sentence(project: Path, name: str) -> None:
    make, expected = BROKEN[name]
    make(project / "b.c")
    git(project, "add", "-A")
    git(project, "commit", "-q", "--allow-empty", "-m", "broken")
    (note,) = notes(show(project, "b.c:1 total\n"))
    assert note.startswith("Not shown of head ")
    assert expected in note
    # The same of a file that was not committed.
    assert notes(show(project, "b.c:1 total\n", dirty=1))[0].startswith("Not shown of head ")


def test_lines_of_the_embedded_engine_are_those_of_the_installed_package(project: Path) -> None:
    (file,) = show(project, "pytest_flamegate/child/embedded/kernels.py:20 total\n").files
    assert file.excerpts
    assert file.notes == ("From the installed package.",)


def test_lines_beyond_the_end_are_said_to_be_generated(project: Path) -> None:
    (note, _) = notes(show(project, "k.py:5000 total\n"))
    assert note.startswith("Samples are at line 5,000, and it has 7 lines: it was generated")


def test_secrets_in_a_source_are_withheld(project: Path) -> None:
    (project / "k.py").write_text('PASSWORD = "hunter-2-is-mine"\n' + AFTER)
    git(project, "commit", "-qam", "secret")
    text = "\n".join(source_lines(show(project, "k.py:2 total\n"), 80))
    assert "hunter" not in text
    assert "Values that look like a secret are shown as 'redacted'." in text


@pytest.mark.parametrize("revision", ["0" * 40, "--output=stolen", "HEAD"])
def test_a_commit_that_git_does_not_have_is_a_sentence(project: Path, revision: str) -> None:
    run = project / ".flamegate/latest/toy"
    write_run(run, revision, "k.py:1 total\n")
    assert notes(annotate(run, project))[0].startswith("Not shown of head ")
    # A base that is gone leaves the head as it is.
    write_run(run, revision, "k.py:1 total\n", prefix="base-")
    view = show(project, "k.py:5 total\n")
    assert view.base is None
    assert view.notes[0].startswith("Without base ")
    assert view.files[0].excerpts
    assert not list(project.parent.rglob("stolen"))


def test_a_long_change_is_shown_at_its_hot_lines_alone(project: Path) -> None:
    write(project, {"new.py": "".join(f"x{number} = 1\n" for number in range(200))})
    git(project, "add", "-A")
    git(project, "commit", "-qm", "new")
    view = compare(project, "k.py:3 half\n", "k.py:6 9\nnew.py:100 1\nnew.py:150 half\n")
    shown = {
        file.path: [row.head for each in file.excerpts for row in each.rows] for file in view.files
    }
    assert [cell and cell.number for cell in shown["new.py"]] == [*range(147, 154)]
    assert {file.path for file in view.files} == {"k.py", "new.py"}


def test_a_renamed_file_keeps_its_lines(project: Path) -> None:
    git(project, "mv", "k.py", "renamed.py")
    git(project, "commit", "-qm", "move")
    view = compare(project, "k.py:6 half\n", "renamed.py:6 half\n")
    (file,) = view.files
    hot = [row for each in file.excerpts for row in each.rows if row.base and row.base.own]
    assert [(row.base and row.base.own, row.head and row.head.own) for row in hot] == [(0.5, 0.5)]


# The command


def test_annotate_takes_a_run_or_a_source_file(project: Path, capsys: Captured) -> None:
    compare(project, "k.py:3 half\n", "k.py:6 half\n")
    assert main(["annotate", ".flamegate/latest/toy"]) == 0
    of_run = capsys.readouterr().out
    assert "total = row * len(x)" in of_run
    assert main(["annotate", "k.py"]) == 0
    assert capsys.readouterr().out == of_run
    (project / "toy").touch()  # a program has the name of its workload
    for name in ("flamegate.toml::toy", "toy"):
        assert main(["annotate", name]) == 0
        assert capsys.readouterr().out == of_run
    assert main(["annotate", "tpy"]) == 2
    assert "Did you mean 'toy'?" in capsys.readouterr().err
    # The newest run that has the file, or the one that is named.
    write_run(project / "other", git(project, "rev-parse", "HEAD"), "k.py:5 total\n")
    assert main(["annotate", "k.py", "--run", "other"]) == 0
    assert "100.0 %" in capsys.readouterr().out
    assert main(["annotate", "toy", "--run", "other"]) == 2
    assert "E_BAD_OPTION: --run names the run of a source file" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["other.py", "../k.py", "a\nb", "x" * 5000])
def test_a_path_of_nothing_is_an_error(project: Path, capsys: Captured, path: str) -> None:
    show(project, "k.py:6 total\n")
    assert main(["annotate", path]) == 2
    assert "E_NO_RUN: There is neither a run nor a file" in capsys.readouterr().err


def test_a_file_without_samples_is_an_error(project: Path, capsys: Captured) -> None:
    # Without a run no advice about the build helps.
    assert main(["annotate", "toy"]) == main(["annotate", "k.py"]) == 2
    assert capsys.readouterr().err.count("E_NO_RUN: There is no run in ") == 2
    show(project, "k.py:6 total\n")
    (project / "other.py").touch()
    for path in ("other.py", "/etc/passwd"):
        assert main(["annotate", path]) == 2
        assert "E_NO_LINES" in capsys.readouterr().err


def test_a_run_of_an_earlier_version_has_no_lines(project: Path, capsys: Captured) -> None:
    show(project, "k.py:6 total\n")
    run = project / ".flamegate/latest/toy"
    (run / "lines.folded").unlink()
    assert main(["annotate", str(run)]) == 2
    assert "E_NO_LINES" in capsys.readouterr().err


def test_the_report_has_the_sources_or_says_why_not(project: Path) -> None:
    compare(project, "k.py:3 half\n", "k.py:6 half\n")
    run = project / ".flamegate/latest/toy"
    (run / "verdict.json").write_bytes(encode_json(verdict_document(verdicts.in_pairs())))
    assert main(["report", "-o", "report.html"]) == 0
    page = Path("report.html").read_text()
    assert 'data-functions="gemv"' in page
    assert "total = row * len(x)" in page
    (run / "lines.folded").write_text("k.py:6")
    assert main(["report", "-o", "report.html"]) == 0
    page = Path("report.html").read_text()
    assert "There is no source. E_PROFILE_FILE" in page
    assert "total = row" not in page


def test_samples_that_others_wrote_are_an_error(project: Path, capsys: Captured) -> None:
    with pytest.raises(ReceiptError, match="E_PROFILE_FILE"):
        show(project, "../../etc/passwd:1 3\n")
    with pytest.raises(ReceiptError, match="E_PROFILE_FILE"):
        show(project, "k.py:1 total\nk.py:2 1\n")
    assert main(["annotate", ".flamegate/latest/toy"]) == 3
    assert "E_PROFILE_FILE" in capsys.readouterr().err


def test_a_path_that_git_alone_names_stays_in_the_project(project: Path) -> None:
    (note,) = notes(sources.read_sources(_run(project), project, None, "../outside.py"))
    assert "is no path in the project" in note


def _run(project: Path) -> Path:
    show(project, "k.py:6 total\n")
    return project / ".flamegate/latest/toy"
