"""A bench at which nothing is measured: an honest pair made up, and settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Injection, Workload
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.gate import Reason, Verdict
from pytest_flamegate.profile.profilers.base import Setup
from pytest_flamegate.profile.profilers.pyspy import make_pyspy
from pytest_flamegate.run.seal import SealedSide
from pytest_flamegate.run.selftest import Asked, Bench, Compared
from tests.made import bundle
from tests.report.verdicts import rate
from tests.run.fakes import sealed_side

WORKLOAD = Workload("4tok", "embedded", "2+2=", 4, "flamegate.toml")
SLOWED = Injection("ternary_gemv", 25.0)


def verdict(name: str, change_pct: float = -6.2, **more: Any) -> Verdict:
    signal = rate(name, change_pct=change_pct, ci_low_pct=-7.4, ci_high_pct=9.9)
    reasons = (Reason("E_CLEARLY", "It did."),)
    options: dict[str, Any] = {"reasons": reasons, "signals": (signal,), **more}
    return Verdict(verdict=name, grade="OBSERVED", false_alarm_rate=0.01, **options)  # type: ignore[arg-type]


def side(name: str, seed: int, pairs: int = 6) -> SealedSide:
    """One side of a comparison: its timed processes ran in pairs, in the order of their number."""
    created = f"2025-10-13T12:00:0{seed}Z"
    made = bundle(seed=seed, timed=pairs, profiled=3, created=created)
    runs = tuple(
        replace(run, pair=index if run.role == "timed" else None)
        for index, run in enumerate(made.evidence.runs)
    )
    sealed = sealed_side(made.with_evidence(runs=runs, side=name))
    assert sealed.verification is not None
    assert sealed.verification.ok, sealed.verification.refusals
    return sealed


def bench(directory: Path, asked: Asked | None = None, **measured: Compared) -> Bench:
    """A bench that holds what ``measured`` says, as if it had been."""
    made = Bench(
        asked or Asked(WORKLOAD, SLOWED, "attention"),
        Settings(directory, directory / ".flamegate"),
        Progress(),
        directory,
        make_pyspy(Setup()),
        "Profiling is off.",
    )
    vars(made).update(measured)
    return made


def honest(directory: Path) -> Bench:
    """A bench with a pair that every check accepts."""
    pair = Compared(verdict("regressed"), side("base", 1), side("head", 2))
    return bench(directory, slowed=pair)
