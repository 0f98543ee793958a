"""Measure pairs of the embedded passage, with real injected work, and keep every pair.

    python benchmarks/pair_streams.py FILE --pairs 100     # the same code on both sides
    python benchmarks/pair_streams.py FILE --rounds 16     # every effect under every load

One JSON line a pair goes to FILE (appended): the effect in percent of the whole, the
load beside it, seconds it took, and for both sides quiet and CPU seconds per token and
the wall seconds of each 16 tokens. `gate_power.py` replays them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from pytest_flamegate.config.workload import Injection
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.gguf import embedded_workloads
from pytest_flamegate.observe.observation import Run
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.pairs import PairObserver

EFFECTS_PCT = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
LOADS = ("quiet", "same core", "other core", "mixed")
FRAME = "ternary_gemv"
SHARE = 0.8
"""Share of FRAME in the passage's CPU time: 1 % of the whole is 1 / SHARE % of it."""
CHUNK = 16


def copier() -> None:
    """Move memory without end: takes cache and bandwidth."""
    source, target = np.ones(8_000_000), np.empty(8_000_000)
    while True:
        target[:] = source


def bursts() -> None:
    """Compute for 50 to 400 ms, rest as long: takes the core away now and then."""
    rng = random.Random()
    matrix = np.ones((200, 200))
    while True:
        end_s = time.monotonic() + rng.uniform(0.05, 0.4)
        while time.monotonic() < end_s:
            matrix @ matrix
        time.sleep(rng.uniform(0.05, 0.4))


@contextmanager
def beside(work: Callable[[], None], core: int) -> Iterator[None]:
    """Run ``work`` on ``core`` meanwhile."""
    process = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    process.start()
    assert process.pid is not None
    os.sched_setaffinity(process.pid, {core})
    try:
        yield
    finally:
        process.kill()
        process.join()


@contextmanager
def load(name: str) -> Iterator[None]:
    """Bind this process to one core of two, with the load ``name`` there or on the other."""
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        if name != "quiet":
            own, other = random.sample(cores, 2)
            os.sched_setaffinity(0, {own})
            stack.callback(os.sched_setaffinity, 0, set(cores))
            if name in ("same core", "mixed"):
                stack.enter_context(beside(bursts, own))
            if name in ("other core", "mixed"):
                stack.enter_context(beside(copier, other))
            time.sleep(0.2)
        yield


def observer(extra_pct: float) -> PairObserver:
    """Return an observer of the passage against itself with ``extra_pct`` % more work in all."""
    passage = next(w for w in embedded_workloads(Path()) if w.name == "passage")
    embedded = engine("embedded")
    head = passage
    if extra_pct:
        head = replace(passage, injection=Injection(FRAME, extra_pct / SHARE))
    model = embedded.model(passage)
    return PairObserver(
        Observer(passage, embedded.plan(passage, model)), Observer(head, embedded.plan(head, model))
    )


def side(run: Run) -> dict[str, object]:
    """Return the figures of one process that the replays need."""
    tokens = sum(block.judged_tokens for block in run.blocks)
    gaps = [gap for block in run.blocks for sequence in block.sequences_ns for gap in sequence]
    return {
        "quiet_s": sum(block.judged.quiet_ns for block in run.blocks) / tokens / 1e9,
        "cpu_s": sum(block.judged.cpu_ns for block in run.blocks) / tokens / 1e9,
        "wall_s": [
            round(sum(gaps[i : i + CHUNK]) / CHUNK / 1e9, 8) for i in range(0, len(gaps), CHUNK)
        ],
    }


def measure(effect_pct: float, loaded: str) -> dict[str, object]:
    """Measure one pair."""
    pairs = observer(effect_pct)
    with load(loaded):
        began_s = time.monotonic()
        pairs.pair()
        took_s = time.monotonic() - began_s
    return {
        "effect_pct": effect_pct,
        "load": loaded,
        "at": round(time.time(), 1),
        "took_s": round(took_s, 3),
        "base": side(pairs.base.runs[0]),
        "head": side(pairs.head.runs[0]),
    }


def main() -> None:
    """Append to the file until all is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--pairs", type=int, default=0, help="of the same code, without a load")
    parser.add_argument("--rounds", type=int, default=0, help="of every effect under every load")
    asked = parser.parse_args()
    plan = [(0.0, "quiet")] * asked.pairs
    for _ in range(asked.rounds):
        cells = [(effect, loaded) for loaded in LOADS for effect in EFFECTS_PCT]
        random.shuffle(cells)
        plan += cells
    with asked.file.open("a") as file:
        for number, (effect_pct, loaded) in enumerate(plan, 1):
            file.write(json.dumps(measure(effect_pct, loaded)) + "\n")
            file.flush()
            print(f"\r{number} of {len(plan)} pairs", end="", file=sys.stderr)


if __name__ == "__main__":
    main()
