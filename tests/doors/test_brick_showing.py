"""What is shown of bricks is put together from the evidence and the calls that lie beside it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.json import to_plain
from pytest_flamegate.graph.roofline import Bandwidth
from pytest_flamegate.run import bricks
from pytest_flamegate.run.bricks import bricks_in, bricks_of
from tests.bricks.factory import make_run, make_totals
from tests.doors.project import QUICK
from tests.report import factory

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flamegate.receipt.types import Evidence
    from tests.doors.project import Project


CALLS = (
    BrickCall("RmsNorm", 0, 1_000, 1_000, layer=0, phase="decode", elements=64),
    BrickCall("LmHead", 1_000, 4_000, 3_000, phase="decode"),
)
BANDWIDTH = Bandwidth(
    bytes_per_second=32e9,
    low=30e9,
    median=31e9,
    method="sum",
    array_bytes=1 << 27,
    repeats=9,
    threads=1,
    measured_at="2026-01-02T03:04:05Z",
    cached=True,
)


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bricks, "find_known_bandwidth", lambda threads: BANDWIDTH)


def evidence() -> Evidence:
    one = make_run(make_totals("RmsNorm", [1_000]), make_totals("LmHead", [3_000]), wall_ns=5_000)
    return replace(factory.evidence(), bricks=(one,))


def told(nonce: str, calls: tuple[BrickCall, ...] = CALLS) -> bytes:
    return json.dumps({"nonce": nonce, "calls": to_plain(calls), "wall_ns": 5_000}).encode()


def test_the_table_the_tree_and_the_path() -> None:
    seen = evidence()
    shown, warnings = bricks_of(seen, told(seen.nonce), all_of_it="flamegate bricks x")
    assert shown is not None
    assert warnings == ()
    assert [row.name for row in shown.table.rows] == ["LmHead", "RmsNorm"]
    assert shown.tree == ("Layer 0", "└── RmsNorm  1.0µs (64 elem)", "LmHead  3.0µs")
    assert shown.critical_path == "critical path: 4 of 4 µs, of which LmHead 75 %, RmsNorm 25 %"
    assert (shown.notes, shown.all_of_it) == ((), "flamegate bricks x")


def test_where_none_were_clocked_none_are_shown() -> None:
    assert bricks_of(factory.evidence(), told("x")) == (None, ())


@pytest.mark.parametrize(
    ("beside", "code"),
    [
        (None, "E_NO_BRICKS"),
        (b"{", "E_JSON_SYNTAX"),
        (b'{"nonce": 3, "calls": []}', "E_WRONG_TYPE"),
        (told("another"), "E_OTHER_RUN"),
        (told("n" * 32, ()), "E_NO_BRICKS"),
        (told("n" * 32, (replace(CALLS[0], parent=7),)), "E_BRICK_CALLS"),
    ],
    ids=["nothing", "no json", "other types", "another run", "no call", "no parent"],
)
def test_without_calls_the_table_stands_and_the_tree_is_missed(
    beside: bytes | None, code: str
) -> None:
    shown, warnings = bricks_of(evidence(), beside)
    assert shown is not None
    assert (shown.tree, shown.critical_path, warnings) == ((), "", ())
    assert re.match(rf"There is no tree of one token\. {code}:", shown.notes[0])


def test_an_empty_pass_is_a_warning_and_no_table() -> None:
    shown, (warning,) = bricks_of(replace(factory.evidence(), bricks=(make_run(),)), None)
    assert shown is None
    assert "E_NO_BRICKS" in warning


def test_of_a_directory(tmp_path: Path) -> None:
    seen = evidence()
    directory = tmp_path / ".flamegate" / "latest" / "decode"
    directory.mkdir(parents=True)
    (directory / "bricks.json").write_bytes(told(seen.nonce))
    settings = Settings.from_values({"bricks": 1}, root=tmp_path)
    shown, _ = bricks_in(directory, seen, settings, measure=True)
    assert shown is not None
    assert [row.name for row in shown.table.rows] == ["LmHead"]
    assert shown.all_of_it == "flamegate bricks .flamegate/latest/decode"
    # The factory's model tells no bytes a token: a rate is known, a fraction is not.
    assert "for lack of the weights' bytes a token" in shown.roofline


def test_the_command_for_the_rest_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    """A variant's directory has brackets, and a project's path may have spaces."""
    seen = evidence()
    directory = tmp_path / "of mine" / "decode[i2s]"
    directory.mkdir(parents=True)
    (directory / "bricks.json").write_bytes(told(seen.nonce))
    shown, _ = bricks_in(directory, seen, Settings.from_values({}, root=tmp_path))
    assert shown is not None
    assert shown.all_of_it == "flamegate bricks 'of mine/decode[i2s]'"


def test_a_bandwidth_that_cannot_be_measured_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(threads: int) -> Bandwidth:
        raise ToolError("E_BANDWIDTH_MEMORY", "There is no room.", "Make some.")

    monkeypatch.setattr(bricks, "find_known_bandwidth", lambda threads: None)
    monkeypatch.setattr(bricks, "measure_bandwidth", refuse)
    settings = Settings.from_values({}, root=tmp_path)
    shown, warnings = bricks_in(tmp_path, evidence(), settings, measure=True)
    assert shown is not None
    assert "E_BANDWIDTH_MEMORY: There is no room. Make some." in shown.notes
    assert warnings == ()


# In a whole run


def test_a_run_prints_its_bricks(project: Project) -> None:
    """Without a profiler too: bricks need none."""
    result = project.run(
        *QUICK,
        "--flamegate-bricks=3",
        "--flamegate-report=report.html",
        "embedded::1tok",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "*= flamegate =*",
            "1tok *no baseline*",
            "bricks of 1tok",
            "Function *Calls *Total ms *% of wall",
            "* other bricks *%",
            "outside any brick *%",
            "clocked by the engine's own marks in 3 processes of their own, never in timed ones*",
            "one token of 1tok",
            "Layer 0",
            "… * more lines: flamegate bricks .flamegate/latest/1tok",
            "critical path: *",
            "*read bandwidth*",
            "report: report.html",
        ]
    )
    page = (project.path / "report.html").read_text()
    assert "<h3>Bricks</h3>" in page
    again = project.run(*QUICK, "embedded::1tok")
    again.stdout.no_fnmatch_line("bricks of*")
