"""Figures and notes that are shown next to the judged ones and never decide anything.

Wall tokens per second, instructions per token, and notes on how the run was observed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_flamegate.core.text import list_some, shorten, significant
from pytest_flamegate.gate.comparability import engine_differences
from pytest_flamegate.gate.costs import CostChange
from pytest_flamegate.gate.measurement import Measurement, impossible_figure_error
from pytest_flamegate.gate.rule import Reason, Signal
from pytest_flamegate.profile.calls import NativeWork
from pytest_flamegate.receipt.types import Direction, Evidence

WALL_TOKENS_PER_SECOND = "tokens_per_second_wall"
INSTRUCTIONS_PER_TOKEN = "instructions_per_token"
_SHOWN_PCT = 0.01
_SAME_PCT = 2.0
"""A smaller change of a function's instructions does not explain one of its cost."""
_SAME_CALLS = 0.05
"""A smaller relative change of a function's calls is none: its instructions explain it alone."""
_DIGEST_LENGTH = 12
_TOKEN_LENGTH = 40
_NAMED = 4


def wall_signals(
    baseline: Measurement | None, current: Measurement, evidence: Evidence
) -> tuple[Signal, ...]:
    """Return tokens per second on the wall clock; none if both sides shared a core."""
    if any(run.shares_core for run in evidence.runs):
        return ()
    old = baseline.wall_tokens_per_second if baseline is not None else None
    new = current.wall_tokens_per_second
    return (_show(WALL_TOKENS_PER_SECOND, old, new, current.unit, "higher_is_better"),)


def instruction_signals(baseline: Evidence, current: Evidence) -> tuple[Signal, ...]:
    """Return instructions per token, if they were counted now; compared if they were before.

    Raises ``UndecidedError`` ``E_IMPOSSIBLE_FIGURE`` for a count that cannot be.
    """
    old, new = _instructions(baseline), _instructions(current)
    if new is None:
        return ()
    signal = _show(INSTRUCTIONS_PER_TOKEN, old, new, "instructions", "lower_is_better")
    if signal.change_pct is None:
        return (signal,)
    change = f"{abs(signal.change_pct):.2f} % {'more' if signal.change_pct > 0.0 else 'fewer'}"
    if abs(signal.change_pct) < _SHOWN_PCT / 2:
        change = f"unchanged to {_SHOWN_PCT:g} %"
    message = (
        f"Instructions per token: {change}. This counts work, not time: it is blind to cache and "
        "memory, so fewer instructions may be slower and more may be faster. A few tenths of a "
        "percent may only be another layout of memory."
    )
    return (replace(signal, reasons=(Reason("I_INSTRUCTIONS", message),)),)


def explain_costs(
    costs: Sequence[CostChange],
    work: tuple[Mapping[str, NativeWork], Mapping[str, NativeWork]] | None,
) -> tuple[Reason, ...]:
    """Return why functions certainly cost more or less, if their instructions show it.

    ``work`` is that of base and head by function; None if instructions were not counted.
    """
    causes = []
    base, head = work or ({}, {})
    for cost in costs:
        old, new = base.get(cost.name), head.get(cost.name)
        if cost.is_certain and old and new and old.instructions and new.instructions:
            causes.append(f"{cost.name}: {_describe_work(old, new, is_more=cost.change_us > 0.0)}")
    return (Reason("I_CAUSE", f"{'; '.join(causes[:_NAMED])}."),) if causes else ()


def _describe_work(old: NativeWork, new: NativeWork, *, is_more: bool) -> str:
    """Return ``called 2.0 times as often``, ``98 % more instructions in the same calls`` etc."""
    times = new.calls / old.calls if old.calls and new.calls else 1.0
    if abs(times - 1.0) < _SAME_CALLS:
        times = 1.0
    more_pct = 100.0 * (new.instructions / old.instructions / times - 1.0)
    called = "" if times == 1.0 else f"called {significant(times, 2)} times as often"
    if abs(more_pct) >= _SAME_PCT:
        more = f"{abs(more_pct):.0f} % {'more' if more_pct > 0.0 else 'fewer'} instructions"
        calls = " a call" if called else " in the same calls" if old.calls and new.calls else ""
        return f"{called}{', with ' if called else ''}{more}{calls}"
    return called or (
        f"the same instructions, {'more' if is_more else 'less'} time: memory, caches or waiting"
    )


def _show(name: str, old: float | None, new: float, unit: str, direction: Direction) -> Signal:
    """Return a figure that is never gated, with its change if there is one to compare with."""
    change_pct = 100.0 * (new / old - 1.0) if old else None
    return Signal(name, old, new, unit, direction, "not_gated", change_pct)


def _instructions(evidence: Evidence) -> float | None:
    counts = (each.value for each in evidence.metrics if each.name == INSTRUCTIONS_PER_TOKEN)
    count = next(counts, None)
    if count is not None and not 0.0 < count < math.inf:
        raise impossible_figure_error(count, "number of instructions per token")
    return count


def find_notes(baseline: Evidence | None, current: Evidence) -> tuple[Reason, ...]:
    """Return notes that decide nothing and may explain much; ``baseline`` is None without one.

    ``I_ENGINE_DIFFERS`` names versions that the two engines report, ``W_NOT_DETERMINISTIC`` the
    first token that differs between sequences, ``W_ENVIRONMENT`` the variables that the process
    did not have as requested, and ``W_SAME_PROGRAM`` two sides of one program.
    """
    engines = engine_differences(baseline, current) if baseline is not None else ()
    return (
        *(Reason(each.code, each.message) for each in engines),
        *_note_other_tokens(current),
        *_note_environment(current),
        *_note_programs(baseline, current),
    )


def _note_other_tokens(evidence: Evidence) -> Iterator[Reason]:
    if (at := evidence.differs_at) is None:
        return
    first = _quote(evidence.tokens[at] if at < len(evidence.tokens) else None)
    was = f"{first} in the first run and {_quote(evidence.differs_to)}"
    if evidence.answers:  # it may be an answer to a prompt whose tokens are not listed
        was = f"another one ({_quote(evidence.differs_to)})"
    yield Reason.advise(
        "W_NOT_DETERMINISTIC",
        f"The same prompt gave other tokens: token {at} was {was} in a later one. Other tokens "
        "are other work.",
    )


def _quote(token: str | None) -> str:
    if token is None:
        return "missing, because it had ended,"
    return repr(shorten(token, _TOKEN_LENGTH))


def _note_environment(evidence: Evidence) -> Iterator[Reason]:
    requested, effective = evidence.requested_environment, evidence.effective_environment
    if evidence.program is None or not effective:
        return  # a fork has what it changed itself, and elsewhere it could not be read
    other = [
        f"{name} was {effective[name]!r} and not {value!r}"
        if name in effective
        else f"{name} was not set, and not {value!r}"
        for name, value in sorted(requested.items())
        if effective.get(name) != value
    ]
    if other:
        yield Reason(
            "W_ENVIRONMENT",
            f"The process did not have the environment that was requested: "
            f"{list_some(other, _NAMED)}. A wrapper script, or the engine itself, "
            "overrides these variables.",
        )


def _note_programs(baseline: Evidence | None, current: Evidence) -> Iterator[Reason]:
    if baseline is None or baseline.program is None or current.program is None:
        return
    new = current.program
    if new.interpreter is not None:
        return  # a script may stay the same and start another program
    if baseline.program.sha256 == new.sha256 and current.side is not None and new.inside:
        yield Reason(
            "W_SAME_PROGRAM",
            f"Both sides ran the very same program, {new.path} (sha256 "
            f"{new.sha256[:_DIGEST_LENGTH]}): its code did not change between them.",
        )
