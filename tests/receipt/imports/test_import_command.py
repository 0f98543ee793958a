"""``flamegate import`` of other tools' results, and the answers of diff and verify-receipt."""

import json
import shutil
from pathlib import Path

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.receipt import Grade, verify_receipt
from tests.made import bundle
from tests.receipt.imports.test_formats import DATA

Output = pytest.CaptureFixture[str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for path in DATA.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


@pytest.fixture
def imported(project: Path, capsys: Output) -> Path:
    for name in ("aiperf.json", "guidellm.json", "vllm-serve.json"):
        assert main(["import", name, "-o", "out"]) == 0
    capsys.readouterr()
    return project / "out"


@pytest.mark.parametrize(
    ("file", "form"), [("llama-bench.jsonl", "json"), ("llama-bench.md", "markdown")]
)
def test_each_result_of_a_file_becomes_a_document(
    project: Path, capsys: Output, file: str, form: str
) -> None:
    data = Path(file).read_bytes()
    Path(file).write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    assert main(["import", file]) == 0
    output = capsys.readouterr().out
    directory = project / ".flamegate" / "imported" / "llama-bench"
    tests = ("pp16", "tg8", "pp16-tg8")
    names = {f"{test}{depth}.json" for test in tests for depth in ("", "-d32")}
    assert {path.name for path in directory.iterdir()} == names
    assert "6 results of llama-bench b1 0c1e570, SELF_REPORTED" in output
    assert "n/decode-time" in output
    stored = json.loads((directory / "tg8.json").read_bytes())
    assert (stored["kind"], stored["grade"]) == ("imported", "SELF_REPORTED")
    assert (stored["source"]["file"], stored["source"]["format"]) == (file, f"llama-bench-{form}")


def test_a_file_that_cannot_be_read_leaves_nothing_written(project: Path, capsys: Output) -> None:
    rows = Path("llama-bench.jsonl").read_text().replace('"n_gen": 8', '"n_gen": -8')
    Path("bad.jsonl").write_text(rows)
    Path("bench.csv").write_text("Metric,avg,min\nRequest Latency (ms),16,1\n")
    for name, words in (("bad.jsonl", "E_IMPORT_MALFORMED"), ("bench.csv", "E_UNKNOWN_FORMAT")):
        assert main(["import", name]) == 3
        assert words in capsys.readouterr().err
    assert not (project / ".flamegate").exists()


def test_an_imported_result_never_passes_for_a_receipt(project: Path, capsys: Output) -> None:
    assert main(["import", "aiperf.json", "-o", "out"]) == 0
    path = Path("out/profile.json")
    assert main(["verify-receipt", str(path)]) == 3
    assert "E_IMPORTED" in capsys.readouterr().out
    # Not even next to honest evidence, or if it claims a higher grade.
    bundle().write(project / "run")
    shutil.copy(path, project / "run" / "receipt.json")
    answer = verify_receipt(project / "run" / "receipt.json")
    assert (answer.ok, answer.honest, answer.grade) == (False, False, Grade.SELF_REPORTED)
    edited = path.read_bytes().replace(b'"SELF_REPORTED"', b'"OBSERVED"')
    assert [each.code for each in verify_receipt(edited).refusals] == ["E_IMPORTED"]


def test_figures_are_compared_only_if_their_formulas_are_equal(
    imported: Path, capsys: Output
) -> None:
    assert main(["diff", "out/serve.json", "out/serve.json"]) == 0
    output = capsys.readouterr().out
    assert "time_per_output_token_ms" in output
    assert "+0.0 %" in output
    command = ["diff", "out/serve.json", "out/synchronous.json"]
    assert main(command) == 4
    captured = capsys.readouterr()
    assert "E_FORMULA_DIFFERS" in captured.err
    assert "time_per_output_token_ms is latency/n, by token" not in captured.err
    for expected in ("(latency-ttft)/(n-1)", "latency/n, by token", "requests_per_second"):
        assert expected in captured.out
    assert main([*command, "--anyway", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {each["code"] for each in document["refused"]} == {"E_FORMULA_DIFFERS"}
    assert "time_per_output_token_ms" not in {each["name"] for each in document["compared"]}


def test_a_directory_is_one_result_or_a_run_of_ours(imported: Path, capsys: Output) -> None:
    bundle().write(imported / "run")
    assert main(["diff", "out/run", "out/profile.json", "--anyway"]) in (0, 4)
    assert "time_to_first_token_ms" in capsys.readouterr().out
    assert main(["import", "aiperf.json"]) == 0
    assert main(["import", "llama-bench.jsonl"]) == 0
    one, many = (f".flamegate/imported/{name}" for name in ("aiperf", "llama-bench"))
    assert main(["diff", one, one]) == 0
    assert main(["diff", one, many]) == 2
    assert "E_NO_FIGURES" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("other", "options", "code"),
    [
        ("README.md", [], "E_NO_FIGURES"),
        ("out/serve.json", ["--output", "x.svg"], "E_BAD_OPTION"),
    ],
)
def test_files_that_cannot_be_compared(
    imported: Path, capsys: Output, other: str, options: list[str], code: str
) -> None:
    assert main(["diff", "out/serve.json", other, *options]) == 2
    assert code in capsys.readouterr().err
