"""How the neighbours decide, by their own code, on processes measured as they would.

Each gets the most favourable conditions that its practice allows:

* pytest-benchmark: one process a side, its rounds the wall seconds of each 16 tokens
  after a warm-up. The base is stored, so it is the pair before's, and costs nothing.
* pytest-perfguard: one process, its CPU time against those of the 20 bases before it
  (its default history), by its default thresholds (15 %, and 6 MAD).
* inference-doctor: some processes a side, their tokens per second on the wall clock.

The last two are no dependencies: `pip install pytest-perfguard inference-doctor`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from benchmarks.replay import Decision, Method, Outcome
from benchmarks.streams import Pair, Process, apart

CHUNK = 16
WARM_UP = 2
"""Rounds of 16 tokens that are left out."""
HISTORY = 20
"""Base runs that pytest-perfguard keeps by default."""
RUNS = 5
"""Runs a side that inference-doctor's documentation asks for at least."""
SLOW_DRAWS = 400
"""Gates drawn for a method that takes about a millisecond to decide."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A peer that is not installed."""

    name: str


def rounds(process: Process) -> tuple[float, ...]:
    """Return a process's wall seconds per token of each 16 tokens after the warm-up."""
    return process.wall_s[WARM_UP:]


def pytest_benchmark(check: str) -> Method:
    """Return ``--benchmark-compare-fail=CHECK`` against the base of the pair before."""
    compare = _module("pytest_benchmark.utils").parse_compare_fail(check)
    stats = _module("pytest_benchmark.stats").Stats

    def field(process: Process) -> dict[str, float]:
        found = stats()
        for seconds in rounds(process):
            found.update(seconds)
        return {compare.field: getattr(found, compare.field)}

    def judge(pairs: Sequence[Pair]) -> Outcome:
        stored, now = pairs[-2], pairs[-1]
        fails = compare.fails(field(now.head), field(stored.base))
        return Outcome("regressed" if fails else "pass", 2, 0.5 * now.took_s)

    return Method(f"pytest-benchmark {check}", 2, judge)


def perfguard() -> Method | Missing:
    """Return pytest-perfguard's comparison with the job's rolling history."""
    name = "pytest-perfguard, 15 %"
    try:
        compare = _module("pytest_perfguard.compare")
    except ImportError:
        return Missing(name)
    options = {"thresholds": compare.Thresholds(), "min_samples": 3, "history_size": HISTORY}

    def job(process: Process) -> dict[str, object]:
        cpu_ns = round(process.cpu_s * CHUNK * len(process.wall_s) * 1e9)
        return {
            "schema_version": compare.SCHEMA_VERSION,
            "kind": "current",
            "job_key": "passage",
            "job_outcome": "passed",
            "environment": {},
            "context": {},
            "job_metrics": {"cpu_time_ns": cpu_ns, "test_set_fingerprint": "passage"},
            "tests": [],
        }

    def judge(pairs: Sequence[Pair]) -> Outcome:
        history = [job(pair.base) for pair in pairs[:-1]]
        kept = compare.compare_runs(history, None, mode="record", **options)
        found = compare.compare_runs([job(pairs[-1].head)], kept, mode="compare", **options)
        compared = found["job_comparisons"][0]
        assert compared["status"] in ("ok", "drift", "regression"), compared
        regressed = compare.has_regressions(found)
        return Outcome("regressed" if regressed else "pass", len(pairs), 0.5 * pairs[-1].took_s)

    return Method(name, HISTORY + 1, judge, SLOW_DRAWS)


def inference_doctor(pct: float, runs: int = RUNS, *, clock: str = "wall") -> Method | Missing:
    """Return inference-doctor's decision at a threshold of ``pct`` % and so many runs a side.

    ``clock`` is ``wall``, as the tools measure that it reads, or ``cpu``, which is kinder.
    """
    on = ", CPU time" if clock == "cpu" else ""
    name = f"inference-doctor {pct:g} %, {runs} runs{on}"
    try:
        quality = _module("inference_doctor.quality")
    except ImportError:
        return Missing(name)
    thresholds = quality.QualityThresholds(regression_percent=pct)
    said: dict[str, Decision] = {
        "FAIL": "regressed",
        "PASS": "pass",
        "INCONCLUSIVE": "inconclusive",
    }

    def rate(process: Process) -> float:
        """Tokens per second."""
        if clock == "cpu":
            return 1.0 / process.cpu_s
        return len(rounds(process)) / sum(rounds(process))

    def judge(pairs: Sequence[Pair]) -> Outcome:
        base, head = apart(pairs)
        found = quality.decide_regression(
            [rate(process) for process in base],
            [rate(process) for process in head],
            lower_is_better=False,
            thresholds=thresholds,
        )
        took_s = 0.5 * sum(pair.took_s for pair in pairs)
        return Outcome(said[found.status], len(pairs), took_s)

    return Method(name, 2 * runs, judge, SLOW_DRAWS, part=0.5)


def versions() -> list[str]:
    """Return the name and version of each peer that is installed."""
    found = []
    for name in ("pytest-benchmark", "pytest-perfguard", "inference-doctor"):
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return found


def installed(*methods: Method | Missing) -> tuple[list[Method], list[Missing]]:
    """Return the methods that can be replayed here and those that cannot."""
    have = [each for each in methods if isinstance(each, Method)]
    return have, [each for each in methods if isinstance(each, Missing)]


def _module(name: str) -> Any:
    """Return a module of a package that is not annotated, or not always installed."""
    return importlib.import_module(name)
