"""Instructions a token: one workload counted twice, and the difference taken.

A run of many tokens less a run of one leaves the decode: start, load and prefill are
in both. A program that cannot be told how many tokens to make is counted as it is.
"""

from __future__ import annotations

import json
import platform
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.child import serve, wire
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.engines import base
from pytest_flamegate.engines.base import Endpoint, Served, Streamed
from pytest_flamegate.engines.command import replace_max_tokens
from pytest_flamegate.observe import served
from pytest_flamegate.observe.engine_process import check_token_count, read_child_error
from pytest_flamegate.observe.streamed import AnswerReader
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers import trial
from pytest_flamegate.profile.profilers.callgrind import (
    CALLERS,
    DIED,
    EVENT,
    NAME,
    Counted,
    contradiction_error,
    count_program,
)
from pytest_flamegate.profile.profilers.errors import output_error
from pytest_flamegate.profile.stacks import trim_stacks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Plan
    from pytest_flamegate.profile.model import Covers, Frame, Stack


EVAL_LOOP = "_PyEval_EvalFrameDefault"
"""CPython's loop over its bytecode. It stands for every Python function alike."""
C_FUNCTIONS = "Python functions are not seen: CPython's own functions in C are"
SMALLEST = 1e-4
"""A stack with a smaller share of the whole is put down to its function, without its callers."""


def build_instruction_profile(
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
    whole = trim_stacks(profile, None)
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


FEW, MANY = 1, 9
"""Tokens of the two runs. A count repeats to 0.01 %, so eight tokens are plenty."""
TIMEOUT_TIMES = 10
"""How much more than the workload's own time-out a run may take under valgrind."""
WHOLE = "the whole process is counted, start, load and prefill with it"
NO_PLACEHOLDER = f"{WHOLE}: its command does not say {{max_tokens}}"
ONE_TOKEN = f"{WHOLE}: one token leaves nothing to subtract"
THREADS = "threads take turns under valgrind: if they spin while they wait, the count varies"

_Run = tuple[Counted, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class InstructionCount:
    """Instructions for each token, and which functions they were in.

    ``tokens`` are those of the two runs the difference was taken of; the first is 0
    where nothing was subtracted. ``profile`` holds the instructions of all of them, and
    says what is known of how they were counted.
    """

    per_token: float
    tokens: tuple[int, int]
    profile: Profile


def count_instructions(plan: Plan, workload: Workload, env: Mapping[str, str]) -> InstructionCount:
    """Count the workload in the environment ``env``, which is that of the engine.

    Raises what ``count_program`` raises; ``UsageError`` ``E_CANNOT_COUNT_CALLABLE`` for
    a callable of this process, ``E_CANNOT_COUNT_SERVER`` for a server,
    ``E_CANNOT_COUNT_ENGINE`` for tokens by the engine's word; ``ToolError``
    ``E_OTHER_TOKENS`` where an engine made more or fewer tokens than it was asked for,
    ``E_TOKENS_DIFFER`` where the two runs do not begin alike, ``E_PROFILE_CONTRADICTS`` where
    more tokens took no more instructions; and what the engine itself refuses.
    """
    if isinstance(plan, Served) and plan.call is not None:
        raise UsageError(
            "E_CANNOT_COUNT_CALLABLE",
            f"{workload.name!r} is a callable of this process, and no copy of a running process "
            "can be counted.",
            'Declare a workload with engine = "python" and target = "module:function" instead.',
        )
    if isinstance(plan, Streamed) and plan.token_unit == base.UNIT:
        raise UsageError(
            "E_CANNOT_COUNT_ENGINE",
            f"{workload.name!r} counts its tokens by the engine's word, and what valgrind prints "
            "stands among its words.",
            'Count by token_unit = "word" or "tokenizer" to have instructions counted.',
        )
    if isinstance(plan, Endpoint):
        raise UsageError(
            "E_CANNOT_COUNT_SERVER",
            f"{workload.name!r} asks a server, whose start and waiting would be counted with it.",
            "Count the engine as a command or a Python target, or profile the server by sampling.",
        )
    many = min(MANY, workload.max_tokens)
    whole = None
    if not isinstance(plan, Served) and replace_max_tokens(plan, workload, many) is None:
        whole = NO_PLACEHOLDER
    elif many <= FEW:
        whole = ONE_TOKEN
    if whole is not None:
        return _whole(plan, workload, env, whole)
    short = _exactly(plan, workload, env, FEW)
    long = _exactly(plan, workload, env, many)
    if long[1][:FEW] != short[1]:
        raise ToolError(
            "E_TOKENS_DIFFER",
            f"Two runs of {workload.name!r} do not begin with the same token.",
            "Make the engine deterministic: greedy decoding, a fixed seed, one thread.",
        )
    return _difference(plan, workload, short[0], long[0], (FEW, many))


def _whole(plan: Plan, workload: Workload, env: Mapping[str, str], note: str) -> InstructionCount:
    counted, tokens = _run(plan, workload, env, workload.max_tokens)
    check_token_count(workload, len(tokens))
    profile = build_instruction_profile(
        counted,
        None,
        python=_python(plan),
        notes=(note, *_notes(workload), *counted.notes),
    )
    return InstructionCount(counted.instructions / len(tokens), (0, len(tokens)), profile)


def _difference(
    plan: Plan, workload: Workload, short: Counted, long: Counted, tokens: tuple[int, int]
) -> InstructionCount:
    per_token = (long.instructions - short.instructions) / (tokens[1] - tokens[0])
    if per_token <= 0.0:
        raise contradiction_error(
            f"{tokens[1]} tokens took no more instructions ({long.instructions}) than "
            f"{tokens[0]} ({short.instructions})"
        )
    notes = tuple(dict.fromkeys((*_notes(workload), *short.notes, *long.notes)))
    profile = build_instruction_profile(long, short, python=_python(plan), notes=notes)
    return InstructionCount(per_token, tokens, profile)


def _python(plan: Plan) -> str:
    """Return the version of the interpreter that runs the engine, if one is known to."""
    if not isinstance(plan, Served):
        return ""
    return trial.tool_version(plan.python) if plan.python else platform.python_version()


def _notes(workload: Workload) -> tuple[str, ...]:
    return (THREADS,) if workload.threads > 1 else ()


def _exactly(plan: Plan, workload: Workload, env: Mapping[str, str], tokens: int) -> _Run:
    counted, made = _run(plan, workload, env, tokens)
    if len(made) != tokens:
        raise ToolError(
            "E_OTHER_TOKENS",
            f"The engine of {workload.name!r} was asked for {tokens} tokens and made {len(made)}.",
            "Check that max_tokens reaches the engine, that token_unit suits its output, and "
            "that the answer to the prompt is long enough.",
        )
    return counted, made


def _run(plan: Plan, workload: Workload, env: Mapping[str, str], tokens: int) -> _Run:
    # Bytecode that the first run left behind would spare the second its compiling.
    settled = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
    if isinstance(plan, Served):
        return _served(plan, workload, settled, tokens)
    assert isinstance(plan, Streamed)
    counted = count_program(
        replace_max_tokens(plan, workload, tokens) or plan.argv,
        env=settled,
        cwd=workload.directory,
        timeout_s=workload.timeout_s * TIMEOUT_TIMES,
    )
    cutter: AnswerReader[int] = AnswerReader(plan)
    made = [*cutter.feed(counted.stdout, 0), *cutter.finish()]
    return counted, tuple(text for text, _ in made)


def _served(plan: Served, workload: Workload, env: Mapping[str, str], tokens: int) -> _Run:
    spec = json.dumps({**plan.load, "prompt": workload.prompt, "max_tokens": tokens})
    with tempfile.TemporaryDirectory(prefix="flamegate-") as name:
        answer, told_to_load = Path(name) / "answer", Path(name) / "spec"
        # A prompt may be too long for an argument.
        told_to_load.write_text(spec)
        try:
            counted = count_program(
                [
                    *served.make_command(plan, serve.__name__),
                    *("count", str(answer), str(told_to_load), str(tokens)),
                ],
                env=env,
                cwd=workload.directory,
                timeout_s=workload.timeout_s * TIMEOUT_TIMES,
            )
        except ToolError as error:
            if error.code == DIED and (failure := _failure(_records(answer))) is not None:
                raise failure from None
            raise
        records = _records(answer)
    if not records or records[-1][0] != wire.DONE:
        raise output_error("the counted process", "its answer has no end")
    made = [str(value) if kind == wire.TOKEN else text for kind, value, text in records[:-1]]
    return counted, tuple(made)


def _records(answer: Path) -> list[tuple[bytes, int, str]]:
    try:
        return wire.Parser().feed(answer.read_bytes())
    except OSError:
        return []


def _failure(records: list[tuple[bytes, int, str]]) -> FlamegateError | None:
    """Return the refusal that the counted process told, if it told one."""
    for kind, _, text in records:
        if kind == wire.FAILED:
            return read_child_error(text)
    return None
