"""Forged figures: rates, latencies and phases, in the receipt and among the metrics."""

from random import Random

from tests.receipt.forgeries.book import EMBEDDED, LONG, Book
from tests.receipt.forgeries.draft import EVIDENCE, Draft, Files, encode

BOOK = Book("figures")


def flattered(draft: Draft, source: Random, least: float = 1.03, most: float = 40.0) -> float:
    """Raise the claimed rate; return the factor."""
    factor = source.uniform(least, most)
    draft.receipt["tokens_per_second"] *= factor
    return factor


def state_performance(draft: Draft) -> dict[str, float]:
    """Return the performance of the run as other tools write it beside the receipt."""
    tokens = draft.receipt["tokens_generated"]
    total_ms = 1e3 * tokens / draft.receipt["tokens_per_second"]
    first_ms = total_ms * 2 / (tokens + 1)
    rest_ms = (total_ms - first_ms) / max(1, tokens - 1)
    found = {
        "tokens_generated": tokens,
        "tokens_per_second": draft.receipt["tokens_per_second"],
        "total_time_ms": total_ms,
        "first_token_latency_ms": first_ms,
        "average_token_latency_ms": rest_ms,
    }
    draft.receipt["performance_baseline"] = found
    return found


@BOOK.refused("E_TPS_MISMATCH")
def rate_edited(draft: Draft, source: Random) -> None:
    """Raises the claimed rate and seals the receipt again; no reader will divide."""
    flattered(draft, source)


@BOOK.refused("E_TPS_MISMATCH")
def rate_and_metrics_edited(draft: Draft, source: Random) -> None:
    """Raises the rate in the receipt and every figure of the evidence; the times stay."""
    factor = flattered(draft, source)
    for metric in draft.evidence["metrics"]:
        better = metric["direction"] == "higher_is_better"
        metric["value"] *= factor if better else 1 / factor


@BOOK.refused("E_TPS_MISMATCH")
def rate_lowered(draft: Draft, source: Random) -> None:
    """Lowers the rate of the coming baseline, so that all that follows improves."""
    draft.receipt["tokens_per_second"] /= source.uniform(1.02, 10)


@BOOK.refused("E_TPS_MISMATCH")
def best_run_for_all(draft: Draft, source: Random) -> None:
    """Claims the rate of the fastest sequence as that of all."""
    fastest = min(
        sum(gaps) / len(gaps)
        for run in draft.timed
        for block in run["blocks"]
        for gaps in block["sequences_ns"]
        if sum(gaps)
    )
    rate = 1e9 / fastest * source.uniform(0.998, 1.0)
    draft.receipt["tokens_per_second"] = max(rate, 1.02 * draft.receipt["tokens_per_second"])


@BOOK.refused("E_TPS", then="alone")
def beyond_machines(draft: Draft, source: Random) -> None:
    """Claims more than a token a microsecond, by a slip of units, with no evidence beside it."""
    draft.receipt["tokens_per_second"] = 10 ** source.uniform(6.01, 15)


@BOOK.refused("E_TPS", then="alone")
def rate_that_is_none(draft: Draft, source: Random) -> None:
    """Puts zero, less, or text where the rate stands, so that a comparison goes astray."""
    rate = source.uniform(1, 1e4)
    draft.receipt["tokens_per_second"] = source.choice(
        [0, 0.0, -rate, -1, f"{rate:.1f}", True, None, [rate], {"value": rate}]
    )


@BOOK.refused("E_FIGURES_CONTRADICT", then="alone")
def two_rates(draft: Draft, source: Random) -> None:
    """Raises the rate on top and forgets the one in performance_baseline."""
    stated = state_performance(draft)["tokens_per_second"]
    flattered(draft, source)
    draft.receipt["performance_baseline"] = {"tokens_per_second": stated}


@BOOK.refused("E_FIGURES_CONTRADICT", then="alone")
def rate_without_its_time(draft: Draft, source: Random) -> None:
    """Raises both rates and forgets the total time."""
    stated = state_performance(draft)
    factor = flattered(draft, source, least=1.05)
    stated["tokens_per_second"] *= factor
    for name in ("first_token_latency_ms", "average_token_latency_ms"):
        del stated[name]


@BOOK.refused("E_FIGURES_CONTRADICT", then="alone")
def rate_of_other_tokens(draft: Draft, source: Random) -> None:
    """States the count of a longer run beside this one's rate."""
    stated = state_performance(draft)
    draft.receipt["performance_baseline"] = {
        "tokens_generated": stated["tokens_generated"] + source.randint(1, 500)
    }


@BOOK.refused("E_FIGURES_CONTRADICT", of=LONG, then="alone")
def latencies_that_do_not_add_up(draft: Draft, source: Random) -> None:
    """Shortens the average latency that readers look at, and leaves the total."""
    stated = state_performance(draft)
    stated["average_token_latency_ms"] /= source.uniform(1.5, 30)


@BOOK.refused("E_FIGURES_CONTRADICT", then="alone")
def first_token_after_the_last(draft: Draft, source: Random) -> None:
    """Takes the total of a faster run and keeps the first token of the slow one."""
    stated = state_performance(draft)
    stated["first_token_latency_ms"] = stated["total_time_ms"] * source.uniform(1.1, 20)
    del stated["average_token_latency_ms"]


@BOOK.refused("E_FIGURES_CONTRADICT", then="alone")
def phases_longer_than_the_whole(draft: Draft, source: Random) -> None:
    """Pastes the phases of a slow run below the total of a fast one."""
    total_s = source.uniform(0.05, 30)
    part = source.uniform(0.1, 0.9)
    summed_s = total_s * source.uniform(1.05, 10)
    draft.receipt["timing"] = {
        "prefill_ms": 1e3 * summed_s * part,
        source.choice(["decode_us", "decode_time_us"]): 1e6 * summed_s * (1 - part),
        "total_s": total_s,
    }


@BOOK.refused("E_FIGURES_CONTRADICT", then="alone")
def time_below_zero(draft: Draft, source: Random) -> None:
    """States a latency below zero, which every threshold lets through."""
    name = source.choice(["first_token_latency_ms", "decode_ns", "prefill_s", "ttft_us"])
    draft.receipt["latency"] = {name: -source.uniform(0.001, 500)}


@BOOK.refused("E_EVIDENCE_SCHEMA", "E_JSON_NUMBER")
def metric_that_is_no_number(draft: Draft, source: Random) -> Files:
    """Makes a metric infinite or text, so that no comparison with it can fail."""
    metric = source.choice(draft.evidence["metrics"])
    metric["value"] = source.choice([float("inf"), float("nan"), "fast", None])
    return {**draft.reseal().files(), EVIDENCE: encode(draft.evidence)}


@BOOK.refused("E_METRIC_MISMATCH")
def metric_edited(draft: Draft, source: Random) -> None:
    """Edits one figure of the evidence that the gate judges, and leaves the rate alone."""
    metric = source.choice(
        [m for m in draft.evidence["metrics"] if m["name"] != "tokens_per_second" and m["value"]]
    )
    metric["value"] *= source.choice([source.uniform(0.1, 0.95), source.uniform(1.06, 9)])


@BOOK.refused("E_METRIC_MISMATCH")
def metric_turned_round(draft: Draft, source: Random) -> None:
    """Turns the direction of a figure round, so that worse reads as better."""
    turned = {"higher_is_better": "lower_is_better", "lower_is_better": "higher_is_better"}
    metric = source.choice(draft.evidence["metrics"])
    metric["direction"] = turned[metric["direction"]]


@BOOK.lowered("W_EVIDENCE_INCOMPLETE")
def metric_left_out(draft: Draft, source: Random) -> None:
    """Leaves out the figure that got worse."""
    # A profile's costs follow from the CPU time, and no run tells the length of the prompt.
    needed = ("prefill_tokens_per_second", "cpu_s_per_token", "process_cpu_s_per_token")
    listed = [m for m in draft.evidence["metrics"] if m["name"] not in needed]
    draft.evidence["metrics"].remove(source.choice(listed))


@BOOK.passes("The engine's own tokenizer: no run tells how long its prompt was.", of=EMBEDDED)
def prefill_left_out(draft: Draft, source: Random) -> None:
    """Leaves out the one figure that needs the length of the prompt."""
    draft.evidence["metrics"].remove(draft.metric("prefill_tokens_per_second"))


@BOOK.refused("E_METRIC_MISMATCH", of=LONG)
def overhead_edited(draft: Draft, source: Random) -> None:
    """Writes a small overhead of profiling over a large one."""
    draft.profile["overhead_pct"] = draft.profile["overhead_pct"] + source.uniform(20, 300)
