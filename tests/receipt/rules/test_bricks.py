"""Brick runs: odd records are rejected by code, and never make the verifier fail."""

from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import repeat
from random import Random
from typing import Any

import pytest

from pytest_flamegate.bricks import BrickProfiler, brick
from pytest_flamegate.core.json import decode_plain, encode_plain, replace
from pytest_flamegate.receipt.metrics import overhead_pct, rate_of
from pytest_flamegate.receipt.types import Evidence
from tests.receipt.forgeries.book import verify
from tests.receipt.forgeries.bricks import clock
from tests.receipt.forgeries.draft import Draft, load

NAME = "embedded-10tok"


def clocked() -> tuple[Draft, list[dict[str, Any]]]:
    draft = load(NAME)
    return draft, clock(draft, Random(7))


def codes(draft: Draft) -> set[str]:
    return {each.code for each in verify(draft.reseal().files()).refusals}


def messages(draft: Draft) -> list[str]:
    return [each.message for each in verify(draft.reseal().files()).refusals]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each dict or list below ``value`` with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


@pytest.mark.parametrize(
    "odd",
    [0, -1, 2**63, 10**60, 1.5, None, "", "x", [], {}, [None]],
    ids=repr,
)
def test_an_odd_value_anywhere_never_makes_the_verifier_fail(odd: Any) -> None:
    _, passes = clocked()
    source = Random(repr(odd))
    for _ in range(12):
        draft, _ = clocked()
        changed = deepcopy(passes)
        where, key = source.choice(list(places(changed)))
        where[key] = odd
        draft.evidence["bricks"] = changed
        assert "E_INTERNAL" not in codes(draft)


ODD: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    (
        "has a layer 1000000000000000000, but only 2 layers",
        lambda it: [row.update(layer=10**18) for row in it["totals"] if row["layer"]],
    ),
    ('has a duration called "999', lambda it: it["totals"][0].update(durations={"9" * 4000: 1})),
    ("phase", lambda it: it["totals"][0].update(phase="x")),
    ('Embedding" as FFN, not ', lambda it: it["totals"][0].update(category="FFN")),
    ("cannot be ingested", lambda it: it["totals"][0].update(provenance="ingested")),
    ("is listed twice in one layer of", lambda it: it["totals"].append(dict(it["totals"][0]))),
    ('Qkv", an alias of QkvProjection', lambda it: it["totals"][0].update(name="Qkv")),
    ("calls, but durations of", lambda it: it["totals"][0].update(calls=7)),
    ("or longest call outside its durations", lambda it: it["totals"][0].update(min_ns=1)),
    (" ns, but its calls add up to ", lambda it: it["totals"][0].update(total_ns=10**12)),
    (
        " ns, but its calls add up to ",
        lambda it: it["totals"][0].update(total_ns=10**4, self_ns=0, typical_ns=None),
    ),
    (
        "has typical calls of",
        lambda it: it["totals"][0].update(typical_ns=it["totals"][0]["self_ns"] + 1),
    ),
    ("threads have 0 self_ns, bricks ", lambda it: it.update(lanes=[])),
    ("but recorded no bricks", lambda it: it.update(totals=[], lanes=[])),
]


@pytest.mark.parametrize(("words", "spoil"), ODD)
def test_an_odd_record_is_rejected(words: str, spoil: Callable[[dict[str, Any]], object]) -> None:
    draft, passes = clocked()
    spoil(passes[0])
    assert words in " ".join(messages(draft))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (((10, 10, 4), (0, 5, 4)), "took 10 ns; its own time is 15 ns, its longest call 4 ns."),
        (((10, 1, 12), (1, 3, 3)), "took 11 ns; its own time is 4 ns, its longest call 12 ns."),
        (((10, 8, 9), (5, 7, 15)), None),
    ],
)
def test_calls_take_no_less_than_their_own_time_or_the_longest_of_them(
    rows: tuple[tuple[int, int, int], ...], message: str | None
) -> None:
    """Of all layers and phases together."""
    draft = load("callable")
    one, *_ = clock(draft, Random(7))
    (name, _), *_ = Counter(row["name"] for row in one["totals"]).most_common()
    of_name = [row for row in one["totals"] if row["name"] == name]
    for row, figures in zip(of_name, [*rows, *repeat((0, 0, 0), len(of_name) - 2)], strict=True):
        row.update(zip(("total_ns", "self_ns", "max_ns"), figures, strict=True))
    start = f'All calls of the brick "{name}" in process {one["pid"]} '
    found = [each.removeprefix(start) for each in messages(draft) if each.startswith(start)]
    assert found == ([message] if message else [])


def test_each_brick_run_has_its_record_and_no_other_run_has_one() -> None:
    draft, passes = clocked()
    draft.evidence["bricks"] = []
    pid = passes[0]["pid"]
    assert messages(draft)[0] == f"Process {pid} has a brick run, but no record of bricks."
    draft, _ = clocked()
    draft.evidence["runs"] = [run for run in draft.runs if run["role"] != "bricks"]
    assert f"Process {pid} has a record of bricks, but no brick run." in messages(draft)


def test_a_program_cannot_have_a_record_of_bricks() -> None:
    draft = load("program")
    clock(draft, Random(7))
    assert "E_BRICKS" in codes(draft)


def test_a_brick_nested_in_itself_in_another_layer_and_phase_is_accepted() -> None:
    with BrickProfiler() as profiler:
        profiler.phase = "prefill"
        for _ in range(3):
            with brick("Block", layer=0), brick("Block", layer=1):
                profiler.phase = "decode"
                with brick("Block", layer=0):
                    sum(range(1000))
    told = encode_plain(profiler.recorded())
    assert 0 in [row["total_ns"] for row in told["totals"]]
    draft = load("callable")
    for each in clock(draft, Random(7)):
        each |= {name: told[name] for name in ("totals", "lanes")}
    assert codes(draft) == set()


def test_brick_runs_change_neither_rate_nor_overhead() -> None:
    draft, _ = clocked()
    assert codes(draft) == set()
    seen = decode_plain(draft.evidence, Evidence)
    others = tuple(run for run in seen.runs if run.role != "bricks")
    assert len(others) < len(seen.runs)
    assert rate_of(seen.runs) == rate_of(others)
    scope = seen.clock_scope
    assert overhead_pct(seen.runs, scope) == overhead_pct(others, scope)
    alone = tuple(replace(run, role="bricks") for run in seen.runs)
    assert rate_of(alone) is None
