"""Counted instructions as a profile: what the longer of two runs did more, stack by stack."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_flamegate.profile.callgrind_out import CALLERS, EVENT, NAME
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.roots import cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.profile.callgrind import Counted
    from pytest_flamegate.profile.model import Covers, Frame, Stack

EVAL_LOOP = "_PyEval_EvalFrameDefault"
"""CPython's loop over its bytecode. It stands for every Python function alike."""
C_FUNCTIONS = "Python functions are not seen: CPython's own functions in C are"
SMALLEST = 1e-4
"""A stack with a smaller share of the whole is put down to its function, without its callers."""


def instruction_profile(
    long: Counted, short: Counted | None, *, python: str, notes: tuple[str, ...]
) -> Profile:
    """Return what ``long`` executed more than ``short``; all of it where there is no ``short``.

    Counts are instructions of the whole difference, not of a token. Each function's own
    count is exact: the two runs may place tables and memory differently, so that some
    stacks come out below zero, and that is taken off other stacks of the same function. A
    function that comes out below zero as a whole is left out, and a note says how much
    that makes. ``python`` is the version of the interpreter that ran, empty for another
    program.
    """
    covers: Covers = "process" if short is None else "decode"
    before = _from_eval_loop(short.by_stack) if short is not None else {}
    after = _from_eval_loop(long.by_stack)
    more = {stack: after.get(stack, 0) - before.get(stack, 0) for stack in {**after, **before}}
    stacks, left_out = _settled(more)
    if left_out:
        share = left_out / max(sum(stacks.values()), 1)
        notes += (
            f"functions that took less in the longer run are left out: {left_out:,} "
            f"instructions, {share:.2%}",
        )
    if python:
        notes += (C_FUNCTIONS,)
    profile = Profile(
        profiler=NAME,
        profiler_version=long.valgrind_version,
        event=EVENT,
        rate_hz=0,
        call_graph=f"callers,{CALLERS}",
        python=python,
        stacks=stacks,
        errors=0,
        lost=0,
        complete=0,
        duration_ns=0,
        pids=long.pids,
        degraded=notes,
        covers=covers,
        unit="instructions",
    )
    reaching = sum(count for stack, count in stacks.items() if stack and stack[0].name == EVAL_LOOP)
    whole = cut(profile, None)
    return replace(whole, complete=whole.complete + reaching)


def _from_eval_loop(stacks: Mapping[Stack, int]) -> dict[Stack, int]:
    """Start stacks at the last eval loop in them: outer ones tell nothing apart."""
    found: dict[Stack, int] = {}
    for stack, count in stacks.items():
        start = 0
        for index, frame in enumerate(stack):
            if frame.name == EVAL_LOOP:
                start = index
        kept = stack[start:]
        found[kept] = found.get(kept, 0) + count
    return found


def _settled(more: Mapping[Stack, int]) -> tuple[dict[Stack, int], int]:
    """Return stacks above zero that add up to each function's own count, and what is left out."""
    floor = max(1.0, SMALLEST * sum(more.values()))
    kept: dict[Stack, int] = {}
    alone: dict[Frame, int] = {}
    for stack, count in more.items():
        if count >= floor and len(stack) > 1:
            kept[stack] = count
        else:
            alone[stack[-1]] = alone.get(stack[-1], 0) + count
    heaviest: dict[Frame, list[Stack]] = {}
    for stack in sorted(kept, key=lambda stack: (kept[stack], stack)):
        heaviest.setdefault(stack[-1], []).append(stack)
    left_out = 0
    for frame, count in alone.items():
        owed, own = -count, heaviest.get(frame, [])
        while owed > 0 and own:
            stack = own.pop()
            taken = min(owed, kept[stack])
            kept[stack] -= taken
            owed -= taken
        if owed < 0:
            kept[(frame,)] = -owed
        left_out += max(owed, 0)
    return {stack: count for stack, count in kept.items() if count}, left_out
