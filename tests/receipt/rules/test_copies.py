"""Copies of runs: reordered, shifted and multiplied ones are found, honest ones never."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.observe.observation import Block, Run
from pytest_flamegate.receipt.rules.runs import find_repetitions

Sequence = tuple[int, ...]


def run(
    source: random.Random,
    *,
    length: int = 10,
    sequences: int = 3,
    blocks: int = 3,
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

    return Run(
        role="timed",
        pid=source.randrange(1, 1 << 22),
        started_ticks=None,
        started_at="2025-10-13T12:00:00Z",
        load_ns=ticked(source.gauss(30e6, 1e6)),
        blocks=tuple(block() for _ in range(blocks)),
        token_digest="",
        tokens_per_sequence=length,
        peak_rss_bytes=None,
        read_bytes=None,
        threads=1,
        voluntary_switches=None,
        involuntary_switches=None,
        cpu_pressure_pct=None,
    )


def changed(original: Run, change: Callable[[Sequence], Sequence]) -> Run:
    """The run with other gaps, and nothing else of it equal."""

    def other(interval: Interval) -> Interval:
        return replace(interval, wall_ns=interval.wall_ns + 7001, cpu_ns=interval.cpu_ns + 6007)

    blocks = tuple(
        replace(
            block,
            interval=other(block.interval),
            sequences_ns=tuple(map(change, block.sequences_ns)),
        )
        for block in original.blocks
    )
    return replace(original, blocks=blocks, load_ns=(original.load_ns or 0) + 5003)


def multiplied(gaps: Sequence) -> Sequence:
    return tuple(round(gap * 0.93) for gap in gaps)


def shifted(gaps: Sequence) -> Sequence:
    return tuple(gap + 1234 for gap in gaps)


def with_noise(gaps: Sequence) -> Sequence:
    source = random.Random(sum(gaps))
    return tuple(gap + round(source.gauss(0, 1000)) for gap in gaps)


COPIES: dict[str, Callable[[Run], Run]] = {
    "copied": lambda original: changed(original, lambda gaps: gaps),
    "multiplied": lambda original: changed(original, multiplied),
    "shifted": lambda original: changed(original, shifted),
    "sequences in another order": lambda original: replace(
        original,
        blocks=tuple(
            replace(block, sequences_ns=block.sequences_ns[::-1]) for block in original.blocks[::-1]
        ),
    ),
    "other gaps, the same clocks": lambda original: replace(
        original,
        blocks=tuple(
            replace(block, sequences_ns=other.sequences_ns)
            for block, other in zip(original.blocks, run(random.Random(99)).blocks, strict=True)
        ),
    ),
}


def found_pairs(runs: list[Run]) -> list[tuple[int, int]]:
    return [(each.one, each.other) for each in find_repetitions(runs)]


@pytest.mark.parametrize("length", [10, 64])
@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_a_run_is_found(name: str, length: int) -> None:
    source = random.Random(length)
    runs = [run(source, length=length) for _ in range(5)]
    assert found_pairs([*runs, COPIES[name](runs[1])]) == [(1, 5)]


def test_a_copy_with_noise_is_not_found() -> None:
    source = random.Random(3)
    runs = [run(source) for _ in range(5)]
    assert found_pairs([*runs, changed(runs[1], with_noise)]) == []


def test_a_run_that_repeats_one_sequence_is_found() -> None:
    source = random.Random(1)
    runs = [run(source, length=32) for _ in range(3)]
    block = runs[2].blocks[0]
    repeated = replace(block, sequences_ns=(block.sequences_ns[0],) * 3)
    runs[2] = replace(runs[2], blocks=(repeated, *runs[2].blocks[1:]))
    assert {(each.one, each.other) for each in find_repetitions(runs)} == {(2, 2)}


def test_sequences_of_one_token_are_compared_by_run() -> None:
    source = random.Random(2)
    runs = [run(source, length=1, sequences=4) for _ in range(5)]
    assert list(find_repetitions(runs)) == []
    found = list(find_repetitions([*runs, COPIES["copied"](runs[0])]))
    assert [(each.one, each.other) for each in found] == [(0, 5)]


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
    assert list(find_repetitions(runs)) == []


def test_runs_without_tokens_are_no_copies() -> None:
    empty = replace(run(random.Random(0)), blocks=())
    assert list(find_repetitions([empty, empty])) == []
    assert list(find_repetitions([])) == []
