"""A profile of decode alone, if it was asked for: sequences of one token are subtracted.

The samples of the long sequences are there already. Measured here are samples of the short
ones, and the CPU time of both in turns, so that a change of the machine's speed is in both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from pytest_flamegate.core.errors import FlamegateError, ToolError, UndecidedError, system_errors
from pytest_flamegate.core.json import encode_json, encode_plain
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.engines.command import with_max_tokens
from pytest_flamegate.gate import Reason
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.profile.decode import (
    FORMULA,
    DecodeProfile,
    SequenceProfile,
    subtract_prefill,
)
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.receipt.compose import process_profile
from pytest_flamegate.receipt.metrics import spread_of
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.run.processes import MAX_FOR_SAMPLES, MIN_PROFILED, Budget, SideProcesses
from pytest_flamegate.run.stages import Measured, MeasuredSide

FEW = 1
"""Tokens of a short sequence."""
BUDGET_SHARE = 0.25
"""Of the workload's budget, on top of it: once for the clocks, once for the samples."""
MIN_TURNS, MAX_TURNS = 4, 20
MAX_SPENT = 3.0
"""Samples may take this many times their share of the budget if they are few."""
_PART = 1 / 10
NOT_IN_PAIRS = "decode_profile has no effect here: in pairs, decode is not profiled alone."


def decode_of(measured: Measured, progress: Progress) -> Measured:
    """Return ``measured`` with its profile of decode alone, if the workload asks for one.

    The profile is shown and never gated, so an error is a note.
    """
    side = measured.sides[-1]
    if not side.side.workload.decode_profile:
        return measured
    try:
        with system_errors():
            decode = profile_decode(side, measured.prepared.budget_s * BUDGET_SHARE, progress)
    except FlamegateError as error:
        note = Reason("W_NO_DECODE_PROFILE", f"There is no profile of decode alone: {error}")
        return replace(measured, notes=(*measured.notes, note))
    return replace(measured, decode=decode)


def profile_decode(side: MeasuredSide, budget_s: float, progress: Progress) -> DecodeProfile:
    """Measure the short sequences, and return the profile of decode alone.

    Raises:
        UndecidedError: ``E_NO_DECODE`` if there is nothing to subtract, ``E_NO_SAMPLES`` and
            ``E_FEW_SAMPLES``.
        ToolError: ``E_OUTPUT_VARIES`` if the sequences do not begin alike, ``E_OTHER_TOKENS``,
            and the errors of an engine or a profiler.
    """
    profile = side.pooled
    if profile is None:
        raise _nothing_to_subtract("Profiling is off.", "Choose a profiler.")
    if profile.covers == "decode":
        raise _nothing_to_subtract(
            "The profile covers decode alone already.", "Leave decode_profile out."
        )
    fewer = with_max_tokens(side.side.plan, side.side.workload, FEW)
    if fewer is None:
        raise _nothing_to_subtract(
            "The command does not contain {max_tokens}, so it cannot be asked for one token.",
            "Write {max_tokens} in the place of the number of tokens.",
        )
    long = SideProcesses(side.side, Budget(budget_s))
    short_side = replace(side.side, plan=fewer[0], workload=fewer[1])
    short = SideProcesses(short_side, Budget(budget_s))
    _time_in_turns(long, short, progress)
    many = _require_same_beginning(
        side.observation, long.observer.observation(), short.observer.observation()
    )
    sampled = _sample_short(short, budget_s, progress)
    long_s, short_s = (_sequence_s(each.observer.observation()) for each in (long, short))
    return subtract_prefill(
        _sequences(profile, many, long_s),
        _sequences(sampled, FEW, short_s),
        phi=spread_of([process_profile(each) for each in side.profiles]) ** 2,
        covariance_s2=statistics.covariance(long_s, short_s) / len(long_s),
    )


def document(decode: DecodeProfile, evidence: Evidence) -> bytes:
    """Return the content of ``decode.json``; times are seconds per token, shares 0 to 1."""
    names = ("long", "short")
    pairs = {
        name: dict(zip(names, getattr(decode, name), strict=True))
        for name in ("tokens", "samples", "processes")
    }
    return encode_json(
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
            "functions": [encode_plain(row) for row in decode.rows],
        }
    )


def _nothing_to_subtract(problem: str, remedy: str) -> UndecidedError:
    return UndecidedError("E_NO_DECODE", problem, remedy)


def _time_in_turns(long: SideProcesses, short: SideProcesses, progress: Progress) -> None:
    """Time both in fresh processes, one after the other."""
    seconds = long.budget.process_s(_PART)
    for side in (long, short):
        side.observer.warm_up()
    turns = 0
    while turns < MIN_TURNS or (turns < MAX_TURNS and short.budget.spent < 1.0):
        for side in (long, short):
            side.observer.run_timed(seconds)
        turns += 1
        progress.update("decode alone", f"{turns} turns", short.budget.left_s)


def _sample_short(short: SideProcesses, budget_s: float, progress: Progress) -> Profile:
    """Sample the short sequences in as many processes as it takes; return them pooled."""
    taken = SideProcesses(short.side, Budget(budget_s))
    processes = 0
    while (
        processes < MIN_PROFILED
        or taken.budget.spent < 1.0
        or (taken.has_few_samples and taken.budget.spent < MAX_SPENT)
    ) and processes < MAX_FOR_SAMPLES:
        taken.profile_once(taken.budget.process_s(_PART))
        processes += 1
        progress.update("decode alone", f"{taken.samples:,} samples", taken.budget.left_s)
    pooled = taken.pooled_profile()
    assert pooled is not None  # the side has a profiler
    if taken.observer.observation().tokens != short.observer.observation().tokens:
        raise _other_beginning(FEW, FEW)
    return pooled


def _require_same_beginning(first: Observation, long: Observation, short: Observation) -> int:
    """Return the tokens of a long sequence; an error unless the short ones begin like it."""
    many = len(long.tokens)
    if many <= FEW:
        raise _nothing_to_subtract(
            f"A sequence is {many} token long.", "Choose a prompt with a longer answer."
        )
    if len(short.tokens) != FEW:
        raise ToolError(
            "E_OTHER_TOKENS",
            f"The engine was asked for {FEW} token and generated {len(short.tokens)}.",
            "Check that max_tokens reaches the engine, and that token_unit suits its output.",
        )
    alike = first.tokens == long.tokens and long.tokens[:FEW] == short.tokens
    if not alike or any(each.differs_at is not None for each in (first, long, short)):
        raise _other_beginning(many, FEW)
    return many


def _other_beginning(many: int, few: int) -> ToolError:
    return ToolError(
        "E_OUTPUT_VARIES",
        f"Sequences of {many} tokens and of {few} do not begin with the same token every time.",
        "Make the engine deterministic: greedy decoding, a fixed seed, one thread.",
    )


def _sequence_s(observation: Observation) -> list[float]:
    """Return the CPU seconds of one sequence, for each timed process."""
    return [
        sum(block.interval.cpu_ns for block in run.blocks)
        / sum(len(block.sequences_ns) for block in run.blocks)
        / 1e9
        for run in observation.timed
    ]


def _sequences(profile: Profile, tokens: int, each_s: Sequence[float]) -> SequenceProfile:
    error_s = statistics.stdev(each_s) / math.sqrt(len(each_s))
    return SequenceProfile(profile, tokens, statistics.mean(each_s), error_s, len(each_s))
