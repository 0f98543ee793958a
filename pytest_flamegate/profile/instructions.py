"""Instructions a token: one workload counted twice, and the difference taken.

A run of many tokens less a run of one leaves the decode: start, load and prefill are
in both. A program that cannot be told how many tokens to make is counted as it is.
"""

from __future__ import annotations

import json
import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.profile import programs
from pytest_flamegate.profile.callgrind import DIED, Counted, count_program
from pytest_flamegate.profile.callgrind_out import contradicts
from pytest_flamegate.profile.counted import instruction_profile
from pytest_flamegate.profile.words import unreadable
from pytest_flamegate.workload import count_child, engine_count, starting, wire
from pytest_flamegate.workload.cutting import Cutter
from pytest_flamegate.workload.engines.base import Endpoint, Served, Streamed
from pytest_flamegate.workload.refusals import check_count, told
from pytest_flamegate.workload.retelling import retold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.profile.model import Profile
    from pytest_flamegate.workload.engines.base import Plan
    from pytest_flamegate.workload.spec import Workload

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


def count(plan: Plan, workload: Workload, env: Mapping[str, str]) -> InstructionCount:
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
    if isinstance(plan, Streamed) and plan.token_unit == engine_count.UNIT:
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
    if not isinstance(plan, Served) and retold(plan, workload, many) is None:
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
    check_count(workload, len(tokens))
    profile = instruction_profile(
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
        raise contradicts(
            f"{tokens[1]} tokens took no more instructions ({long.instructions}) than "
            f"{tokens[0]} ({short.instructions})"
        )
    notes = tuple(dict.fromkeys((*_notes(workload), *short.notes, *long.notes)))
    profile = instruction_profile(long, short, python=_python(plan), notes=notes)
    return InstructionCount(per_token, tokens, profile)


def _python(plan: Plan) -> str:
    """Return the version of the interpreter that runs the engine, if one is known to."""
    if not isinstance(plan, Served):
        return ""
    return programs.version(plan.python) if plan.python else platform.python_version()


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
        retold(plan, workload, tokens) or plan.argv,
        env=settled,
        cwd=workload.directory,
        timeout_s=workload.timeout_s * TIMEOUT_TIMES,
    )
    cutter: Cutter[int] = Cutter(plan)
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
                    *starting.command(plan, count_child.__name__),
                    *(str(answer), str(told_to_load), str(tokens)),
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
        raise unreadable("the counted process", "its answer has no end")
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
            return told(text)
    return None
