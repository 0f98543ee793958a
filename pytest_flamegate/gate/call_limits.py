"""Declared limits of calls per token, judged by exact counts.

Two processes with the same code count the same, so a rise is certain after one run of each side and
there is no interval. Without counts a declared limit leaves the verdict open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_flamegate.config.thresholds import CallLimit, find_call_limit
from pytest_flamegate.core.text import significant
from pytest_flamegate.gate.rule import CALLS, Reason, Signal
from pytest_flamegate.profile.calls import CallChange, CallCounts

_NAMED = 5
_ROUNDING = 1e-9
_UNITS = {"decode": "calls/token", "prefill": "calls/prefill"}


@dataclass(frozen=True, slots=True)
class JudgedCalls:
    """A signal for each limited function that is called more often, and what must be known."""

    signals: tuple[Signal, ...] = ()
    reasons: tuple[Reason, ...] = ()


def judge_calls(
    limits: Mapping[str, CallLimit],
    calls: tuple[CallCounts, CallCounts] | None,
    changes: Sequence[CallChange],
    *,
    paired: bool,
) -> JudgedCalls:
    """Judge the calls of base and head by the declared limits; nothing if none is declared.

    Calls per token are those of decode; calls before the first token are judged by the same limit
    for the whole prefill. ``changes`` are all functions whose calls changed.

    If they cannot be judged a reason says why: ``E_CALLS_NOT_COUNTED``, ``E_FUNCTION_UNKNOWN`` if
    no function of either side matches a limit, ``E_CALLS_VARY`` if a function that is limited by
    its name is not called equally often in every sequence, or any limited one since the change.
    """
    if not limits:
        return JudgedCalls()
    problem = _find_problem(calls, paired=paired)
    if calls is None or problem:
        return JudgedCalls(reasons=(Reason.advise("E_CALLS_NOT_COUNTED", problem),))
    base, head = calls
    functions = base.files.keys() | head.files.keys()
    varying = base.varying | head.varying
    reasons = []
    if unknown := [each for each in limits if not any(map(limits[each].matches, functions))]:
        names = ", ".join(sorted(unknown))
        reasons.append(Reason.advise("E_FUNCTION_UNKNOWN", f"No function is called {names}."))
    # Under a pattern a function that always varied is no fault of the change.
    since = {each for each in head.varying - base.varying if find_call_limit(limits, each)}
    if named := sorted((limits.keys() & varying) | since):
        problem = f"{', '.join(named)}: called more often in some sequences than in others."
        reasons.append(Reason.advise("E_CALLS_VARY", problem))
    signals: list[Signal] = []
    over: list[Signal] = []
    for change in changes:
        limit = find_call_limit(limits, change.function)
        if limit is None or change.current <= change.baseline:
            continue
        is_over = change.current > limit.highest(change.baseline) + _ROUNDING
        signals.append(_make_signal(change, limit, is_over=is_over))
        if is_over:
            over.append(signals[-1])
    if over:
        more = f" And {len(over) - _NAMED} more." if len(over) > _NAMED else ""
        message = f"{'; '.join(map(describe_calls, over[:_NAMED]))}.{more}"
        first = replace(over[0], reasons=(Reason.advise("E_CALLS_ROSE", message),))
        signals[signals.index(over[0])] = first
    elif not reasons:
        left = f"; {len(varying)} that vary between sequences are not judged" if varying else ""
        message = (
            f"The calls of {len(functions):,} functions were counted: none rose beyond its limit"
        )
        reasons.append(Reason("I_CALLS_COUNTED", f"{message}{left}."))
    return JudgedCalls(tuple(signals), tuple(reasons))


def _find_problem(calls: tuple[CallCounts, CallCounts] | None, *, paired: bool) -> str:
    """Return why there is nothing to judge, empty if there is."""
    if not paired:
        return "A stored baseline holds no calls of functions, and counts limits them."
    if calls is None:
        return (
            "counts limits calls of functions, and none were counted: the engine is not Python "
            "that runs here on CPython ≥ 3.12, or another job measured it."
        )
    tokens = [side.tokens for side in calls]
    if not all(tokens):
        side = "base" if not tokens[0] else "head"
        return (
            f"The {side}'s interpreter counts no calls: it is older than CPython 3.12, or traced."
        )
    if tokens[0] != tokens[1]:
        return f"Calls of {tokens[0]} and of {tokens[1]} tokens cannot be compared."
    return ""


def _make_signal(change: CallChange, limit: CallLimit, *, is_over: bool) -> Signal:
    before, after = change.baseline, change.current
    return Signal(
        f"{CALLS}{change.function}",
        before,
        after,
        _UNITS[change.phase],
        "lower_is_better",
        "regressed" if is_over else "pass",
        change_pct=100.0 * (after / before - 1.0) if before else None,
        threshold_pct=100.0 * (limit.highest(before) / before - 1.0) if before else None,
    )


def describe_calls(signal: Signal) -> str:
    """Return ``project: 1 → 2 calls a token``."""
    before, after = significant(signal.baseline or 0.0), significant(signal.current or 0.0)
    unit = signal.unit.replace("/", " a ").replace("a prefill", "in the prefill")
    return f"{signal.name.removeprefix(CALLS)}: {before} → {after} {unit}"
