import itertools
import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks import gate_power
from benchmarks.ours import flamegate
from benchmarks.peers import Missing
from benchmarks.replay import replay
from benchmarks.shown import in_detail
from benchmarks.streams import cells, centred, read
from benchmarks.tables import as_markdown
from benchmarks.time_to_power import growing


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    def side(seconds: float) -> dict[str, object]:
        return {"quiet_s": seconds, "cpu_s": seconds, "wall_s": [seconds] * 4}

    lines = []
    for i, effect_pct in itertools.product(range(28), (0.0, 3.0, 10.0)):
        head_s = 0.003 * (1 + effect_pct / 100) * (1 + (i % 5 - 2) / 1000)
        line = {"effect_pct": effect_pct, "load": "quiet", "at": 1e9 + i, "took_s": 2.0}
        lines.append(json.dumps(line | {"base": side(0.003), "head": side(head_s)}))
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    return tmp_path / "pairs.jsonl"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only our rule and a peer that is not there, and few draws."""
    ours = [replace(flamegate(drop_pct), draws=20) for drop_pct in gate_power.OURS]
    monkeypatch.setattr(gate_power, "methods", lambda: (ours, [Missing("a peer")]))
    chosen = [replace(each, draws=5) for each in growing(2.0) if each.name.startswith("flame")]
    monkeypatch.setattr(gate_power, "growing", lambda _: chosen)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("options", [[], ["--centred"], ["--markdown"]])
def test_the_whole_answer(
    stream: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert gate_power.main([str(stream), *options]) == 0
    told = capsys.readouterr().out
    assert "84 pairs of the embedded passage, measured 2001-09-09" in told
    assert "τ = 5 %: misses ≤ 1 % at a true 5…10 %: met (at most 0 %, quiet at 10 %)" in told
    assert "τ = 5 %: median ≤ 30 s, mixed: not measured" in told
    assert "quiet, 10 %" in told
    assert f"own code: pytest-benchmark {version('pytest-benchmark')}" in told
    assert "not installed" in told
    assert ("| --- |" in told) is ("--markdown" in options)
    assert ("was moved" in told) is ("--centred" in options)


def test_files_that_cannot_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert gate_power.main([str(tmp_path / "empty.jsonl")]) == 2
    assert capsys.readouterr().err.startswith("E_BAD_STREAM")


@pytest.mark.parametrize("drop_pct", gate_power.OURS)
def test_the_documented_rates_are_those_of_the_stored_pairs(drop_pct: float) -> None:
    method = flamegate(drop_pct)
    replays = {
        cell: replay(method, centred(pairs) if cell[1] else pairs)
        for cell, pairs in cells(read(sorted(gate_power.DATA.glob("pairs-*.jsonl*")))).items()
    }
    page = Path(__file__).parents[2] / "docs" / "gate-power.md"
    assert as_markdown(in_detail(method.name, replays)) in page.read_text()
