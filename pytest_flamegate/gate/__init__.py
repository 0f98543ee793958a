"""Is it worse? Pure rules: numbers in, a frozen verdict with its reasons out.

No clock, file, process or environment is read here, so every rule is a table in a
test. `judge` goes from two evidences to a `Verdict`; `decide` is the bare rule for a
rate, for any way of estimating its change; `machine_id` names the class of machine
that a baseline belongs to. `judge_pairs` does what `judge` does for two sides that were
measured in interleaved pairs.
"""

from __future__ import annotations

from pytest_flamegate.gate.bricks import BrickChange, BrickCost, Bricks, judge_bricks
from pytest_flamegate.gate.comparability import (
    MACHINE_ID_FIELDS,
    Comparability,
    Difference,
    compare,
    engine_differences,
    machine_id,
)
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.gate.headline import headline
from pytest_flamegate.gate.hotspots import WAITING, CostChange, Hotspot, ShareDrift
from pytest_flamegate.gate.instructions import beside_the_figures
from pytest_flamegate.gate.judge import judge, judge_pairs, last_look, no_baseline
from pytest_flamegate.gate.measurement import Measurement, TimedProcess, measurement_of
from pytest_flamegate.gate.pairs import FIRST_LOOKS, Look, planned_looks
from pytest_flamegate.gate.rule import RateVerdict, decide
from pytest_flamegate.gate.shares import OTHER, ShareChange
from pytest_flamegate.gate.signals import MIN_PROCESSES, ErrorRates, Known, Reason, Signal
from pytest_flamegate.gate.statistics import Estimate
from pytest_flamegate.gate.throughput import TOKENS_PER_SECOND, WALL_TOKENS_PER_SECOND
from pytest_flamegate.gate.verdict import (
    EXIT_CODES,
    More,
    Verdict,
    VerdictName,
    exit_code,
    fails_test,
    needs_more,
    refused,
)

__all__ = [
    "EXIT_CODES",
    "FIRST_LOOKS",
    "MACHINE_ID_FIELDS",
    "MIN_PROCESSES",
    "OTHER",
    "TOKENS_PER_SECOND",
    "WAITING",
    "WALL_TOKENS_PER_SECOND",
    "BrickChange",
    "BrickCost",
    "Bricks",
    "Comparability",
    "CostChange",
    "Difference",
    "ErrorRates",
    "Estimate",
    "Hotspot",
    "Known",
    "Look",
    "Measurement",
    "More",
    "RateVerdict",
    "Reason",
    "ShareChange",
    "ShareDrift",
    "Signal",
    "TimedProcess",
    "Verdict",
    "VerdictName",
    "beside_the_figures",
    "compare",
    "decide",
    "engine_differences",
    "exit_code",
    "fails_test",
    "headline",
    "judge",
    "judge_bricks",
    "judge_pairs",
    "last_look",
    "machine_id",
    "measurement_of",
    "needs_more",
    "no_baseline",
    "planned_looks",
    "refused",
    "verdict_document",
]
