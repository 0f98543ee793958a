"""The result of a required check: which workloads passed, which fail, and why."""

from dataclasses import dataclass
from typing import Any

from pytest_flamegate.core.errors import worst_code
from pytest_flamegate.gate import headline
from pytest_flamegate.report.text import plural
from pytest_flamegate.run.policy import BasePolicy
from pytest_flamegate.run.publish import Outcome
from pytest_flamegate.run.waivers import Waiver, today_utc

_PASSES = frozenset({"pass", "improved"})
_UNDECIDED = 4


@dataclass(frozen=True, slots=True)
class Check:
    """The result: both commits, the policy, and the outcome of each of its workloads in order.

    ``waivers`` are those of the change itself; ``debt`` describes them and those merged before.
    """

    base: str
    head: str
    policy: BasePolicy
    required: tuple[Outcome, ...]
    new: tuple[Outcome, ...]
    waivers: tuple[Waiver, ...] = ()
    debt: tuple[str, ...] = ()

    def find_objection(self, outcome: Outcome) -> str | None:
        """Return why a required workload fails although it may be waived, empty without a waiver.

        None if it passes.
        """
        if outcome.verdict.verdict in _PASSES and not outcome.exit_code:
            return None
        name = outcome.workload.name
        found = next((each for each in self.waivers if each.workload == name), None)
        if found is None or outcome.verdict.verdict != "regressed":
            return ""
        return found.find_objection(outcome.verdict, today_utc())

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The required workloads that did not pass, and new ones that do not work."""
        broken = [each for each in self.new if each.verdict.verdict in ("error", "dishonest")]
        return (*(e for e in self.required if self.find_objection(e) is not None), *broken)

    @property
    def exit_code(self) -> int:
        """The exit code of the worst workload."""
        # A required workload that nothing was compared with has the code 0 by itself.
        return worst_code(each.exit_code or _UNDECIDED for each in self.failed)

    @property
    def sentence(self) -> str:
        """The answer: how many required workloads passed, and which failed."""
        count = plural(len(self.required), "required workload")
        by = f"by the policy of {self.base[:12]}"
        if self.failed:
            names = ", ".join(map(self._describe_failure, self.failed))
            return f"check failed {by}: {names}; {count}"
        if not self.required:
            return f"check passed, and required nothing: {self.base[:12]} declares no workload"
        waived = [each.workload.name for each in self.required if each.exit_code]
        slower = f"slower as accepted: {', '.join(waived)}" if waived else "none slower"
        return f"check passed {by}: {count}, {slower}"

    def _describe_failure(self, outcome: Outcome) -> str:
        word = outcome.verdict.verdict.replace("_", " ")
        return f"{outcome.workload.name} ({self.find_objection(outcome) or word})"

    def document(self) -> dict[str, Any]:
        """Return the result as the content of ``check.json``."""
        return {
            "check_version": "1.0.0",
            "base": self.base,
            "head": self.head,
            "passed": self.exit_code == 0,
            "exit_code": self.exit_code,
            "sentence": self.sentence,
            "required": [_row(each) for each in self.required],
            "new": [_row(each) for each in self.new],
            "waivers": list(self.debt),
            "policy_changes": [
                {"workload": each.workload, "key": each.key, "base": each.base, "head": each.head}
                for each in self.policy.changes
            ],
        }


def _row(outcome: Outcome) -> dict[str, Any]:
    verdict, rate = outcome.verdict, outcome.verdict.signal()
    return {
        "workload": outcome.workload.name,
        "verdict": verdict.verdict,
        "headline": headline(verdict),
        "exit_code": outcome.exit_code,
        "change_pct": rate and rate.change_pct,
        "interval_pct": rate and [rate.ci_low_pct, rate.ci_high_pct],
        "grade": verdict.grade,
        "reasons": [reason.code for reason in verdict.reasons],
    }
