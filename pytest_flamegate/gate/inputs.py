"""What the gate judges: a run, the baseline that it is compared with, and the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.gate.pairs import FIRST_ANALYSES

if TYPE_CHECKING:
    from pytest_flamegate.config.thresholds import Thresholds
    from pytest_flamegate.gate.error_rates import ReportedRates
    from pytest_flamegate.gate.hotspots import ShareDrift
    from pytest_flamegate.gate.signals import Reason
    from pytest_flamegate.receipt.types import Batch, Evidence


@dataclass(frozen=True, slots=True)
class GatedRun:
    """The run to judge.

    ``grade`` is its receipt's. ``errors`` are those of the verification, of both sides in a
    comparison; any of them makes the verdict `dishonest`. ``notes`` come after all other reasons.
    """

    evidence: Evidence
    grade: str
    errors: tuple[Reason, ...] = ()
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredBaseline:
    """An accepted measurement, and the batches of the same code that it rests on.

    From six batches on their own spread takes the place of an assumed drift.
    """

    evidence: Evidence
    batches: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True)
class PairedBase:
    """The base of a comparison in pairs.

    ``analyses`` is the plan that was made before measuring; ``ended`` says that no more pairs will
    come. ``rates`` are the error rates by a calibration, None without one.
    """

    evidence: Evidence
    analyses: tuple[int, ...] = FIRST_ANALYSES
    ended: bool = True
    rates: ReportedRates | None = None


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """What is allowed.

    ``analyses`` is how often a run may be judged at most against a stored baseline, with more
    processes each time; the error rates are spent over them. ``ci`` changes advice only.
    """

    thresholds: Thresholds
    share_drift: ShareDrift = "cost"
    analyses: int = 1
    ci: bool = False
