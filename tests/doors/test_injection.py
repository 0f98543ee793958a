"""``--flamegate-inject`` from the command line to the receipt and the profile."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.doors.project import QUICK, SEEN, refused, workload

if TYPE_CHECKING:
    from tests.doors.project import Project

pytestmark = pytest.mark.measures

TOY = """
def light(x):
    for _ in range(1000):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def heavy(x):
    for _ in range(6000):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def generate(prompt, max_tokens):
    x = 1
    for _ in range(max_tokens):
        x = heavy(light(x))
        yield x % 100
"""


def samples(project: Project) -> dict[str, int]:
    """Samples by the label of the frame they fell into."""
    found: dict[str, int] = {}
    for line in (project.artifacts / "latest/toy/profile.folded").read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        leaf = stack.split(";")[-1]
        found[leaf] = found.get(leaf, 0) + int(count)
    return found


def evidence(project: Project) -> dict[str, Any]:
    text = (project.artifacts / "latest/toy/evidence.json").read_text()
    document: dict[str, Any] = json.loads(text)
    return document


@pytest.mark.usefixtures("py_spy")
def test_a_profile_shows_the_extra_work_as_the_functions(project: Project) -> None:
    project.write("toy.py", TOY)
    project.declare(workload("toy", max_tokens="20"))
    project.run(*SEEN)
    assert "injection" not in evidence(project)["workload"]
    usual, usual_digest = samples(project), evidence(project)["token_digest"]
    project.run(*SEEN, "--flamegate-inject=light:+1000%")
    slowed = samples(project)
    assert evidence(project)["workload"]["injection"] == "light:+1000%"
    assert evidence(project)["token_digest"] == usual_digest
    (light,) = (label for label in slowed if label.startswith("light"))
    # A seventh of the work becomes eleven seventeenths.
    assert usual.get(light, 0) / sum(usual.values()) < 0.4 < slowed[light] / sum(slowed.values())
    # What checks that the work was done may be met by a sample, what does it never is.
    ours = [n for label, n in slowed.items() if "wrapping" in label or "slowing" in label]
    assert sum(ours) < 0.03 * sum(slowed.values())


def test_a_function_that_is_not_there(project: Project) -> None:
    project.declare(workload("toy"))
    result = project.run(*QUICK, "--flamegate-inject=rms_norm:+10%")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED flamegate.toml::toy - error: *'rms_norm'*"])
    refused(project.run(*QUICK, "--flamegate-inject=rms_norm:10%"), "E_BAD_INJECTION")


def test_a_command_is_refused(project: Project) -> None:
    command = f'engine = "command"\ncommand = ["{sys.executable}", "-c", "print(1)"]'
    project.declare(f'[workloads.toy]\n{command}\nprompt = "p"\nmax_tokens = 1\n')
    result = project.run(*QUICK, "--flamegate-inject=hash_round:+10%")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED flamegate.toml::toy - error: *Python target only*"])


def test_a_callable_of_a_test_is_refused(project: Project) -> None:
    project.write(
        "test_call.py",
        "import toy\n"
        "def test_it(flamegate):\n"
        "    flamegate.measure(toy.generate, prompt='p', max_tokens=4)\n",
    )
    result = project.run(*QUICK, "--flamegate-inject=hash_round:+10%", "test_call.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*E_BAD_INJECTION*Python target only*"])
