"""``flamegate bricks PATH --table``: sums of a run, and of traces that tell nothing else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random

import pytest

from pytest_flamegate.cli import main
from tests.graph.traces import made
from tests.receipt.forgeries.bricks import clock
from tests.receipt.forgeries.draft import load

Told = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's directory whose evidence has passes over the bricks."""
    draft = load("embedded-10tok")
    clock(draft, Random(7))
    (tmp_path / "evidence.json").write_bytes(draft.files()["evidence.json"])
    (tmp_path / "bricks.json").write_bytes(b"{}")
    return tmp_path


def rows(told: str) -> dict[str, list[str]]:
    """Each line of the table by its first word."""
    return {line.split()[0]: line.split()[1:] for line in told.splitlines() if line.strip()}


@pytest.mark.parametrize("name", ["", "bricks.json", "evidence.json"])
def test_a_run_shows_every_brick_of_its_evidence(run: Path, capsys: Told, name: str) -> None:
    assert main(["bricks", str(run / name), "--table"]) == 0
    told = rows(capsys.readouterr().out)
    evidence = json.loads((run / "evidence.json").read_bytes())
    calls: dict[str, int] = {}
    for row in (row for one in evidence["bricks"] for row in one["totals"]):
        calls[row["name"]] = calls.get(row["name"], 0) + row["calls"]
    assert calls
    assert {name: int(told[name][3].replace(",", "")) for name in calls} == calls


def test_sums_of_trueno_that_have_no_graph(tmp_path: Path, capsys: Told) -> None:
    path = tmp_path / "profile.json.gz"
    path.write_bytes(gzip.compress(made.TRUENO))
    assert main(["bricks", str(path)]) == 4
    assert "--table" in capsys.readouterr().err
    assert main(["bricks", str(path), "--table"]) == 0
    told = capsys.readouterr().out
    figures = ["85.0", "%", "Other", "7", "7.00", "7.00", "1,000", "1,000", "–", "–", "1,000"]
    assert rows(told)["QkvProjection"][:2] == figures[:2]
    assert rows(told)["QkvProjection"][3:9] == figures[3:9]
    assert "ingested and never gated" in told
    assert "total_ns is the sum of its bricks, and so no wall time" in told


def test_phases_have_their_medians_and_kernels_their_dispatches(
    tmp_path: Path, capsys: Told
) -> None:
    path = tmp_path / "engine.log"
    path.write_bytes(made.LINES + made.DISPATCH)
    assert main(["bricks", str(path), "--table"]) == 0
    told = capsys.readouterr().out
    assert rows(told)["Forward"][3:5] == ["3", "1.00"]
    assert "embed 12.0 µs · forward 340 µs · logits 80.0 µs · sample 0.500 µs" in told
    assert rows(told)["gemv_avx2"] == ["4"]


def test_dispatches_alone_are_shown_without_a_table_of_noughts(
    tmp_path: Path, capsys: Told
) -> None:
    path = tmp_path / "engine.log"
    path.write_bytes(made.DISPATCH)
    assert main(["bricks", str(path), "--table", "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_text().splitlines()[:3] == [
        "Kernel     Dispatched",
        "gemv_avx2           4",
        "gemv_f16            1",
    ]


def test_what_has_no_sums_is_refused_by_its_code(
    run: Path, tmp_path_factory: pytest.TempPathFactory, capsys: Told
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    graph = elsewhere / "graph.json"
    graph.write_text('{"kind": "execution-graph"}')
    evidence = json.loads((run / "evidence.json").read_bytes())
    (run / "evidence.json").write_text(json.dumps({**evidence, "bricks": []}))
    for path, exit_code, code in (
        (elsewhere, 2, "E_NO_RUN"),
        (graph, 3, "E_UNKNOWN_FORMAT"),
        (elsewhere / "none", 5, "E_CANNOT_READ"),
        (run, 4, "E_NO_BRICKS"),
    ):
        assert main(["bricks", str(path), "--table"]) == exit_code
        told = capsys.readouterr()
        assert (told.out, told.err.split(":")[0]) == ("", code)
