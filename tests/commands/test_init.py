"""``flamegate init``: what it finds, what it writes, and that nothing that exists changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from pytest_flamegate.commands import common, init
from pytest_flamegate.core import __version__
from pytest_flamegate.engines.declare import read_declarations
from pytest_flamegate.engines.gguf import WORKLOADS, embedded_workloads
from tests.commands.asked import Captured, Command, ask, find_traps
from tests.doors.project import write_toy
from tests.models.gguf_files import write_large_model
from tests.run import fakes
from tests.workload.repositories import git

DOCS = Path(__file__).parents[2] / "docs"
EMBEDDED = [name for name, _, _ in WORKLOADS]


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory: an empty repository."""
    git(tmp_path, "init", "-q", "-b", "main")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(directory: Path) -> dict[str, bytes]:
    """Return the content of all files but git's."""
    paths = (path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in paths
        if path.relative_to(directory).parts[0] != ".git"
    }


def declared(directory: Path) -> list[str]:
    """Return the names of the workloads; an error in the file fails the test."""
    found = read_declarations(directory / "flamegate.toml")
    assert found.invalid == ()
    return [each.name for each in found.workloads]


def uncomment(directory: Path) -> dict[str, Any]:
    """Declare the workload in the comments; return its fields."""
    path = directory / "flamegate.toml"
    example = path.read_text().partition("# [workloads.decode]")[2]
    path.write_text("[workloads.decode]" + example.replace("\n# ", "\n"))
    (found,) = read_declarations(path).workloads
    return {name: getattr(found, name) for name in ("command", "build", "model", "max_tokens")}


def test_the_files_to_add_are_named_as_seen_from_the_working_directory(
    empty: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    (empty / "pytest.ini").write_text("[pytest]\n")
    (empty / "sub").mkdir()
    monkeypatch.chdir(empty / "sub")
    printed = command(0, "init").out
    assert (
        "next     git add ../flamegate.toml ../.github/workflows/flamegate-measure.yml" in printed
    )
    assert common.git_add(empty / "sub/my waivers") == "git add 'my waivers'"


def test_a_generator_function_is_found_and_gated(
    empty: Path, world: fakes.World, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init, "find_installed", lambda: None)
    write_toy(empty)
    (empty / "other.py").write_text("def stream(prompt, n_tokens=1, *, top=1):\n    yield 1\n")
    assert ask("init") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("found    the Python function toy:generate (toy.py:7)\n")
    assert (empty / "flamegate.toml").read_text() in printed
    assert "# also found: other:stream (other.py:1)" in printed
    assert "next     flamegate run" in printed
    assert declared(empty) == ["decode"]
    assert ask("run") == 4  # measured, and there is no baseline
    # Where to install from is not known, and the doctor does not forget it.
    code, traps = find_traps(empty, capsys)
    assert (code, {trap for trap, _ in traps}) == (2, {"E_CI_NOT_PINNED"})


def test_an_engine_is_found_before_there_is_a_repository(empty: Path, command: Command) -> None:
    (empty / ".git").rename(empty / "was.git")
    write_toy(empty)
    for hidden in ("node_modules/gyp", ".venv/lib", "my-tools"):
        (empty / hidden).mkdir(parents=True)
        (empty / hidden / "other.py").write_text("def stream(prompt, max_tokens):\n    yield 1\n")
    printed = command(0, "init").out
    assert "found    the Python function toy:generate (toy.py:7)\n" in printed
    assert "other.py" not in printed
    assert "git init (the check compares commits)" in printed
    assert declared(empty) == ["decode"]


def test_sources_that_are_odd_or_no_files_stop_nothing(empty: Path, command: Command) -> None:
    write_toy(empty)
    # An expression as deep as Python may call itself, and an escape that newer versions warn of.
    deep = " + ".join(["prompt"] * 600)
    odd = f"def stream(prompt, max_tokens):\n    x = {deep}\n    yield '\\d'\n"
    (empty / "odd.py").write_text(odd)
    (empty / ".gitlab-ci.yml").mkdir()
    printed = command(0, "init")
    assert "odd:stream (odd.py:1)" in printed.out
    assert "SyntaxWarning" not in printed.err


def test_nothing_that_exists_is_changed(empty: Path, command: Command) -> None:
    write_toy(empty)
    (empty / ".github/workflows").mkdir(parents=True)
    measure = empty / ".github/workflows/flamegate-measure.yml"
    measure.write_text("on: push\n")
    (empty / ".github/workflows/flamegate-judge.yml").symlink_to("nowhere")
    assert "exists   .github/workflows/flamegate-measure.yml" in command(0, "init").out
    assert measure.read_text() == "on: push\n"
    before = files(empty)
    assert "nothing to write" in command(0, "init").out
    assert files(empty) == before


def test_without_an_engine_the_embedded_model_is_measured(empty: Path, command: Command) -> None:
    (empty / "tests").mkdir()
    (empty / "tests/fake.py").write_text("def generate(prompt, max_tokens): yield 1")
    (empty / "other.py").write_text(
        "def one(prompt, max_tokens): return []\n"
        "def two(prompt, max_tokens, model): yield 1\n"
        "def three(prompt, max_tokens, *, model): yield 1\n"
        "def four(prompt, max_tokens):\n    def inner(): yield 1\n    return inner\n"
    )
    (empty / "broken.py").write_text("def generate(prompt, max_tokens: yield")
    assert "found    no engine" in command(0, "init").out
    assert declared(empty) == EMBEDDED
    expected = [(each.engine, each.prompt, each.max_tokens) for each in embedded_workloads(empty)]
    found = read_declarations(empty / "flamegate.toml").workloads
    assert [(each.engine, each.prompt, each.max_tokens) for each in found] == expected
    assert uncomment(empty)["command"][0] == "path/to/engine"


@pytest.mark.parametrize(
    ("name", "text", "why", "step"),
    [
        ("src/own/engine.py", "", "own: it is not installed", "install own"),
        ("engine.py", "import missing.part\n", "missing: it is not installed", "install missing"),
        (
            "app/engine.py",
            "import toy_helper\n",
            "toy_helper: only a script finds it there",
            "import it in app/engine.py as app.toy_helper",
        ),
    ],
)
def test_an_engine_that_cannot_be_imported_is_a_comment(
    empty: Path, command: Command, name: str, text: str, why: str, step: str
) -> None:
    (empty / name).parent.mkdir(parents=True, exist_ok=True)
    (empty / name).with_name("toy_helper.py").touch()
    (empty / name).write_text(f"{text}def generate(prompt, max_tokens):\n    yield 1\n")
    printed = command(0, "init").out
    assert f"which needs {why}" in printed
    assert f"next     {step}, remove the marks of comment" in printed
    assert declared(empty) == EMBEDDED
    assert uncomment(empty)["max_tokens"] == 32


@pytest.mark.parametrize(
    ("name", "text", "build", "program"),
    [
        ("Cargo.toml", '[package]\nname = "bitnet"', "cargo", "target/release/bitnet"),
        (
            "Cargo.toml",
            '[[bin]]\nname = "cli"\n[package]\nname = "b"',
            "cargo",
            "target/release/cli",
        ),
        ("CMakeLists.txt", "project(x)\nadd_executable(run main.c)", "sh", "build/run"),
        ("Makefile", "CC := gcc\nall: bin/run\nbin/run: run.c\n\tcc $<", "make", "./bin/run"),
        ("Cargo.toml", "[[[", "cargo", "target/release/engine"),
    ],
)
def test_a_native_build_is_an_example_with_the_next_step(
    empty: Path, command: Command, name: str, text: str, build: str, program: str
) -> None:
    (empty / name).write_text(text)
    (empty / "models").mkdir()
    write_large_model(empty / 'models/a"b.gguf')
    printed = command(0, "init").out
    assert f'found    {name} and models/a"b.gguf; the command of the engine is not known' in printed
    assert "next     edit flamegate.toml: write the engine's command" in printed
    assert declared(empty) == EMBEDDED
    fields = uncomment(empty)
    assert (fields["build"][0], fields["command"][0]) == (build, program)
    assert (fields["model"], fields["max_tokens"]) == ('models/a"b.gguf', 64)
    (empty / 'models/a"b.gguf').unlink()
    (empty / "flamegate.toml").unlink()
    assert ask("init") == 0
    assert uncomment(empty)["max_tokens"] == 2000


def test_a_model_alone_is_run_by_llama_cpp_if_that_is_installed(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_large_model(empty / "a.gguf")
    for installed, names in ((None, EMBEDDED), (object(), ["decode"])):
        monkeypatch.setattr("importlib.util.find_spec", lambda _, found=installed: found)
        assert ask("init") == 0
        assert declared(empty) == names
        (empty / "flamegate.toml").unlink()


@pytest.mark.parametrize(("model", "named"), [("a\udcff.gguf", None), ("a\x7f.gguf", "a\x7f.gguf")])
def test_unusual_names_of_files_are_written_as_toml(
    empty: Path, command: Command, model: str, named: str | None
) -> None:
    write_large_model(empty / model)
    (empty / "Cargo.toml").write_text('[package]\nname = "a\\u007f"')
    assert ("which TOML cannot name" in command(0, "init").out) == (named is None)
    assert declared(empty) == EMBEDDED
    fields = uncomment(empty)
    assert (fields["model"], fields["command"][0]) == (named, "target/release/a\x7f")


def test_the_workflow_files_are_those_of_the_documentation(
    empty: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    git(empty, "remote", "add", "origin", "git@gitlab.example:a/b.git")
    monkeypatch.setattr(init, "find_installed", lambda: "pytest-flamegate==9.9")
    assert ask("init") == 0
    assert sorted(files(empty)) == [
        *(".gitlab-ci.yml", ".gitlab/flamegate.gitlab-ci.yml", "flamegate.toml")
    ]
    own = (empty / ".gitlab/flamegate.gitlab-ci.yml").read_text()
    text = (DOCS / "gitlab/flamegate.gitlab-ci.yml").read_text()
    assert own == text.replace(init.INSTALL, "pytest-flamegate==9.9") != text
    assert ask("doctor", "--ci") == 0
    (empty / ".github").mkdir()
    (empty / ".gitlab-ci.yml").write_text("stages: [test]\n")
    command.read()
    assert "add to .gitlab-ci.yml:  include:" in command(0, "init").out
    assert sorted(path.name for path in (DOCS / "github").iterdir()) == sorted(init.WORKFLOWS)
    for name in init.WORKFLOWS:
        text = (DOCS / "github" / name).read_text()
        written = (empty / ".github/workflows" / name).read_text()
        assert written == text.replace(init.INSTALL, "pytest-flamegate==9.9") != text


def test_a_project_below_the_repository_gets_no_workflows(
    empty: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    (empty / "sub").mkdir()
    monkeypatch.chdir(empty / "sub")
    printed = command(0, "init").out
    assert "skipped  the workflows" in printed
    assert Path(printed.partition("Copy them from ")[2].partition(" to ")[0], init.JUDGE).is_file()
    assert sorted(files(empty)) == ["sub/flamegate.toml"]
    printed = command(0, "init").out
    assert "skipped  the workflows" in printed
    assert printed.endswith("nothing to write: the workload file is there\n")


@pytest.mark.parametrize(
    ("origin", "installed"),
    [
        (None, f"pytest-flamegate=={__version__}"),
        ({"url": "file:///x", "dir_info": {}}, None),
        (
            {"url": "https://host/p", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "pytest-flamegate @ git+https://host/p@ab12",
        ),
    ],
)
def test_the_workflows_install_the_package_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, origin: object, installed: str | None
) -> None:
    text = None if origin is None else json.dumps(origin)
    kind = type(distribution("pytest-flamegate"))
    monkeypatch.setattr(kind, "read_text", lambda *_: text)
    assert init.find_installed() == installed


def commit(directory: Path, message: str) -> str:
    """Commit nothing; return the hash."""
    git(directory, "commit", "-q", "--allow-empty", "-m", message)
    return git(directory, "rev-parse", "HEAD")


def find_step(name: str, title: str = "Find the base") -> dict[str, Any]:
    """Return a step of a workflow of the documentation."""
    (job,) = yaml.safe_load((DOCS / "github" / name).read_text())["jobs"].values()
    step: dict[str, Any]
    (step,) = [each for each in job["steps"] if each.get("name") == title]
    return step


def test_the_base_is_the_merge_base_in_every_workflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = find_step(init.MEASURE)
    assert step == find_step(init.JUDGE)
    jobs = yaml.safe_load((DOCS / "gitlab" / init.PIPELINE).read_text())
    lines = [each for each in jobs["flamegate"]["script"] if each.startswith(("target=", "base="))]
    git(tmp_path, "init", "-q", "-b", "main")
    began, ahead = (commit(tmp_path, message) for message in ("began", "ahead"))
    git(tmp_path, "update-ref", "refs/remotes/origin/main", ahead)
    git(tmp_path, "checkout", "-q", "-b", "stale", began)
    stale = commit(tmp_path, "stale")
    # A merge group that stands on another one: both are compared with main.
    git(tmp_path, "checkout", "-q", "main")
    commit(tmp_path, "first group")
    second = commit(tmp_path, "second group")
    monkeypatch.chdir(tmp_path)
    for head, base in ((stale, began), (second, ahead)):
        result = tmp_path / head
        variables = {**os.environ, "TARGET": "main", "HEAD": head, "GITHUB_ENV": str(result)}
        subprocess.run(["bash", "-ec", step["run"]], env=variables, check=True)
        assert result.read_text() == f"BASE={base}\n"
        git(tmp_path, "checkout", "-q", "--detach", head)
        variables = {**os.environ, "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": ahead}
        script = "\n".join([*lines, "echo $base"])
        assert subprocess.check_output(["bash", "-ec", script], env=variables, text=True) == (
            f"{base}\n"
        )


@pytest.mark.parametrize(
    ("tags", "given", "reference"),
    [
        (("v1", "v2"), "", "v1"),  # v2 is the newest commit itself
        (("v1",), "v0", "v0"),
        ((), "", ""),
    ],
    ids=["last tag", "named", "none"],
)
def test_the_nightly_reference_is_the_one_that_is_named_or_the_last_tag(
    empty: Path, tags: tuple[str, ...], given: str, reference: str
) -> None:
    commit(empty, "first")
    for tag in ("", *tags):
        commit(empty, f"version {tag}")
        if tag:
            git(empty, "tag", tag)
    if not tags[1:]:
        commit(empty, "newest")
    result = empty / "env"
    variables = {**os.environ, "GIVEN": given, "GITHUB_ENV": str(result)}
    script = find_step("flamegate-nightly.yml", "Find the reference")["run"]
    printed = subprocess.check_output(["bash", "-ec", script], env=variables, text=True)
    assert result.read_text() == f"REFERENCE={reference}\n"
    assert ("::notice::nothing is compared" in printed) == (not reference)
    lines = yaml.safe_load((DOCS / "gitlab" / init.PIPELINE).read_text())["flamegate nightly"]
    script = lines["script"]
    (start,) = [at for at, each in enumerate(script) if each.startswith("reference=")]
    variables = {**os.environ, "FLAMEGATE_REFERENCE": given}
    found = "\n".join([*script[start : start + 2], "echo $reference"])
    done = subprocess.run(["bash", "-ec", found], env=variables, capture_output=True, text=True)
    # On GitLab a person makes the schedule, so a missing reference fails it.
    told = reference or "There is no tag to compare with - set FLAMEGATE_REFERENCE."
    assert (done.returncode, done.stdout.strip()) == (0 if reference else 1, told)


class _Notes(BaseHTTPRequestHandler):
    """GitLab's notes of one merge request, two pages of them."""

    notes: list[dict[str, Any]]
    asked: list[str]

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        type(self).asked.append(self.command)
        assert self.headers["PRIVATE-TOKEN"] == "secret"
        if self.command == "POST":
            type(self).notes.append({"id": 7, "author": {"id": 4}, **body})
        elif self.command == "PUT":
            found = [each for each in type(self).notes if self.path.endswith(f"/{each['id']}")]
            found[0].update(body)
        is_first = self.path.endswith("page=1")
        stranger = {"id": 1, "author": {"id": 2}, "body": "<!-- flamegate -->"}
        answer: object = [stranger] if is_first else type(self).notes
        data = json.dumps({"id": 4} if self.path.endswith("/user") else answer).encode()
        self.send_response(200)
        self.send_header("X-Next-Page", "2" if is_first else "")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names that the server calls

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def gitlab() -> Iterator[str]:
    """Serve the notes; yield the address of the interface."""
    _Notes.notes, _Notes.asked = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Notes) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/api/v4"
        server.shutdown()


def test_the_note_on_gitlab_is_kept_up_to_date(tmp_path: Path) -> None:
    text = (DOCS / "gitlab/flamegate.gitlab-ci.yml").read_text()
    script = text.partition("    - |\n")[2].replace("\n      ", "\n").removeprefix("      ")
    (tmp_path / "python").symlink_to(sys.executable)
    with gitlab() as address:
        variables = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "CI_API_V4_URL": address,
            "CI_MERGE_REQUEST_PROJECT_ID": "3",
            "CI_MERGE_REQUEST_IID": "5",
            "FLAMEGATE_NOTE_TOKEN": "secret",
        }
        for page in (None, "**check failed**\n/approve\n  /merge\n"):
            if page is not None:
                (tmp_path / ".flamegate").mkdir()
                (tmp_path / ".flamegate/check.md").write_text(page)
            subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=variables, check=True)
    assert _Notes.asked == [*["GET"] * 3, "POST", *["GET"] * 3, "PUT"]
    (note,) = _Notes.notes
    # GitLab takes a line that begins with a slash for a command of the token's owner.
    assert note["body"] == ("<!-- flamegate -->\n**check failed**\n&#47;approve\n  &#47;merge\n")
