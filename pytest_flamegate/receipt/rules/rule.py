"""Rules as data: each with its code, its sentence, what to do, and the grade it protects."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Generic, TypeVar

from pytest_flamegate.core.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pytest_flamegate.receipt.grades import Grade


SubjectT = TypeVar("SubjectT")
_REPORTED_PER_RULE = 8
_COUNTED_PER_RULE = 5_000
"""A megabyte can break a rule ten thousand times, and nobody waits for the number."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[SubjectT]):
    """One rule: ``find`` yields a sentence for each way in which a subject breaks it.

    ``sentence`` says what holds when the rule is kept. ``protects`` is the lowest
    grade that a subject breaking the rule cannot have; None where the rule is the
    reader's wish (an age, a GPU) and says nothing about honesty. ``needs`` names the
    top-level fields that ``find`` reads: where one is malformed the rule stays silent,
    for that refusal has been made.
    """

    code: str
    sentence: str
    remedy: str
    protects: Grade | None
    needs: frozenset[str]
    find: Callable[[SubjectT], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Breach:
    """A broken rule, in words."""

    code: str
    message: str
    remedy: str
    protects: Grade | None


class Rulebook(Generic[SubjectT]):
    """Rules over one kind of subject, in the order in which they were added."""

    def __init__(self, *books: Rulebook[SubjectT]) -> None:
        """Begin with the rules of ``books``, if any."""
        self.rules: tuple[Rule[SubjectT], ...] = tuple(rule for book in books for rule in book)

    def __iter__(self) -> Iterator[Rule[SubjectT]]:
        return iter(self.rules)

    def rule(
        self,
        code: str,
        sentence: str,
        *,
        remedy: str,
        protects: Grade | None,
        needs: Collection[str] = (),
    ) -> Callable[[Callable[[SubjectT], Iterable[str]]], Callable[[SubjectT], Iterable[str]]]:
        """Return a decorator that adds its function as the rule ``code``."""

        def add(find: Callable[[SubjectT], Iterable[str]]) -> Callable[[SubjectT], Iterable[str]]:
            entry = Rule(code, sentence, remedy, protects, frozenset(needs), find)
            self.rules = (*self.rules, entry)
            return find

        return add

    def breaches(self, subject: SubjectT, malformed: Collection[str] = ()) -> Iterator[Breach]:
        """Yield every breach by ``subject``; at most a handful of sentences for each rule."""
        for rule in self.rules:
            if rule.needs.isdisjoint(malformed):
                messages = iter(rule.find(subject))
                # Nearly every rule is kept, and then there is nothing to bound.
                first = next(messages, None)
                if first is not None:
                    for message in _bounded(chain((first,), messages)):
                        yield Breach(rule.code, one_line(message), rule.remedy, rule.protects)


def _bounded(messages: Iterator[str]) -> Iterator[str]:
    yield from islice(messages, _REPORTED_PER_RULE)
    more = sum(1 for _ in islice(messages, _COUNTED_PER_RULE))
    if more:
        least = "at least " if more == _COUNTED_PER_RULE else ""
        yield f"The same holds {least}{more:,} more times."
