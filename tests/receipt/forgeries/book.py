"""Kinds of forgery as data: the change, the expected answer, and the function that forges."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Literal

from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from tests.receipt.forgeries.draft import EVIDENCE, FOLDED, RECEIPT, Draft, Files, load

Make = Callable[[Draft, Random], Files | None]
"""Forges a draft. If no files are returned, they are made of the changed draft; see ``Then``."""
Then = Literal["seal", "retime", "recount", "recompute", "alone"]
"""What the forger puts right: the digests, and before that figures, hotspots or both; or nothing,
because only the receipt is handed in."""
Fate = Literal["refused", "lowered", "suspected", "passes"]
Outcome = Literal["right", "otherwise", "passed"]

SERVED = ("embedded-10tok", "embedded-1tok", "callable")
"""Material of engines that are served: measured by the sequence."""
LONG = ("embedded-10tok", "callable")
"""The same with more than one token a sequence."""
EMBEDDED = ("embedded-10tok", "embedded-1tok")
"""Those of an engine whose model file and tokenizer are at hand."""
PROGRAM = ("program",)
PAIR = ("pair-head",)
ALL = (*SERVED, *PROGRAM)
ONE = ("embedded-10tok",)
_SENTENCE = re.compile(r"(?!.*(None|XX)).*[a-z]{3}.*\.")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True)
class Attempt:
    """One variation: the answer about its files."""

    answer: Verification

    @property
    def refused(self) -> set[str]:
        return {refusal.code for refusal in self.answer.refusals}

    @property
    def codes(self) -> set[str]:
        """Codes of everything that was found."""
        return self.refused | {notice.code for notice in self.answer.warnings}


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One kind of forgery.

    ``does`` says what the forger does and hopes. Of ``codes`` one must be found: among the
    refusals if the ``fate`` is ``refused``. ``finds`` names the means that would find a kind that
    passes. ``wishes`` are the reader's options.
    """

    name: str
    group: str
    does: str
    fate: Fate
    make: Make
    codes: frozenset[str] = frozenset()
    finds: str = ""
    of: tuple[str, ...] = ALL
    then: Then = "seal"
    wishes: Mapping[str, Any] = field(default_factory=dict)

    def attempt(self, source: Random) -> Attempt:
        """Forge once more and have it verified, an hour after the evidence was written."""
        material = source.choice(self.of)
        draft = load(material)
        files = self.make(draft, source)
        if files is None and self.then == "alone":
            files = alone(draft)
        elif files is None:
            if self.then in ("retime", "recompute"):
                draft.retime()
            if self.then in ("recount", "recompute"):
                draft.recount()
            files = draft.reseal().files()
        now = load(material).created + timedelta(hours=1)
        return Attempt(verify(files, **{"now": now, **self.wishes}))

    def outcome(self, attempt: Attempt) -> Outcome:
        """Return the outcome: stopped by the right code, by another, or not at all."""
        found = bool(self.codes & attempt.codes) or not self.codes
        if self.fate == "suspected":
            return "right" if found else "passed"
        if self.fate == "lowered":
            stopped = attempt.answer.grade < Grade.OBSERVED
            found &= attempt.answer.ok
        else:
            stopped = not attempt.answer.ok
            found = bool(self.codes & attempt.refused)
        if not stopped:
            return "passed"
        return "right" if found else "otherwise"


class Book:
    """The kinds of one group, in the order in which they were added.

    A decorator adds the function below it as a kind that is rejected with one of the codes, that
    cannot reach OBSERVED, that only a notice points to, or that no verifier of files can find.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self.kinds: list[Kind] = []

    def __iter__(self) -> Iterator[Kind]:
        return iter(self.kinds)

    def _add(self, fate: Fate, *codes: str, **more: Any) -> Callable[[Make], Make]:
        def add(make: Make) -> Make:
            does = " ".join((make.__doc__ or "").split())
            name = make.__name__.replace("_", "-")
            self.kinds.append(Kind(name, self.group, does, fate, make, frozenset(codes), **more))
            return make

        return add

    def refused(self, *codes: str, **more: Any) -> Callable[[Make], Make]:
        return self._add("refused", *codes, **more)

    def lowered(self, *codes: str, **more: Any) -> Callable[[Make], Make]:
        return self._add("lowered", *codes, **more)

    def suspected(self, *codes: str, **more: Any) -> Callable[[Make], Make]:
        return self._add("suspected", *codes, **more)

    def passes(self, finds: str, **more: Any) -> Callable[[Make], Make]:
        return self._add("passes", finds=finds, **more)


def verify(files: Files, **options: Any) -> Verification:
    """Verify files as they would stand beside each other; the answer is in whole sentences."""
    answer = verify_receipt(
        files[RECEIPT], evidence=files.get(EVIDENCE), profile_folded=files.get(FOLDED), **options
    )
    for finding in (*answer.refusals, *answer.warnings, *answer.unfit):
        assert _SENTENCE.fullmatch(_QUOTED.sub("it", finding.message)), finding.message
    return answer


def alone(draft: Draft) -> Files:
    """Return the receipt by itself: missing evidence contradicts nothing."""
    return {RECEIPT: draft.files()[RECEIPT]}
