"""Results of other tools: each file is recognised by one reader and read by its formulas."""

import json
from pathlib import Path
from typing import Final

import pytest

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.receipt.imports import imported
from pytest_flamegate.receipt.imports.reading import FORMATS, detect_import_format
from pytest_flamegate.receipt.imports.values import unique_names
from pytest_flamegate.receipt.metrics import MEANINGS
from tests.made import metric

DATA = Path(__file__).parent / "data"
FILES = {
    "aiperf.json": "aiperf-json",
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
SOURCE = imported.ImportSource("x.json", "x", "0" * 64, "2026-03-01T12:00:00.000Z")
TPOT: Final = "time_per_output_token_ms"
TIME: Final = {"unit": "ms", "direction": "lower_is_better"}
ITL: Final = "inter_token_latency_ms"


def read(data: bytes | str) -> tuple[imported.Imported, ...]:
    raw = data.encode() if isinstance(data, str) else data
    found = detect_import_format(raw)
    assert found is not None
    return found.read(raw)


def error_code(data: bytes | str) -> str:
    with pytest.raises(FlamegateError) as caught:
        read(data)
    return caught.value.code


def figure(result: imported.Imported, name: str, statistic: str) -> tuple[float, str]:
    [found] = [e for e in result.metrics if (e.name, e.statistic) == (name, statistic)]
    return found.value, found.formula


def text(name: str) -> str:
    return (DATA / name).read_text("utf-8")


SERVE, BENCH = text("vllm-serve.json"), text("llama-bench.json")
LISTS = {"vllm-latency": "latencies", "guidellm": "benchmarks"}
NO_TESTS = ("", "+", "xx16", "pp1.5", "pp99999999999")
TABLE, MARKDOWN = text("llama-bench.csv"), text("llama-bench.md")


def test_each_file_has_one_reader_and_its_results_are_stored_as_they_were_read() -> None:
    assert {path.name for path in DATA.iterdir()} == {*FILES, "README.md"}
    for name, form in FILES.items():
        data = (DATA / name).read_bytes()
        assert [each.name for each in FORMATS if each.recognises(data)] == [form]
        for each in read(data):
            assert imported.decode_imported(imported.encode_imported(each, SOURCE)) == (
                each,
                SOURCE,
            )
            assert {metric.formula for metric in each.metrics} <= MEANINGS.keys()


@pytest.mark.parametrize(
    ("form", "value", "stddev", "samples"),
    [
        ("json", 77.652967, 9.486131, 3),
        ("jsonl", 93.36815, 0.625752, 3),
        ("csv", 93.36815, 0.625752, None),
        ("md", 77.65, 9.49, None),
    ],
)
def test_llama_bench(form: str, value: float, stddev: float, samples: int | None) -> None:
    results = read(text(f"llama-bench.{form}"))
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
    found = results[1].metrics[0]
    assert (found.value, found.stddev) == pytest.approx((value, stddev), rel=1e-5)
    assert found.samples == samples
    assert results[1].settings["backends"] == "CPU"


def test_markdown_may_stand_in_a_log_and_be_older() -> None:
    table = MARKDOWN.replace("  tg8 ", " tg 8 ").replace("± 9.49", "± 0.00").partition("build")[0]
    results = read(f"ggml_cuda_init: found 1 device\n{table}\ndone\n{table}".replace("\n", "\r\n"))
    assert [each.result for each in results[1::6]] == ["tg8", "tg8-2"]
    # Of one repetition the tool writes a spread of 0.
    assert (results[1].metrics[0].stddev, results[1].tool_version) == (None, "")


@pytest.mark.parametrize(
    ("name", "quantity", "statistic", "value", "formula"),
    [
        ("vllm-serve.json", TPOT, "mean", 25.8, "(latency-ttft)/(n-1)"),
        ("guidellm.json", TPOT, "mean", None, "latency/n, by token"),
        ("inference-perf.json", TPOT, "mean", 50.0, "(latency-ttft)/(n-1)"),
        ("aiperf.json", ITL, "median", None, "(latency-ttft)/(n-1)"),
        ("vllm-latency.json", "batch_latency_ms", "median", 520.0, "batch-end-start"),
    ],
)
def test_each_tool_has_formulas_of_its_own(
    name: str, quantity: str, statistic: str, value: float | None, formula: str
) -> None:
    [result] = read(text(name))
    found = figure(result, quantity, statistic)
    assert found[1] == formula
    assert value is None or found[0] == pytest.approx(value)


def test_seconds_become_milliseconds_and_a_zero_is_left_out() -> None:
    [latency] = read(text("vllm-latency.json"))
    assert latency.metrics[0].stddev == pytest.approx(16.3)
    [guide] = read(text("guidellm.json"))
    stated = json.loads(text("guidellm.json"))["benchmarks"][0]["metrics"]["request_latency"]
    assert figure(guide, "request_latency_ms", "p95")[0] == pytest.approx(
        1e3 * stated["successful"]["percentiles"]["p95"]
    )
    [result] = read(SERVE.replace('"mean_tpot_ms": 25.8', '"mean_tpot_ms": 0.0'))
    assert [each.field for each in result.left_out] == ["mean_tpot_ms"]
    assert not [each for each in result.metrics if each.field == "mean_tpot_ms"]


def test_older_files_lack_fields_and_results_of_one_name_are_numbered() -> None:
    rows = json.loads(BENCH)
    for row in rows:
        for name in ("n_depth", "build_number", "samples_ts", "stddev_ts", "model_type"):
            del row[name]
    results = read(json.dumps(rows))
    assert [each.result for each in results] == [
        *("pp16", "tg8", "pp16-tg8", "pp16-2", "tg8-2", "pp16-tg8-2"),
    ]
    assert results[0].tool_version == "0c1e570"
    assert [each.result for each in read(f"{SERVE}\n{SERVE}")] == ["serve", "serve-2"]


def test_no_two_results_get_one_name() -> None:
    for names in (["a", "a", "a-2"], ["a-2", "a", "a"], ["a", "a-2", "a", "a-2"], ["a"] * 5):
        found = unique_names(names)
        assert len(set(found)) == len(names)
        assert all(map(str.startswith, found, names))


def changed(name: str, before: str, after: str) -> str:
    data = text(name)
    assert before in data
    return data.replace(before, after)


def serve(field: str, before: object, after: str) -> str:
    return changed("vllm-serve.json", f'"{field}": {before}', f'"{field}": {after}')


def no_list(name: str, field: str) -> str:
    return changed(name, f'"{field}": [', f'"{field}": 1, "x": [')


MALFORMED: list[str | bytes] = [
    *(serve("mean_itl_ms", 25.9, value) for value in ('"NaN"', "-25.9", "true", '"fast"')),
    *(serve("completed", 6, value) for value in ("6.5", "1e300", "9007199254740993")),
    *(changed("aiperf.json", '"unit": "ms"', f'"unit": {u}') for u in ('"sec"', "{}", '["ms"]')),
    *(no_list(f"{name}.json", field) for name, field in LISTS.items()),
    changed("vllm-latency.json", '"std_latency": ', '"std_latency": 1e307, "x": '),
    TABLE[:-3],
    TABLE.replace("n_ubatch,", "n_batch,", 1),
    TABLE.replace("backends,", "", 1),
    TABLE.encode().replace(b"Some CPU", b"\xff"),
    *(TABLE.replace("169.629025", v) for v in ("nan", "inf", "-1.0", "1e3", "1_0", "", "9" * 400)),
    MARKDOWN.replace(" 92.10 MiB |", "", 1),
    MARKDOWN.replace("| CPU ", "| C|PU "),
    *(MARKDOWN.replace(" pp16 |", f" {test} |") for test in NO_TESTS),
]
REJECTED: dict[str, list[str | bytes]] = {
    "E_IMPORT_MALFORMED": MALFORMED,
    "E_JSON_NUMBER": [serve("mean_itl_ms", 25.9, v) for v in ("NaN", "1e999", "1" + "0" * 400)],
    "E_JSON_DUPLICATE_KEY": [serve("completed", 6, '6, "completed": 7')],
    "E_JSON_SYNTAX": [SERVE[:-40], f"{SERVE}\n{SERVE[:-1]}", BENCH[: len(BENCH) // 2]],
    "E_NO_RESULTS": [
        serve("completed", 6, "0"),
        '{"request_throughput": 0, "total_input_tokens": 0, "duration": 1, "completed": 1}',
        changed("llama-bench.json", '"n_prompt": 16', '"n_prompt": 0'),
        changed("inference-perf.json", '"count": 4', '"count": 0'),
        "\n".join(MARKDOWN.splitlines()[:2]),
    ],
}


@pytest.mark.parametrize("code", REJECTED)
def test_malformed_results_are_rejected_by_code(code: str) -> None:
    for data in REJECTED[code]:
        assert error_code(data) == code, data


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"\x00\xff", b"n_prompt,n_gen\n16,0\n", b'a"b"\n"c"d', b"{" * 100_000],
)
def test_other_files_are_not_recognised(data: bytes) -> None:
    assert detect_import_format(data) is None


def test_large_files_are_rejected_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    row = json.dumps(json.loads(BENCH)[0])
    assert error_code("[" + ",".join([row] * 1001) + "]") == "E_TOO_LARGE"
    for table in (TABLE, MARKDOWN):
        assert error_code(table + 1001 * f"{table.splitlines()[2]}\n") == "E_TOO_LARGE"
        assert error_code(table + "\n" * (4 << 20)) == "E_TOO_LARGE"
    monkeypatch.setattr("pytest_flamegate.receipt.imports.values.MAX_BYTES", 500)
    assert error_code(SERVE) == "E_TOO_LARGE"


def test_results_of_one_tool_are_compared_figure_by_figure() -> None:
    [before] = read(SERVE)
    [after] = read(
        SERVE.replace("25.8", "51.6").replace(
            '"output_throughput": 34.951', '"output_throughput": 70'
        )
    )
    compared = imported.compare_results(before.metrics, after.metrics)
    assert not compared.differing
    assert not compared.alone
    assert len(compared.pairs) == len(before.metrics)
    found = {(pair.after.name, pair.after.statistic): pair for pair in compared.pairs}
    slower = found[TPOT, "mean"]
    assert slower.change_pct == pytest.approx(100.0)
    assert slower.better is False
    assert found["output_tokens_per_second", "total"].better is True
    assert found[TPOT, "median"].better is None


def test_our_own_figures_are_medians_of_the_wall_clock() -> None:
    ours = imported.convert_metrics(
        [
            metric(TPOT, 20.0, formula="(latency-ttft)/(n-1)", **TIME),
            metric("inter_token_latency_p95_ms", 20.0, formula="token-gap-p95", **TIME),
            metric("cpu_s_per_token", clock="cpu"),
            metric("load_ms", 0.0, formula="ready-start", **TIME),
        ]
    )
    assert [(each.name, each.statistic, each.formula) for each in ours] == [
        (TPOT, "median", "(latency-ttft)/(n-1)"),
        (ITL, "p95", "token-gap"),
    ]
    compared = imported.compare_results(ours, read(SERVE)[0].metrics)
    assert [pair.change_pct for pair in compared.pairs] == [pytest.approx(33.5)]
