"""Measure pairs of one workload, with real extra work, and keep every pair.

    python -m benchmarks.pair_streams FILE --pairs 100     # the same code on both sides
    python -m benchmarks.pair_streams FILE --rounds 16     # every effect under every load
    python -m benchmarks.pair_streams FILE --workload program --pairs 100
    python -m benchmarks.pair_streams FILE --workload smol --model PATH --pairs 100

``passage`` is the embedded model, ``program`` a C program that streams through 4 MB of weights,
``smol`` a GGUF model in xllamacpp, ``server`` the same model behind its HTTP server. One JSON line
a pair goes to FILE (appended): the effect in percent of the whole, the load beside it, its part of
the seconds that it took with the pair beside it, and for both sides quiet and CPU seconds per token
and the wall seconds of each 16 tokens.
`gate_power.py` replays them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from benchmarks.engine_rates import SERVER
from benchmarks.engine_slower import ENGINE, TOKENS
from pytest_flamegate.config.workload import Injection, Workload
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.gguf import embedded_workloads
from pytest_flamegate.observe.observation import Run
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.pairs import PairObserver

EFFECTS_PCT = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
WORKLOADS = ("passage", "program", "smol", "server")
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
        if not name.startswith(("quiet", "busy")):
            own, other = random.sample(cores, 2)
            os.sched_setaffinity(0, {own})
            stack.callback(os.sched_setaffinity, 0, set(cores))
            if name in ("same core", "mixed"):
                stack.enter_context(beside(bursts, own))
            if name in ("other core", "mixed"):
                stack.enter_context(beside(copier, other))
            time.sleep(0.2)
        yield


PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
enum { ROWS = 1024, COLUMNS = 1024 };
int main(int count, char **words) {
    float *weights = malloc(sizeof(float) * ROWS * COLUMNS), state[COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) weights[i] = (i % 17 - 8) * 1e-3f;
    for (int i = 0; i < COLUMNS; i++) state[i] = i % 5;
    for (int token = 0; token < atoi(words[2]); token++) {
        for (int row = 0; row < WORK; row++) {
            float sum = 0;
            for (int i = 0; i < COLUMNS; i++) sum += weights[row % ROWS * COLUMNS + i] * state[i];
            state[row % COLUMNS] = sum;
        }
        printf("%d ", (int)state[token % COLUMNS]);
        fflush(stdout);
    }
}
"""
ROWS_A_TOKEN = 4000


def program(directory: Path, extra_pct: float) -> Observer:
    """Return the observer of a C program that does so many percent more work for each token."""
    work = round(ROWS_A_TOKEN * (1 + extra_pct / 100))
    built = directory / f"program-{work}"
    if not built.exists():
        source = directory / "program.c"
        source.write_text(PROGRAM)
        subprocess.run(["cc", "-O2", f"-DWORK={work}", "-o", built, source], check=True)
    argv = (str(built), "{prompt}", "{max_tokens}")
    workload = Workload(
        "program", "command", "x", 200, "benchmark", directory, argv, token_unit="word"
    )
    return Observer(workload, engine("command").plan(workload, None))


def smol(directory: Path, extra_pct: float) -> Observer:
    """Return the observer of a real model whose every token costs so many percent more."""
    place = directory / f"smol-{extra_pct:g}"
    if not place.exists():
        place.mkdir()
        (place / "model.txt").write_text((directory / "model.txt").read_text())
        module = place / "slower_engine.py"
        shutil.copy(ENGINE, module)
        if extra_pct:
            argv = [sys.executable, module.name, str(TOKENS), "9"]
            asked = subprocess.run(argv, cwd=place, check=True, capture_output=True, text=True)
            rounds = round(extra_pct * float(asked.stdout))
            changed = module.read_text().replace("ROUNDS = 0", f"ROUNDS = {rounds}")
            module.write_text(changed)
    workload = Workload(
        "smol", "python", "Once upon a time", TOKENS, "benchmark", place,
        target="slower_engine:generate",
    )  # fmt: skip
    return Observer(workload, engine("python").plan(workload, None))


def server(directory: Path, extra_pct: float) -> Observer:
    """Return the observer of a real model's server; it is only measured with itself."""
    if extra_pct:
        raise SystemExit("There is no slower server: use --pairs.")
    model = (directory / "model.txt").read_text().strip()
    workload = Workload(
        "server", "openai", "Once upon a time", TOKENS, "benchmark", directory, model=model,
        options=MappingProxyType({"serve": (sys.executable, str(SERVER), "{model}", "{port}")}),
    )  # fmt: skip
    return Observer(workload, engine("openai").plan(workload, Path(model)))


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


def side(runs: Sequence[Run]) -> dict[str, object]:
    """Return the figures of one side that the replays need, without the other side's time."""
    blocks = [block for run in runs for block in run.own.blocks]
    tokens = sum(block.judged_tokens for block in blocks)
    gaps = [gap for block in blocks for sequence in block.sequences_ns for gap in sequence]
    return {
        "quiet_s": sum(block.judged.quiet_ns for block in blocks) / tokens / 1e9,
        "cpu_s": sum(block.judged.cpu_ns for block in blocks) / tokens / 1e9,
        "wall_s": [
            round(sum(gaps[i : i + CHUNK]) / CHUNK / 1e9, 8) for i in range(0, len(gaps), CHUNK)
        ],
    }


def pair_observer(workload: str, directory: Path, effect_pct: float) -> PairObserver:
    """Return the observer of one pair of the workload."""
    if workload == "passage":
        return observer(effect_pct)
    make = {"program": program, "smol": smol, "server": server}[workload]
    return PairObserver(make(directory, 0.0), make(directory, effect_pct))


def measure(
    pairs: PairObserver, effect_pct: float, loaded: str, most: int
) -> list[dict[str, object]]:
    """Measure as many pairs as run at once, at most so many."""
    with load(loaded):
        began_s = time.monotonic()
        pairs.pair(most)
        took_s = (time.monotonic() - began_s) / pairs.pairs
    return [
        {
            "effect_pct": effect_pct,
            "load": loaded,
            "at": round(time.time(), 1),
            "took_s": round(took_s, 3),
            "base": side([run for run in pairs.base.runs if run.pair == number]),
            "head": side([run for run in pairs.head.runs if run.pair == number]),
        }
        for number in range(pairs.pairs)
    ]


def main() -> None:
    """Append to the file until all is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--workload", choices=WORKLOADS, default="passage")
    parser.add_argument("--model", type=Path, help="the GGUF file of smol and server")
    parser.add_argument("--pairs", type=int, default=0, help="of the same code, without a load")
    parser.add_argument("--busy", action="store_true", help="other work runs beside --pairs")
    parser.add_argument("--alone", action="store_true", help="--pairs run one at a time")
    parser.add_argument("--rounds", type=int, default=0, help="of every effect under every load")
    asked = parser.parse_args()
    loaded = "busy" if asked.busy else "quiet"
    plan = [(0.0, f"{loaded}, alone" if asked.alone else loaded)] * asked.pairs
    for _ in range(asked.rounds):
        cells = [(effect, loaded) for loaded in LOADS for effect in EFFECTS_PCT]
        random.shuffle(cells)
        plan += cells
    with asked.file.open("a") as file, tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if asked.model is not None:
            (directory / "model.txt").write_text(f"{asked.model}\n")
        # As in a gate, the time of a sequence is known before the first pair.
        known = pair_observer(asked.workload, directory, 0.0).base
        known.warm_up()
        done = 0
        for (effect_pct, loaded), group in itertools.groupby(plan):
            end = done + len(list(group))
            while done < end:
                pairs = pair_observer(asked.workload, directory, effect_pct)
                pairs.base.sequence_s = pairs.head.sequence_s = known.sequence_s
                found = measure(pairs, effect_pct, loaded, 1 if asked.alone else end - done)
                file.writelines(json.dumps(each) + "\n" for each in found)
                file.flush()
                done += len(found)
                print(f"\r{done} of {len(plan)} pairs", end="", file=sys.stderr)


if __name__ == "__main__":
    main()
