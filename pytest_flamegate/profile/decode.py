"""Separate decode from prefill: a profile of long sequences minus one of short sequences.

Both begin with the same work: the prompt, and for a program its start and load. So a sequence of
N tokens minus one of n tokens is the work of N − n tokens of decode. A function with the share p
of the samples, in sequences that take c CPU seconds, takes p·c seconds of each, and so costs

    (c_N·p_N − c_n·p_n) / (N − n)

for each token of decode. The result is derived from sampled shares and measured times: it is
shown with its standard error and never gated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pytest_flamegate.core.errors import ToolError, UndecidedError
from pytest_flamegate.profile.difference import SPREAD
from pytest_flamegate.profile.hotspots import no_samples_error, rank_hotspots
from pytest_flamegate.profile.model import FrameKind, Hotspot, Profile, Stack, find_mismatches

FORMULA = "(c_N*p_N-c_n*p_n)/(N-n)"
PHI = SPREAD**2
"""Variance of a share over profiles of one program, in binomial ones."""
CERTAIN = 3.0
"""Standard errors by which the cost of decode must exceed zero."""
NO_STACK = "(no stack)"
"""The row of samples without any known frame."""
_NOTHING = Hotspot(NO_STACK, "", "system", "system", 0, 0, 0.0, 0.0, None)
_NS = 1e9


@dataclass(frozen=True, slots=True)
class SequenceProfile:
    """Sequences of ``tokens`` tokens: their profile, and the CPU seconds that one takes.

    ``cpu_error_s`` is the standard error of ``cpu_s``, over ``processes`` timed processes.
    """

    profile: Profile
    tokens: int
    cpu_s: float
    cpu_error_s: float
    processes: int


@dataclass(frozen=True, slots=True)
class DecodeCost:
    """CPU seconds of one function for each token of decode, with their standard errors.

    ``decode_share`` is its own part of decode, which noise may take below 0. ``sampled_share`` is
    its part of the long sequences, before the subtraction.
    """

    name: str
    module: str
    kind: FrameKind
    category: str
    self_s: float
    self_error_s: float
    inclusive_s: float
    inclusive_error_s: float
    decode_share: float
    sampled_share: float


@dataclass(frozen=True, slots=True)
class DecodeProfile:
    """Decode alone, by subtraction. ``rows`` add up to ``cpu_s_per_token``, costliest first.

    Attributes:
        profile: For a picture: each stack counts its nanoseconds per token. Stacks that noise
            took below 0 are left out.
        clipped_s_per_token: The sum of those stacks; the picture shows as much too much.
        prefill_share: The part of a long sequence that was subtracted.
        tokens: Of the long and of the short sequences, like ``samples`` and ``processes``.
    """

    profile: Profile
    rows: tuple[DecodeCost, ...]
    cpu_s_per_token: float
    cpu_error_s_per_token: float
    prefill_share: float
    clipped_s_per_token: float
    tokens: tuple[int, int]
    samples: tuple[int, int]
    processes: tuple[int, int]
    phi: float


def subtract_prefill(
    long: SequenceProfile, short: SequenceProfile, *, phi: float = PHI, covariance_s2: float = 0.0
) -> DecodeProfile:
    """Return the cost of the tokens that ``long`` has and ``short`` has not.

    Args:
        long: The longer sequences.
        short: The shorter sequences, of the same workload.
        phi: How much more shares vary than independent samples would, at least 1.
        covariance_s2: Covariance of the two CPU times in s², if they were measured in turns: a
            machine that is slow for both is no error of their difference.

    Raises:
        ToolError: ``E_PROFILES_DIFFER`` if the two were taken under different conditions.
        UndecidedError: ``E_NO_SAMPLES``; ``E_NO_DECODE`` if more tokens took no more CPU time
            beyond noise.
        ValueError: If ``long`` does not have more tokens.
    """
    extra_tokens = long.tokens - short.tokens
    if extra_tokens <= 0:
        raise ValueError(f"{long.tokens} tokens are no more than {short.tokens}")
    if unlike := find_mismatches(long.profile, short.profile):
        raise ToolError(
            "E_PROFILES_DIFFER",
            f"The profiles of {long.tokens} and of {short.tokens} tokens differ in {unlike[0]}.",
            "Measure both again with the same profiler on the same machine.",
        )
    for side in (long, short):
        if not side.profile.samples:
            raise no_samples_error(side.profile.profiler, side.profile.errors, side.profile.lost)
    per_token = (long.cpu_s - short.cpu_s) / extra_tokens
    error = math.sqrt(_clock_variance(long, short, 1.0, 1.0, covariance_s2)) / extra_tokens
    if not per_token > CERTAIN * error or not math.isfinite(per_token):
        raise UndecidedError(
            "E_NO_DECODE",
            f"{long.tokens} tokens took {long.cpu_s:.3g} s of CPU time and {short.tokens} took "
            f"{short.cpu_s:.3g} s, which is no difference beyond noise.",
            "Let the workload generate more tokens.",
        )
    stacks, clipped_ns = _stacks(long, short, extra_tokens)
    return DecodeProfile(
        profile=replace(
            long.profile,
            stacks=stacks,
            unit="nanoseconds",
            covers="decode",
            complete=round(long.profile.completeness * sum(stacks.values())),
        ),
        rows=_rows(long, short, max(phi, 1.0), covariance_s2),
        cpu_s_per_token=per_token,
        cpu_error_s_per_token=error,
        prefill_share=short.cpu_s / long.cpu_s,
        clipped_s_per_token=clipped_ns / _NS,
        tokens=(long.tokens, short.tokens),
        samples=(long.profile.samples, short.profile.samples),
        processes=(long.processes, short.processes),
        phi=max(phi, 1.0),
    )


def _rows(
    long: SequenceProfile, short: SequenceProfile, phi: float, covariance_s2: float
) -> tuple[DecodeCost, ...]:
    before, after = _rank_by_name(long.profile), _rank_by_name(short.profile)
    extra_tokens = long.tokens - short.tokens
    total_s = long.cpu_s - short.cpu_s

    def cost(samples: tuple[int, int]) -> tuple[float, float]:
        """Return the seconds per token of two counts, and their standard error."""
        shares = samples[0] / long.profile.samples, samples[1] / short.profile.samples
        difference_s = long.cpu_s * shares[0] - short.cpu_s * shares[1]
        variance = (
            _share_variance(long, samples[0], phi)
            + _share_variance(short, samples[1], phi)
            + _clock_variance(long, short, *shares, covariance_s2)
        )
        return difference_s / extra_tokens, math.sqrt(variance) / extra_tokens

    rows = []
    for name, spot in {**after, **before}.items():
        sides = [each.get(name, _NOTHING) for each in (before, after)]
        own, own_error = cost((sides[0].self_samples, sides[1].self_samples))
        inclusive, inclusive_error = cost((sides[0].inclusive_samples, sides[1].inclusive_samples))
        rows.append(
            DecodeCost(
                name=name,
                module=spot.module,
                kind=spot.kind,
                category=spot.category,
                self_s=own,
                self_error_s=own_error,
                inclusive_s=inclusive,
                inclusive_error_s=inclusive_error,
                decode_share=own * extra_tokens / total_s,
                sampled_share=sides[0].self_samples / long.profile.samples,
            )
        )
    rows.sort(key=lambda row: (-row.self_s, -row.inclusive_s, row.name))
    return tuple(rows)


def _rank_by_name(profile: Profile) -> dict[str, Hotspot]:
    found = {spot.name: spot for spot in rank_hotspots(profile)}
    if stackless := profile.stacks.get((), 0):
        share = stackless / profile.samples
        found[NO_STACK] = replace(
            _NOTHING,
            self_samples=stackless,
            inclusive_samples=stackless,
            self_share=share,
            inclusive_share=share,
        )
    return found


def _share_variance(side: SequenceProfile, count: int, phi: float) -> float:
    """Return the variance in s² of a function's time in a sequence that comes from its share."""
    # A function without a sample may still take some time.
    likely = (count + 0.5) / (side.profile.samples + 1.0)
    return side.cpu_s**2 * phi * likely * (1.0 - likely) / side.profile.samples


def _clock_variance(
    long: SequenceProfile,
    short: SequenceProfile,
    long_share: float,
    short_share: float,
    covariance_s2: float,
) -> float:
    """Return the variance in s² of ``long_share·c_N − short_share·c_n`` from the CPU times."""
    apart = (long_share * long.cpu_error_s) ** 2 + (short_share * short.cpu_error_s) ** 2
    return max(apart - 2.0 * long_share * short_share * covariance_s2, 0.0)


def _stacks(
    long: SequenceProfile, short: SequenceProfile, extra_tokens: int
) -> tuple[dict[Stack, int], int]:
    """Return the nanoseconds per token of each stack, and those that were clipped at 0."""
    costs: dict[Stack, float] = {}
    for side, sign in ((long, 1.0), (short, -1.0)):
        worth_ns = sign * _NS * side.cpu_s / side.profile.samples / extra_tokens
        for stack, count in side.profile.stacks.items():
            costs[stack] = costs.get(stack, 0.0) + worth_ns * count
    whole = {stack: round(cost) for stack, cost in costs.items()}
    clipped_ns = -sum(cost for cost in whole.values() if cost < 0)
    return {stack: cost for stack, cost in whole.items() if cost > 0}, clipped_ns
