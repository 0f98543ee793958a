"""Count the instructions of a token: one workload counted twice, and the difference.

A run of many tokens minus a run of one leaves decode: start, load and prefill are in both. A
program whose number of tokens cannot be set is counted as a whole.
"""

import json
import platform
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_flamegate.child import serve, wire
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.engines import base
from pytest_flamegate.engines.base import Endpoint, Plan, Served, Streamed
from pytest_flamegate.observe import served
from pytest_flamegate.observe.engine_process import check_token_count, read_child_error
from pytest_flamegate.observe.program_output import AnswerReader
from pytest_flamegate.observe.scratch import scratch_prefix
from pytest_flamegate.profile.calls import NativeWork
from pytest_flamegate.profile.model import Frame, Profile, Stack
from pytest_flamegate.profile.profilers import callgrind
from pytest_flamegate.profile.profilers.tools import output_error, tool_version
from pytest_flamegate.profile.stacks import change_stacks, trim_stacks

FEW, MANY = 1, 9
"""Tokens of the two runs. A count repeats to 0.01 %, so eight tokens are plenty."""
TIMEOUT_FACTOR = 10
"""How much longer than the workload's own timeout a run may take under valgrind."""
WHOLE = "the whole process is counted, start, load and prefill with it"
NO_PLACEHOLDER = f"{WHOLE}: its command does not say {{max_tokens}}"
ONE_TOKEN = f"{WHOLE}: one token leaves nothing to subtract"
THREADS = "threads take turns under valgrind: if they spin while they wait, the count varies"
EVAL_LOOP = "_PyEval_EvalFrameDefault"
"""CPython's loop over its bytecode. It stands for every Python function alike."""
C_FUNCTIONS = "Python functions are not seen: CPython's own functions in C are"
SMALLEST = 1e-4
"""A stack with a smaller share of the whole is counted for its function, without callers."""

_Run = tuple[callgrind.CountedRun, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class InstructionCount:
    """Instructions for each token; ``profile`` holds those of all tokens, and notes.

    ``tokens`` are those of the two runs; the first is 0 if nothing was subtracted.
    """

    per_token: float
    tokens: tuple[int, int]
    profile: Profile
    calls: Mapping[str, int] = field(default_factory=dict)
    """Calls of each function by its name, in all tokens."""

    @property
    def by_function(self) -> Mapping[str, NativeWork]:
        """Own instructions and calls of each function for each token."""
        counts: Counter[str] = Counter()
        for stack, count in self.profile.stacks.items():
            counts[stack[-1].name] += count
        few, many = self.tokens
        tokens = many - few
        return {
            name: NativeWork(count / tokens, self.calls.get(name, 0) / tokens)
            for name, count in counts.items()
        }


def count_instructions(plan: Plan, workload: Workload, env: Mapping[str, str]) -> InstructionCount:
    """Count the workload in the environment ``env`` of the engine.

    Raises ``UsageError`` ``E_PROFILER_BLIND``; ``ToolError`` ``E_OTHER_TOKENS`` if a run makes
    other tokens than it should; and the errors of ``count_program`` and of the engine.
    """
    _require_countable(plan, workload)
    many = min(MANY, workload.max_tokens)
    python = ""  # the version of the interpreter that runs the engine
    if isinstance(plan, Served):
        python = tool_version(plan.python) if plan.python else platform.python_version()
    notes = (THREADS,) if workload.threads > 1 else ()
    fixed = isinstance(plan, Streamed) and base.MAX_TOKENS not in " ".join(plan.argv)
    if fixed or many <= FEW:
        whole, tokens = _run(plan, workload, env, workload.max_tokens)
        check_token_count(workload, len(tokens))
        notes = (NO_PLACEHOLDER if fixed else ONE_TOKEN, *notes, *whole.notes)
        profile = build_instruction_profile(whole, None, python=python, notes=notes)
        counted = (0, len(tokens))
        return InstructionCount(whole.instructions / len(tokens), counted, profile, whole.calls)
    short, few_tokens = _count_exactly(plan, workload, env, FEW)
    long, many_tokens = _count_exactly(plan, workload, env, many)
    if many_tokens[:FEW] != few_tokens:
        raise ToolError(
            "E_OTHER_TOKENS", f"Two runs of {workload.name!r} do not begin with the same token."
        )
    per_token = (long.instructions - short.instructions) / (many - FEW)
    if per_token <= 0.0:
        raise output_error(
            callgrind.NAME,
            f"{many} tokens took no more instructions ({long.instructions}) than {FEW} "
            f"({short.instructions})",
        )
    notes = tuple(dict.fromkeys((*notes, *short.notes, *long.notes)))
    profile = build_instruction_profile(long, short, python=python, notes=notes)
    calls = {name: max(each - short.calls.get(name, 0), 0) for name, each in long.calls.items()}
    return InstructionCount(per_token, (FEW, many), profile, calls)


def _require_countable(plan: Plan, workload: Workload) -> None:
    if isinstance(plan, Served) and plan.call is not None:
        reason = "is a callable of this process, and a running process cannot be counted"
    elif isinstance(plan, Streamed) and plan.token_unit == base.UNIT:
        reason = "reports its tokens itself, and valgrind prints among its output"
    elif isinstance(plan, Endpoint):
        reason = "asks a server, whose start and waiting would be counted with it"
    else:
        return
    raise UsageError(
        "E_PROFILER_BLIND",
        f"{workload.name!r} {reason}.",
        "Declare the workload as a command, with token_unit word or tokenizer, or as a Python "
        'target (engine = "python", target = "module:function"); or sample it.',
    )


def _count_exactly(plan: Plan, workload: Workload, env: Mapping[str, str], tokens: int) -> _Run:
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
    """Count one run of ``tokens`` tokens, and return those that it made."""

    def count(argv: Sequence[str]) -> callgrind.CountedRun:
        # With bytecode that the first run leaves behind the second would not compile.
        return callgrind.count_program(
            argv,
            env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=workload.directory,
            timeout_s=workload.timeout_s * TIMEOUT_FACTOR,
        )

    if isinstance(plan, Streamed):
        counted = count(plan.command_line(workload.prompt, tokens))
        answer = AnswerReader(plan)
        made = [*answer.feed(counted.stdout, 0), *answer.finish()]
        return counted, tuple(text for text, _ in made)
    assert isinstance(plan, Served)
    spec = json.dumps({**plan.load, "prompt": workload.prompt, "max_tokens": tokens})
    with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as name:
        answer_file, spec_file = Path(name) / "answer", Path(name) / "spec"
        # A prompt may be too long for an argument.
        spec_file.write_text(spec)
        argv = [*served.make_command(plan, serve.__name__), "count", answer_file, spec_file, tokens]
        try:
            counted = count([*map(str, argv)])
        except ToolError as error:
            if error.code == callgrind.DIED:
                for kind, _, text in _read_records(answer_file):
                    if kind == wire.FAILED:
                        raise read_child_error(text) from None
            raise
        records = _read_records(answer_file)
    if not records or records[-1][0] != wire.DONE:
        raise output_error("the counted process", "its answer has no end")
    values = (str(value) if kind == wire.TOKEN else text for kind, value, text in records[:-1])
    return counted, tuple(values)


def _read_records(answer: Path) -> list[tuple[bytes, int, str]]:
    try:
        return wire.Parser().feed(answer.read_bytes())
    except OSError:
        return []


def build_instruction_profile(
    long: callgrind.CountedRun,
    short: callgrind.CountedRun | None,
    *,
    python: str,
    notes: tuple[str, ...],
) -> Profile:
    """Return the instructions of ``long`` minus those of ``short``, or all without ``short``.

    Counts are of the whole difference, not of a token, and exact for each function. The two runs
    may place tables and memory differently, so some stacks come out below zero: that is taken off
    other stacks of the same function. A function that comes out below zero as a whole is left
    out, and a note says how much that is. ``python`` is the version of the interpreter that ran,
    empty for another program.
    """
    before = _start_at_eval_loop(short.by_stack) if short is not None else {}
    after = _start_at_eval_loop(long.by_stack)
    more = {stack: after.get(stack, 0) - before.get(stack, 0) for stack in {**after, **before}}
    stacks, left_out = _settle_negative(more)
    if left_out:
        share = left_out / max(sum(stacks.values()), 1)
        notes += (
            f"functions that took less in the longer run are left out: {left_out:,} "
            f"instructions, {share:.2%}",
        )
    if python:
        notes += (C_FUNCTIONS,)
    profile = Profile(
        profiler=callgrind.NAME,
        profiler_version=long.valgrind_version,
        event=callgrind.EVENT,
        call_graph=f"callers,{callgrind.CALLERS}",
        python=python,
        stacks=stacks,
        pids=long.pids,
        degraded=notes,
        covers="process" if short is None else "decode",
        unit="instructions",
    )
    whole = trim_stacks(profile, None)
    in_loop = sum(cost for stack, cost in stacks.items() if stack and stack[0].name == EVAL_LOOP)
    return replace(whole, complete=whole.complete + in_loop)


def _start_at_eval_loop(stacks: Mapping[Stack, int]) -> dict[Stack, int]:
    """Start stacks at the innermost eval loop, because the outer ones all look alike."""

    def cut(stack: Stack) -> Stack:
        loops = [index for index, frame in enumerate(stack) if frame.name == EVAL_LOOP]
        return stack[loops[-1] :] if loops else stack

    return change_stacks(stacks, cut)


def _settle_negative(more: Mapping[Stack, int]) -> tuple[dict[Stack, int], int]:
    """Return stacks above zero that add up to each function's own count, and the rest."""
    floor = max(1.0, SMALLEST * sum(more.values()))
    settled = {stack: cost for stack, cost in more.items() if cost >= floor and len(stack) > 1}
    alone: dict[Frame, int] = {}
    for stack, cost in more.items():
        if stack not in settled:
            alone[stack[-1]] = alone.get(stack[-1], 0) + cost
    by_leaf: dict[Frame, list[Stack]] = {}
    for stack in sorted(settled, key=lambda stack: (settled[stack], stack)):
        by_leaf.setdefault(stack[-1], []).append(stack)
    left_out = 0
    for frame, cost in alone.items():
        owed, heaviest_last = -cost, by_leaf.get(frame, [])
        while owed > 0 and heaviest_last:
            stack = heaviest_last.pop()
            taken = min(owed, settled[stack])
            settled[stack] -= taken
            owed -= taken
        if owed < 0:
            settled[(frame,)] = -owed
        left_out += max(owed, 0)
    return {stack: cost for stack, cost in settled.items() if cost}, left_out
