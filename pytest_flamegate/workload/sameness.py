"""Whether every sequence gave the same tokens: determinism is seen, not declared."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_flamegate.workload.digest import first_difference


@dataclass(slots=True)
class Sameness:
    """Holds every sequence against the first one.

    ``first`` and ``last`` are the tokens of the first and of the latest sequence;
    ``differs_at`` is the index of the first token in which any differed, None where none
    did, and ``differs_to`` what that one had there, None where it had ended.
    """

    first: tuple[str, ...] | None = None
    last: tuple[str, ...] = ()
    differs_at: int | None = None
    differs_to: str | None = None

    def saw(self, tokens: tuple[str, ...]) -> None:
        """Take the tokens of one more sequence."""
        self.last = tokens
        if self.first is None:
            self.first = tokens
        elif self.differs_at is None and tokens != self.first:
            self.differs_at = first_difference(self.first, tokens)
            self.differs_to = next(iter(tokens[self.differs_at :]), None)
