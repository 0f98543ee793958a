"""Bricks that were not clocked, or not so: a call or a token looks cheaper."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from pytest_flamegate.bricks.record import find_bucket, find_category
from tests.receipt.forgeries.book import ALL, EMBEDDED, SERVED, Book
from tests.receipt.forgeries.draft import Draft

BOOK = Book("bricks")

_LAYERS = 2
_PROMPT = 5
_IN_LAYERS = (
    *("AttentionBlock", "QkvProjection", "RopeEmbedding", "AttentionScore", "OutputProjection"),
    *("FeedForward", "GateUpProjection", "Activation", "DownProjection"),
)
_FOUR_TIMES = ("RmsNorm", "Quantize")
_OUTPUT = ("RmsNorm", "LmHead", "Sampling")


def clock(draft: Draft, source: Random, factor: float = 1.0) -> list[dict[str, Any]]:
    """Make runs for their bricks of two timed ones, whole and consistent; return the passes.

    Each brick takes ``factor`` times what fits.
    """
    passes = []
    for run in draft.timed[-2:]:
        run["role"] = "bricks"
        for block in run["blocks"]:
            block["reference"] = None
        passes.append(clocked(run, draft.evidence["workload"]["max_tokens"], source, factor))
    draft.evidence["bricks"] = passes
    draft.retime().recount()
    return passes


def clocked(run: dict[str, Any], max_tokens: int, source: Random, factor: float) -> dict[str, Any]:
    """Return a pass of ``run``, with as many calls as the embedded engine makes."""
    lengths = [len(gaps) for block in run["blocks"] for gaps in block["sequences_ns"]]
    wall_ns = sum(block["interval"]["wall_ns"] for block in run["blocks"]) * 99 // 100
    steps = sum(length + (length < max_tokens) for length in lengths) - len(lengths)
    wanted: Counter[tuple[str, str, int | None]] = Counter()
    for phase, times, forwarded in (
        ("prefill", len(lengths), _PROMPT * len(lengths)),
        ("decode", steps, steps),
    ):
        wanted |= {("Embedding", phase, None): forwarded}
        wanted |= {(name, phase, None): times for name in _OUTPUT}
        for layer in range(_LAYERS):
            wanted |= {(name, phase, layer): forwarded for name in _IN_LAYERS}
            wanted |= {(name, phase, layer): 4 * forwarded for name in _FOUR_TIMES}
    each_ns = int(wall_ns / max(wanted.total(), 1) * 0.95 * factor)
    totals = [_totals(*key, calls, each_ns, source) for key, calls in wanted.items() if calls]
    return {
        "pid": run["pid"],
        "started_ticks": run["started_ticks"],
        "sequences": len(lengths),
        "tokens": sum(lengths),
        "decode_tokens": sum(lengths) - len(lengths),
        "wall_ns": wall_ns,
        "sync": "none",
        "totals": totals,
        "lanes": [{"name": "MainThread", **_sums(totals)}],
        "unended": 0,
    }


def _sums(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {name: sum(row[name] for row in rows) for name in ("self_ns", "calls")}


def _totals(
    name: str, phase: str, layer: int | None, calls: int, each_ns: int, source: Random
) -> dict[str, Any]:
    took_ns = [source.randint(each_ns * 19 // 20, each_ns) for _ in range(calls)]
    return {
        "name": name,
        "category": find_category(name),
        "calls": calls,
        "total_ns": sum(took_ns),
        "self_ns": sum(took_ns),
        "min_ns": min(took_ns),
        "max_ns": max(took_ns),
        "layer": layer,
        "phase": phase,
        "durations": {str(k): n for k, n in Counter(map(find_bucket, took_ns)).items()},
    }


@BOOK.refused("E_BRICKS", of=ALL)
def bricks_of_another_run(draft: Draft, source: Random) -> None:
    """Records the bricks of a process that was timed, of none at all, or of the best run alone."""
    passes = clock(draft, source)
    ways: list[Callable[[], object]] = [
        lambda: passes.pop(),
        lambda: passes.append(dict(passes[0])),
        lambda: passes[0].update(pid=passes[0]["pid"] + 10_000),
        lambda: passes[0].update(
            pid=draft.timed[0]["pid"], started_ticks=draft.timed[0]["started_ticks"]
        ),
    ]
    source.choice(ways)()


@BOOK.refused("E_BRICKS", of=SERVED)
def bricks_longer_than_their_run(draft: Draft, source: Random) -> None:
    """Makes the bricks of the baseline longer, so that those of the change look short."""
    factor = source.uniform(2, 30)
    for each in clock(draft, source, factor):
        if source.random() < 0.5:
            each["wall_ns"] = int(each["wall_ns"] * factor)


@BOOK.refused("E_BRICKS", of=EMBEDDED)
def brick_made_cheaper(draft: Draft, source: Random) -> None:
    """Writes a smaller sum for a brick, or fewer slow calls, and leaves the rest as it was."""
    each = source.choice(clock(draft, source))
    row = source.choice(each["totals"])
    ways: list[Callable[[], object]] = [
        lambda: row.update(total_ns=row["total_ns"] // 2),
        lambda: row.update(self_ns=row["self_ns"] // 2),
        lambda: row.update(calls=row["calls"] + source.randint(1, 9)),
        lambda: row.update(max_ns=row["max_ns"] * 2, total_ns=row["total_ns"]),
        lambda: row["durations"].update({"1": 1}),
        lambda: row["durations"].update({"-1": 1}),
        lambda: row.update(durations={}),
        lambda: each["totals"].remove(row),
    ]
    source.choice(ways)()


@BOOK.refused("E_BRICKS", of=SERVED)
def cheap_calls_under_another_name(draft: Draft, source: Random) -> None:
    """Adds calls that took nothing to a brick, by an alias of it or by telling it twice."""
    name = source.choice(["Head", "Qkv", "LmHead"])
    for each in clock(draft, source):
        each["totals"].append(_totals(name, "prefill", None, source.randint(5, 99), 40, source))
        each["lanes"][0] |= _sums(each["totals"])


@BOOK.refused("E_BRICKS", of=SERVED)
def deferred_told_as_measured(draft: Draft, source: Random) -> None:
    """Says of times that were derived that they were measured, so that they are gated."""
    sync = source.choice(["deferred", "per_layer"])
    for each in clock(draft, source):
        each["sync"] = sync


@BOOK.refused("E_BRICKS", of=("callable",))
def mean_of_a_brick_made_dearer(draft: Draft, source: Random) -> None:
    """Doubles the time of all calls of a baseline's brick and of its thread, not of each call."""
    each = source.choice(clock(draft, source))
    row = source.choice(each["totals"])
    row["total_ns"] *= 2
    row["self_ns"] *= 2
    each["lanes"][0]["self_ns"] += row["self_ns"] // 2


@BOOK.refused("E_BRICKS", of=SERVED)
def tokens_more_than_clocked(draft: Draft, source: Random) -> None:
    """Counts more tokens than were generated, so that each cost less."""
    for each in clock(draft, source):
        more = source.randint(1, 9) * each["sequences"]
        each["tokens"] += more
        each["decode_tokens"] += more


@BOOK.refused("E_BRICKS", of=EMBEDDED)
def calls_more_than_made(draft: Draft, source: Random) -> None:
    """Cuts each call of a brick in two, so that one costs half; or leaves a brick out."""
    for each in clock(draft, source):
        name = source.choice([*_OUTPUT, *_IN_LAYERS, *_FOUR_TIMES])
        out = source.random() < 0.3
        rows = [row for row in each["totals"] if row["name"] == name]
        if source.random() < 0.3:
            # Where none of it runs.
            each["totals"].append(_totals(name, "", None, source.randint(5, 99), 40, source))
            rows = []
        for row in rows:
            each["totals"].remove(row)
            if not out:
                half_ns = row["total_ns"] // row["calls"] // 2
                where = (row["name"], row["phase"], row["layer"])
                each["totals"].append(_totals(*where, 2 * row["calls"], half_ns, source))
        each["lanes"][0] |= _sums(each["totals"])


@BOOK.passes(
    "A run that CI starts; the profile of the same run, whose shares would differ.", of=SERVED
)
def bricks_made_up(draft: Draft, source: Random) -> None:
    """Writes bricks that were never clocked, whose times and calls all agree."""
    clock(draft, source)
