import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import gate_power
from benchmarks.ours import flamegate
from benchmarks.peers import Missing
from benchmarks.replay import Decision, Outcome, Replay
from benchmarks.tables import as_markdown
from benchmarks.time_to_power import growing
from pytest_flamegate.gate.calibration import STORED_REPLAYS


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    def side(seconds: float) -> dict[str, object]:
        return {"quiet_s": seconds, "cpu_s": seconds, "wall_s": [seconds] * 4}

    lines = []
    for i in range(28):
        line = {"effect_pct": 0.0, "load": "quiet", "at": 1e9 + i, "took_s": 2.0}
        head_s = 0.003 * (1 + (i % 5 - 2) / 1000)
        lines.append(json.dumps(line | {"base": side(0.003), "head": side(head_s)}))
    (tmp_path / "shared-made-2001-09-09.jsonl").write_text("\n".join(lines))
    return tmp_path / "shared-made-2001-09-09.jsonl"


def test_the_whole_answer(
    stream: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [replace(each, draws=5) for each in growing(2.0) if each.kind == "ours"]
    monkeypatch.setattr(gate_power, "growing", lambda _: chosen)
    few = replace(flamegate(5.0), draws=20)
    monkeypatch.setattr(gate_power, "within_budget", lambda *_: few)
    page = stream.with_suffix(".md")
    page.write_text("A.\n\n### What the gate answers\n\n| old |\n| --- |\n| 1 |\n\nB.\n\n"
                    "### How far the same code differs\n\n| old |\n| --- |\n\nC.\n")  # fmt: skip
    monkeypatch.setattr(gate_power, "PAGE", page)
    assert gate_power.main([str(stream), "--peers", "--write"]) == 0
    assert "| old |" not in page.read_text()
    assert [page.read_text().count(each) for each in ("A.\n", "\nB.\n", "\nC.\n")] == [1, 1, 1]
    assert "| made, quiet, τ = 1 % |" in page.read_text()
    shown = capsys.readouterr().out
    assert "made, quiet, τ = 1 %" in shown
    assert "made, quiet: not compared (8 s; no peer keeps to 1 % false alarms)" in shown
    monkeypatch.setattr(gate_power, "needed", lambda method, *_: Missing(method.name))
    assert gate_power.main([str(stream), "--peers", "--markdown"]) == 0
    assert "| flamegate, τ = 2 % | not installed |" in capsys.readouterr().out


def test_files_that_cannot_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shared-no-pairs.jsonl").touch()
    assert gate_power.main([str(tmp_path / "shared-no-pairs.jsonl")]) == 2
    assert capsys.readouterr().err.startswith("E_BAD_PAIRS")


@pytest.mark.parametrize(
    ("same", "slower", "took_s", "missed"),
    [
        ("pass", "regressed", 12.0, []),
        ("regressed", "pass", 12.0, ["alarms missed", "misses missed"]),
        ("inconclusive", "improved", 12.1, ["misses missed", "open missed", "time missed"]),
        ("pass", "inconclusive", 1.0, ["open missed"]),
    ],
)
def test_each_part_of_a_goal_can_be_missed(
    same: Decision, slower: Decision, took_s: float, missed: list[str]
) -> None:
    replays = [Replay((Outcome(each, 3, took_s),)) for each in (same, slower)]
    assert gate_power.missed(gate_power.GOALS[5.0], "quiet", *replays) == missed


@pytest.mark.parametrize(
    "table", [gate_power.noise, pytest.param(gate_power.decisions, marks=pytest.mark.nightly)]
)
def test_the_documented_tables_are_those_of_the_stored_pairs(table: object) -> None:
    assert callable(table)
    assert as_markdown(table(gate_power.stored_streams())) in gate_power.PAGE.read_text()


def test_verdicts_state_the_error_rates_of_the_stored_pairs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gate_power.replays_by_engine(gate_power.stored_streams()) == STORED_REPLAYS
    monkeypatch.setattr(gate_power, "replays_by_engine", lambda _: STORED_REPLAYS)
    assert gate_power.main(["--rates"]) == 0
    assert capsys.readouterr().out.startswith("'embedded': StoredReplays(workload='the embedded")
