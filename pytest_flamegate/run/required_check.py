"""The result of a required check: what its workloads and its waivers amount to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_flamegate.config.options import shorten_options
from pytest_flamegate.core.errors import UndecidedError, worst_code
from pytest_flamegate.core.json import NonEmpty
from pytest_flamegate.gate.verdict import headline
from pytest_flamegate.receipt.types import VerdictName
from pytest_flamegate.report.text import plural
from pytest_flamegate.run.base_policy import BasePolicy, PolicyChange
from pytest_flamegate.run.publish import Outcome
from pytest_flamegate.run.waivers import (
    Waiver,
    describe_debt,
    find_excess,
    find_other_tokens,
    today_utc,
)

CHECK_VERSION = "1.0.0"
DOCUMENT = "check.json"


@dataclass(frozen=True, slots=True)
class CheckedWorkload:
    """A workload in the answer; change and interval are those of the rate, if it was compared."""

    workload: str
    verdict: VerdictName
    exit_code: int
    headline: str = ""
    change_pct: float | None = None
    interval_pct: tuple[float | None, float | None] | None = None
    grade: str | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """The content of ``check.json``, which ``accept`` reads, and of GitHub's attestation of it.

    Attributes:
        ended: The comparisons with the commits before accepted slowdowns, whose waivers have ended.
        waivers: What is accepted, by this change and before, as lines.
        declarations: The digests of the declarations that differ, by workload.
    """

    check_version: str = CHECK_VERSION
    base: str = ""
    head: str
    passed: bool
    exit_code: int = UndecidedError.exit_code
    sentence: str = ""
    attempt: int = 1
    required: tuple[CheckedWorkload, ...]
    new: tuple[CheckedWorkload, ...] = ()
    ended: tuple[CheckedWorkload, ...] = ()
    waivers: tuple[str, ...] = ()
    policy_changes: tuple[PolicyChange, ...] = ()
    declarations: Mapping[NonEmpty, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """The result: both commits, the policy, and the outcome of each of its workloads in order.

    Attributes:
        waivers: Those of the change itself; ``merged`` are those of the base.
        ended: The outcomes of comparisons with the commits before accepted slowdowns, whose
            waivers have ended.
        earlier: The number of attempts before this one.
    """

    base: str
    head: str
    policy: BasePolicy
    required: tuple[Outcome, ...] = ()
    new: tuple[Outcome, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    merged: tuple[Waiver, ...] = ()
    ended: tuple[tuple[Waiver, Outcome], ...] = ()
    earlier: int = 0

    def _find_excess(self, outcome: Outcome) -> str | None:
        """Return why no waiver covers an outcome: "" if one does, None if there is none."""
        name, since = outcome.workload.name, list(self.waivers)
        for waiver, other in self.ended:
            if other is outcome:
                # What was accepted later is not what ended.
                known = (*self.merged, *self.waivers)
                since = [each for each in known if each.accepted > waiver.accepted]
                name = waiver.workload
        own = [each for each in since if each.workload == name]
        return find_excess(own, outcome.verdict, _other_tokens(outcome), today_utc())

    def passes(self, outcome: Outcome) -> bool:
        """Whether a required workload passes, by itself or because it is accepted as it is."""
        return _passes_alone(outcome) or self._find_excess(outcome) == ""

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The required workloads that did not pass, and new ones that do not work."""
        judged = (*self.required, *(outcome for _, outcome in self.ended))
        broken = [each for each in self.new if not each.verdict.kind.is_valid]
        return (*(each for each in judged if not self.passes(each)), *broken)

    @property
    def accepted(self) -> tuple[Outcome, ...]:
        """The required workloads that pass only because a waiver accepts them as they are."""
        return tuple(each for each in self.required if each.exit_code and self.passes(each))

    @property
    def debt(self) -> list[str]:
        """What is accepted, by this change and before, as lines."""
        today, gone = today_utc(), []
        known = (*self.merged, *self.waivers)
        for waiver in known:
            found = [outcome for other, outcome in self.ended if other is waiver]
            if waiver in self.waivers:
                found = [each for each in self.required if each.workload.name == waiver.workload]
            is_slowdown = waiver.kind == "slowdown" and waiver.is_expired(today)
            if is_slowdown and found and all(map(_passes_alone, found)):
                gone.append(waiver)
        return describe_debt(known, today, self.waivers, gone)

    @property
    def exit_code(self) -> int:
        """The exit code of the worst workload."""
        # A required workload that nothing was compared with has the code 0 by itself.
        return worst_code(each.exit_code or UndecidedError.exit_code for each in self.failed)

    @property
    def sentence(self) -> str:
        """The answer: how many required workloads passed, and which failed."""
        count = plural(len(self.required), "required workload")
        by = f"by the policy of {self.base[:12]}"
        if self.earlier:
            by = f"in attempt {self.earlier + 1}, with all earlier ones, {by}"
        if self.failed:
            names = ", ".join(map(self._describe_failure, self.failed))
            return f"check failed {by}: {names}; {count}"
        if not self.required and not self.policy.dropped:
            return f"check passed, and required nothing: {self.base[:12]} declares no workload"
        slower = [e.workload.name for e in self.accepted if e.verdict.verdict == "regressed"]
        others = [e.workload.name for e in self.accepted if e.verdict.verdict != "regressed"]
        answers = [count]
        if slower:
            answers.append(f"slower as accepted: {', '.join(slower)}")
        elif len(others) < len(self.required):
            answers.append(f"none {'of those compared ' if others else ''}past its threshold")
        if others:
            names = ", ".join(others)
            answers.append(f"{len(others)} NOT COMPARED: other tokens, as accepted: {names}")
        if self.policy.adopted:
            names = ", ".join(self.policy.adopted)
            answers.append(f"by the policy of the head, as accepted: {names}")
        if dropped := self.policy.dropped:
            names = ", ".join(dropped)
            answers.append(f"{len(dropped)} NOT COMPARED: other policy, as accepted: {names}")
        return f"check passed {by}: {', '.join(answers)}"

    def _describe_failure(self, outcome: Outcome) -> str:
        word = outcome.verdict.word
        if _other_tokens(outcome) is not None:
            word += ": other tokens. If they are meant, accept them: flamegate accept"
        elif outcome.error is not None and outcome.error.code == "E_TARGET_NOT_FOUND":
            word += ": the base's target is gone. Keep the old name importable for one change"
        elif outcome.verdict.verdict != "regressed" and outcome.workload.name in self._differing:
            is_removed = not self.policy.differing[outcome.workload.name][1]
            differs = "does not declare it" if is_removed else "declares it otherwise"
            word += f": the head {differs}. If that is meant: flamegate accept"
        if any(other is outcome for _, other in self.ended):
            still = "is still" if outcome.verdict.verdict == "regressed" else "may still be"
            word += f": a slowdown whose waiver has ended {still} there"
        excess = self._find_excess(outcome) or self._find_unused(outcome.workload.name)
        return f"{outcome.workload.name} ({excess or word})"

    @property
    def _differing(self) -> set[str]:
        """The required workloads whose declaration in the head differs, and does not count."""
        return {*self.policy.differing}.difference(self.policy.adopted, self.policy.dropped)

    def _find_unused(self, name: str) -> str | None:
        """Return why a waiver of the workload's declaration does not count, if there is one."""
        for each in self.waivers if name in self._differing else ():
            if each.workload == name and each.declarations is not None:
                other = f"the waiver of {name} accepts another declaration than this one"
                return each.find_problem(today_utc()) or other
        return None

    @property
    def answer(self) -> CheckAnswer:
        """The result as it is written."""
        return CheckAnswer(
            base=self.base,
            head=self.head,
            passed=self.exit_code == 0,
            exit_code=self.exit_code,
            sentence=self.sentence,
            attempt=self.earlier + 1,
            required=tuple(map(_row, self.required)),
            new=tuple(map(_row, self.new)),
            ended=tuple(_row(each) for _, each in self.ended),
            waivers=tuple(self.debt),
            policy_changes=self.policy.changes,
            declarations=self.policy.differing,
        )


def _other_tokens(outcome: Outcome) -> str | None:
    return find_other_tokens(outcome.verdict, outcome.baseline, outcome.evidence)


def _passes_alone(outcome: Outcome) -> bool:
    return outcome.verdict.kind.passes and not outcome.exit_code


def _row(outcome: Outcome) -> CheckedWorkload:
    verdict, rate = outcome.verdict, outcome.verdict.signal()
    return CheckedWorkload(
        outcome.workload.name,
        verdict.verdict,
        outcome.exit_code,
        shorten_options(headline(verdict)),
        rate.change_pct if rate else None,
        (rate.ci_low_pct, rate.ci_high_pct) if rate else None,
        verdict.grade,
        tuple(reason.code for reason in verdict.reasons),
    )
