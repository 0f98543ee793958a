"""A profile of decode alone, as ``decode_profile = true`` asks for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.doors.project import Project, workload

pytestmark = [pytest.mark.measures, pytest.mark.nightly]

ENGINE = """\
def burn(rounds):
    x = 1
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def prefill_only(prompt):
    x = 1
    for _ in range(400_000):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def decode_only(rounds):
    x = 1
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def generate(prompt, max_tokens):
    prefill_only(prompt)
    for token in range(max_tokens):
        decode_only(30_000)
        burn(10_000)
        yield token
"""
FILES = {"decode.json", "decode.folded", "decode.svg"}
PROFILED = ("--flamegate", "--flamegate-budget=4", "--flamegate-profiler=py-spy")


def declare(project: Project) -> None:
    project.write("synthetic.py", ENGINE)
    project.declare(
        workload("w", decode_profile="true", max_tokens="12").replace(
            "toy:generate", "synthetic:generate"
        )
    )


def rows(document: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {row["name"]: row for row in document["functions"]}


@pytest.mark.usefixtures("py_spy")
def test_what_only_prefill_does_is_no_part_of_decode(project: Project) -> None:
    """The prefill costs 10 tokens: half of what is sampled, and nothing of decode.

    Decode is three parts of one function and one of another; bounds are five standard
    errors, and widths no wider than could tell one part from the other.
    """
    declare(project)
    result = project.run(*PROFILED)
    result.assert_outcomes(passed=1)
    assert project.latest("w") >= FILES, result.stdout.str()
    document = json.loads((project.artifacts / "latest" / "w" / "decode.json").read_text())
    assert (document["provenance"], document["gated"]) == ("derived", False)
    assert document["tokens"] == {"long": 12, "short": 1}
    found, total = rows(document), document["cpu_s_per_token"]
    prefill, decode, burn = (found[name] for name in ("prefill_only", "decode_only", "burn"))
    assert prefill["sampled_share"] > 0.25
    assert abs(prefill["self_s"]) < 5 * prefill["self_error_s"]
    assert abs(decode["self_s"] - 0.75 * total) < 5 * decode["self_error_s"]
    assert abs(burn["self_s"] - 0.25 * total) < 5 * burn["self_error_s"]
    assert decode["self_error_s"] < 0.4 * total
    assert sum(row["self_s"] for row in found.values()) == pytest.approx(total)
    page = (project.artifacts / "latest" / "w" / "flamegraph.md").read_text()
    assert "## Decode alone (by subtraction)" in page
    assert "| `decode_only` |" in page
    picture = (project.artifacts / "latest" / "w" / "decode.svg").read_text()
    assert "decode alone, by subtraction: 12 tokens minus 1" in picture
