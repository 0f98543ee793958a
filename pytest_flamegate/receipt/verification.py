"""The answer about one receipt, and how it is put together from what was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.findings import Notice, Refusal
from pytest_flamegate.receipt.fitness import NO_EVIDENCE, REASONS, Candidate
from pytest_flamegate.receipt.grades import Grade

if TYPE_CHECKING:
    from pytest_flamegate.receipt.case import Case
    from pytest_flamegate.receipt.registry import Breach
    from pytest_flamegate.receipt.replayed import Replayed


@dataclass(frozen=True, slots=True)
class Verification:
    """The answer about one receipt.

    ``grade`` is the highest one reached, whether or not that was enough; ``policy``
    names the kernel policy that was used; ``ceiling`` says in one sentence what a green
    answer at the grade reached (or asked for) would prove. ``honest`` says that no rule of
    honesty is broken, whatever else the reader asked for; ``unfit`` why an honest receipt
    is not to be gated on (codes ``F_...``), empty for one that is not honest.
    ``signed_by`` is the keyid of the trusted key that signed exactly these files, None if
    none did or no key was given.
    ``replayed`` is the replay that was handed in, if any; ``obtained_again`` says that it holds.
    """

    ok: bool
    grade: Grade
    refusals: tuple[Refusal, ...]
    warnings: tuple[Notice, ...]
    policy: str
    ceiling: str
    signed_by: str | None = None
    honest: bool = False
    unfit: tuple[Notice, ...] = ()
    replayed: Replayed | None = None
    obtained_again: bool = False

    @property
    def fit(self) -> bool:
        """Whether the receipt is fit to gate on: honest, and nothing speaks against it."""
        return self.honest and not self.unfit


class Findings:
    """Collects refusals and notices, and how low they push the grade."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self.warnings: list[Notice] = []
        self.suspicions: list[str] = []
        self.honest = True
        self.case: Case | None = None
        self.grade = Grade.OBSERVED

    def refuse(self, refusal: Refusal, protects: Grade | None) -> None:
        """Add a refusal; the grade falls below the one it ``protects``.

        One that protects none is the reader's wish, and no matter of honesty.
        """
        self.refusals.append(refusal)
        self.honest = self.honest and protects is None
        self.lower(protects)

    def broken(self, breach: Breach) -> None:
        """Add a broken rule as a refusal."""
        self.refuse(Refusal(breach.code, breach.message, breach.todo), breach.protects)

    def noticed(self, breach: Breach) -> None:
        """Add a broken rule as a notice; it may still lower the grade."""
        self.warnings.append(Notice(breach.code, breach.message, breach.todo))
        self.lower(breach.protects)

    def unfit(self) -> tuple[Notice, ...]:
        """Return what speaks against gating on an honest receipt."""
        if not self.honest:
            return ()
        if self.case is None:
            return (NO_EVIDENCE,)
        candidate = Candidate(self.case, tuple(self.suspicions))
        reasons = REASONS.breaches(candidate)
        return tuple(Notice(each.code, each.message, each.todo) for each in reasons)

    def lower(self, protects: Grade | None) -> None:
        """Let the grade fall below ``protects``."""
        if protects is not None:
            self.grade = min(self.grade, Grade(protects - 1))
