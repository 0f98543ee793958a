"""How soon a function of a program that became slower is certain, under perf in pairs.

    python -m benchmarks.function_power --measure FILE --pairs 60    # append to FILE
    python -m benchmarks.function_power [--markdown] [FILE ...]      # the table

A C program spends 50 % of its time in ``half``, 20 % in ``fifth`` and 5 % in each of six others.
Pairs of the same code, and pairs whose head does 10 % more in ``half`` or in ``small``, are timed
and profiled as a comparison does it. One JSON line a pair goes to FILE: what is slower at its head,
how it ran, its part of the seconds that it took with the pair beside it, and for both sides the CPU
seconds of a token or the samples of each function. Gates are drawn from these lines: six timed
pairs, then as many profiled ones as the time allows, judged as a gate does it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.tables import Table, as_markdown, as_text, percent
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.engines import engine
from pytest_flamegate.gate.costs import cost_changes, share_changes
from pytest_flamegate.gate.measurement import Measurement, TimedProcess
from pytest_flamegate.gate.rule import FALSE_ALARM_RATE, ErrorRates
from pytest_flamegate.gate.statistics import trimmed_mean
from pytest_flamegate.observe.pairs import PairObserver
from pytest_flamegate.profile.profilers import base, perf
from pytest_flamegate.receipt.types import ProcessProfile
from pytest_flamegate.run.measure import PAIRS_EXPLAINED
from pytest_flamegate.run.processes import SideProcesses
from pytest_flamegate.run.schedule import PAIRS_PROFILED_S, Budget

DATA = Path(__file__).parent / "data"
PERCENT = {"half": 50, "fifth": 20, "small": 5, "a": 5, "b": 5, "c": 5, "d": 5, "e": 5}
SLOWER = 1.1
GOALS = {"half": 15.0, "small": 60.0}
"""The functions that became slower, and the seconds within which that is to be certain."""
CHANGED = ("", *GOALS)
DRAWS = 200
COUNTS = (2, 4, 6, 8, 10, 14, 20, 28, 40, 60)
"""Profiled pairs."""
RARE = 0.003

_FUNCTION = """
__attribute__((noinline)) static unsigned {name}(void) {{
    volatile unsigned x = 1;
    for (int i = 0; i < {rounds}; i++) x = x * 1103515245u + 12345u;
    return x;
}}
"""
_MAIN = """
int main(int count, char **words) {{
    for (int token = 0; token < atoi(words[2]); token++) {{
        unsigned sum = {sum};
        printf("%u ", sum & 7);
        fflush(stdout);
    }}
}}
"""
ROUNDS_A_PERCENT = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """One pair: the CPU seconds of a token of both sides, or the samples of their processes."""

    tokens: int
    changed: str
    took_s: float
    cpu_s: tuple[float, float] | None = None
    samples: tuple[ProcessProfile, ProcessProfile] | None = None

    def swapped(self) -> Line:
        """Return the pair with its sides exchanged."""
        cpu_s, samples = self.cpu_s and self.cpu_s[::-1], self.samples and self.samples[::-1]
        return replace(self, cpu_s=cpu_s, samples=samples)


def program(directory: Path, changed: str, tokens: int) -> Workload:
    """Build the program with the changed function slower; return the workload that runs it."""
    functions = "".join(
        _FUNCTION.format(
            name=name, rounds=round(ROUNDS_A_PERCENT * part * (SLOWER if name == changed else 1))
        )
        for name, part in PERCENT.items()
    )
    main = _MAIN.format(sum=" + ".join(f"{name}()" for name in PERCENT))
    home = directory / (changed or "same")
    home.mkdir(exist_ok=True)
    source = home / "program.c"
    source.write_text(f"#include <stdio.h>\n#include <stdlib.h>\n{functions}{main}")
    built = home / "program"
    subprocess.run(["cc", "-O1", "-g", "-o", built, source], check=True)
    argv = (str(built), "{prompt}", "{max_tokens}")
    return Workload("program", "command", "x", tokens, "benchmark", home, argv, token_unit="word")


def measure(file: Path, pairs: int, tokens: int) -> None:
    """Append as many timed and as many profiled pairs of each kind of change."""
    with tempfile.TemporaryDirectory() as name, file.open("a") as lines:
        directory = Path(name)
        profiler = perf.make_profiler(
            base.Setup(python_engine=False, project=directory, comparing=True)
        )
        for changed in CHANGED * (pairs // 10):
            sides = []
            for workload in (program(directory, each, tokens) for each in ("", changed)):
                plan = engine("command").plan(workload, None)
                prepared: Any = SimpleNamespace(profiler=profiler, workload=workload, plan=plan)
                sides.append(SideProcesses(prepared, Budget(math.inf)))
                sides[-1].observer.warm_up()
            both = PairObserver(sides[0].observer, sides[1].observer)
            calls = [partial(side.profile_once, PAIRS_PROFILED_S) for side in sides]
            for role in ("timed", "profiled"):
                done = 0
                while done < 10:
                    began_s = time.monotonic()
                    if role == "timed":
                        both.pair(10 - done)
                    else:
                        both.run_both(calls, done, 10 - done)
                    seconds = time.monotonic() - began_s
                    figures = [_figures(side, role, done) for side in sides]
                    for old, new in zip(*figures, strict=True):
                        line = {
                            "tokens": tokens, "changed": changed, "role": role,
                            "at": round(time.time(), 1),
                            "took_s": round(seconds / len(figures[0]), 3),
                            "base": old, "head": new,
                        }  # fmt: skip
                        lines.write(json.dumps(line) + "\n")
                    lines.flush()
                    done += len(figures[0])


def _figures(side: SideProcesses, role: str, after: int) -> list[object]:
    """Return the figures of each process of that role, by the number of its pair."""
    if role == "timed":
        runs = [run.judged for run in side.observer.runs if run.role == role]
        found = [
            sum(block.judged.cpu_ns for block in run.blocks)
            / sum(block.judged_tokens for block in run.blocks)
            / 1e9
            for run in runs
        ]
        return list[object](found[after:])
    by_pid = {each.pids[0]: each for each in side.profiles}
    counted = []
    for run in [run for run in side.observer.runs if run.role == role][after:]:
        counts: Counter[str] = Counter()
        for stack, samples in by_pid[run.pid].stacks.items():
            counts[stack[-1].name] += samples
        counted.append(dict(counts))
    return list[object](counted)


def read(paths: Iterable[Path]) -> list[Line]:
    """Return the lines of files, packed or not."""
    lines = []
    for path in paths:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
        for record in map(json.loads, text.splitlines()):
            line = Line(record["tokens"], record["changed"], record["took_s"])
            base, head = record["base"], record["head"]
            if record["role"] == "timed":
                lines.append(replace(line, cpu_s=(base, head)))
            else:
                lines.append(replace(line, samples=(_read_profile(base), _read_profile(head))))
    return lines


def _read_profile(counts: Mapping[str, int]) -> ProcessProfile:
    """Return a profile without the functions that are far too small to be judged one by one."""
    total = sum(counts.values())
    large = {
        name: count for name, count in counts.items() if name in PERCENT or count > RARE * total
    }
    return ProcessProfile(1, total, large)


def judge(timed: Sequence[Line], profiled: Sequence[Line]) -> frozenset[str]:
    """Return the functions whose cost certainly changed, as a gate judges them."""
    cpu_s = [line.cpu_s for line in timed if line.cpu_s is not None]
    samples = [line.samples for line in profiled if line.samples is not None]
    cpu = trimmed_mean([math.log(new / old) for old, new in cpu_s])
    old_profiles, new_profiles = ([each[side] for each in samples] for side in (0, 1))
    shares = share_changes(old_profiles, new_profiles, (), FALSE_ALARM_RATE, "perf")
    old, new = (_measurement([each[side] for each in cpu_s]) for side in (0, 1))
    costs = cost_changes(shares, old, new, ErrorRates(), whole_changed=False, cpu=cpu)
    return frozenset(row.name for row in costs if row.is_certain)


def _measurement(cpu_s: Sequence[float]) -> Measurement:
    logs = [math.log(each) for each in cpu_s]
    timed = tuple(TimedProcess(0.0, 1.0, None, each, each, each, each, None) for each in logs)
    return Measurement(timed, (), reference_follows=False)


def tabulate(lines: Sequence[Line]) -> Table:
    """Return how often each slower function is certain within the time of its goal."""
    rows = []
    for tokens, (changed, goal_s) in product(
        sorted({each.tokens for each in lines}), GOALS.items()
    ):
        own = [each for each in lines if each.tokens == tokens]
        cells = [
            f"{changed}, {PERCENT[changed]} % of the time, {tokens} tokens a run", f"{goal_s:g}"
        ]  # fmt: skip
        for kind in ("", changed):
            timed = [each for each in own if each.changed == kind and each.cpu_s]
            profiled = [each for each in own if each.changed == kind and each.samples]
            if not kind:
                seconds = PAIRS_EXPLAINED * _mean_s(timed)
                count = min(max(2, int((goal_s - seconds) / _mean_s(profiled))), COUNTS[-1])
            answers = list(_draw(timed, profiled, count))
            if kind:
                cells.append(percent(sum(changed in each for each in answers) / DRAWS))
                cells.append(_needed_s(timed, profiled, changed))
            else:
                cells += [str(count), percent(sum(map(bool, answers)) / DRAWS)]
        rows.append(tuple(cells))
    head = (
        "slower by 10 %", "s", "profiled pairs", "same code: any function, %", "found %",
        "s until 95 % are found",
    )  # fmt: skip
    return Table("How soon a slower function is certain", head, tuple(rows))


def _draw(timed: Sequence[Line], profiled: Sequence[Line], count: int) -> Iterable[frozenset[str]]:
    # No chance difference between the sides of these few pairs of the same code shall pass for a
    # real one.
    rng = random.Random(count)
    for _ in range(DRAWS):
        chosen = [*rng.sample(timed, PAIRS_EXPLAINED), *rng.choices(profiled, k=count)]
        exchanged = [
            each.swapped() if not each.changed and rng.random() < 0.5 else each for each in chosen
        ]
        yield judge(exchanged[:PAIRS_EXPLAINED], exchanged[PAIRS_EXPLAINED:])


def _needed_s(timed: Sequence[Line], profiled: Sequence[Line], changed: str) -> str:
    def is_found(count: int) -> bool:
        answers = _draw(timed, profiled, count)
        return sum(changed in each for each in answers) >= 0.95 * DRAWS

    enough = bisect_left(COUNTS, 1, key=is_found)
    if enough == len(COUNTS):
        return "longer"
    seconds = PAIRS_EXPLAINED * _mean_s(timed) + COUNTS[enough] * _mean_s(profiled)
    return f"{seconds:.0f} ({COUNTS[enough]} profiled pairs)"


def _mean_s(lines: Sequence[Line]) -> float:
    return sum(each.took_s for each in lines) / len(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    parser.add_argument("--measure", type=Path, metavar="FILE", help="append pairs to FILE")
    parser.add_argument("--pairs", type=int, default=60, help="of each kind, in tens")
    parser.add_argument("--tokens", type=int, default=400, help="of each run; 400 take 0.5 s")
    parser.add_argument("--markdown", action="store_true", help="for the documentation")
    asked = parser.parse_args(argv)
    if asked.measure is not None:
        measure(asked.measure, asked.pairs, asked.tokens)
        return 0
    table = tabulate(read(asked.files or sorted(DATA.glob("functions-*.jsonl.gz"))))
    print((as_markdown if asked.markdown else as_text)(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
