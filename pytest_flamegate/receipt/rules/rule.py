"""Rules as data: a code, the statement that must hold, the remedy, and the protected grade."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Generic, Literal, TypeVar

from pytest_flamegate.core.text import one_line
from pytest_flamegate.receipt.grades import Grade

SubjectT = TypeVar("SubjectT")
REMEASURE = "Measure again. Receipt, evidence and profile come from one run and must not be edited."
"""The remedy if files contradict each other: no edit of them can repair that."""
_MAX_REPORTED = 8
_MAX_COUNTED = 5_000
"""One megabyte can break a rule ten thousand times; counting them all would take seconds."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[SubjectT]):
    """One rule.

    Attributes:
        sentence: the statement that must hold.
        protects: the lowest grade that a subject cannot have if it breaks the rule. None if the
            rule concerns a wish of the reader (an age, a GPU) and not honesty.
        needs: top-level fields of the receipt that ``find`` reads. If one of them is malformed
            the rule is skipped, because the malformed field has been reported already.
        find: yields one message for each way in which a subject breaks the rule.
    """

    code: str
    sentence: str
    remedy: str
    protects: Grade | None
    needs: frozenset[str]
    find: Callable[[SubjectT], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Breach:
    """One way in which a subject breaks a rule."""

    code: str
    message: str
    remedy: str
    protects: Grade | None


class Rulebook(Generic[SubjectT]):
    """Rules over one kind of subject, in the order in which breaches are reported.

    Several rules may share a code if their breaches lead to the same action.
    """

    def __init__(
        self,
        *books: Rulebook[SubjectT],
        protects: Grade | None = None,
        remedy: str = REMEASURE,
    ) -> None:
        """Start with the rules of ``books``; the other arguments are defaults of ``rule``."""
        self.rules: tuple[Rule[SubjectT], ...] = tuple(rule for book in books for rule in book)
        self._protects = protects
        self._remedy = remedy

    def __iter__(self) -> Iterator[Rule[SubjectT]]:
        return iter(self.rules)

    def rule(
        self,
        code: str,
        sentence: str,
        *,
        remedy: str | None = None,
        protects: Grade | Literal["book"] | None = "book",
        needs: Collection[str] = (),
    ) -> Callable[[Callable[[SubjectT], Iterable[str]]], Callable[[SubjectT], Iterable[str]]]:
        """Return a decorator that adds its function as a rule; see ``Rule`` for the arguments."""

        def add(find: Callable[[SubjectT], Iterable[str]]) -> Callable[[SubjectT], Iterable[str]]:
            grade = self._protects if protects == "book" else protects
            rule = Rule(code, sentence, remedy or self._remedy, grade, frozenset(needs), find)
            self.rules = (*self.rules, rule)
            return find

        return add

    def find_breaches(self, subject: SubjectT, malformed: Collection[str] = ()) -> Iterator[Breach]:
        """Yield every breach by ``subject``, at most a handful for each rule."""
        for rule in self.rules:
            if rule.needs.isdisjoint(malformed):
                messages = iter(rule.find(subject))
                # Nearly every rule is kept: only a first breach makes it worth bounding the rest.
                first = next(messages, None)
                if first is not None:
                    for message in _bound(chain((first,), messages)):
                        yield Breach(rule.code, one_line(message), rule.remedy, rule.protects)


def _bound(messages: Iterator[str]) -> Iterator[str]:
    yield from islice(messages, _MAX_REPORTED)
    more = sum(1 for _ in islice(messages, _MAX_COUNTED))
    if more:
        least = "at least " if more == _MAX_COUNTED else ""
        yield f"The same problem occurs {least}{more:,} more times."
