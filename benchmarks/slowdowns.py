"""Kinds of slowdown: their true size, and the size that the product's pairs show.

    python -m benchmarks.slowdowns [--rounds 12] [--pairs 10] [--busy] [--only NAME ...]
    python -m benchmarks.slowdowns --keep FILE    # append one JSON line a kind
    python -m benchmarks.slowdowns --read FILE    # the table of such lines; measures nothing

Each kind is a C program (`slowdowns.c`, built with and without it) or a Python engine, made 5 to
20 % slower. The truth is measured alone: whole runs of one side after the other, in random order,
on one core. Then both sides are measured in pairs by the product's own observer, which decides by
itself whether they share a core or alternate. A row is right if the sign is, and the size is within
1 percentage point or a quarter of the truth; it is "too noisy" if two standard errors could make
it right. A slowdown in the cache hierarchy can look larger on a
shared core, so those are measured in alternating pairs too, and judged by them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.honest_changes import load_on_both_cores
from benchmarks.tables import Table, as_markdown, as_text
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.json import decode_json
from pytest_flamegate.engines import engine
from pytest_flamegate.gate.pairs import MOST_DELAYED, delayed_part, pair_differences
from pytest_flamegate.gate.statistics import trimmed_mean
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.pairs import PairObserver

SOURCE = Path(__file__).with_name("slowdowns.c")
TOKENS = 400
WITHIN_PP = 1.0
WITHIN_PART = 0.25


SHARED, IN_TURN, BUSY = "core shared", "in turn", "in turn, cores busy"
"""How pairs were measured; the last is not judged (`E_CORES_BUSY`)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of slowdown, its amount for each token, and further definitions for the compiler."""

    name: str
    define: str
    amount: int
    more: tuple[str, ...] = ()
    threads: int = 1
    in_caches: bool = False


def _working_set(from_kb: int, to_kb: int, amount: int) -> Kind:
    return Kind(
        f"working set {from_kb:,} → {to_kb:,} KB",
        "WORKING_SET",
        amount,
        (f"-DFROM_KB={from_kb}", f"-DTO_KB={to_kb}"),
        in_caches=True,
    )


PYTHON = "interpreter (Python)"
KINDS = (
    Kind("arithmetic", "ARITHMETIC", 150_000),
    Kind("mispredicted branches", "BRANCHES", 40_000),
    Kind("stride", "STRIDE", 30, in_caches=True),
    _working_set(16, 256, 60_000),
    _working_set(256, 1024, 200_000),
    _working_set(1024, 8192, 1_500),
    Kind("allocation", "ALLOCATION", 2_000, in_caches=True),
    Kind("page faults", "PAGE_FAULTS", 60),
    Kind("system calls", "SYSTEM_CALLS", 1_000),
    Kind("lock contention", "LOCK", 200_000, threads=2),
    Kind("sleeping", "SLEEP", 100_000),
    Kind("file reads", "FILE_READS", 250),
    Kind("an extra copy", "COPY", 3_000, in_caches=True),
    Kind("lost vectorisation", "VECTORS", 500),
    Kind("one thread fewer", "THREAD_FEWER", 400_000, threads=2),
    Kind(PYTHON, "", 0),
)
ENGINE = """\
SLOW = {slow}


def add(x, y):
    return (x + y) & 0xFFFFFF


def generate(prompt, max_tokens):
    x = len(prompt)
    for _ in range(max_tokens):
        for i in range(15_000):
            x = (x + i) & 0xFFFFFF
        for i in range(3_000):
            x = add(x, i) if SLOW else (x + i) & 0xFFFFFF
        yield x % 100
"""
CLOCKED = """
import sys, time
from slow_engine import generate
tokens = generate("x", int(sys.argv[2]))
next(tokens)
def clocks():
    return time.monotonic_ns(), int(open("/proc/self/schedstat").read().split()[1])
began, delayed = clocks()
for _ in tokens: pass
ended, delay = clocks()
print(ended - began, delay - delayed, file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How much slower, in percent, its standard error, and the count it was estimated from."""

    slower_pct: float
    error_pp: float
    count: int

    @classmethod
    def estimate(cls, differences: Sequence[float]) -> Size:
        """Estimate it from log ratios as the gate does, by the trimmed mean."""
        found = trimmed_mean(differences)
        slower = math.exp(found.mean_diff)
        return cls(100 * (slower - 1), 100 * slower * found.standard_error, len(differences))

    def __str__(self) -> str:
        return f"{self.slower_pct:+.1f} ± {self.error_pp:.1f}"


def may_use_real_time() -> bool:
    """Whether this process may start others at real-time priority."""
    return subprocess.run(["chrt", "--fifo", "10", "true"], capture_output=True).returncode == 0


@dataclass(slots=True)
class Sides:
    """Both sides of a kind, built in a directory of their own."""

    kind: Kind
    directory: Path
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        for slow in (0, 1):
            place = self.directory / str(slow)
            place.mkdir()
            if self.kind.name == PYTHON:
                (place / "slow_engine.py").write_text(ENGINE.format(slow=slow))
                continue
            defined = (f"-DKIND={self.kind.define}", f"-DAMOUNT={self.kind.amount}")
            argv = ["cc", "-O2", "-pthread", *defined, f"-DSLOW={slow}", *self.kind.more]
            subprocess.run([*argv, "-o", place / "program", SOURCE], check=True)

    def time_alone(self, rounds: int) -> Size:
        """Run each side once a round, in random order; estimate the difference of the rounds."""
        differences = []
        for _ in range(rounds):
            core = self.rng.choice(sorted(os.sched_getaffinity(0)))
            cost = {slow: self._run_alone(slow, core) for slow in self.rng.sample((0, 1), 2)}
            differences.append(math.log(cost[1] / cost[0]))
        return Size.estimate(differences)

    def _run_alone(self, slow: int, core: int) -> float:
        """Return the nanoseconds that a fresh copy takes, without those it waited for a CPU.

        With several threads it is wall time, because their delays overlap, at real-time priority
        if that is permitted: work beside them would hide what they lose by waiting for each other.
        """
        place = self.directory / str(slow)
        if self.kind.name == PYTHON:
            argv = [sys.executable, "-c", CLOCKED]
        else:
            fresh = shutil.copy(place / "program", place / "copy")
            argv = [str(fresh)]
        if self.kind.threads == 1:
            argv = ["taskset", "-c", str(core), *argv]
        elif may_use_real_time():
            argv = ["chrt", "--fifo", "10", *argv]
        ended = subprocess.run(
            [*argv, "x", str(TOKENS), "clocks"], cwd=place, check=True, capture_output=True
        )
        took_ns, delay_ns = map(int, ended.stderr.split())
        return float(took_ns - (delay_ns if self.kind.threads == 1 else 0))

    def time_in_pairs(self, pairs: int, *, alternate: bool = False) -> tuple[Size, str]:
        """Measure pairs as a comparison does; return the estimate and the method."""
        observers = PairObserver(self._observer(0), self._observer(1), self.rng, alternate)
        for each in (observers.base, observers.head):
            each.warm_up()
        for _ in range(pairs):
            observers.pair()
        base, head = observers.base.observation(), observers.head.observation()
        method = SHARED if observers.shares_core else IN_TURN
        if self.kind.threads > 1 and delayed_part(base, head) > MOST_DELAYED:
            method = BUSY
        found = pair_differences(base, head)
        return Size.estimate([each.quiet for each in found]), method

    def _observer(self, slow: int) -> Observer:
        place = self.directory / str(slow)
        if self.kind.name == PYTHON:
            workload = Workload(
                "slow", "python", "x", TOKENS, "benchmark", place, target="slow_engine:generate"
            )
        else:
            argv = (str(place / "program"), "{prompt}", "{max_tokens}")
            workload = Workload(
                "slow", "command", "x", TOKENS, "benchmark", place, argv,
                token_unit="word", threads=self.kind.threads,
            )  # fmt: skip
        return Observer(workload, engine(workload.engine).plan(workload, None))


@dataclass(frozen=True, slots=True)
class Result:
    """The sizes of one kind: alone, in pairs of the product, and in alternating pairs if asked."""

    kind: str
    alone: Size
    pairs: Size
    method: str
    alternating: Size | None
    load: float
    busy: bool

    @property
    def answer(self) -> str:
        """``right``, ``wrong size``, ``wrong sign``, or ``too noisy`` to say which of them.

        ``not judged`` if the gate would leave it open.
        """
        if self.method == BUSY:
            return "not judged"
        truth, found = self.alone, self.alternating or self.pairs
        off_pp = abs(found.slower_pct - truth.slower_pct)
        allowed_pp = max(WITHIN_PP, WITHIN_PART * truth.slower_pct)
        same_sign = found.slower_pct * truth.slower_pct > 0 < self.pairs.slower_pct
        if off_pp <= allowed_pp and same_sign:
            return "right"
        if off_pp - 2 * math.hypot(truth.error_pp, found.error_pp) <= allowed_pp:
            return "too noisy"
        return "wrong size" if same_sign else "wrong sign"


def measure(kind: Kind, rounds: int, pairs: int, *, busy: bool) -> Result:
    """Measure one kind, the pairs beside a load if ``busy``."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        sides = Sides(kind, Path(name))
        alone = sides.time_alone(rounds)
        if busy:
            stack.enter_context(load_on_both_cores())
        found, method = sides.time_in_pairs(pairs)
        alternating = None
        if kind.in_caches and method == SHARED:
            alternating, _ = sides.time_in_pairs(pairs, alternate=True)
        return Result(kind.name, alone, found, method, alternating, os.getloadavg()[0], busy)


def read_results(path: Path) -> list[Result]:
    """Return the last result of each kind in a file of ``--keep``, in the order of KINDS."""
    lines = [decode_json(line, Result) for line in path.read_bytes().splitlines()]
    last = {each.kind: each for each in lines}
    return [last[kind.name] for kind in KINDS if kind.name in last]


def table(results: Sequence[Result]) -> Table:
    """Return the kinds as rows."""

    def cells() -> Iterator[tuple[str, ...]]:
        for each in results:
            yield (
                each.kind,
                str(each.alone),
                str(each.pairs),
                each.method,
                str(each.alternating or "–"),
                each.answer,
            )

    where = "pairs beside a load on both cores" if results[0].busy else "no load added"
    loads = sorted(each.load for each in results)
    head = ("slower, %", "alone", "in pairs", "method", "alternating", "answer")
    title = f"Kinds of slowdown, {where} (load average {loads[0]:.0f} to {loads[-1]:.0f})"
    return Table(title, head, tuple(cells()))


def main() -> int:
    """Measure kind after kind; return 1 if any is not right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12, help="runs of each side alone")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--busy", action="store_true", help="pairs beside a load on both cores")
    parser.add_argument("--only", nargs="*", default=[], help="kinds whose names contain this")
    parser.add_argument("--keep", type=Path, help="append one JSON line a kind")
    parser.add_argument("--read", type=Path, help="print the table of such a file")
    parser.add_argument("--markdown", action="store_true", help="for the documentation")
    asked = parser.parse_args()
    kinds = [
        kind for kind in KINDS if not asked.only or any(word in kind.name for word in asked.only)
    ]
    results = [] if asked.read is None else read_results(asked.read)
    for kind in kinds if asked.read is None else ():
        result = measure(kind, asked.rounds, asked.pairs, busy=asked.busy)
        results.append(result)
        line = f"{kind.name}: alone {result.alone}, pairs {result.pairs}, {result.answer}"
        print(line, f"load {result.load:.1f}", file=sys.stderr, flush=True)
        if asked.keep is not None:
            with asked.keep.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
    print((as_markdown if asked.markdown else as_text)(table(results)))
    return int(any(each.answer != "right" for each in results))


if __name__ == "__main__":
    raise SystemExit(main())
