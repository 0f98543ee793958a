"""A profile of decode alone, where it was asked for: sequences of one token beside the others.

Samples of the long sequences are there already. What is measured here are samples of the
short ones, and the CPU time of both in turns, so that a machine that changes its speed
changes it for both.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import FlamegateError, ToolError, UndecidedError, system_errors
from pytest_flamegate.core.json import dumps, to_plain
from pytest_flamegate.observe.one_token import retell
from pytest_flamegate.profile.decode import (
    FORMULA,
    DecodeProfile,
    SequenceProfile,
    subtract_prefill,
)
from pytest_flamegate.receipt.metrics import spread_of
from pytest_flamegate.run.measure import MIN_PROFILED, MOST_FOR_SAMPLES, Measuring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.observe.observation import Observation
    from pytest_flamegate.profile.model import Profile
    from pytest_flamegate.profile.profilers.base import Profiler
    from pytest_flamegate.receipt.types import Evidence


FEW = 1
BUDGET_SHARE = 0.25
"""Of the workload's budget, on top of it: once for the clocks, once for the samples."""
MIN_TURNS, MAX_TURNS = 4, 20
GIVE_UP = 6.0
"""What samples may take at most in shares of the budget, where they are few."""
_SECONDS = (0.2, 3.0)
_PART = 1 / 10


NOT_IN_PAIRS = (
    "Decode was not profiled alone, which decode_profile asks for: the run was compared in pairs."
)


def decoded(
    measuring: Measuring, evidence: Evidence
) -> tuple[DecodeProfile | None, tuple[str, ...]]:
    """Return the profile of decode alone where it was asked for, or a sentence on why not.

    It is shown and never gated, so whatever goes wrong with it is told and nothing more.
    """
    if not measuring.workload.decode_profile:
        return None, ()
    try:
        with system_errors():
            return decode_alone(measuring, evidence), ()
    except FlamegateError as error:
        few = error.code in ("E_FEW_SAMPLES", "E_NO_SAMPLES")
        why = "too few samples for a profile of decode alone" if few else "no profile of decode"
        return None, (f"{why}: {error}",)


def decode_alone(measuring: Measuring, evidence: Evidence) -> DecodeProfile:
    """Measure what is missing, and return the profile of decode alone.

    ``evidence`` is that of ``measuring``. Raises ``UndecidedError``: ``E_NO_DECODE`` where
    there is nothing to subtract or to subtract from, ``E_NO_SAMPLES`` and
    ``E_FEW_SAMPLES``; ``ToolError``: ``E_TOKENS_DIFFER`` where the sequences do not begin
    alike, ``E_OTHER_TOKENS``; and whatever an engine and a profiler refuse.
    """
    profile, profiler = measuring.profile, measuring.profiler
    if profile is None or profiler is None or evidence.profile is None:
        raise _nothing("profiling is off", "Choose a profiler.")
    if profile.covers == "decode":
        raise _nothing(
            "the profile is of decode alone already, so nothing is taken away",
            "Leave decode_profile out.",
        )
    told = retell(measuring.plan, measuring.workload, FEW)
    if told is None:
        raise _nothing(
            "the command does not say {max_tokens}, so it cannot be told to make one token",
            "Write {max_tokens} where the command takes the number of tokens.",
        )
    budget_s = measuring.budget_s * BUDGET_SHARE
    long, short = (
        Measuring(workload, plan, profiler, budget_s, measuring.progress)
        for plan, workload in ((measuring.plan, measuring.workload), told)
    )
    _take_turns(long, short)
    many = _same_beginning(evidence, long.observation, short.observation)
    taken = _sampled(short, profiler)
    long_s, short_s = _each_s(long.observation), _each_s(short.observation)
    return subtract_prefill(
        _sequences(profile, many, long_s),
        _sequences(taken, FEW, short_s),
        phi=spread_of(evidence.profile.processes) ** 2,
        covariance_s2=statistics.covariance(long_s, short_s) / len(long_s),
    )


def document(decode: DecodeProfile, evidence: Evidence) -> bytes:
    """Return the content of ``decode.json``; times are seconds per token, shares 0 to 1."""
    names = ("long", "short")
    pairs = {
        name: dict(zip(names, getattr(decode, name), strict=True))
        for name in ("tokens", "samples", "processes")
    }
    return dumps(
        {
            "workload": evidence.workload.get("name"),
            "nonce": evidence.nonce,
            "formula": FORMULA,
            "provenance": "derived",
            "gated": False,
            "profiler": decode.profile.profiler,
            "folded_unit": "nanoseconds/token",
            **pairs,
            "overdispersion": decode.phi,
            "cpu_s_per_token": decode.cpu_s_per_token,
            "cpu_error_s_per_token": decode.cpu_error_s_per_token,
            "prefill_share": decode.prefill_share,
            "clipped_s_per_token": decode.clipped_s_per_token,
            "functions": [to_plain(row) for row in decode.rows],
        }
    )


def _nothing(why: str, remedy: str) -> UndecidedError:
    return UndecidedError("E_NO_DECODE", f"{why[0].upper()}{why[1:]}.", remedy)


def _take_turns(long: Measuring, short: Measuring) -> None:
    """Time both in fresh processes, one after the other."""
    seconds = _seconds(long)
    for side in (long, short):
        side.observer.warm_up()
    turns = 0
    while turns < MIN_TURNS or (turns < MAX_TURNS and short.spent < 1.0):
        for side in (long, short):
            side.observer.timed(seconds)
        turns += 1
        told = f"decode alone: {turns} turns"
        long.progress.step(long.workload.name, told, min(short.spent, 1.0))


def _sampled(short: Measuring, profiler: Profiler) -> Profile:
    """Sample the short sequences anew, in as many processes as it takes; return them pooled."""
    taking = Measuring(short.workload, short.plan, profiler, short.budget_s, short.progress)
    processes = 0
    while (
        processes < MIN_PROFILED
        or taking.spent < 1.0
        or (taking.few_samples and taking.spent < GIVE_UP and processes < MOST_FOR_SAMPLES)
    ):
        taking.profile_once(profiler, _seconds(short))
        processes += 1
        told = f"decode alone: {taking.samples:,} samples"
        taking.progress.step(taking.workload.name, told, min(taking.spent, 1.0))
    pooled = taking.profile
    assert pooled is not None  # it has a profiler, and raises where that saw nothing
    if taking.observer.observation().tokens != short.observation.tokens:
        raise _differ(FEW, FEW)
    return pooled


def _seconds(measuring: Measuring) -> float:
    """Return how long a served process generates."""
    return min(max(measuring.budget_s * _PART, _SECONDS[0]), _SECONDS[1])


def _same_beginning(evidence: Evidence, long: Observation, short: Observation) -> int:
    """Return the tokens of a long sequence, of which the short ones are the beginning."""
    many = len(long.tokens)
    if many <= FEW:
        raise _nothing(f"a sequence is {many} token long", "Choose a prompt with a longer answer.")
    if len(short.tokens) != FEW:
        raise ToolError(
            "E_OTHER_TOKENS",
            f"The engine was asked for {FEW} token and made {len(short.tokens)}.",
            "Check that max_tokens reaches the engine, and that token_unit suits its output.",
        )
    alike = evidence.tokens == long.tokens and long.tokens[:FEW] == short.tokens
    if not alike or any(each.differs_at is not None for each in (evidence, long, short)):
        raise _differ(many, FEW)
    return many


def _differ(many: int, few: int) -> ToolError:
    return ToolError(
        "E_TOKENS_DIFFER",
        f"Sequences of {many} tokens and of {few} do not begin with the same token every time.",
        "Make the engine deterministic: greedy decoding, a fixed seed, one thread.",
    )


def _each_s(seen: Observation) -> list[float]:
    """Return the CPU seconds of one sequence, for each timed process."""
    return [
        sum(block.interval.cpu_ns for block in run.blocks)
        / sum(len(block.sequences_ns) for block in run.blocks)
        / 1e9
        for run in seen.timed
    ]


def _sequences(profile: Profile, tokens: int, each_s: Sequence[float]) -> SequenceProfile:
    error_s = statistics.stdev(each_s) / math.sqrt(len(each_s))
    return SequenceProfile(profile, tokens, statistics.mean(each_s), error_s, len(each_s))
