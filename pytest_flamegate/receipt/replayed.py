"""What came of running a receipt's workload again: plain data, made elsewhere, judged here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RateAnswer = Literal["inside", "claim_faster", "claim_slower", "other_machine", "unknown"]


@dataclass(frozen=True, slots=True)
class RateAgain:
    """The claimed tokens per second beside those that were obtained again here.

    ``here``, ``low`` and ``high`` are tokens per second: the claimed rate times the ratio
    between both sets of processes, and the interval of that; None where they cannot be
    compared, and then ``why`` says so. ``wall`` is the plain rate of the runs here, on the wall
    clock, None where they gave none.
    """

    answer: RateAnswer
    claimed: float
    here: float | None = None
    low: float | None = None
    high: float | None = None
    wall: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One replay of the receipt whose bytes have the SHA-256 ``receipt_sha256``.

    ``tokens`` are those of the first sequence here, ``differs_at`` where a later one differed
    from it. ``processes`` were timed. What was not as it was then, each in words and None or
    empty where it was: ``version`` of flamegate, ``commit``, ``machine`` (fields of its
    identity). ``redacted`` are the parts of the recipe that were not written down.
    """

    receipt_sha256: str
    processes: int
    tokens: tuple[str, ...]
    differs_at: int | None
    rate: RateAgain
    version: str | None = None
    commit: str | None = None
    machine: tuple[str, ...] = ()
    redacted: tuple[str, ...] = ()
