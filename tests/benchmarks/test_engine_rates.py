from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from benchmarks.engine_rates import PROMPT_TOKENS, TOKENS, Rates, llama_bench, rates, sources, table
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.observe.observation import Block, Run

pytestmark = pytest.mark.measures

SAID = {"tokens": 3.0, "decode_tokens": 2.0, "decode_ms": 10.0}


def run(*reports: Report) -> Run:
    block = Block(Interval(50_000_000, 0, None), ((30_000_000, 8_000_000, 12_000_000),))
    return Run(
        role="timed",
        pid=1,
        started_ticks=None,
        started_at="",
        load_ns=None,
        blocks=(block,),
        token_digest="",
        tokens_per_sequence=3,
        peak_rss_bytes=None,
        read_bytes=None,
        threads=None,
        voluntary_switches=None,
        involuntary_switches=None,
        cpu_pressure_pct=None,
        reported=reports,
    )


def test_each_rate_goes_by_its_own_formula() -> None:
    kernels = Report("ggml:cb_eval", kernels=MappingProxyType({"MUL_MAT": 3}))
    (found,) = rates(run(kernels, Report("x", MappingProxyType(SAID))))
    assert found == Rates(all=60.0, decode=100.0, own=200.0, printed=300.0)


def test_an_engine_that_says_nothing_is_no_row() -> None:
    with pytest.raises(ValueError, match="zip"):
        rates(run())


def test_ratios_are_of_one_sequence() -> None:
    one = Rates(all=1.0, decode=100.0, own=100.0, printed=150.0)
    shown = table({"x": [one, replace(one, decode=50.0, own=49.0)], "llama-bench": [Rates(own=9)]})
    first, second = shown.rows
    assert first[5:] == ("1.0102", "2.2806", "2")
    assert second == ("llama-bench", "–", "–", "9.0", "–", "–", "–", "1")


def test_what_is_not_there_has_no_row() -> None:
    assert "llama-bench" not in sources(Path("model"), None, None)
    found = sources(Path("model"), "/bin/bench", "/bin/completion")
    assert found["llama-bench"] == "/bin/bench"
    assert "command, llama-completion" in found


def test_llama_bench_is_asked_for_the_same_tokens(tmp_path: Path) -> None:
    program = tmp_path / "bench"
    said = json.dumps([{"samples_ts": [80.0, 90.5]}])
    program.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\necho '{said}'\n")
    program.chmod(0o755)
    assert llama_bench(str(program), Path("m"), 0) == [Rates(own=80.0), Rates(own=90.5)]
    asked = (tmp_path / "asked").read_text()
    assert f"-n {TOKENS} -d {PROMPT_TOKENS} -t 1" in asked
