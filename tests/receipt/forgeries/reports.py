"""Forged words of the engine about itself: figures and kernels that were not observed."""

from collections.abc import Mapping
from random import Random
from typing import Any

from pytest_flamegate.core.json import decode_plain, encode_plain
from pytest_flamegate.receipt.reported import engine_kernels
from pytest_flamegate.receipt.types import Evidence
from tests.receipt.forgeries.book import LONG, Book
from tests.receipt.forgeries.draft import Draft

BOOK = Book("reports")
SOURCE = "llama.cpp:perf"


def report_all(draft: Draft, source: Random) -> list[dict[str, Any]]:
    """Let the engine report on every timed sequence, honestly; return its reports."""
    counted = source.choice([-1, 0, 1])
    digits = source.choice([2, 3, 6])
    reports = []
    for run in draft.timed:
        run["reported"] = [
            _report([gap / 1e6 for gap in gaps], counted, digits)
            for block in run["blocks"]
            for gaps in block["sequences_ns"]
        ]
        reports += run["reported"]
    return reports


def _report(gaps_ms: list[float], counted: int, digits: int) -> dict[str, Any]:
    decode_ms = round(sum(gaps_ms[1:]), digits)
    prefill_ms = round(gaps_ms[0], digits)
    figures = {
        "tokens": float(len(gaps_ms) + counted),
        "prompt_tokens": 5.0,
        "prefill_ms": prefill_ms,
        "decode_ms": decode_ms,
        "total_ms": round(prefill_ms + decode_ms, digits),
    }
    if decode_ms > 0:
        figures["tokens_per_second"] = 1e3 * figures["tokens"] / decode_ms
    return {"source": SOURCE, "figures": figures, "kernels": {}}


def by_word(draft: Draft, kernels: Mapping[str, int]) -> Draft:
    """Let the engine's report of one run name ``kernels``, and the evidence with it."""
    run = draft.runs[0]
    run["reported"] = [{"source": SOURCE, "figures": {}, "kernels": dict(kernels)}]
    draft.evidence["kernels"] += [
        {"name": name, "source": "engine", "count": count, "told_by": SOURCE}
        for name, count in kernels.items()
    ]
    return draft


@BOOK.refused("E_METRIC_MISMATCH")
def figure_of_nobody(draft: Draft, source: Random) -> None:
    """Adds a figure as the engine's own, which no report gives."""
    name = source.choice(["engine_decode_tokens_per_second", "engine_tokens_per_second"])
    provenance = source.choice(["ingested", "derived", "measured"])
    formula = f"{SOURCE}:tokens_per_second/median"
    own = {"name": name, "formula": formula, "provenance": provenance}
    draft.evidence["metrics"].append(draft.metric("tokens_per_second") | own)


@BOOK.refused("E_METRIC_MISMATCH")
def figure_unlike_its_reports(draft: Draft, source: Random) -> None:
    """Raises the engine's own rate, and leaves its reports as they were."""
    report_all(draft, source)
    draft.retime()
    draft.metric("engine_prefill_tokens_per_second")["value"] *= source.uniform(1.01, 3)


@BOOK.lowered("W_EVIDENCE_INCOMPLETE")
def figure_left_out(draft: Draft, source: Random) -> None:
    """Leaves out a figure of the engine's, which shows something slower."""
    report_all(draft, source)
    draft.retime()
    gone = source.choice(["engine_total_ms", "engine_prefill_ms"])
    draft.evidence["metrics"] = [m for m in draft.evidence["metrics"] if m["name"] != gone]


@BOOK.refused("E_REPORT_CONTRADICTION", of=LONG, then="retime")
def more_tokens_by_its_own_word(draft: Draft, source: Random) -> None:
    """Lets the engine count more tokens than came, and its rate follow."""
    for report in report_all(draft, source):
        figures = report["figures"]
        figures["tokens"] += source.randint(3, 50) + 0.5 * source.choice([0, 1])
        del figures["tokens_per_second"]


@BOOK.refused("E_REPORT_CONTRADICTION", then="retime")
def longer_than_its_run(draft: Draft, source: Random) -> None:
    """Lets the engine report more time than its whole run took."""
    report_all(draft, source)
    name = source.choice(["prefill_ms", "decode_ms", "total_ms", "load_ms", "forward_us"])
    run = source.choice(draft.timed)
    wall_ms = sum(block["interval"]["wall_ns"] for block in run["blocks"]) / 1e6
    longer_ms = (wall_ms + (run["load_ns"] or 0) / 1e6) * source.uniform(1.2, 9) + 50
    report = source.choice(run["reported"])
    # No rate, so that nothing within the report contradicts the time.
    report["figures"].pop("tokens_per_second", None)
    report["figures"][name] = longer_ms * (1e3 if name == "forward_us" else 1)


@BOOK.refused("E_REPORT_CONTRADICTION", of=LONG, then="retime")
def rate_of_no_time(draft: Draft, source: Random) -> None:
    """Raises the rate in every report, and the figure made of them with it."""
    factor = source.uniform(2, 20)
    for report in report_all(draft, source):
        report["figures"]["tokens_per_second"] *= factor


@BOOK.refused("E_REPORT_CONTRADICTION", then="retime")
def prefill_of_no_time(draft: Draft, source: Random) -> None:
    """Reports a prefill faster than its prompt and its time give."""
    for report in report_all(draft, source):
        figures = report["figures"]
        rate = 1e3 * figures["prompt_tokens"] / max(figures["prefill_ms"], 1e-3)
        figures["prefill_tokens_per_second"] = rate * source.uniform(3, 30)


@BOOK.refused("E_KERNEL_UNSEEN")
def hearsay_of_nobody(draft: Draft, source: Random) -> None:
    """Adds a kernel by the word of an engine that never said so, and claims nothing by it."""
    sighting = {"name": f"tl2_gemm_{source.randrange(1000)}", "source": "engine", "count": 9}
    sighting["told_by"] = source.choice(["", SOURCE, "timing-lines"])
    draft.evidence["kernels"].append(sighting)


@BOOK.refused("E_KERNEL_UNSEEN")
def hearsay_multiplied(draft: Draft, source: Random) -> None:
    """Says that a kernel ran more often than the engine does."""
    by_word(draft, {"i2s_gemv": source.randint(1, 500)})
    draft.evidence["kernels"][-1]["count"] *= source.randint(2, 100)


@BOOK.refused("E_KERNEL_UNSEEN")
def hearsay_left_out(draft: Draft, source: Random) -> None:
    """Keeps quiet about a fallback that the engine itself reports."""
    by_word(draft, {f"fp32_matmul_{source.randrange(1000)}": source.randint(1, 500)})
    draft.evidence["kernels"].pop()


@BOOK.refused("E_MOCK_KERNEL")
def mock_not_claimed(draft: Draft, source: Random) -> None:
    """Leaves the mock that the engine reports out of the receipt, or makes it no name."""
    name = source.choice(["mock_gemv", "gemv_Mock", "MOCK\u200b", f"mock{'x' * 200}"])
    draft.runs[0]["reported"] = [
        {"source": SOURCE, "figures": {}, "kernels": {name: source.randint(1, 900)}}
    ]
    reports = engine_kernels(decode_plain(draft.evidence, Evidence).runs, ())
    draft.evidence["kernels"] += map(encode_plain, reports)


@BOOK.refused("E_EVIDENCE_SCHEMA", "E_JSON_NUMBER")
def figure_that_is_none(draft: Draft, source: Random) -> None:
    """Reports a negative time, or one that is no number."""
    report = source.choice(report_all(draft, source))
    report["figures"]["decode_ms"] = source.choice([-1.0, -0.001, "81", None, True, float("inf")])


@BOOK.passes(
    "Nothing: the engine's word is shown as its own, and never gated.", of=LONG, then="retime"
)
def faster_by_its_own_word(draft: Draft, source: Random) -> None:
    """Lets the engine report half the time that its tokens took."""
    for report in report_all(draft, source):
        figures = report["figures"]
        figures["decode_ms"] = round(figures["decode_ms"] / 2, 6)
        figures["total_ms"] = round(figures["prefill_ms"] + figures["decode_ms"], 6)
        figures["tokens_per_second"] = 1e3 * figures["tokens"] / figures["decode_ms"]
