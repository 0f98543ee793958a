"""Tokens a second of one model by several engines: as clocked here, and as each reports itself.

All generate on one core, a fresh process of each a round, in random order. The same name
hides several formulas, so each column is one:

- all: n tokens over the time from the request (of a program: from its start) to the last.
- decode: n - 1 tokens over the time from the first to the last one seen.
- own: the engine's own clock; the tokens made in its decode time, over that time.
- as printed: llama.cpp's server divides all n tokens by the time of n - 1 of them.

llama-bench makes n tokens after as many of an empty prompt as the others have of a real one,
without sampling or text; its rate is n over the time of all n, for a prompt gave it none.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from benchmarks.tables import Table
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Lasting
from pytest_flamegate.observe.engine_process import RunPlace
from pytest_flamegate.observe.observation import Run
from pytest_flamegate.observe.observer import Observer

PROMPT = "Once upon a time"
PROMPT_TOKENS = 4
TOKENS = 64
SEQUENCES = 2
SERVER = Path(__file__).with_name("engine_server.py")
BENCH = "llama-bench"
COMPLETION = "llama-completion"
_COMPLETION_ARGUMENTS = (
    "-m {model} -n {max_tokens} -t {threads} -c 256 --temp 0 -no-cnv --no-display-prompt "
    "--ignore-eos --no-warmup -p"
)


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens a second of one sequence, by the formulas above; None if not reported."""

    all: float | None = None
    decode: float | None = None
    own: float | None = None
    printed: float | None = None


def rates(run: Run) -> list[Rates]:
    """Return the clocks of each sequence of ``run``, and the engine's own report of it."""
    sequences = [gaps for block in run.blocks for gaps in block.sequences_ns]
    reported = [report.figures for report in run.reported if "decode_tokens" in report.figures]
    # A block of one sequence has one report.
    return [_of_one(*each) for each in zip(sequences, reported, strict=True)]


def _of_one(gaps_ns: Sequence[int], said: Mapping[str, float]) -> Rates:
    tokens, decode_s = len(gaps_ns), said["decode_ms"] / 1e3
    return Rates(
        tokens / (sum(gaps_ns) / 1e9),
        (tokens - 1) / (sum(gaps_ns[1:]) / 1e9),
        said["decode_tokens"] / decode_s,
        said["tokens"] / decode_s,
    )


def observed(workload: Workload, cpu: int) -> list[Rates]:
    """Measure one fresh process of ``workload`` on the core ``cpu``."""
    chosen = engine(workload.engine)
    chosen.validate(workload)
    observer = Observer(workload, chosen.plan(workload, chosen.model(workload)))
    if not isinstance(observer.plan, Lasting):
        return rates(observer.run_program(RunPlace(cpu=cpu)))
    with observer.serve(RunPlace(cpu=cpu)) as process:
        process.warm_up(TOKENS)
        blocks = [process.block(1) for _ in range(SEQUENCES)]
        return rates(observer.record("timed", process, blocks, process.counters()))


def llama_bench(program: str, model: Path, cpu: int) -> list[Rates]:
    """Ask llama-bench for its rate of each repetition."""
    options = f"-m {model} -p 0 -n {TOKENS} -d {PROMPT_TOKENS} -t 1 -r {SEQUENCES} -o json"
    done = subprocess.run(
        ["taskset", "-c", str(cpu), program, *options.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return [Rates(own=float(each)) for each in json.loads(done.stdout)[0]["samples_ts"]]


def sources(model: Path, bench: str | None, completion: str | None) -> dict[str, Workload | str]:
    """Return the installed engines, by name; llama-bench as its program."""
    found: dict[str, Workload | str] = {}

    def add(name: str, kind: str, **more: object) -> None:
        options = MappingProxyType(dict(more))
        found[name] = Workload(
            "rates", kind, PROMPT, TOKENS, "benchmark", model=str(model), options=options
        )

    if _has("xllamacpp"):
        add("llama-cpp, xllamacpp", "llama-cpp")
        argv = (sys.executable, str(SERVER), "{model}", "{port}")
        add("openai, xllamacpp's server", "openai", serve=argv)
    if completion is not None:
        found[f"command, {COMPLETION}"] = Workload(
            "rates",
            "command",
            PROMPT,
            TOKENS,
            "benchmark",
            model=str(model),
            command=(completion, *_COMPLETION_ARGUMENTS.split(), "{prompt}"),
            token_unit="engine",
        )
    if bench is not None:
        found[BENCH] = bench
    return found


def _has(module: str) -> bool:
    return find_spec(module) is not None


def measure(model: Path, rounds: int, bench: str | None) -> dict[str, list[Rates]]:
    """Measure every source ``rounds`` times, in random order within a round."""
    rng = random.Random(0)
    remedy = sources(model, bench or shutil.which(BENCH), shutil.which(COMPLETION))
    found: dict[str, list[Rates]] = {name: [] for name in remedy}
    for _ in range(rounds):
        cpu = rng.choice(sorted(os.sched_getaffinity(0)))
        for name in rng.sample(list(remedy), len(remedy)):
            source = remedy[name]
            found[name] += (
                llama_bench(source, model, cpu)
                if isinstance(source, str)
                else observed(source, cpu)
            )
    return found


def table(found: Mapping[str, Sequence[Rates]]) -> Table:
    """Return medians over the sequences, and medians of each sequence's own ratios."""
    head = ("source", *_COLUMNS, "decode / own", "as printed / own", "sequences")
    rows = tuple(
        (
            name,
            *(_median([of(one) for one in each], ",.1f") for of in _COLUMNS.values()),
            *(_median([_over_own(one, _COLUMNS[of]) for one in each], ".4f") for of in _RATIOS),
            str(len(each)),
        )
        for name, each in found.items()
    )
    formula = f"n = {TOKENS}, n / (n - 1) = {TOKENS / (TOKENS - 1):.4f}"
    return Table(f"SmolLM2-135M Q4_1 on one thread, tokens/s by formula; {formula}", head, rows)


_COLUMNS: Mapping[str, Callable[[Rates], float | None]] = {
    "all": lambda one: one.all,
    "decode": lambda one: one.decode,
    "own": lambda one: one.own,
    "as printed": lambda one: one.printed,
}
_RATIOS = ("decode", "as printed")


def _over_own(one: Rates, of: Callable[[Rates], float | None]) -> float | None:
    value = of(one)
    return None if value is None or one.own is None else value / one.own


def _median(values: Sequence[float | None], shown: str) -> str:
    known = [value for value in values if value is not None]
    return format(statistics.median(known), shown) if known else "–"
