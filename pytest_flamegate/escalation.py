"""When a stored baseline raises a suspicion, and the code it was made from can be asked itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_flamegate.gate import Reason, headline
from pytest_flamegate.gate.conditions import TRANSIENT_CODES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.errors import FlamegateError
    from pytest_flamegate.gate import Verdict
    from pytest_flamegate.receipt.shelves import Baseline
    from pytest_flamegate.receipt.types import Commit
    from pytest_flamegate.workload.spec import Workload


def buildable(
    workload: Workload, baseline: Baseline | None, here: Commit | None, verdict: Verdict
) -> str | None:
    """Return the commit to compare with in pairs; None where nothing is suspected or to be had.

    The baseline's code can be built again where it was a commit and nothing but that, and
    comparing says something only where it is not what stands here.
    """
    commit = baseline.evidence.commit if baseline is not None else None
    if not _suspicious(verdict):
        return None
    if commit is None or commit.uncommitted or here is None:
        return None
    same = here.same_code(commit)
    return None if same and workload.injection is None else commit.revision


def _suspicious(verdict: Verdict) -> bool:
    """Whether pairs would say more: also where only the machine was in another state."""
    if verdict.verdict == "not_comparable":
        codes = {difference.code for difference in verdict.comparability.differences}
        return bool(codes) and codes <= TRANSIENT_CODES
    return verdict.verdict in ("regressed", "inconclusive") and bool(verdict.signals)


def suspected(suspicion: Verdict, commit: str) -> Reason:
    """Return why the base was built and measured beside this run."""
    return Reason(
        "I_STORED_BASELINE",
        f"The stored baseline alone said {headline(suspicion)}. So its commit {commit[:12]} was "
        "built and measured in pairs with this run; that is the verdict.",
    )


def not_compared(rev: str, error: FlamegateError) -> Reason:
    """Return why the base could not be measured beside this run."""
    return Reason(
        "I_NOT_COMPARED",
        f"Its commit {rev[:12]} could not be measured beside this run: {error.code}: {error.what} "
        f"{error.todo}",
    )


def with_reason(verdict: Verdict, reason: Reason) -> Verdict:
    """Return ``verdict`` with one more reason, after those that decided."""
    return replace(verdict, reasons=(*verdict.reasons, reason))


def noted(verdict: Verdict, notes: Mapping[str, str]) -> tuple[Verdict, tuple[str, ...]]:
    """Return ``verdict`` with what has to be known of how it was observed, and that as warnings.

    ``notes`` are sentences by their code.
    """
    for code, told in notes.items():
        verdict = with_reason(verdict, Reason(code, told))
    return verdict, tuple(f"{code}: {told}" for code, told in notes.items())
