"""``flamegate import`` of other tools' results, and what diff and verify-receipt say of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.receipt import Grade, verify_receipt
from tests.made import bundle
from tests.receipt.imports.test_formats import DATA

Told = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for path in DATA.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


def test_each_result_of_a_file_becomes_a_document(here: Path, capsys: Told) -> None:
    assert main(["import", "llama-bench.jsonl"]) == 0
    told = capsys.readouterr().out
    directory = here / ".flamegate" / "imported" / "llama-bench"
    tests = ("pp16", "tg8", "pp16-tg8")
    names = {f"{test}{depth}.json" for test in tests for depth in ("", "-d32")}
    assert {path.name for path in directory.iterdir()} == names
    assert "6 results of llama-bench b1 0c1e570, SELF_REPORTED" in told
    assert "n/decode-time" in told
    kept = json.loads((directory / "tg8.json").read_bytes())
    assert (kept["kind"], kept["grade"]) == ("imported", "SELF_REPORTED")
    assert kept["source"]["file"] == "llama-bench.jsonl"


def test_results_of_another_file_are_not_overwritten(here: Path, capsys: Told) -> None:
    assert main(["import", "llama-bench.jsonl"]) == 0
    assert main(["import", "llama-bench.jsonl"]) == 0
    kept = sorted((here / ".flamegate" / "imported" / "llama-bench").iterdir())
    before = [path.read_bytes() for path in kept]
    assert main(["import", "llama-bench.md"]) == 2
    assert "E_NOT_OVERWRITTEN" in capsys.readouterr().err
    assert [path.read_bytes() for path in kept] == before
    assert main(["import", "llama-bench.md", "--name", "drawn"]) == 0


def test_a_directory_of_results_is_compared_or_its_results_are_named(
    here: Path, capsys: Told
) -> None:
    assert main(["import", "aiperf.json"]) == 0
    assert main(["import", "llama-bench.jsonl"]) == 0
    one, many = (str(here / ".flamegate" / "imported" / name) for name in ("aiperf", "llama-bench"))
    assert main(["diff", one, one]) == 0
    assert main(["diff", one, many]) == 2
    assert "E_AMBIGUOUS_RESULT" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_part_of_a_result(here: Path, capsys: Told) -> None:
    data = Path("llama-bench.csv").read_bytes()
    Path("marked.csv").write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    assert main(["import", "marked.csv"]) == 0
    assert "6 results" in capsys.readouterr().out


def test_one_bad_row_leaves_nothing_written(here: Path, capsys: Told) -> None:
    rows = Path("llama-bench.jsonl").read_text().replace('"n_gen": 8', '"n_gen": -8')
    Path("bad.jsonl").write_text(rows)
    assert main(["import", "bad.jsonl"]) == 3
    assert "E_IMPORT_MALFORMED" in capsys.readouterr().err
    assert not (here / ".flamegate").exists()


def test_verify_receipt_never_believes_an_imported_result(here: Path, capsys: Told) -> None:
    assert main(["import", "aiperf.json", "-o", "out"]) == 0
    path = Path("out/profile.json")
    capsys.readouterr()
    assert main(["verify-receipt", str(path)]) == 3
    told = capsys.readouterr().out
    assert "SELF_REPORTED" in told
    assert "E_IMPORTED" in told
    # Not even where it says more of itself, or honest evidence stands beside it.
    bundle().write(here / "run")
    shutil.copy(path, here / "run" / "receipt.json")
    answer = verify_receipt(here / "run" / "receipt.json")
    assert (answer.ok, answer.honest, answer.grade) == (False, False, Grade.SELF_REPORTED)
    spoilt = path.read_bytes().replace(b'"SELF_REPORTED"', b'"OBSERVED"')
    codes = [each.code for each in verify_receipt(spoilt).refusals]
    assert codes == ["E_IMPORTED"]


@pytest.fixture
def kept(here: Path, capsys: Told) -> Path:
    for name in ("aiperf.json", "guidellm.json", "vllm-serve.json"):
        assert main(["import", name, "-o", "out"]) == 0
    capsys.readouterr()
    return here / "out"


def test_results_of_one_tool_are_compared(kept: Path, capsys: Told) -> None:
    assert main(["diff", "out/serve.json", "out/serve.json"]) == 0
    told = capsys.readouterr().out
    assert "time_per_output_token_ms" in told
    assert "+0.0 %" in told


def test_formulas_that_differ_are_refused_by_name(kept: Path, capsys: Told) -> None:
    command = ["diff", "out/serve.json", "out/synchronous.json"]
    assert main(command) == 4
    told = capsys.readouterr()
    assert "E_FORMULA_DIFFERS" in told.err
    assert "time_per_output_token_ms is latency/n, by token" not in told.err
    assert "(latency-ttft)/(n-1)" in told.out
    assert "latency/n, by token" in told.out
    assert "requests_per_second" in told.out
    assert main([*command, "--anyway", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {each["code"] for each in document["refused"]} == {"E_FORMULA_DIFFERS"}
    assert "time_per_output_token_ms" not in {each["name"] for each in document["compared"]}


def test_a_result_is_compared_with_a_run_of_ours(kept: Path, capsys: Told) -> None:
    bundle().write(kept / "run")
    assert main(["diff", "out/run", "out/profile.json", "--anyway"]) in (0, 4)
    told = capsys.readouterr()
    assert "time_to_first_token_ms" in told.out


@pytest.mark.parametrize(
    ("other", "options", "code"),
    [
        ("llama-bench.md", [], "E_NO_FIGURES"),
        ("out/serve.json", ["--output", "x.svg"], "E_NO_PICTURE"),
        ("nowhere", [], "E_NO_FIGURES"),
    ],
)
def test_what_cannot_be_compared_is_told(
    kept: Path, capsys: Told, other: str, options: list[str], code: str
) -> None:
    assert main(["diff", "out/serve.json", other, *options]) == 2
    assert code in capsys.readouterr().err
