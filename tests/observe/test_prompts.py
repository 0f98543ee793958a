"""A set of prompts: drawn for each process, timed once there, and not known before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from pytest_flamegate.observe.observation import Answer, Observation, Run
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.pairs import PairObserver
from pytest_flamegate.observe.prompts import MANY, PromptDeck, PromptQueue
from tests.observe.workloads import (
    command_workload,
    forked,
    make_workload,
    observer,
    server_workload,
)

PROMPTS = tuple(f"prompt {number}" for number in range(12))
WORDS = "import sys\nfor i in range(int(sys.argv[2])): print(sys.argv[1][-1], i, sep='')"


def test_the_least_used_prompts_come_first_and_prompt_0_is_answered_first() -> None:
    deck = PromptDeck(9, Random(1))
    first, again = deck.draw(), deck.draw()
    assert first[0] == again[0] == 0
    assert sorted(first) == sorted(again) == list(range(9))
    assert first != again
    deck.note_used([0, 1, 2, 3, 0])
    orders = [deck.draw() for _ in range(20)]
    assert all({*order[:5]} == {4, 5, 6, 7, 8} and order[-1] == 0 for order in orders)
    assert len(set(orders)) > 1


def test_a_process_is_timed_once_with_each_prompt_but_the_one_of_its_warm_up() -> None:
    queue = PromptQueue(make_workload(Path(), "python", prompts=PROMPTS[:4]), (2, 0, 3, 1))
    assert (queue.warm_up, queue.left) == (1, 3)
    assert (queue.take(2), queue.left) == ([2, 0], 1)
    assert (queue.take(5), queue.left) == ([3], 0)
    assert queue.take(1) == []
    assert queue.take(4, again=True) == [2, 0, 3, 2]
    assert queue.texts([3, 0]) == ["prompt 3", "prompt 0"]
    one = PromptQueue(make_workload(Path(), "python"))
    assert (one.take(3), one.left, one.texts([one.warm_up])) == ([0, 0, 0], MANY, ["p"])


def remembering(log: Path) -> Callable[[str, int], Iterator[str]]:
    """Return an engine that logs each prompt, and whether it has answered it before."""
    known: set[str] = set()

    def generate(prompt: str, max_tokens: int) -> Iterator[str]:
        with log.open("a") as file:
            file.write(f"{prompt}|{prompt in known}\n")
        known.add(prompt)
        for index in range(max_tokens):
            sum(range(20_000))
            yield f"{prompt}:{index}"

    return generate


def assert_answers(seen: Observation, runs: tuple[Run, ...]) -> None:
    """Check that the answers are those of all prompts asked, prompt 0 in full."""
    assert seen.tokens == tuple(f"prompt 0:{index}" for index in range(4))
    asked = {prompt for run in runs for prompt in run.prompts}
    assert [each.prompt for each in seen.answers] == sorted(asked)
    assert seen.answers[0] == Answer(0, 4, seen.token_digest)
    assert len({each.digest for each in seen.answers}) == len(seen.answers)
    assert seen.differs_at is None


@pytest.mark.measures
def test_no_timed_prompt_is_known_or_asked_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    watched = forked(tmp_path, remembering(log), prompts=PROMPTS)
    run = watched.run_timed(30.0)  # ends early, and says so
    warm_up, *timed = [line.split("|") for line in log.read_text().splitlines()[1:]]
    assert warm_up[1] == "True"  # warmed up twice
    assert [int(text.split()[1]) for text, _ in timed] == list(run.prompts)
    assert sorted(run.prompts) == sorted({*range(12)} - {int(warm_up[0].split()[1])})
    assert {known for _, known in timed} == {"False"}
    assert "12 prompts" in watched.notes["W_FEW_PROMPTS"]
    profiled, _ = watched.run_profiled(0.3, lambda _: SimpleNamespace(stop=lambda: None))
    assert len(profiled.prompts) == sum(len(block.sequences_ns) for block in profiled.blocks) > 11
    assert_answers(watched.observation(), (run, profiled))


@pytest.mark.measures
def test_both_sides_of_a_pair_are_asked_the_same(tmp_path: Path) -> None:
    base, head = (forked(tmp_path, remembering(tmp_path / side), prompts=PROMPTS) for side in "bh")
    pairs = PairObserver(base, head)
    pairs.pair()
    pairs.pair()
    for one, other in zip(base.runs, head.runs, strict=True):
        assert one.prompts == other.prompts
        assert len(set(one.prompts)) == len(one.prompts) == 11
    assert base.runs[0].prompts != base.runs[1].prompts
    assert (tmp_path / "b").read_text() == (tmp_path / "h").read_text()
    assert "W_FEW_PROMPTS" in head.notes
    assert not base.observation().has_other_tokens(head.observation())
    assert_answers(base.observation(), base.runs)


@pytest.mark.measures
def test_a_program_is_asked_another_prompt_in_each_run(tmp_path: Path) -> None:
    def program() -> Observer:
        return observer(command_workload(tmp_path, WORDS, token_unit="word", prompts=PROMPTS))

    base, head = program(), program()
    base.warm_up()
    head.warm_up()
    assert base.observation().tokens == ("00", "\n01", "\n02", "\n03")
    PairObserver(base, head).pair()
    asked = [run.prompts for run in base.runs]
    assert asked == [run.prompts for run in head.runs]
    assert len(set(asked[:12])) == len(asked[:12]) > 1
    assert [each.prompt for each in base.observation().answers] == sorted(
        {0, *(prompt for prompts in asked for prompt in prompts)}
    )


@pytest.mark.measures
def test_a_server_is_asked_the_prompts() -> None:
    watched = observer(replace(server_workload("echoes"), prompts=PROMPTS[:5]))
    run = watched.run_timed(0.05)
    assert 0 < len(set(run.prompts)) == len(run.prompts) < 5
    assert watched.observation().tokens[0] == "prompt 0"
    assert len({each.digest for each in watched.observation().answers}) == len(run.prompts)


def test_processes_that_run_at_once_begin_with_other_prompts() -> None:
    deck = PromptDeck(5)
    hands = deck.deal(2)
    assert [sorted(each) for each in hands] == [[*range(5)]] * 2
    assert hands[0][0] == 0
    assert not {*hands[0][:2]} & {*hands[1][:2]}
    assert PromptDeck(1).deal(2) == [(0,), (0,)]
