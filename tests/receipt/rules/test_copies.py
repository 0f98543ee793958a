"""Copies of runs that no forgery contains are found too, and honest runs never are."""

import random

import pytest

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.json import replace
from pytest_flamegate.observe.observation import Block, Run
from pytest_flamegate.receipt.rules.runs import find_repetitions
from tests import made


def run(
    source: random.Random,
    *,
    length: int = 10,
    sequences: int = 3,
    mean_ns: float = 3e6,
    jitter: float = 0.05,
    step_ns: int = 1,
    at_once: float = 0.0,
) -> Run:
    """A run whose gaps vary by ``jitter`` and were read on a clock of ``step_ns``."""

    def ticked(nanoseconds: float) -> int:
        return round(nanoseconds / step_ns) * step_ns

    def gap(scale: float = 1.0) -> int:
        if source.random() < at_once:
            return ticked(source.uniform(0, 2000))
        return ticked(max(0.0, scale * mean_ns * source.gauss(1, jitter)))

    def block() -> Block:
        taken = tuple((gap(3), *(gap() for _ in range(length - 1))) for _ in range(sequences))
        wall_ns = sum(map(sum, taken)) + ticked(source.uniform(1e4, 1e5))
        return Block(Interval(wall_ns, ticked(wall_ns * source.uniform(0.9, 1)), 0), taken)

    load_ns = ticked(source.gauss(30e6, 1e6))
    return made.run(load_ns=load_ns, blocks=(block(), block(), block()))


def with_clocks_of(one: Run, other: Run, factor: float = 1.0, more_ns: int = 0) -> Run:
    """The clocks of ``one``, and the token times of ``other``, scaled and shifted."""
    blocks = []
    for each, again in zip(one.blocks, other.blocks, strict=True):
        sequences = (tuple(round(g * factor) + more_ns for g in s) for s in again.sequences_ns)
        blocks.append(replace(each, sequences_ns=tuple(sequences)))
    return replace(one, blocks=tuple(blocks))


def found_pairs(runs: list[Run]) -> list[tuple[int, int]]:
    return [(each.one, each.other) for each in find_repetitions(runs)]


@pytest.mark.parametrize("length", [1, 10, 64])
def test_a_copy_of_a_run_is_found(length: int) -> None:
    source = random.Random(length)
    runs = [run(source, length=length, sequences=5) for _ in range(5)]
    other = run(source, length=length, sequences=5)
    assert found_pairs([*runs, other]) == []
    # Sequences of one token are compared by block, in their order.
    turned = tuple(
        replace(block, sequences_ns=block.sequences_ns[:: 1 if length == 1 else -1])
        for block in runs[1].blocks[::-1]
    )
    shifted = with_clocks_of(other, runs[1], more_ns=1234)
    scaled = with_clocks_of(other, runs[1], factor=1.013)
    for copy, times in (
        (replace(runs[1], blocks=turned), "the times of a sequence of tokens"),
        (with_clocks_of(runs[1], other), "the times of their processes"),
        (shifted, "the differences between token times"),
        (scaled, "the proportions of their sequences"),
    ):
        assert [*find_repetitions([*runs, copy])] == [(1, 5, times)]
        assert [*find_repetitions([copy, *runs])] == [(0, 2, times)]
    # No figure comes from other runs.
    for copy in (shifted, scaled):
        assert found_pairs([*runs, replace(copy, role="profiled")]) == []


def test_a_run_that_repeats_one_sequence_is_found() -> None:
    source = random.Random(1)
    runs = [run(source, length=32) for _ in range(3)]
    block = runs[2].blocks[0]
    repeated = replace(block, sequences_ns=(block.sequences_ns[0],) * 3)
    runs[2] = replace(runs[2], blocks=(repeated, *runs[2].blocks[1:]))
    assert set(found_pairs(runs)) == {(2, 2)}


@pytest.mark.parametrize(("length", "at_once"), [(1, 0.0), (3, 0.0), (10, 0.5), (40, 0.0)])
@pytest.mark.parametrize("step_ns", [1, 42, 1000, 1_000_000])
@pytest.mark.parametrize("jitter", [0.05, 1e-4, 1e-7])
def test_an_honest_run_never_repeats_another(
    jitter: float, step_ns: int, length: int, at_once: float
) -> None:
    """Coarse clocks and very steady engines repeat times by chance."""
    source = random.Random(f"{jitter} {step_ns} {length} {at_once}")
    kind = {"jitter": jitter, "step_ns": step_ns, "length": length, "at_once": at_once}
    runs = [run(source, **kind) for _ in range(6)]  # type: ignore[arg-type]
    assert found_pairs(runs) == []
    empty = replace(runs[0], blocks=())
    still = replace(empty, blocks=(Block(Interval(1, 1, 0), ((0,) * 6,) * 5),))
    assert found_pairs([empty, empty, still, still]) == []


def test_tokens_that_were_read_together_are_no_copy() -> None:
    source = random.Random(3)

    def bursts(one: Run) -> Run:
        first, *rest = one.blocks
        zeros = tuple((0,) * len(taken) for taken in first.sequences_ns[:2])
        return replace(one, blocks=(replace(first, sequences_ns=first.sequences_ns + zeros), *rest))

    runs = [bursts(run(source, length=8, sequences=100)) for _ in range(3)]
    assert found_pairs(runs) == []
    copy = with_clocks_of(bursts(run(source, length=8, sequences=100)), runs[1])
    assert found_pairs([*runs, copy]) == [(1, 3)]
