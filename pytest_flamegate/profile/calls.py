"""Exact calls of functions on both sides of a comparison, and which of them changed.

A function that is called twice as often calls its own callees twice as often. So calls are
compared by caller: only a function that calls another more or less often *in each of its own
calls* is a cause, and the rest follows from it. Functions of one name are one function, as in a
verdict's costs: a function that moved to another file is the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msgspec import Struct

from pytest_flamegate.child.call_counts import CountedCalls
from pytest_flamegate.core.json import NonNegative
from pytest_flamegate.profile.frames import make_python_frame
from pytest_flamegate.profile.stacks import is_own_frame

WORKLOAD = "(workload)"
"""Stands for the caller outside of the workload."""
Phase = Literal["prefill", "decode"]
Calls = Mapping[tuple[str, str], int]
"""Calls by the names of caller and callee."""


class NativeWork(NamedTuple):
    """A native function's own instructions and its calls, for each token."""

    instructions: float
    calls: float = 0.0


@dataclass(frozen=True, slots=True)
class CallCounts:
    """The calls of one sequence of ``tokens`` tokens: up to its first one, and from there on.

    Calls of the ``varying`` functions differ between sequences. ``files`` are the functions' own,
    empty for one in C.
    """

    tokens: int
    prefill: Calls
    decode: Calls
    files: Mapping[str, str]
    varying: frozenset[str] = frozenset()


class CallChange(Struct, frozen=True):
    """A function that is called more or less often than before; a row of ``verdict.json``.

    ``baseline`` and ``current`` are calls per token in decode, per sequence in prefill. ``callers``
    are the functions that cause it, empty if it only follows from another change.
    """

    function: str
    file: str
    phase: Phase
    baseline: NonNegative
    current: NonNegative
    callers: tuple[str, ...] = ()


def name_calls(recorded: CountedCalls, roots: Sequence[str]) -> CallCounts:
    """Name the functions as those of a profile; flamegate's own are left out.

    ``roots`` are the directories below which paths become relative, see ``path_prefixes``.
    """
    prefill, decode = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    files: dict[str, str] = {}
    varying: set[str] = set()
    for call in recorded.calls:
        caller = make_python_frame(call.caller, call.caller_file, roots)
        callee = make_python_frame(call.callee, call.callee_file, roots)
        is_outside = not call.caller or is_own_frame(caller)
        if is_own_frame(callee) or (is_outside and not callee.module):
            continue
        edge = WORKLOAD if is_outside else caller.name, callee.name
        prefill[edge] += call.prefill
        decode[edge] += call.decode
        files[callee.name] = callee.module
        if call.varies:
            varying.add(callee.name)
    return CallCounts(recorded.tokens, prefill, decode, files, frozenset(varying))


def find_call_changes(
    base: CallCounts, head: CallCounts, costs: Mapping[str, float]
) -> tuple[CallChange, ...]:
    """Return every function whose calls changed: causes first, then by their ``costs``.

    ``costs`` are the changes of the cost of functions by name. Empty if a side was not counted, or
    generated another number of tokens.
    """
    if not base.tokens or base.tokens != head.tokens:
        return ()
    phases: tuple[tuple[Phase, Calls, Calls, int], ...] = (
        ("prefill", base.prefill, head.prefill, 1),
        ("decode", base.decode, head.decode, max(base.tokens - 1, 1)),
    )
    totals = [_count_callees(side.prefill) + _count_callees(side.decode) for side in (base, head)]
    files = {**base.files, **head.files}
    found: list[CallChange] = []
    for phase, before, after, units in phases:
        old, new = _count_callees(before), _count_callees(after)
        callers = _find_causes((before, after), (old, new), totals)
        found += [
            CallChange(
                function=name,
                file=files[name],
                phase=phase,
                baseline=old[name] / units,
                current=new[name] / units,
                callers=tuple(sorted(callers[name])),
            )
            for name in {**old, **new}
            if old[name] != new[name] and name not in base.varying | head.varying
        ]

    def rank(change: CallChange) -> tuple[object, ...]:
        cost = abs(costs.get(change.function.rpartition(".")[2], 0.0))
        size = abs(change.current - change.baseline)
        return not change.callers, -cost, -size, change.function, change.phase

    return tuple(sorted(found, key=rank))


def _count_callees(calls: Calls) -> Counter[str]:
    """Return the calls of each function, by any caller."""
    counts: Counter[str] = Counter()
    for (_, callee), number in calls.items():
        counts[callee] += number
    return counts


def _find_causes(
    calls: tuple[Calls, Calls],
    in_phase: tuple[Counter[str], Counter[str]],
    totals: Sequence[Counter[str]],
) -> defaultdict[str, set[str]]:
    """Return, for each function, the callers that call it more or less often in each own call.

    A caller that runs on one side alone is none: its own first call is the change. A caller that
    was called in an earlier phase and still runs (a generator) is counted with that phase, and one
    that was called before all phases (the loop of a thread) as called once.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for edge in {**calls[0], **calls[1]}:
        caller, callee = edge
        base_own, head_own = (each[caller] for each in in_phase)
        if not (base_own and head_own):
            base_own, head_own = (each[caller] for each in totals)
        if not (base_own or head_own):
            base_own = head_own = 1
        before, after = (each.get(edge, 0) for each in calls)
        if base_own and head_own and before * head_own != after * base_own:
            found[callee].add(caller)
    return found
