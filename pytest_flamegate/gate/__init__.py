"""Is it worse? Pure rules: numbers in, a frozen and complete verdict with its reasons out.

No clock, file, process or environment is read here, so every rule is a table in a test. `judge`
goes from the evidence of a run and its baseline to a `Verdict`; `headline` puts one into a
sentence and `verdict_document` into JSON. `last_analysis` says while pairs are measured whether
they suffice. `machine_id` names the class of machine that a baseline belongs to.
"""

from pytest_flamegate.gate.comparability import compare, machine_id
from pytest_flamegate.gate.costs import CostChange
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.gate.hotspots import HotspotChange
from pytest_flamegate.gate.judge import GatedRun, GatePolicy, PairedBase, StoredBaseline, judge
from pytest_flamegate.gate.measurement import read_measurement
from pytest_flamegate.gate.pairs import FIRST_ANALYSES, last_analysis, plan_analyses
from pytest_flamegate.gate.rule import (
    Comparability,
    ErrorRates,
    FieldDifference,
    Helper,
    Reason,
    ReportedRates,
    Signal,
)
from pytest_flamegate.gate.verdict import EXIT_CODES, Verdict, headline

__all__ = [
    "EXIT_CODES",
    "FIRST_ANALYSES",
    "Comparability",
    "CostChange",
    "ErrorRates",
    "FieldDifference",
    "GatePolicy",
    "GatedRun",
    "Helper",
    "HotspotChange",
    "PairedBase",
    "Reason",
    "ReportedRates",
    "Signal",
    "StoredBaseline",
    "Verdict",
    "compare",
    "headline",
    "judge",
    "last_analysis",
    "machine_id",
    "plan_analyses",
    "read_measurement",
    "verdict_document",
]
