"""``flamegate bricks``: what it prints, writes and refuses."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.core.json import encode_json, encode_plain
from pytest_flamegate.run.open import open_graph
from tests.graph.graphs import call

Told = pytest.CaptureFixture[str]
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


def test_the_tree_and_the_critical_path(run: Path, capsys: Told) -> None:
    assert main(["bricks", str(run)]) == 0
    assert capsys.readouterr().out == TREE + PATH
    (run / "evidence.json").write_text('{"bricks": []}')
    for name in ("bricks.json", "evidence.json"):
        assert main(["bricks", "--tree", str(run / name)]) == 0
        assert capsys.readouterr().out == TREE


def test_json_is_read_again(run: Path, capsys: Told) -> None:
    again = run / "graph.json"
    assert main(["bricks", str(run), "--json", "-o", str(again)]) == 0
    assert capsys.readouterr().out == f"{again}\n"
    assert open_graph(again).edges == open_graph(run).edges
    assert main(["bricks", str(again), "--json"]) == 0
    assert capsys.readouterr().out.encode() == again.read_bytes()
    assert main(["bricks", str(again)]) == 0
    assert capsys.readouterr().out == TREE + PATH


def test_dot_is_written(run: Path, capsys: Told) -> None:
    assert main(["bricks", str(run), "--dot"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("digraph execution {\n")
    assert "grid=32,1,1 block=256,1,1" in told
    assert told.endswith("}\n")


@pytest.mark.parametrize(
    ("content", "exit_code", "code"),
    [
        (b"", 3, "E_JSON_SYNTAX"),
        (b'{"calls": [], "calls": []}', 3, "E_JSON_DUPLICATE_KEY"),
        (b"[" * 100 + b"]" * 100, 3, "E_JSON_DEPTH"),
        (b"{}", 3, "E_UNKNOWN_FORMAT"),
        (b'{"kind": "execution-graph"}', 3, "E_GRAPH_DOCUMENT"),
        (json_.dumps(document(calls=[])).encode(), 4, "E_NO_BRICKS"),
        (json_.dumps(document(calls=[7])).encode(), 3, "E_WRONG_TYPE"),
        (json_.dumps(document(calls={})).encode(), 3, "E_WRONG_TYPE"),
        (json_.dumps(document(calls=[{"name": "a"}])).encode(), 3, "E_MISSING_FIELD"),
        (json_.dumps(document(calls=encode_plain((call("a", 5, 4),)))).encode(), 3, "E_WRONG_TYPE"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_tells_no_graph_is_refused(
    run: Path, capsys: Told, content: bytes, exit_code: int, code: str
) -> None:
    (run / "bricks.json").write_bytes(content)
    assert main(["bricks", str(run)]) == exit_code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"{code}: ")


def test_a_directory_without_bricks_and_a_missing_file(tmp_path: Path, capsys: Told) -> None:
    assert main(["bricks", str(tmp_path)]) == 2
    assert "E_NO_RUN" in capsys.readouterr().err
    assert main(["bricks", str(tmp_path / "none.json")]) == 5
    assert "E_CANNOT_READ" in capsys.readouterr().err


def test_a_hostile_name_steers_no_terminal(run: Path, capsys: Told) -> None:
    hostile = call("a\x1b]0;b\x07\n", 0, 1000, kernel="k\u202e")
    (run / "bricks.json").write_bytes(encode_json(document(calls=encode_plain((hostile,)))))
    for shape in ([], ["--tree"], ["--dot"], ["--json"]):
        assert main(["bricks", str(run), *shape]) == 0
        assert not {*capsys.readouterr().out} & {"\x1b", "\x07", "\u202e"}
