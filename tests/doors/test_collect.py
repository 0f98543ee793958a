"""What ``--flamegate`` collects, and what it refuses before anything is measured."""

from __future__ import annotations

import sys

import pytest

from tests.doors.project import QUICK, Project, refused, workload

EMBEDDED = ["embedded::1tok", "embedded::10tok", "embedded::passage"]
PLAIN = "def test_plain(): pass\n"
USES = "def test_uses(flamegate): pass\n"


def collected(project: Project, *arguments: str) -> list[str]:
    """Return the node ids that a run would run, in order."""
    result = project.ask("--flamegate", "--collect-only", "-q", *arguments)
    assert result.ret in {0, 5}, result.stdout.str() + result.stderr.str()
    return [line for line in result.outlines if "::" in line]


def test_nothing_declared_means_the_embedded_ones(project: Project) -> None:
    assert collected(project) == EMBEDDED
    assert not project.artifacts.exists()


def test_the_embedded_ones_stand_behind_tests_that_gate_nothing(project: Project) -> None:
    project.write("test_a.py", PLAIN)
    assert collected(project) == ["test_a.py::test_plain", *EMBEDDED]


def test_a_test_that_gates_is_enough(project: Project) -> None:
    project.write("test_a.py", PLAIN + USES)
    assert collected(project) == ["test_a.py::test_plain", "test_a.py::test_uses"]


@pytest.mark.parametrize(
    ("arguments", "nodes"),
    [
        (["embedded::1tok"], ["embedded::1tok"]),
        (["embedded::10tok", "embedded::1tok"], ["embedded::1tok", "embedded::10tok"]),
        (["embedded"], EMBEDDED),
        (["embedded::1tok", "test_a.py"], ["test_a.py::test_plain", "embedded::1tok"]),
        (["-m", "flamegate"], EMBEDDED),
        (["-m", "not flamegate"], ["test_a.py::test_plain"]),
        (["-k", "passage"], ["embedded::passage"]),
        (["--deselect", "embedded::passage"], ["test_a.py::test_plain", *EMBEDDED[:2]]),
        (["test_a.py"], ["test_a.py::test_plain"]),
    ],
)
def test_embedded_ones_can_be_chosen(
    project: Project, arguments: list[str], nodes: list[str]
) -> None:
    project.write("test_a.py", PLAIN)
    assert collected(project, *arguments) == nodes


def test_embedded_ones_can_be_chosen_beside_a_directory_of_that_name(project: Project) -> None:
    project.write("embedded/test_a.py", PLAIN)
    assert collected(project, "embedded") == ["embedded/test_a.py::test_plain"]
    assert collected(project, "embedded::1tok") == ["embedded::1tok"]


def test_an_embedded_one_that_there_is_not(project: Project) -> None:
    result = project.ask("--flamegate", "embedded::2tok")
    refused(result, "E_UNKNOWN_WORKLOAD", "'2tok'", "10tok, 1tok, passage")


def test_a_declared_workload_is_an_item(project: Project) -> None:
    project.declare(workload("one"), workload('"two.b-3"'))
    project.write("test_a.py", PLAIN)
    both = ["flamegate.toml::one", "flamegate.toml::two.b-3"]
    assert sorted(collected(project)) == [*both, "test_a.py::test_plain"]
    assert collected(project, "flamegate.toml") == both
    assert collected(project, "flamegate.toml::two.b-3") == both[1:]
    assert sorted(collected(project, ".")) == [*both, "test_a.py::test_plain"]
    assert collected(project, "test_a.py") == ["test_a.py::test_plain"]
    assert collected(project, "embedded::1tok") == ["embedded::1tok"]
    refused(project.ask("--flamegate", "flamegate.toml::three"), "flamegate.toml::three")


def test_the_node_id_is_what_is_shown(project: Project) -> None:
    project.declare(workload('"two.b-3"', "raises"))
    result = project.run(*QUICK, "-v")
    result.stdout.fnmatch_lines(
        ["flamegate.toml::two.b-3 FAILED*", "_* two.b-3 (flamegate.toml) _*"]
    )


def test_declared_in_pyproject(project: Project) -> None:
    text = workload("one").replace("[workloads", "[tool.flamegate.workloads")
    project.write("pyproject.toml", f"[project]\nname = 'x'\nversion = '1'\n{text}")
    assert collected(project) == ["pyproject.toml::one"]
    assert collected(project, "pyproject.toml::one") == ["pyproject.toml::one"]
    project.declare(workload("own"))
    assert collected(project) == ["flamegate.toml::own"]


def test_a_pyproject_without_workloads_declares_none(project: Project) -> None:
    project.write("pyproject.toml", "# tool.flamegate is not used here\n")
    assert collected(project) == EMBEDDED
    project.write("flamegate.toml", "# nothing yet\n")
    assert collected(project) == EMBEDDED


@pytest.mark.parametrize("below", [False, True])
def test_testpaths_may_lead_past_the_file(
    project: Project, monkeypatch: pytest.MonkeyPatch, below: bool
) -> None:
    project.declare(workload("one"))
    project.write("pytest.ini", "[pytest]\ntestpaths = tests\n")
    project.write("tests/test_a.py", PLAIN)
    project.write("docs/readme", "")
    if below:
        monkeypatch.chdir(project.path / "tests")
    assert sorted(collected(project)) == ["flamegate.toml::one", "tests/test_a.py::test_plain"]


def test_another_file_by_option(project: Project) -> None:
    project.declare(workload("default"))
    project.write("loads/perf.toml", workload("other"))
    assert collected(project, "--flamegate-config=loads/perf.toml") == ["loads/perf.toml::other"]


def test_a_file_that_is_named_is_found_wherever_it_lies(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("engine/flamegate.toml", workload("one"))
    (project.path / "elsewhere").mkdir()
    monkeypatch.chdir(project.path / "elsewhere")
    for argument in ("../engine/flamegate.toml", "../engine/flamegate.toml::one"):
        assert collected(project, argument) == ["engine/flamegate.toml::one"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
@pytest.mark.parametrize("arguments", [[], ["flamegate.toml::one"]])
def test_behind_a_link(
    project: Project, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    project.write("real/flamegate.toml", workload("one"))
    link = project.path / "link"
    link.symlink_to(project.path / "real")
    chosen = [str(link / each) for each in arguments] or [str(link)]
    assert collected(project, f"--rootdir={link}", *chosen) == ["flamegate.toml::one"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[workloads.toy\n", ("E_BAD_TOML", "flamegate.toml", "line 1, column 15")),
        ("[workloads.toy]\nprompt = 'x\n", ("E_BAD_TOML", "line 2, column")),
        ("[workloads.toy]\nprompt = ", ("E_BAD_TOML", "line 2, column")),
        ("[workload.toy]\n", ("E_UNKNOWN_KEY", "'workload'", "Did you mean 'workloads'")),
        (workload("toy", prmpt='"x"'), ("E_UNKNOWN_KEY", "'prmpt'", "Did you mean 'prompt'")),
        (workload("toy", max_tokens="0"), ("E_BAD_VALUE", "max_tokens")),
        (workload("toy", max_tokens='"4"'), ("E_BAD_VALUE", "max_tokens")),
        (workload("toy").replace("toy:", "toy."), ("E_NO_TARGET", "toy.generate")),
        (workload("toy", tokens_per_second='"5"'), ("E_BAD_THRESHOLD", "'5'")),
        (workload("toy", hotspots='{ a = "5%" }'), ("E_BAD_THRESHOLD", "hotspots.a")),
        (workload('"../up"'), ("E_BAD_NAME", "'../up'")),
        (workload("toy", engine='"vllm"'), ("vllm",)),
        ("workloads = 3\n", ("E_BAD_VALUE", "workloads is 3")),
    ],
)
def test_a_file_that_is_not_understood(project: Project, text: str, words: tuple[str, ...]) -> None:
    project.write("flamegate.toml", text)
    refused(project.ask("--flamegate"), *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--flamegate-budget=soon"], ("E_BAD_OPTION", "flamegate_budget is 'soon'")),
        (["--flamegate-budget=0.5"], ("E_BAD_OPTION", "from 1 to 86400")),
        (["--flamegate-profiler=vtune"], ("E_BAD_OPTION", "'vtune'", "py-spy")),
        (["--flamegate-config=nowhere.toml"], ("E_NO_CONFIG", "nowhere.toml")),
        (["--flamegate-inject=rms_norm"], ("E_BAD_INJECTION", "FRAME:+PERCENT%")),
        (["--flamegate-inject=rms_norm:+10%", "--flamegate-update"], ("E_UPDATE_CONFLICT",)),
        (["--flamegate-update-in-ci"], ("E_BAD_OPTION", "Add --flamegate-update")),
        (["-o", "flamegate_budget=abc"], ("E_BAD_OPTION", "flamegate_budget")),
        (["-o", "flamegate_strict=perhaps"], ("E_BAD_OPTION", "flamegate_strict")),
        (["-o", "flamegate_share_drift=lax"], ("E_BAD_OPTION", "flamegate_share_drift")),
    ],
)
def test_what_was_asked_for_is_not_understood(
    project: Project, arguments: list[str], words: tuple[str, ...]
) -> None:
    refused(project.ask("--flamegate", *arguments), *words)
    assert not project.artifacts.exists()


def test_a_bad_switch_in_the_file_is_named(project: Project) -> None:
    project.write("pytest.ini", "[pytest]\nflamegate = maybe\n")
    refused(project.ask(), "E_BAD_OPTION", "flamegate", "maybe")


def test_an_update_under_ci_needs_a_second_word(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    refused(project.ask("--flamegate", "--flamegate-update"), "E_UPDATE_IN_CI")
    assert collected(project, "--flamegate-update", "--flamegate-update-in-ci") == EMBEDDED


MARKED = "import pytest\n@pytest.mark.flamegate({})\ndef test_it(): pass\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('wrkload="toy"', ("test_a.py::test_it", "E_MARKER", "'wrkload'", "workload, tokens_per")),
        ('"toy"', ("E_MARKER", "positional argument ('toy')")),
        ("", ("E_MARKER", "nothing would be gated")),
        ('tokens_per_second="5%"', ("E_MARKER", "nothing would be gated")),
    ],
)
def test_a_marker_that_is_not_understood(
    project: Project, arguments: str, words: tuple[str, ...]
) -> None:
    project.write("test_a.py", MARKED.format(arguments))
    refused(project.ask("--flamegate"), *words)


def test_only_the_markers_of_chosen_tests_are_read(project: Project) -> None:
    project.write("test_a.py", MARKED.format('wrkload="toy"') + PLAIN)
    assert collected(project, "-k", "plain") == ["test_a.py::test_plain"]


def test_the_header_says_what_measures(project: Project) -> None:
    project.write("test_a.py", PLAIN)
    result = project.run("--flamegate", "--flamegate-profiler=none", "test_a.py")
    result.stdout.fnmatch_lines(["flamegate: profiling off * core*"])
    result.assert_outcomes(passed=1)
    assert not project.artifacts.exists()


@pytest.mark.parametrize("argument", ["embedded", "embedded::1tok"])
@pytest.mark.parametrize("name", ["test", "tests"])
def test_embedded_ones_load_no_conftest_of_the_test_directories(
    project: Project, argument: str, name: str
) -> None:
    project.write(f"{name}/conftest.py", "import a_package_that_is_not_installed\n")
    result = project.run("--flamegate", "--collect-only", "-q", argument)
    assert result.ret == 0, result.stderr.str()
    assert argument.partition("::")[2] in result.stdout.str()


def test_embedded_ones_load_the_conftest_of_the_directory_and_those_above(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = "def pytest_addoption(parser): parser.addoption('--mine')\n"
    project.write("conftest.py", option)
    project.write("pytest.ini", "[pytest]\naddopts = --mine=1\n")
    below = project.path / "below"
    below.mkdir()
    for directory in (project.path, below):
        monkeypatch.chdir(directory)
        assert project.run("--flamegate", "--collect-only", "-q", "embedded").ret == 0


def test_a_broken_conftest_still_fails_a_run_of_the_tests(project: Project) -> None:
    project.write("tests/conftest.py", "import a_package_that_is_not_installed\n")
    project.write("tests/test_a.py", PLAIN)
    assert project.run("--flamegate", "--collect-only", "embedded", "tests").ret == 4
