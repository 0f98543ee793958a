"""From what a program writes to the tokens of its answer, in the unit that was declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from pytest_flamegate.workload.own_lines import OwnLines
from pytest_flamegate.workload.split import Splitter
from pytest_flamegate.workload.tokenized import Tokenized

if TYPE_CHECKING:
    from pytest_flamegate.workload.engines.base import Streamed

At = TypeVar("At")

TAIL_BYTES = 32 << 10
"""How much of what was written is kept to be searched."""


class Cutter(Generic[At]):
    """Tokens of an answer, without the lines in which the program speaks of itself."""

    def __init__(self, plan: Streamed) -> None:
        self._own: OwnLines[At] = OwnLines(plan.hearing.markers)
        self._tokens: Splitter[At] | Tokenized[At] = (
            Splitter(plan.token_unit) if plan.tokenizer is None else Tokenized(plan.tokenizer)
        )
        self.unit = plan.token_unit
        self._tail = b""

    @property
    def begun(self) -> bool:
        """Whether a token has begun."""
        return self._tokens.begun

    @property
    def overflows(self) -> bool:
        """Whether a single token, or what the program says of itself, has grown past bounds."""
        return self._tokens.overflows or self._own.overflows

    @property
    def own_lines(self) -> bytes:
        """The lines in which the program spoke of itself; no part of its answer."""
        return self._own.taken

    @property
    def tail(self) -> bytes:
        """The last of all that was written, 32 KiB at most."""
        return self._tail

    def feed(self, data: bytes, at: At) -> list[tuple[str, At]]:
        """Return the tokens that ``data``, seen ``at``, completes, each with its time."""
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        return self._cut(self._own.feed(data, at))

    def finish(self) -> list[tuple[str, At]]:
        """Return what is complete now that the output has ended."""
        return [*self._cut(self._own.finish()), *self._tokens.finish()]

    def _cut(self, pieces: list[tuple[bytes, At]]) -> list[tuple[str, At]]:
        return [token for piece, at in pieces for token in self._tokens.feed(piece, at)]
