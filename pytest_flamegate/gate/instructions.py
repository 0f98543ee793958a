"""Instructions a token, shown beside what is gated and never gated themselves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.signals import Reason, Signal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.types import Evidence


_SHORT = 12
_TEXT = 40
_NAMED = 4


def find_notes(baseline: Evidence | None, current: Evidence) -> tuple[Reason, ...]:
    """Return what decides nothing and may explain much; ``baseline`` is None without one.

    ``W_NOT_DETERMINISTIC`` names the first token that differs, ``W_KNOBS`` the variables that
    the process did not have as asked for, ``W_SAME_PROGRAM`` two sides of one program, and
    ``I_OTHER_PROGRAM`` two programs of one commit.
    """
    return (*_differs(current), *_knobs(current), *_programs(baseline, current))


def _differs(evidence: Evidence) -> Iterator[Reason]:
    if (at := evidence.differs_at) is None:
        return
    first = _token(evidence.tokens[at] if at < len(evidence.tokens) else None)
    yield Reason(
        "W_NOT_DETERMINISTIC",
        f"The same prompt gave other tokens: token {at} was {first} in the first run and "
        f"{_token(evidence.differs_to)} in a later one. Other tokens are other work. Try greedy "
        "decoding (temperature 0), a fixed seed, threads = 1, and a server with one slot.",
    )


def _token(text: str | None) -> str:
    if text is None:
        return "missing, for it had ended,"
    return repr(text if len(text) <= _TEXT else text[: _TEXT - 1] + "…")


def _knobs(evidence: Evidence) -> Iterator[Reason]:
    asked, had = evidence.requested_environment, evidence.effective_environment
    if evidence.program is None or not had:
        return  # a fork has what it changed itself, and elsewhere nobody could look
    other = [
        f"{name} was {had[name]!r} and not {value!r}"
        if name in had
        else f"{name} was not set, and not {value!r}"
        for name, value in sorted(asked.items())
        if had.get(name) != value
    ]
    if other:
        more = f" and {len(other) - _NAMED} more" if len(other) > _NAMED else ""
        yield Reason(
            "W_KNOBS",
            f"The process did not run as asked for: {', '.join(other[:_NAMED])}{more}. "
            "Something between sets them anew: a script, or the engine itself.",
        )


def _programs(baseline: Evidence | None, current: Evidence) -> Iterator[Reason]:
    if baseline is None or baseline.program is None or current.program is None:
        return
    old, new = baseline.program, current.program
    if old.sha256 == new.sha256:
        if current.side is not None and new.inside:
            yield Reason(
                "W_SAME_PROGRAM",
                f"Both sides ran the very same program, {new.path} (sha256 "
                f"{new.sha256[:_SHORT]}): its code did not change between them.",
            )
        return
    if baseline.commit and current.commit and current.commit.same_code(baseline.commit):
        yield Reason(
            "I_OTHER_PROGRAM",
            f"The commit is the same and the program {new.path} is another (sha256 "
            f"{old.sha256[:_SHORT]} then, {new.sha256[:_SHORT]} now){_flags(baseline, current)}.",
        )


def _flags(baseline: Evidence, current: Evidence) -> str:
    old = baseline.program.build if baseline.program else None
    new = current.program.build if current.program else None
    if old is None or new is None or not (old.ran and new.ran):
        return ": was it built with other flags?"
    names = sorted({*old.environment, *new.environment})
    changed = [name for name in names if old.environment.get(name) != new.environment.get(name)]
    if not changed:
        return ": was it built by another compiler?"
    told = (
        f"{name} {old.environment.get(name)!r} then, {new.environment.get(name)!r} now"
        for name in changed[:_NAMED]
    )
    return ", built with " + ", ".join(told)


INSTRUCTIONS_PER_TOKEN = "instructions_per_token"
INFORMS = "I_INSTRUCTIONS"
BAD_COUNT = "E_BAD_INSTRUCTIONS"
BLIND_SPOT = (
    "This counts work, not time: cache and memory are invisible to it, so fewer instructions may "
    "be slower and more may be faster. A few tenths of a percent may be no more than where things "
    "lie in memory."
)
_SHOWN_PCT = 0.01


def instruction_signals(baseline: Evidence | None, current: Evidence) -> tuple[Signal, ...]:
    """Return the signal where both sides were counted; the count alone where one was."""
    new = _counted(current)
    old = _counted(baseline) if baseline is not None else None
    if new is None:
        return ()
    if old is not None:
        return (judge_instructions(old, new),)
    return (
        Signal(
            name=INSTRUCTIONS_PER_TOKEN,
            baseline=None,
            current=new,
            unit="instructions",
            direction="lower_is_better",
            decision="not_gated",
        ),
    )


def reasons_of(signals: tuple[Signal, ...]) -> tuple[Reason, ...]:
    """Return what the signals say."""
    return tuple(reason for signal in signals for reason in signal.reasons)


def _counted(evidence: Evidence) -> float | None:
    found = (each.value for each in evidence.metrics if each.name == INSTRUCTIONS_PER_TOKEN)
    return next(found, None)


def judge_instructions(baseline_per_token: float, current_per_token: float) -> Signal:
    """Return how much the count of instructions a token changed, in percent; more is worse.

    Raises ``UndecidedError`` ``E_BAD_INSTRUCTIONS`` for a count that is not finite or
    not above zero.
    """
    for side, per_token in (("baseline", baseline_per_token), ("current", current_per_token)):
        if not math.isfinite(per_token) or per_token <= 0.0:
            raise UndecidedError(
                BAD_COUNT,
                f"The {side} side counts {per_token} instructions a token.",
                "Count it again; what has run has executed some, and finitely many.",
            )
    change_pct = 100.0 * (current_per_token / baseline_per_token - 1.0)
    if not math.isfinite(change_pct):
        raise UndecidedError(
            BAD_COUNT,
            f"{baseline_per_token:g} and {current_per_token:g} instructions a token cannot be "
            "compared.",
            "Count both sides again; they are out of all proportion.",
        )
    return Signal(
        name=INSTRUCTIONS_PER_TOKEN,
        baseline=baseline_per_token,
        current=current_per_token,
        unit="instructions",
        direction="lower_is_better",
        decision="not_gated",
        change_pct=change_pct,
        reasons=(Reason(INFORMS, f"Instructions a token: {_in_words(change_pct)}. {BLIND_SPOT}"),),
    )


def _in_words(change_pct: float) -> str:
    if abs(change_pct) < _SHOWN_PCT / 2:
        return f"unchanged to {_SHOWN_PCT:g} %"
    return f"{abs(change_pct):.2f} % {'more' if change_pct > 0.0 else 'fewer'}"
