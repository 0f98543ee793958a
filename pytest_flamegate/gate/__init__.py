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
    FieldDifference,
    compare,
    engine_differences,
    machine_id,
)
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.gate.headline import headline
from pytest_flamegate.gate.hotspots import WAITING, CostChange, Hotspot, ShareDrift
from pytest_flamegate.gate.instructions import find_notes
from pytest_flamegate.gate.judge import judge, judge_pairs, last_analysis, no_baseline
from pytest_flamegate.gate.measurement import Measurement, TimedProcess, read_measurement
from pytest_flamegate.gate.pairs import FIRST_ANALYSES, InterimAnalysis, plan_analyses
from pytest_flamegate.gate.rule import RateVerdict, decide
from pytest_flamegate.gate.shares import OTHER, ShareChange
from pytest_flamegate.gate.signals import MIN_PROCESSES, ErrorRates, Reason, ReportedRates, Signal
from pytest_flamegate.gate.statistics import Estimate
from pytest_flamegate.gate.throughput import TOKENS_PER_SECOND, WALL_TOKENS_PER_SECOND
from pytest_flamegate.gate.verdict import (
    EXIT_CODES,
    MoreProcesses,
    Verdict,
    VerdictName,
    exit_code,
    fails_test,
    needs_more,
    refused,
)

__all__ = [
    "EXIT_CODES",
    "FIRST_ANALYSES",
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
    "ErrorRates",
    "Estimate",
    "FieldDifference",
    "Hotspot",
    "InterimAnalysis",
    "Measurement",
    "MoreProcesses",
    "RateVerdict",
    "Reason",
    "ReportedRates",
    "ShareChange",
    "ShareDrift",
    "Signal",
    "TimedProcess",
    "Verdict",
    "VerdictName",
    "compare",
    "decide",
    "engine_differences",
    "exit_code",
    "fails_test",
    "find_notes",
    "headline",
    "judge",
    "judge_bricks",
    "judge_pairs",
    "last_analysis",
    "machine_id",
    "needs_more",
    "no_baseline",
    "plan_analyses",
    "read_measurement",
    "refused",
    "verdict_document",
]
