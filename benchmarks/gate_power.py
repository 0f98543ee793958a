"""How often the gate is wrong and how long it takes, on pairs that share a core.

    python -m benchmarks.gate_power [--markdown] [--peers] [--rates] [--write] [FILE ...]

FILE holds pairs kept by `pair_streams.py`; without one, `data/shared-WORKLOAD-DATE.jsonl.gz` are
taken. Nothing is measured, so the same files give the same tables. Gates are drawn from the
pairs of unchanged code in blocks, with the sides exchanged at random. "Slower by τ" is the same
code with head's times multiplied: computed, so it shows the decision on this noise, and not that
the clock sees a real change. ``--peers`` adds the time to find 3 %, next to other methods on the
same processes, and ``--rates`` prints the error rates that verdicts state without a calibration
(``STORED_REPLAYS`` in gate/calibration.py). After data were added, ``--write`` puts the first two
tables into docs/gate-power.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.ours import within_budget
from benchmarks.peers import Missing
from benchmarks.replay import Replay, replay
from benchmarks.streams import Pair, cells, read
from benchmarks.tables import Table, as_markdown, as_text, bullets, percent
from benchmarks.time_to_power import growing, needed, sooner, to_power
from pytest_flamegate.config.options import compare_budget_s
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.gate.calibration import ResampledPairs, StoredReplays
from pytest_flamegate.run.calibration import plan_for
from pytest_flamegate.run.schedule import PAIRS_SHARE

DATA = Path(__file__).parent / "data"
PAGE = Path(__file__).parents[1] / "docs" / "gate-power.md"
LONG_BUDGET_S = 110.0
"""Seconds to try where those that users get by default leave too much open."""
ALLOWED_PART = 0.7
"""The part of the threshold that a slowdown has which may pass."""
POWER_AT = 3.0
"""The slowdown, in percent, by which the time to 95 % power is compared."""
_ROBUST = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""

Streams = Mapping[tuple[str, str], Sequence[Pair]]
"""The pairs of unchanged code of each workload and load."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The most that a gate may err (0 to 1) and take (median seconds; without a load, with one)."""

    alarms: float
    misses: float
    quiet_s: float
    loaded_s: float


GOALS = {
    5.0: Goal(0.0, 0.01, 12.0, 25.0),
    2.0: Goal(0.0, 0.01, 15.0, 40.0),
    1.0: Goal(0.005, 0.02, 30.0, 75.0),
}
"""By threshold in percent. No alarm in 1,000 drawn gates stands for none in 300 measured ones."""
OPEN_QUIET, OPEN_LOADED = 0.02, 0.05


def load_streams(paths: Sequence[Path]) -> Streams:
    """Return the pairs of files named ``shared-WORKLOAD-DATE``, those of several dates joined."""
    streams: dict[tuple[str, str], list[Pair]] = {}
    for path in paths:
        workload = path.name.split("-")[1]
        for (load, effect_pct), pairs in cells(read([path])).items():
            if effect_pct == 0.0:
                streams.setdefault((workload, load), []).extend(pairs)
    return streams


def stored_streams() -> Streams:
    """Return the pairs that are kept beside this program."""
    return load_streams(sorted(DATA.glob("shared-*.jsonl.gz")))


def noise(streams: Streams) -> Table:
    """Return how far pairs of the same code differ."""
    rows = []
    for (workload, load), pairs in streams.items():
        found = [100.0 * pair.difference for pair in pairs]
        middle = statistics.median(found)
        robust = _ROBUST * statistics.median(abs(each - middle) for each in found)
        rows.append(
            (
                f"{workload}, {load}",
                str(len(pairs)),
                f"{statistics.stdev(found):.2f}",
                f"{robust:.2f}",
                str(sum(abs(each) > 5.0 for each in found)),
                f"{statistics.fmean(pair.took_s for pair in pairs):.1f}",
            )
        )
    head = ("pairs of the same code", "pairs", "sd, %", "robust sd, %", "beyond 5 %", "s a pair")
    return Table("How far the same code differs", head, tuple(rows))


def decisions(streams: Streams) -> Table:
    """Return what the gate answers: to unchanged code, and to code slower by the threshold.

    The longer budget is tried where the default one leaves too much open.
    """
    rows = []
    for (workload, load), pairs in streams.items():
        for drop_pct, goal in GOALS.items():
            is_open = True
            for budget_s in dict.fromkeys((compare_budget_s(drop_pct), LONG_BUDGET_S)):
                if not is_open:
                    continue
                method = within_budget(drop_pct, budget_s)
                same = replay(method, pairs)
                slower = replay(method, pairs, slower_pct=drop_pct)
                allowed = replay(method, pairs, slower_pct=ALLOWED_PART * drop_pct)
                is_open = _open_rate(same, slower) > OPEN_QUIET
                rows.append(
                    (
                        f"{workload}, {load}, τ = {drop_pct:g} %",
                        f"{budget_s:g} s",
                        percent(same.rate("regressed")),
                        percent(same.rate("inconclusive")),
                        f"{same.median_s:.0f}",
                        percent(slower.rate("pass", "improved")),
                        percent(slower.rate("inconclusive")),
                        f"{slower.median_s:.0f}",
                        percent(allowed.rate("regressed")),
                        ", ".join(missed(goal, load, same, slower)) or "met",
                    )
                )
    head = (
        "in % of the gates", "budget", "same: alarms", "same: open", "s",
        "slower by τ: passed", "slower by τ: open", "s",
        f"slower by {ALLOWED_PART:g} τ: failed", "goal",
    )  # fmt: skip
    return Table("What the gate answers", head, tuple(rows))


def _open_rate(same: Replay, slower: Replay) -> float:
    return max(same.rate("inconclusive"), slower.rate("inconclusive"))


def missed(goal: Goal, load: str, same: Replay, slower: Replay) -> list[str]:
    """Return which parts of a goal are missed."""
    quiet = load.startswith("quiet")
    parts = {
        "alarms": same.rate("regressed") <= goal.alarms,
        "misses": slower.rate("pass", "improved") <= goal.misses,
        "open": _open_rate(same, slower) <= (OPEN_QUIET if quiet else OPEN_LOADED),
        "time": max(same.median_s, slower.median_s) <= (goal.quiet_s if quiet else goal.loaded_s),
    }
    return [f"{name} missed" for name, met in parts.items() if not met]


ENGINES = {
    "passage": ("embedded", "the embedded model"),
    "program": ("command", "a C program"),
    "smol": ("llama-cpp", "SmolLM2 in xllamacpp"),
    "server": ("openai", "a server of SmolLM2"),
}
"""The engine of each workload, and its name in a sentence."""


def replays_by_engine(streams: Streams) -> dict[str, StoredReplays]:
    """Return the errors that the package's own replay makes; the worse load counts."""
    found = {}
    for workload in dict.fromkeys(workload for workload, _ in streams):
        engine, words = ENGINES[workload]
        pools = [pairs for (name, _), pairs in streams.items() if name == workload]
        errors = dict.fromkeys(GOALS, (0, 0))
        for pairs in pools:
            pair_s = statistics.fmean(pair.took_s for pair in pairs)
            differences = [pair.difference for pair in pairs]
            for drop_pct, (alarms, misses) in errors.items():
                plan = plan_for(compare_budget_s(drop_pct), pair_s, PAIRS_SHARE)
                rates = ResampledPairs.draw(differences, plan.pairs).rates(drop_pct, plan)
                errors[drop_pct] = (
                    max(alarms, rates.false_alarm.failures),
                    max(misses, rates.miss.failures),
                )
        days = sorted(
            datetime.fromtimestamp(pair.at_s, UTC).date().isoformat()
            for pairs in pools
            for pair in pairs
        )
        dates = " to ".join(dict.fromkeys((days[0], days[-1])))
        found[engine] = StoredReplays(words, len(days), dates, errors)
    return found


def compare_with_peers(streams: Streams) -> tuple[list[Table], list[str]]:
    """Return each method's cost of finding 3 %, and whether ours is a tenth of the best peer's."""
    tables, claims = [], []
    for (workload, load), pairs in streams.items():
        name = f"{workload}, {load}"
        slower = [pair.slowed(1.0 + POWER_AT / 100.0, POWER_AT) for pair in pairs]
        found = [needed(method, pairs, slower) for method in growing(2.0)]
        tables.append(to_power(name, POWER_AT, found))
        measured = [each for each in found if not isinstance(each, Missing)]
        claims.append(f"{name}: {sooner(measured)}")
    return tables, claims


def write_tables(tables: Sequence[Table]) -> None:
    """Replace the tables of these titles in the documentation."""
    page = PAGE.read_text()
    for table in tables:
        start = page.index(f"### {table.title}\n")
        end = page.index("\n\n", page.index("\n| ", start))
        page = page[:start] + as_markdown(table) + page[end:]
    PAGE.write_text(page)


def main(argv: Sequence[str] | None = None) -> int:
    """Print all tables; return 2 if the files cannot be replayed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    parser.add_argument("--markdown", action="store_true", help="for the documentation")
    parser.add_argument("--peers", action="store_true", help="the time to find 3 %%, in minutes")
    parser.add_argument("--rates", action="store_true", help="print STORED_REPLAYS instead")
    parser.add_argument("--write", action="store_true", help="update docs/gate-power.md")
    asked = parser.parse_args(argv)
    try:
        streams = load_streams(asked.files) if asked.files else stored_streams()
    except FlamegateError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if asked.rates:
        print(
            *(f"{name!r}: {each}," for name, each in replays_by_engine(streams).items()), sep="\n"
        )
        return 0
    show = as_markdown if asked.markdown else as_text
    shown = [noise(streams), decisions(streams)]
    if asked.write:
        write_tables(shown)
    parts = [*map(show, shown)]
    if asked.peers:
        tables, claims = compare_with_peers(streams)
        parts += [bullets(claims), *map(show, tables)]
    print("\n\n".join(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
