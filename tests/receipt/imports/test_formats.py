"""Results of other tools: each form is recognised by one reader, and read by its formulas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.receipt.formulas import MEANINGS
from pytest_flamegate.receipt.imports import FORMATS, detect_import_format
from pytest_flamegate.receipt.imports.imported import (
    Imported,
    ImportSource,
    decode_imported,
    encode_imported,
)
from pytest_flamegate.receipt.imports.reading import unique_names

DATA = Path(__file__).parent / "data"
FILES = {
    "aiperf.csv": "aiperf-csv",
    "aiperf.json": "aiperf-json",
    "genai-perf.csv": "aiperf-csv",
    "genai-perf.json": "aiperf-json",
    "guidellm.json": "guidellm-json",
    "inference-perf.json": "inference-perf-json",
    "llama-bench.csv": "llama-bench-csv",
    "llama-bench.json": "llama-bench-json",
    "llama-bench.jsonl": "llama-bench-json",
    "llama-bench.md": "llama-bench-markdown",
    "vllm-latency.json": "vllm-latency-json",
    "vllm-serve.json": "vllm-serve-json",
    "vllm-throughput.json": "vllm-throughput-json",
}
SOURCE = ImportSource("x.json", "x", "0" * 64, "2026-03-01T12:00:00.000Z")


def read(data: bytes | str) -> tuple[Imported, ...]:
    raw = data.encode() if isinstance(data, str) else data
    found = detect_import_format(raw)
    assert found is not None
    return found.read(raw)


def refused(data: bytes | str) -> FlamegateError:
    with pytest.raises(FlamegateError) as caught:
        read(data)
    return caught.value


def figure(result: Imported, name: str, statistic: str) -> tuple[float, str]:
    [found] = [e for e in result.metrics if (e.name, e.statistic) == (name, statistic)]
    return found.value, found.formula


def text(name: str) -> str:
    return (DATA / name).read_text("utf-8")


def test_every_file_of_the_data_is_tried() -> None:
    assert {path.name for path in DATA.iterdir()} == {*FILES, "README.md"}


@pytest.mark.parametrize("name", FILES)
def test_one_reader_knows_each_file(name: str) -> None:
    data = (DATA / name).read_bytes()
    assert [each.name for each in FORMATS if each.recognises(data)] == [FILES[name]]


@pytest.mark.parametrize("name", FILES)
def test_what_is_read_can_be_kept_and_read_again(name: str) -> None:
    for each in read((DATA / name).read_bytes()):
        assert decode_imported(encode_imported(each, SOURCE)) == (each, SOURCE)
        assert {metric.formula for metric in each.metrics} <= MEANINGS.keys()


def test_llama_bench_tells_the_same_in_every_form() -> None:
    whole, lines, table, drawn = (
        read(text(f"llama-bench.{form}")) for form in ("json", "jsonl", "csv", "md")
    )
    for results in (whole, lines, table, drawn):
        assert [each.result for each in results] == [
            *("pp16", "tg8", "pp16-tg8", "pp16-d32", "tg8-d32", "pp16-tg8-d32"),
        ]
        assert [each.metrics[0].formula for each in results[:3]] == [
            "prompt-tokens/prefill-time",
            "n/decode-time",
            "(input-tokens+output-tokens)/duration",
        ]
        assert {(each.tool_version, each.model) for each in results} == {
            ("b1 0c1e570", "llama 256M Q4_1")
        }
    # Of a table nobody knows how many repetitions it is of; a drawn one is rounded.
    counted = [each[1].metrics[0].samples for each in (whole, lines, table, drawn)]
    assert counted == [3, 3, None, None]
    # The tool ran twice, and wrote two forms each time.
    for exact, told, within in ((lines, table, 0.0), (whole, drawn, 0.005)):
        for one, other in zip(exact, told, strict=True):
            assert other.metrics[0].value == pytest.approx(one.metrics[0].value, abs=within)
            assert other.metrics[0].stddev == pytest.approx(one.metrics[0].stddev, abs=within)


def test_each_tool_has_formulas_of_its_own() -> None:
    [vllm], [guide], [perf], [ai] = (
        read(text(name))
        for name in ("vllm-serve.json", "guidellm.json", "inference-perf.json", "aiperf.json")
    )
    tpot, itl = "time_per_output_token_ms", "inter_token_latency_ms"
    assert figure(vllm, tpot, "mean") == (25.8, "(latency-ttft)/(n-1)")
    assert figure(vllm, itl, "mean")[1] == "chunk-gap"
    assert figure(vllm, "time_to_first_token_ms", "median")[1] == "first-chunk-request"
    assert figure(guide, tpot, "mean")[1] == "latency/n, by token"
    assert figure(guide, itl, "mean")[1] == "(latency-ttft)/(n-1), by token"
    assert figure(perf, tpot, "mean")[0] == pytest.approx(50.0)
    assert figure(perf, tpot, "mean")[1] == "(latency-ttft)/(n-1)"
    assert figure(perf, itl, "median")[1] == "token-or-chunk-gap"
    assert figure(ai, itl, "median")[1] == "(latency-ttft)/(n-1)"
    assert not [each for each in ai.metrics if each.name == tpot]


def test_seconds_become_milliseconds() -> None:
    [latency] = read(text("vllm-latency.json"))
    assert figure(latency, "batch_latency_ms", "median") == (520.0, "batch-end-start")
    assert latency.metrics[0].stddev == pytest.approx(16.3)
    [guide] = read(text("guidellm.json"))
    told = json.loads(text("guidellm.json"))["benchmarks"][0]["metrics"]["request_latency"]
    assert figure(guide, "request_latency_ms", "p95")[0] == pytest.approx(
        1e3 * told["successful"]["percentiles"]["p95"]
    )


def test_thousands_are_read_and_what_is_not_told_is_not_made_up() -> None:
    [table] = read(text("genai-perf.csv"))
    assert (table.tool, table.tool_version, table.model) == ("GenAI-Perf", "", "")
    assert figure(table, "request_latency_ms", "mean")[0] == 1339.0
    [missing] = read(text("genai-perf.csv").replace("25.80", "N/A"))
    assert not [e for e in missing.metrics if e.field == "inter_token_latency.avg"]


def test_a_nought_is_left_out_by_name() -> None:
    [result] = read(text("vllm-serve.json").replace('"mean_tpot_ms": 25.8', '"mean_tpot_ms": 0.0'))
    assert [each.field for each in result.left_out] == ["mean_tpot_ms"]
    assert not [each for each in result.metrics if each.field == "mean_tpot_ms"]


def test_older_files_lack_fields() -> None:
    rows = json.loads(text("llama-bench.json"))
    for row in rows:
        for name in ("n_depth", "build_number", "samples_ts", "stddev_ts", "model_type"):
            del row[name]
    results = read(json.dumps(rows))
    assert [each.result for each in results] == [
        *("pp16", "tg8", "pp16-tg8", "pp16-2", "tg8-2", "pp16-tg8-2"),
    ]
    assert results[0].tool_version == "0c1e570"


def test_tests_of_one_name_stay_two_results() -> None:
    rows = json.loads(text("llama-bench.json"))[:1] * 2
    assert [each.result for each in read(json.dumps(rows))] == ["pp16", "pp16-2"]


@pytest.mark.parametrize(
    "names", [["a", "a", "a-2"], ["a-2", "a", "a"], ["a", "a-2", "a", "a-2"], ["a"] * 5]
)
def test_no_two_results_get_one_name(names: list[str]) -> None:
    found = unique_names(names)
    assert len(set(found)) == len(names)
    assert all(given.startswith(name) for given, name in zip(found, names, strict=True))


def test_runs_that_were_appended_are_all_read() -> None:
    run = text("vllm-serve.json")
    assert [each.result for each in read(f"{run}\n{run}")] == ["serve", "serve-2"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_may_have_other_separators_and_line_ends(delimiter: str) -> None:
    changed = text("llama-bench.csv").replace(",", delimiter).replace("\n", "\r\n")
    assert len(read(changed)) == 6


SERVE, BENCH = text("vllm-serve.json"), text("llama-bench.json")
TABLE, DRAWN = text("llama-bench.csv"), text("llama-bench.md")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (SERVE.replace('"mean_itl_ms": 25.9', '"mean_itl_ms": NaN'), "E_JSON_NUMBER"),
        (SERVE.replace('"mean_itl_ms": 25.9', '"mean_itl_ms": 1e999'), "E_JSON_NUMBER"),
        (SERVE.replace('"mean_itl_ms": 25.9', '"mean_itl_ms": "NaN"'), "E_IMPORT_MALFORMED"),
        (SERVE.replace('"mean_itl_ms": 25.9', '"mean_itl_ms": 1' + "0" * 400), "E_JSON_NUMBER"),
        (SERVE.replace('"mean_itl_ms": 25.9', '"mean_itl_ms": -25.9'), "E_IMPORT_MALFORMED"),
        (SERVE.replace('"mean_itl_ms": 25.9', '"mean_itl_ms": true'), "E_IMPORT_MALFORMED"),
        (SERVE.replace('"mean_itl_ms": 25.9', '"mean_itl_ms": "fast"'), "E_IMPORT_MALFORMED"),
        (SERVE.replace('"completed": 6', '"completed": 0'), "E_NO_RESULTS"),
        (SERVE.replace('"completed": 6', '"completed": 6.5'), "E_IMPORT_MALFORMED"),
        (SERVE.replace('"completed": 6', '"completed": 1e300'), "E_IMPORT_MALFORMED"),
        (SERVE.replace('"completed": 6', '"completed": 9007199254740993'), "E_IMPORT_MALFORMED"),
        (SERVE.replace('"completed": 6', '"completed": 6, "completed": 7'), "E_JSON_DUPLICATE_KEY"),
        (SERVE[:-40], "E_JSON_SYNTAX"),
        (f"{SERVE}\n{SERVE[:-1]}", "E_JSON_SYNTAX"),
        (
            '{"request_throughput": 0, "total_input_tokens": 0, "duration": 1, "completed": 1}',
            "E_NO_RESULTS",
        ),
        (BENCH.replace('"n_prompt": 16', '"n_prompt": 0'), "E_NO_RESULTS"),
        (BENCH[: len(BENCH) // 2], "E_JSON_SYNTAX"),
        ('["avg_ts", "n_gen", "n_prompt"]', "E_IMPORT_MALFORMED"),
        (BENCH.replace('"avg_ts": 77', '"avg_ts": 177'), "E_IMPORT_MALFORMED"),
        (TABLE[:-100], "E_IMPORT_MALFORMED"),
        (TABLE.splitlines()[0], "E_NO_RESULTS"),
        (TABLE.replace("n_ubatch,", "n_batch,", 1), "E_IMPORT_MALFORMED"),
        (DRAWN.replace("±", "+"), "E_IMPORT_MALFORMED"),
        (DRAWN.replace("tg8 |", "imagined |", 1), "E_IMPORT_MALFORMED"),
        ("\n".join(DRAWN.splitlines()[:2]), "E_NO_RESULTS"),
        (text("aiperf.json").replace('"unit": "ms"', '"unit": "sec"'), "E_IMPORT_MALFORMED"),
        (text("aiperf.json").replace('"unit": "ms"', '"unit": {}'), "E_IMPORT_MALFORMED"),
        (text("aiperf.json").replace('"unit": "ms"', '"unit": ["ms"]'), "E_IMPORT_MALFORMED"),
        ("\n".join(text("aiperf.csv").splitlines()[:30])[:-9], "E_IMPORT_MALFORMED"),
        (text("aiperf.csv").replace("Metric", '"Metric" ', 1), "E_IMPORT_MALFORMED"),
        (text("aiperf.csv").replace(",min,", ",avg,", 1), "E_IMPORT_MALFORMED"),
        (
            text("vllm-latency.json").replace('"std_latency": ', '"std_latency": 1e307, "x": '),
            "E_IMPORT_MALFORMED",
        ),
        (text("inference-perf.json").replace('"count": 4', '"count": 0'), "E_NO_RESULTS"),
        ("benchmarks:\n- config:\n    backend:\n", "E_UNKNOWN_FORMAT"),
    ],
)
def test_what_is_wrong_is_refused_by_code(data: str, code: str) -> None:
    assert refused(data).code == code


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\x00\xff", b"a;b 3\n", b"{" * 100_000])
def test_what_is_no_result_is_left_to_others(data: bytes) -> None:
    assert detect_import_format(data) is None


def test_a_huge_file_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_flamegate.receipt.imports.reading.MAX_BYTES", 500)
    assert refused(SERVE).code == "E_TOO_LARGE"
    assert refused(TABLE).code == "E_TOO_LARGE"
    monkeypatch.undo()
    row = json.dumps(json.loads(BENCH)[0])
    assert refused("[" + ",".join([row] * 1001) + "]").code == "E_TOO_LARGE"
