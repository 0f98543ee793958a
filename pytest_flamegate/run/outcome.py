"""What came of one workload, from the session to whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.gate import exit_code

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.core.errors import FlamegateError
    from pytest_flamegate.gate import Verdict
    from pytest_flamegate.receipt.types import Evidence, Receipt


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one workload. ``directory`` holds the files named in the contract.

    ``warnings`` say what went wrong beside it, one sentence each.
    """

    workload: Workload
    verdict: Verdict
    directory: Path
    receipt: Receipt | None = None
    evidence: Evidence | None = None
    baseline: Evidence | None = None
    accepted: Path | None = None
    fails: bool = False
    error: FlamegateError | None = None
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: what was raised decides, else the verdict."""
        return self.error.exit_code if self.error is not None else exit_code(self.verdict)
