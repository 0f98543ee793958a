"""What a replay says of a receipt: rules over both, as over receipt and evidence.

A replay that holds is worth the grade REPLAYED. One that contradicts refuses the receipt; one
that could not compare everything says what, and the grade stays where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core.text import quote
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.replayed import RateAgain, Replayed
    from pytest_flamegate.receipt.rules.subject import Case


@dataclass(frozen=True, slots=True)
class Replay:
    """A receipt with its evidence, and what came of running its workload again."""

    case: Case
    replayed: Replayed


CHECKS: Rulebook[Replay] = Rulebook()
SHORTFALLS: Rulebook[Replay] = Rulebook()

_AGAIN = "Measure again, or replay where it was measured: its commit, its machine, its versions."


@CHECKS.rule(
    "E_REPLAY_OF_ANOTHER",
    "The replay was made for this very receipt.",
    remedy="Replay this receipt.",
    protects=Grade.REPLAYED,
)
def _of_another(replay: Replay) -> Iterator[str]:
    # A replay handed over as data may be of any receipt.
    if replay.replayed.receipt_sha256 != replay.case.receipt_sha256:
        yield (
            f"The replay was made for the receipt {replay.replayed.receipt_sha256[:12]}, and this "
            f"one is {replay.case.receipt_sha256[:12]}."
        )


@CHECKS.rule(
    "E_REPLAY_TOKENS",
    "The same tokens came out here.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"deterministic"},
)
def _other_tokens(replay: Replay) -> Iterator[str]:
    # Another model, prompt or program, or tokens that nobody generated.
    if not replay.case.claim.deterministic:
        return
    claimed, here = replay.case.evidence.tokens, replay.replayed.tokens
    changed = _changed(replay.replayed)
    if replay.replayed.differs_at is not None:
        yield (
            "Determinism is claimed, and here two sequences differ at token "
            f"{replay.replayed.differs_at}{changed}."
        )
    elif not here or token_digest(here) != token_digest(claimed):
        at = next(
            (i for i, (one, two) in enumerate(zip(claimed, here, strict=False)) if one != two),
            min(len(claimed), len(here)),
        )
        yield (
            f"Token {at} is {_token(claimed, at)} in the evidence, and {_token(here, at)} here"
            f"{changed}."
        )


@CHECKS.rule(
    "E_REPLAY_RATE",
    "The claimed rate is not above what was obtained here.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"tokens_per_second"},
)
def _claimed_faster(replay: Replay) -> Iterator[str]:
    # A receipt whose times were all scaled alike agrees with itself, and with nothing else.
    if replay.replayed.rate.answer == "claim_faster":
        yield f"{rates(replay.replayed.rate)}: too fast{_changed(replay.replayed)}."


@SHORTFALLS.rule(
    "W_REPLAY_NOT_DETERMINISTIC",
    "The receipt claims determinism.",
    remedy="Make the engine deterministic (seed, threads), and measure again.",
    protects=Grade.REPLAYED,
    needs={"deterministic"},
)
def _not_deterministic(replay: Replay) -> Iterator[str]:
    # Tokens that may be others each time cannot be obtained again.
    if not replay.case.claim.deterministic:
        yield "The receipt says deterministic: false, so its tokens cannot be compared."


@SHORTFALLS.rule(
    "W_REPLAY_SLOWER_CLAIM",
    "The claimed rate is not below what was obtained here.",
    remedy="Measure again: what was claimed is too little.",
    protects=Grade.REPLAYED,
    needs={"tokens_per_second"},
)
def _claimed_slower(replay: Replay) -> Iterator[str]:
    # Nobody gains by claiming too little; but it was not obtained again.
    if replay.replayed.rate.answer == "claim_slower":
        yield f"{rates(replay.replayed.rate)}: faster here{_changed(replay.replayed)}."


@SHORTFALLS.rule(
    "W_REPLAY_OTHER_MACHINE",
    "The replay ran on a machine of the same class.",
    remedy="Replay on a machine of the same class.",
    protects=Grade.REPLAYED,
)
def _other_machine(replay: Replay) -> Iterator[str]:
    # Other hardware is faster or slower for reasons that are nobody's claim.
    if replay.replayed.rate.answer == "other_machine":
        differs = "; ".join(replay.replayed.machine)
        yield f"The speed cannot be compared on another class of machine: {differs}."


@SHORTFALLS.rule(
    "W_REPLAY_RATE_UNKNOWN",
    "The rate here can be compared with the claimed one.",
    remedy="Replay again when the machine is quiet, with more time (--budget).",
    protects=Grade.REPLAYED,
)
def _rate_unknown(replay: Replay) -> Iterator[str]:
    # What cannot be compared was not obtained again.
    if replay.replayed.rate.answer == "unknown":
        yield f"The rate could not be compared: {replay.replayed.rate.why}"


@SHORTFALLS.rule(
    "W_REPLAY_MACHINE_CHANGED",
    "The machine is as it was.",
    remedy="Measure again where that matters.",
    protects=None,
)
def _machine_changed(replay: Replay) -> Iterator[str]:
    # The same hardware under another kernel or interpreter may be of another speed.
    if replay.replayed.rate.answer != "other_machine":
        yield from (
            f"On this machine of the same class, {each}." for each in replay.replayed.machine
        )


@SHORTFALLS.rule(
    "W_REPLAY_OTHER_VERSION",
    "The replay ran under the same version of flamegate.",
    remedy="Replay with that version where it matters.",
    protects=None,
)
def _other_version(replay: Replay) -> Iterator[str]:
    # The embedded engine is part of it.
    if replay.replayed.version is not None:
        yield f"{replay.replayed.version}."


@SHORTFALLS.rule(
    "W_REPLAY_OTHER_COMMIT",
    "The code that was measured is the code that is checked out here.",
    remedy="Check out that commit and replay there: other code may generate other tokens.",
    protects=None,
)
def _other_commit(replay: Replay) -> Iterator[str]:
    # The digest and the rate are of the code that is here.
    if replay.replayed.commit is not None:
        yield f"{replay.replayed.commit}."


@SHORTFALLS.rule(
    "W_REPLAY_REDACTED",
    "Everything that runs stands in the recipe.",
    remedy="Nothing where the values are those of then.",
    protects=None,
)
def _redacted(replay: Replay) -> Iterator[str]:
    # Secrets are never written down, so those declared here were used.
    if replay.replayed.redacted:
        yield (
            f"{', '.join(map(quote, replay.replayed.redacted))} is not written in the evidence, "
            "and ran as declared here."
        )


def rates(rate: RateAgain) -> str:
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
    return quote(tokens[at]) if at < len(tokens) else "the end"


def _changed(replayed: Replayed) -> str:
    """Return what else was not as it was, where something was not: it may be the reason."""
    named = [
        name
        for name, value in (
            ("commit", replayed.commit),
            ("version", replayed.version),
            ("machine", replayed.machine),
        )
        if value
    ]
    return f" (on another {' and another '.join(named)} than then)" if named else ""
