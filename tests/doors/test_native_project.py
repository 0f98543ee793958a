"""A repository of C without any Python file: built, measured, compared, for real."""

import shutil

import pytest

from tests.doors.project import Project
from tests.tools import require

pytestmark = [pytest.mark.measures, pytest.mark.usefixtures("brief")]


ENGINE = """\
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static unsigned matmul(unsigned x)
{
    for (int i = 0; i < 4000000; i++)
        x = x * 1103515245u + 12345u;
    return x;
}

int main(int argc, char **argv)
{
    volatile unsigned x = argc;
    for (int i = atoi(argv[2]); i > 0; i--) {
        x = matmul(x);
        putchar('a' + i % 7);
        fflush(stdout);
    }
    return 0;
}
"""
MAKEFILE = """\
OUT ?= build
$(OUT)/engine: engine.c
\t@mkdir -p $(OUT)
\t$(CC) -O2 -o $@ $<
"""
COMPARING = ("--flamegate", "--flamegate-profiler=none", "--flamegate-budget=20")
DECLARED = """\
[workloads.native]
engine = "command"
command = ["{engine}", "{{prompt}}", "{{max_tokens}}"]
build = ["make"]
prompt = "What is 2+2?"
max_tokens = 16
"""


def declared(engine: str = "build/engine") -> str:
    return DECLARED.format(engine=engine)


@pytest.fixture
def native(pytester: pytest.Pytester) -> Project:
    """One commit of an engine in C; nothing that is built is tracked."""
    require(shutil.which("cc") is not None, "there is no C compiler")
    require(shutil.which("make") is not None, "there is no make")
    project = Project(pytester)
    project.write("engine.c", ENGINE)
    project.write("Makefile", MAKEFILE)
    project.write("flamegate.toml", declared())
    project.commit()
    return project


def test_a_slower_commit_is_caught_by_two_programs(native: Project) -> None:
    native.write("engine.c", ENGINE.replace("4000000", "9000000"))
    native.commit()
    result = native.ask(*COMPARING, "--flamegate-against=HEAD~1")
    result.assert_outcomes(failed=1)
    assert native.verdict("native")["verdict"] == "regressed"
    base, head = (
        native.document("native", name)["program"]
        for name in ("base-evidence.json", "evidence.json")
    )
    assert base["sha256"] != head["sha256"]
    assert base["path"] == head["path"] == "build/engine"
    assert "W_SAME_PROGRAM" not in native.reasons("native")


def test_a_build_of_both_sides_into_one_place_is_refused(
    native: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = native.path.parent / f"{native.path.name}-out"
    native.write("flamegate.toml", declared(str(place / "engine")))
    native.commit()
    native.write("engine.c", ENGINE.replace("4000000", "9000000"))
    # Make goes by times, and finds nothing to do for the other side.
    monkeypatch.setenv("OUT", str(place))
    native.ask(*COMPARING, "--flamegate-against=HEAD").assert_outcomes(failed=1)
    assert set(native.reasons("native")) == {"E_SAME_CODE"}
    # A build that goes by contents replaces the program of the other side.
    monkeypatch.setenv("OUT", str(native.path / "build"))
    native.write("flamegate.toml", declared().replace('["make"]', '["make", "-B"]'))
    native.commit()
    native.write("engine.c", ENGINE.replace("4000000", "8000000"))
    native.ask(*COMPARING, "--flamegate-against=HEAD").assert_outcomes(failed=1)
    assert set(native.reasons("native")) == {"E_ENGINE_CHANGED"}
    assert "a place each" in native.reasons("native")["E_ENGINE_CHANGED"]
