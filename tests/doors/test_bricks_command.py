"""``flamegate bricks``: what it prints, writes and refuses."""

import gzip
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pytest_flamegate.core.json import encode_json, encode_plain
from pytest_flamegate.graph import traces
from pytest_flamegate.run.open import open_graph
from tests.commands.asked import Command
from tests.graph.graphs import call
from tests.graph.traces import made
from tests.receipt.forgeries.bricks import clock
from tests.receipt.forgeries.draft import load

_KERNEL = "batched_gemv <<<32,256,1>>> smem=4096B"
CALLS = (
    call("QkvProjection", 0, 200_000, layer=0, elements=4096, kernel=_KERNEL),
    call("RmsNorm", 200_000, 250_000, layer=0),
)
TREE = """\
Layer 0
├── QkvProjection  200.0µs (4096 elem)
│   └── batched_gemv  <<<32,256,1>>> smem=4096B
└── RmsNorm  50.0µs
"""
PATH = """
critical path 250.0µs, 100.0 % of the wall time of 250.0µs; most of it in:
  200.0µs   80.0 %   QkvProjection
   50.0µs   20.0 %   RmsNorm
"""


def document(**changed: object) -> dict[str, Any]:
    whole = {"schema_version": "1.0.0", "nonce": "ab" * 16, "workload": "w", "wall_ns": 300_000}
    return {**whole, "calls": encode_plain(CALLS), **changed}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "bricks.json").write_bytes(encode_json(document()))
    return tmp_path


def test_tree_critical_path_and_json(run: Path, command: Command) -> None:
    assert command(0, "bricks", str(run)).out == TREE + PATH
    (run / "evidence.json").write_text('{"bricks": []}')
    for name in ("bricks.json", "evidence.json"):
        assert command(0, "bricks", "--tree", str(run / name)).out == TREE
    written = run / "graph.json"
    assert command(0, "bricks", str(run), "--json", "-o", str(written)).out == f"{written}\n"
    edges = json.loads(written.read_bytes())["edges"]
    assert edges == [list(each) for each in open_graph(run).edges]


@pytest.mark.parametrize(
    ("content", "exit_code", "code"),
    [
        ("", 3, "E_JSON_SYNTAX"),
        ('{"kind": "execution-graph"}', 3, "E_UNKNOWN_FORMAT"),
        (json.dumps(document(calls=[])), 4, "E_NO_BRICKS"),
        (json.dumps(document(calls=[{"name": "a"}])), 3, "E_WRONG_TYPE"),
        (json.dumps(document(calls=encode_plain((call("a", 5, 4),)))), 3, "E_WRONG_TYPE"),
    ],
    ids=["empty", "unknown", "no calls", "no field", "backwards"],
)
def test_a_malformed_file_is_an_error(
    run: Path, command: Command, content: str, exit_code: int, code: str
) -> None:
    (run / "bricks.json").write_text(content)
    printed = command(exit_code, "bricks", str(run))
    assert (printed.out, code in printed.err) == ("", True)


def test_a_hostile_name_steers_no_terminal(run: Path, command: Command) -> None:
    hostile = call("a\x1b]0;b\x07\n", 0, 1000, kernel="k\u202e")
    (run / "bricks.json").write_bytes(encode_json(document(calls=encode_plain((hostile,)))))
    for shape in ([], ["--tree"], ["--dot"], ["--json"]):
        assert not {*command(0, "bricks", str(run), *shape).out} & {"\x1b", "\x07", "\u202e"}


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """The directory of a run whose evidence has brick runs."""
    draft = load("embedded-10tok")
    clock(draft, Random(7))
    (tmp_path / "evidence.json").write_bytes(draft.files()["evidence.json"])
    (tmp_path / "bricks.json").write_bytes(b"{}")
    return tmp_path


def counts(told: str) -> dict[str, str]:
    """The number of calls in each line of the table, by its first word."""
    lines = [line.split() for line in told.splitlines()]
    return {words[0]: words[4] for words in lines if len(words) > 4}


def test_a_run_shows_every_brick_of_its_evidence(measured: Path, command: Command) -> None:
    evidence = json.loads((measured / "evidence.json").read_bytes())
    calls = Counter[str]()
    for row in (row for one in evidence["bricks"] for row in one["totals"]):
        calls[row["name"]] += row["calls"]
    assert calls
    for name in ("", "bricks.json", "evidence.json"):
        told = counts(command(0, "bricks", str(measured / name), "--table").out)
        assert {name: int(told[name].replace(",", "")) for name in calls} == calls


def test_table_of_a_trace(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(made.torch(made.event("Qkv", 0, 7), made.event("f", 8, 1))))
    out = command(0, "bricks", str(path), "--table").out
    assert counts(out)["QkvProjection"] == "1"
    assert "ingested and never gated" in out
    assert command(0, "bricks", str(path), "--tree").out == "QkvProjection  7.0µs\nf  1.0µs\n"


def test_trace_with_too_many_calls_has_no_tree(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "MAX_CALLS", 1)
    path = tmp_path / "trace.json"
    path.write_bytes(made.torch(made.event("a", 0, 7), made.event("b", 8, 1)))
    assert "--table" in command(4, "bricks", str(path)).err


def test_a_file_without_bricks_is_an_error(
    measured: Path, tmp_path_factory: pytest.TempPathFactory, command: Command
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    evidence = json.loads((measured / "evidence.json").read_bytes())
    (measured / "evidence.json").write_text(json.dumps({**evidence, "bricks": []}))
    for option in ("--tree", "--table"):
        assert "E_NO_RUN" in command(2, "bricks", str(elsewhere), option).err
    assert "E_CANNOT_READ" in command(5, "bricks", str(elsewhere / "none")).err
    assert "E_NO_BRICKS" in command(4, "bricks", str(measured), "--table").err
