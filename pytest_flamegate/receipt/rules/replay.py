"""Rules over a receipt and a replay of it, a second run of its workload.

A replay that agrees earns the grade REPLAYED. One that contradicts rejects the receipt. One that
could not compare everything says why, and the grade stays as it was.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pytest_flamegate.core.text import first_difference, quote
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.observe.observation import Answer, find_other_answers
from pytest_flamegate.receipt.rules.rule import Rulebook, Submission
from pytest_flamegate.receipt.types import Grade

RateAnswer = Literal["inside", "claim_faster", "claim_slower", "other_machine", "unknown"]


@dataclass(frozen=True, slots=True)
class RateAgain:
    """The claimed tokens per second, and those of a replay.

    ``here`` (from ``low`` to ``high``) is the claimed rate times the ratio of both sets of
    processes. ``wall`` is the rate of the replay's runs on the wall clock. ``why`` says why the
    rates cannot be compared.
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
    """The result of running a receipt's workload again, made by ``run/replay``.

    ``tokens`` are those of the first sequence; in the one at ``differs_at`` a later sequence
    differed. ``version``, ``commit`` and ``machine`` state in words how they changed since the
    measurement. ``redacted`` are the parts of the recipe that the evidence does not contain.
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
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    """A receipt with its evidence, and the result of running its workload again."""

    case: Submission
    replayed: Replayed


CHECKS: Rulebook[Replay] = Rulebook(protects=Grade.OBSERVED)
SHORTFALLS: Rulebook[Replay] = Rulebook(protects=Grade.REPLAYED)


@CHECKS.rule(
    "E_REPLAY_OF_ANOTHER", "The replay was made for this receipt.", protects=Grade.REPLAYED
)
def _check_receipt(replay: Replay) -> Iterator[str]:
    # A replay that is handed in as data may be of any receipt.
    if replay.replayed.receipt_sha256 != replay.case.receipt_sha256:
        made_for, given = replay.replayed.receipt_sha256, replay.case.receipt_sha256
        yield f"The replay is of the receipt {made_for[:12]}, not {given[:12]}."


@CHECKS.rule("E_REPLAY_TOKENS", "The replay generated the same tokens.")
def _check_tokens(replay: Replay) -> Iterator[str]:
    # Otherwise it is another model, prompt or program, or nothing generated these tokens.
    if not replay.case.claim.deterministic:
        return
    claimed, here = replay.case.evidence.tokens, replay.replayed.tokens
    changed = _changed(replay.replayed)
    if replay.replayed.differs_at is not None:
        at = replay.replayed.differs_at
        yield f"deterministic is true, but sequences of the replay differ at token {at}{changed}."
    elif not here or token_digest(here) != token_digest(claimed):
        at = first_difference(claimed, here)
        yield (
            f"Token {at} is {_token(claimed, at)} in the evidence, but {_token(here, at)} in the "
            f"replay{changed}."
        )
    elif others := find_other_answers(replay.case.evidence.answers, replay.replayed.answers):
        numbers = ", ".join(str(each.prompt + 1) for each, _ in others)
        yield f"The replay answered prompt {numbers} with other tokens{changed}."


@CHECKS.rule("E_REPLAY_RATE", "The claimed rate is not above that of the replay.")
def _check_rate(replay: Replay) -> Iterator[str]:
    # If all times were scaled alike, the receipt agrees with itself; only a replay differs.
    if replay.replayed.rate.answer == "claim_faster":
        yield f"{describe_rates(replay.replayed.rate)}: too fast{_changed(replay.replayed)}."


@SHORTFALLS.rule("W_REPLAY_NOT_DETERMINISTIC", "The receipt claims determinism.")
def _check_determinism(replay: Replay) -> Iterator[str]:
    if not replay.case.claim.deterministic:
        yield "The receipt states deterministic: false, so its tokens cannot be compared."


@SHORTFALLS.rule(
    "W_REPLAY_RATE", "The rate of the replay can be compared, and the claimed one is not below it."
)
def _check_comparable_rate(replay: Replay) -> Iterator[str]:
    rate = replay.replayed.rate
    if rate.answer == "claim_slower":
        yield f"{describe_rates(rate)}: faster here{_changed(replay.replayed)}."
    elif rate.answer == "other_machine":
        differs = "; ".join(replay.replayed.machine)
        yield f"The rate cannot be compared on another class of machine: {differs}."
    elif rate.answer == "unknown":
        yield f"The rate cannot be compared: {rate.why}"


@SHORTFALLS.rule(
    "W_REPLAY_CHANGED",
    "The replay ran on the same commit, version, machine and recipe.",
    protects=None,
)
def _check_conditions(replay: Replay) -> Iterator[str]:
    replayed = replay.replayed
    if replayed.rate.answer != "other_machine":
        yield from (f"On this machine of the same class, {each}." for each in replayed.machine)
    for changed in (replayed.version, replayed.commit):
        if changed is not None:
            yield f"{changed}."
    if replayed.redacted:
        # Secrets are never recorded, so the replay used those that are declared here.
        names = ", ".join(map(quote, replayed.redacted))
        yield f"{names} is redacted in the evidence, so the replay used the value declared here."


def describe_rates(rate: RateAgain) -> str:
    """Return both rates as one clause: ``512 tok/s claimed, 498 (471 to 527) here``."""
    if rate.here is None or rate.low is None or rate.high is None:
        return f"{_figure(rate.claimed)} tok/s claimed"
    return (
        f"{_figure(rate.claimed)} tok/s claimed, {_figure(rate.here)} "
        f"({_figure(rate.low)} to {_figure(rate.high)}) here"
    )


def _figure(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _token(tokens: tuple[str, ...], at: int) -> str:
    return quote(tokens[at]) if at < len(tokens) else "missing"


def _changed(replayed: Replayed) -> str:
    """Return a clause that names changed conditions, because they may be the reason."""
    named = [name for name in ("commit", "version", "machine") if getattr(replayed, name)]
    return f" (on another {' and another '.join(named)})" if named else ""
