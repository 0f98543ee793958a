"""What ``--flamegate`` collects, and the usage errors before anything is measured."""

import pytest

from tests.doors.project import Project, refused, workload

EMBEDDED = ["embedded::1tok", "embedded::10tok", "embedded::passage"]
PLAIN = "def test_plain(): pass\n"
USES = "def test_uses(flamegate): pass\n"
TEXT = f"""
{workload("toy")}
[workloads.toy.variants]
small.env = {{ A = '1' }}
large.max_tokens = 8
{workload("plain")}
"""
NODES = [f"flamegate.toml::{name}" for name in ("toy[small]", "toy[large]", "plain")]


def collected(project: Project, *arguments: str) -> list[str]:
    """Return the node ids that a run would run, in order."""
    result = project.ask("--flamegate", "--collect-only", "-q", *arguments)
    assert result.ret in {0, 5}, result.stdout.str() + result.stderr.str()
    return [line for line in result.outlines if "::" in line]


NONE: dict[str, str] = {}
ONE = {"test_a.py": PLAIN}
USING = {"test_a.py": PLAIN + USES}
BELOW = {"embedded/test_a.py": PLAIN}
DECLARED = {"flamegate.toml": TEXT, **ONE}
TEST = "test_a.py::test_plain"


@pytest.mark.parametrize(
    ("files", "arguments", "nodes"),
    [
        (NONE, [], EMBEDDED),
        (NONE, ["embedded"], EMBEDDED),
        (NONE, ["embedded::10tok", "embedded::1tok"], EMBEDDED[:2]),
        (ONE, [], [TEST, *EMBEDDED]),
        (ONE, ["embedded::1tok", "test_a.py"], [TEST, "embedded::1tok"]),
        (ONE, ["-m", "flamegate"], EMBEDDED),
        (ONE, ["-m", "not flamegate"], [TEST]),
        (ONE, ["-k", "passage"], ["embedded::passage"]),
        (USING, [], [TEST, "test_a.py::test_uses"]),
        (BELOW, ["embedded"], ["embedded/test_a.py::test_plain"]),
        (BELOW, ["embedded::1tok"], ["embedded::1tok"]),
        (DECLARED, [], [*NODES, TEST]),
        (DECLARED, NODES[:1], NODES[:1]),
        (DECLARED, NODES[1:], NODES[1:]),
        (DECLARED, ["flamegate.toml::toy"], NODES[:2]),
        (DECLARED, ["-k", "large"], NODES[1:2]),
        (DECLARED, ["--deselect", NODES[0], "flamegate.toml"], NODES[1:]),
        (DECLARED, ["test_a.py"], [TEST]),
        (DECLARED, ["embedded::1tok"], ["embedded::1tok"]),
    ],
)
def test_workloads_and_tests_are_selected(
    project: Project, files: dict[str, str], arguments: list[str], nodes: list[str]
) -> None:
    for name, text in files.items():
        project.write(name, text)
    assert collected(project, *arguments) == nodes
    assert not project.artifacts.exists()


def test_declared_in_pyproject(project: Project) -> None:
    text = workload("one").replace("[workloads", "[tool.flamegate.workloads")
    project.write("pyproject.toml", f"[project]\nname = 'x'\nversion = '1'\n{text}")
    assert collected(project) == ["pyproject.toml::one"]
    assert collected(project, "pyproject.toml::one") == ["pyproject.toml::one"]
    project.declare("# nothing yet\n")
    assert collected(project) == EMBEDDED


def test_testpaths_need_not_lead_to_the_file(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.declare(workload("one"))
    project.write("pytest.ini", "[pytest]\ntestpaths = tests\n")
    project.write("tests/test_a.py", PLAIN)
    for directory in (project.path, project.path / "tests"):
        monkeypatch.chdir(directory)
        assert sorted(collected(project)) == ["flamegate.toml::one", "tests/test_a.py::test_plain"]


def test_another_file_by_option_or_argument_or_link(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.declare(workload("default"))
    project.write("loads/perf.toml", workload("other"))
    assert collected(project, "--flamegate-config=loads/perf.toml") == ["loads/perf.toml::other"]
    project.write("engine/flamegate.toml", workload("one"))
    link = project.path / "link"
    link.symlink_to(project.path / "engine")
    assert collected(project, f"--rootdir={link}", str(link)) == ["flamegate.toml::one"]
    (project.path / "elsewhere").mkdir()
    monkeypatch.chdir(project.path / "elsewhere")
    found = collected(project, "../engine/flamegate.toml::one")
    assert found == ["engine/flamegate.toml::one"]


@pytest.mark.parametrize(
    ("text", "argument", "words"),
    [
        (TEXT, "embedded::2tok", ("E_UNKNOWN_WORKLOAD", "'2tok'", "Did you mean '1tok'?")),
        (TEXT, "flamegate.toml::toy[huge]", ("E_UNKNOWN_WORKLOAD", "Did you mean 'toy[")),
        (TEXT, "flamegate.toml::plian", ("E_UNKNOWN_WORKLOAD", "Did you mean 'plain'?")),
        (TEXT, "--flamegate-inject=rms_norm:10%", ("E_BAD_INJECTION",)),
        (TEXT, "-oflamegate_strict=perhaps", ("E_BAD_OPTION", "flamegate_strict")),
        (TEXT, "--flamegate-report=.", ("E_BAD_OPTION", "is a directory")),
        (TEXT, "--flamegate-report=toy.py/report.html", ("E_CANNOT_WRITE",)),
        ("[workloads.toy\n", ".", ("E_BAD_TOML", "flamegate.toml", "line 1, column 15")),
    ],
)
def test_a_usage_error(project: Project, text: str, argument: str, words: tuple[str, ...]) -> None:
    project.declare(text)
    refused(project.ask("--flamegate", argument), *words)
    assert not project.artifacts.exists()


MARKED = "import pytest\n@pytest.mark.flamegate({})\ndef test_it({}): pass\n"


@pytest.mark.parametrize(
    ("arguments", "fixture", "words"),
    [
        ('wrkload="toy"', "", ("test_a.py::test_it", "'wrkload'", "workload, tokens_per")),
        ('"toy"', "flamegate", ("positional argument ('toy')", "workload=…")),
        ("", "", ("nothing would be gated",)),
        ('tokens_per_second="3%"', "", ("nothing would be gated",)),
    ],
)
def test_a_marker_with_an_error_is_a_usage_error_if_its_test_is_chosen(
    project: Project, arguments: str, fixture: str, words: tuple[str, ...]
) -> None:
    project.write("test_a.py", MARKED.format(arguments, fixture) + PLAIN)
    refused(project.ask("--flamegate"), "E_MARKER", *words)
    assert collected(project, "-k", "plain") == ["test_a.py::test_plain"]


def test_embedded_workloads_load_no_conftest_of_a_test_directory(project: Project) -> None:
    for name in ("test", "tests"):
        project.write(f"{name}/conftest.py", "import a_package_that_is_not_installed\n")
    assert collected(project, "embedded") == EMBEDDED
    assert collected(project, "embedded::1tok") == EMBEDDED[:1]
    project.write("tests/test_a.py", PLAIN)
    assert project.ask("--flamegate", "--collect-only", "embedded", "tests").ret == 4


def test_embedded_workloads_load_the_conftest_of_the_directory_and_those_above(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("conftest.py", "def pytest_addoption(parser): parser.addoption('--mine')\n")
    project.write("pytest.ini", "[pytest]\naddopts = --mine=1\n")
    below = project.path / "below"
    below.mkdir()
    for directory in (project.path, below):
        monkeypatch.chdir(directory)
        assert project.ask("--flamegate", "--collect-only", "-q", "embedded").ret == 0


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("has_file", [True, False])
def test_a_project_without_a_workload_is_announced(project: Project, has_file: bool) -> None:
    place = "flamegate.toml" if has_file else str(project.path)
    said = f"flamegate: {place} declares no workload, so those of the embedded model*"
    if has_file:
        project.declare("# nothing yet\n")
    project.ask("--flamegate", "--flamegate-budget=2").stdout.fnmatch_lines([said])
    for words in (("embedded::1tok",), ("test_a.py",)):
        project.write("test_a.py", "def test_run(flamegate): flamegate.run('1tok')\n")
        project.ask("--flamegate", "--flamegate-budget=2", *words).stdout.no_fnmatch_line(said)


@pytest.mark.usefixtures("world")
def test_each_workload_is_announced_once(project: Project) -> None:
    project.declare(workload("toy"))
    project.write(
        "test_a.py",
        "def test_run(flamegate): flamegate.run('toy')\n"
        "def test_keyword(flamegate): flamegate.run(workload='toy')\n",
    )
    result = project.ask("--flamegate", "--flamegate-budget=2")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["flamegate: 1 workload, about 0:02"])
    # The command to accept names the runs that wait, and measures nothing.
    result = project.ask("--flamegate", "--flamegate-budget=2", "-k", "test_run")
    result.stdout.fnmatch_lines(["accept these as the baseline: *flamegate baseline accept toy"])
    # Workloads of their own, although the code has the name of another, or no source.
    measures = "flamegate.measure(toy.generate, prompt='toy', max_tokens=4)"
    tests = (f"def test_{name}(flamegate): {measures}" for name in ("own", "made"))
    project.write("test_a.py", "import toy\n{}\nexec({!r})\n".format(*tests))
    result = project.ask("--flamegate", "--flamegate-budget=2")
    result.stdout.fnmatch_lines(["flamegate: 3 workloads, about 0:06, 2 s each"])
