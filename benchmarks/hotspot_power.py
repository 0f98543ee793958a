"""How much sampling names a function that got slower: one of half the time, one of a twentieth.

    python -m benchmarks.hotspot_power [--processes 24]

Two Python functions share the time of each token; one of them does 10 % more work on the
head's side. Processes of both sides are profiled in turn; then the package's own judgement is
asked again and again with as many of them, drawn anew, as a given time of sampling allows.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.tables import Table, as_text
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.gate.analyses import FIRST_ANALYSES, last_analysis
from pytest_flamegate.gate.hotspots import judge_shares
from pytest_flamegate.gate.judge import SHARE_ANALYSES
from pytest_flamegate.gate.measurement import read_measurement
from pytest_flamegate.gate.pairs import pair_differences
from pytest_flamegate.gate.rule import ErrorRates
from pytest_flamegate.gate.statistics import trimmed_mean
from pytest_flamegate.observe.machine import read_identity
from pytest_flamegate.observe.pairs import PairObserver
from pytest_flamegate.receipt.types import Evidence, Side
from pytest_flamegate.run.instruments import Instruments
from pytest_flamegate.run.prepare import prepare_side
from pytest_flamegate.run.processes import SideProcesses
from pytest_flamegate.run.schedule import PAIRS_PROFILED_S, Budget
from pytest_flamegate.run.seal import compose
from pytest_flamegate.run.stages import Measured, Prepared

SLOWED = 0.10
ROUNDS = 12_000
PAIRS = 14
DRAWS = 300
ENGINE = """\
def hot(x):
    for _ in range({hot}):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def rest(x):
    for _ in range({rest}):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def generate(prompt, max_tokens):
    for _ in range(max_tokens):
        hot(1)
        rest(1)
        yield 7
"""


def side(directory: Path, role: Side, share: float, slowed: float) -> SideProcesses:
    """Return one side; ``share`` is the part of the base's time that ``hot`` takes."""
    place = directory / role
    place.mkdir()
    rounds = {"hot": round(ROUNDS * share * (1 + slowed)), "rest": round(ROUNDS * (1 - share))}
    (place / "two.py").write_text(ENGINE.format(**rounds))
    workload = Workload(
        name="two",
        engine="python",
        prompt="x",
        max_tokens=16,
        source="benchmark",
        directory=place,
        target="two:generate",
    )
    profiler = Instruments("auto", place).profiler(workload, place, comparing=True)
    return SideProcesses(prepare_side(workload, read_identity(), profiler, role=role), Budget(60.0))


def measure(share: float, processes: int) -> tuple[Evidence, Evidence]:
    """Measure both sides: pairs for the time, profiled processes for the shares."""
    with tempfile.TemporaryDirectory() as name:
        sides = side(Path(name), "base", share, 0.0), side(Path(name), "head", share, SLOWED)
        observers = PairObserver(sides[0].observer, sides[1].observer)
        for _ in range(PAIRS):
            observers.pair()
        for _ in range(processes):
            for each in sides:
                each.profile_once(PAIRS_PROFILED_S)
        prepared = Prepared(tuple(each.side for each in sides), 60.0)
        run = compose(Measured(prepared, tuple(each.measured() for each in sides)))
        assert run.base is not None
        return run.base.evidence, run.head.evidence


def named(base: Evidence, head: Evidence, processes: int, rng: random.Random) -> bool:
    """Whether ``hot`` certainly costs more, by as many profiled processes drawn from each side."""
    old, new = (
        replace(found, profiled=tuple(rng.choices(found.profiled, k=processes)))
        for found in map(read_measurement, (base, head))
    )
    analysis = last_analysis(base, head, 5.0, FIRST_ANALYSES, ended=True)
    shares = judge_shares(
        old,
        new,
        Thresholds(),
        analysis.verdict if analysis else None,
        ErrorRates(analyses=SHARE_ANALYSES),
        "cost",
        trimmed_mean([pair.cpu for pair in pair_differences(base, head)]),
    )
    return any(cost.name == "hot" and cost.ci_low_us > 0.0 for cost in shares.costs)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=24, help="profiled processes a side")
    processes = parser.parse_args().processes
    counts = [count for count in (4, 7, 10, 13, 20, 33, 67) if count <= processes]
    rows = []
    for share in (0.5, 0.05):
        base, head = measure(share, processes)
        rng = random.Random(1)
        found = [
            sum(named(base, head, count, rng) for _ in range(DRAWS)) / DRAWS for count in counts
        ]
        assert base.profile is not None
        rate = f"{base.profile.profiler} {base.profile.rate_hz} Hz"
        rows.append([f"{100 * share:g} %", rate, *(f"{100 * each:.0f}" for each in found)])
    head_row = ["share", "profiler", *(f"{count * PAIRS_PROFILED_S:g} s" for count in counts)]
    title = f"Named for certain, in % of {DRAWS} draws, by seconds of sampling a side"
    print(as_text(Table(title, tuple(head_row), tuple(map(tuple, rows)))))


if __name__ == "__main__":
    main()
