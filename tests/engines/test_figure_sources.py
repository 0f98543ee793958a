"""Figures in the output of programs: timing lines, llama.cpp, receipts and patterns."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.engines import figure_sources
from pytest_flamegate.engines.figure_sources import (
    LlamaCppLines,
    Pattern,
    ProgramReceipt,
    QuantDispatch,
    SourceSelection,
    Timing,
    check_pattern,
)
from pytest_flamegate.engines.figures import ProgramOutput, Source


def figures(source: Source, *lines: str) -> dict[str, float] | None:
    said = source.read(ProgramOutput(lines=lines))
    return None if said is None else dict(said.report.figures)


def kernels(*lines: str) -> dict[str, int] | None:
    said = QuantDispatch().read(ProgramOutput(lines=lines))
    return None if said is None else dict(said.report.kernels)


def error_of(source: Source, output: ProgramOutput) -> ToolError:
    with pytest.raises(ToolError) as caught:
        source.read(output)
    return caught.value


def test_phases_are_medians_of_their_lines() -> None:
    values = (1856157, 1886460, 1865375, 1)
    lines = [f"2025-01-01T00:00:00Z INFO timing: forward_us={value}" for value in values]
    last = "timing: sample_us=4 embed_us=12"
    said = Timing().read(ProgramOutput(lines=(*lines, last, "timing: on")))
    assert said is not None
    forward_us = (1856157 + 1865375) / 2
    assert said.report.figures == {"forward_us": forward_us, "sample_us": 4.0, "embed_us": 12.0}
    assert said.spent_ms == pytest.approx((sum(values) + 16) / 1e3)
    assert figures(Timing(), "embed_us=3", "timing: layers_us=3", "retiming: embed_us=1") is None


def test_kernels_are_counted_by_line_and_by_count() -> None:
    assert kernels("dequant_dispatch: kernel=x", "quant_dispatch") is None
    assert kernels(
        "quant_dispatch: tensor=blk.0.q format=GgmlQk256NoScale kernel=scalar shape=[2, 2]",
        "quant_dispatch: tensor=blk.0.k format=GgmlQk256NoScale kernel=scalar shape=[2, 2]",
        'INFO quant_dispatch kernel="i2s_gemv" count=210',
        "quant_dispatch: rms_norm x4",
        "quant_dispatch enabled by the environment",
    ) == {"scalar": 2, "i2s_gemv": 210, "rms_norm": 4}


def test_impossible_counts_of_kernels() -> None:
    wrong = [(f"quant_dispatch: kernel=x count={each}",) for each in ("-1", "1.5", "nan", 10**40)]
    for lines in (*wrong, tuple(f"quant_dispatch: kernel=k{i}" for i in range(5000))):
        assert error_of(QuantDispatch(), ProgramOutput(lines=lines)).code == "E_BAD_REPORT"


OLD = """\
llama_print_timings:        load time =     123.45 ms
llama_print_timings:      sample time =       1.23 ms /    10 runs   (    0.12 ms per token,  8130.08 tokens per second)
llama_print_timings: prompt eval time =      45.67 ms /     5 tokens (    9.13 ms per token,   109.48 tokens per second)
llama_print_timings:        eval time =     100.00 ms /     9 runs   (   11.11 ms per token,    90.00 tokens per second)
llama_print_timings:       total time =     150.00 ms /    14 tokens
"""  # noqa: E501
NEW = OLD.replace("llama_print_timings", "llama_perf_context_print")
COMMON = OLD.replace("llama_print_timings", "common_perf_print") + (
    "common_perf_print: unaccounted time =       4.04 ms /   2.7 %      "
    "(total - sampling - prompt eval - eval) / (total)\n"
    "common_perf_print:    graphs reused =          8\n"
)


@pytest.mark.parametrize("text", [OLD, NEW, COMMON], ids=["old", "new", "common"])
def test_llama_cpp_of_every_version(text: str) -> None:
    assert figures(LlamaCppLines(), *text.splitlines()) == {
        "load_ms": 123.45,
        "prefill_ms": 45.67,
        "prompt_tokens": 5.0,
        "prefill_tokens_per_second": 109.48,
        "decode_ms": 100.0,
        "decode_tokens": 9.0,
        "tokens": 10.0,
        "tokens_per_second": 90.0,
        "total_ms": 150.0,
    }


def test_rates_of_llama_cpp_that_contradict_count_and_time() -> None:
    for rate in ("900.00", "inf"):
        line = OLD.splitlines()[3].replace("90.00 tokens", f"{rate} tokens")
        error = error_of(LlamaCppLines(), ProgramOutput(lines=(line,)))
        assert error.code == "E_BAD_REPORT"
    assert "inf" in error.problem
    assert 'figures = "none"' in error.remedy


def document(**more: object) -> dict[str, Any]:
    return {
        "schema_version": "1.0.0",
        "compute_path": "real",
        "tokens_generated": 4,
        "tokens_per_second": 12.5,
        "kernels": ["i2s_gemv", "rms_norm", "i2s_gemv"],
        **more,
    }


def test_receipt_has_tokens_rate_and_kernels() -> None:
    said = ProgramReceipt().read(ProgramOutput(receipt=json.dumps(document()).encode()))
    assert said is not None
    assert said.report.figures == {"tokens": 4.0, "tokens_per_second": 12.5}
    assert said.report.kernels == {"i2s_gemv": 2, "rms_norm": 1}
    assert ProgramReceipt().read(ProgramOutput()) is None


BAD_RECEIPTS: list[Any] = [
    *(b"", b"\xff", b"[]", b"[" * 100_000, b'{"a": 1, "a": 1}'),
    b" " * (figure_sources.MAX_RECEIPT_BYTES + 1),
    *(document(schema_version="2.0.0"), document(compute_path="mock")),
    *(document(kernels=each) for each in ("i2s_gemv", [""], [3])),
    *(document(tokens_generated=each) for each in (True, "4", 10**400, 4.5)),
    *(document(tokens_per_second=each) for each in (float("inf"), float("nan"), 0.0, -1)),
]


@pytest.mark.parametrize("data", BAD_RECEIPTS, ids=range(len(BAD_RECEIPTS)))
def test_invalid_receipts(data: Any) -> None:
    receipt = data if isinstance(data, bytes) else json.dumps(data).encode()
    assert error_of(ProgramReceipt(), ProgramOutput(receipt=receipt)).code == "E_BAD_REPORT"


def test_receipt_must_be_written_in_this_run(tmp_path: Path) -> None:
    path = tmp_path / "inference.json"
    path.write_text("{}")
    assert figure_sources.read_new_file(path, None) == b"{}"
    before = figure_sources.read_file_state(path)
    assert figure_sources.read_new_file(path, before) is None
    older = tmp_path / "older.json"
    older.write_text("{ }")
    os.utime(older, ns=(1, 1))
    older.replace(path)
    assert figure_sources.read_new_file(path, before) is None
    path.unlink()
    assert figure_sources.read_new_file(path, before) is None
    os.mkfifo(path)
    for each in (path, tmp_path):
        with pytest.raises(ToolError, match="E_BAD_REPORT"):
            figure_sources.read_new_file(each, None)


RATE = r"(?P<tokens_per_second>\S+) tok/s( of (?P<tokens>\d+))?"


def test_pattern_takes_the_last_match() -> None:
    said = Pattern(RATE).read(ProgramOutput(stdout="9 tok/s", stderr="1 tok/s of 4\n2.5 tok/s\0"))
    assert said is not None
    assert (said.report.source, said.report.figures) == ("pattern", {"tokens_per_second": 2.5})
    assert Pattern(RATE).read(ProgramOutput(stdout="nothing", stderr="here")) is None
    only = Pattern(RATE).read(ProgramOutput(stdout="9 tok/s of 3"))
    assert only is not None
    assert only.report.figures == {"tokens_per_second": 9.0, "tokens": 3.0}


def test_impossible_figures_of_patterns() -> None:
    for said in ("inf", "0.0", "-3", "fast"):
        output = ProgramOutput(stderr=f"{said} tok/s")
        assert error_of(Pattern(RATE), output).code == "E_BAD_REPORT"


def test_endless_pattern_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_flamegate.engines.figure_sources.SEARCH_S", 1.0)
    forever = Pattern(r"(?P<tokens>(a+)+)$")
    assert error_of(forever, ProgramOutput(stderr="a" * 60 + "b")).code == "E_BAD_REPORT"


def test_invalid_patterns() -> None:
    for pattern, word in (
        ("(", "no regular expression"),
        ("(?P<tokens>x{99999999999})", "no regular expression"),
        ("(?P<speed>x)", "'speed'"),
        ("(x)", "no named group"),
        ("(?P<tokens>x)\0", "NUL"),
        ("(?P<tokens>x)" + "x" * 1000, "longer"),
    ):
        with pytest.raises(UsageError, match=f"E_BAD_VALUE.*{word}"):
            check_pattern(pattern)


@pytest.mark.parametrize(
    "text", ["inf tokens per second", "speed: -nan tok/s", "Generation: inf t/s", "NaN tokens/s"]
)
def test_infinite_rates_in_any_output(text: str) -> None:
    timing = SourceSelection((Timing(),))
    for output in (ProgramOutput(stdout=text), ProgramOutput(stderr=text)):
        with pytest.raises(ToolError, match="E_BAD_REPORT"):
            timing.read_all(output)
        assert SourceSelection().read_all(output) == ()
    assert timing.read_all(ProgramOutput(stdout=f"b{text[0]}x 5 tokens per second")) == ()
