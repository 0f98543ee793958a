"""Evidence made to measure: times in µs per token, profiles as counts by frame, and pairs."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.hotspots import ShareDrift
from pytest_flamegate.gate.judge import GatedRun, GatePolicy, judge
from pytest_flamegate.gate.measurement import Measurement, TimedProcess
from pytest_flamegate.gate.paired_rate import PairedBase
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.observe.observation import Block, Run
from pytest_flamegate.receipt.baseline import Baseline
from pytest_flamegate.receipt.types import Evidence, ProcessProfile
from tests import made

MACHINE = MappingProxyType(
    {
        "arch": "x86_64",
        "cpu_cores": "2",
        "cpu_flags_sha256": "ab" * 32,
        "cpu_model": "AMD EPYC 7763 64-Core Processor",
        "kernel": "6.1.0",
        "python": "CPython 3.11.9",
    }
)
WORKLOAD = MappingProxyType(
    {"engine": "embedded", "prompt": "2+2=", "max_tokens": 10, "command": [], "name": "10tok"}
)
TOKENS_PER_BLOCK = 40

QUIET = (1000.0, 1004.0, 996.0, 1002.0, 998.0, 1001.0)
"""Six processes with a spread of 0.3 %, in µs per token."""
PROFILE = (
    {"gemv": 700, "attention": 200, "rms_norm": 60, "tiny": 2},
    {"gemv": 690, "attention": 208, "rms_norm": 62, "tiny": 1},
    {"gemv": 706, "attention": 196, "rms_norm": 59, "tiny": 3},
    {"gemv": 697, "attention": 203, "rms_norm": 61, "tiny": 2},
    {"gemv": 702, "attention": 199, "rms_norm": 58, "tiny": 2},
    {"gemv": 699, "attention": 201, "rms_norm": 63, "tiny": 1},
)
"""Six processes of 1000 samples."""
Counts = tuple[dict[str, int], ...]


def scaled(times_us: Sequence[float], factor: float, shift_us: float = 0.25) -> tuple[float, ...]:
    """Another batch, ``factor`` times as slow; never equal to the first to the nanosecond."""
    return tuple(time * factor + shift_us for time in times_us)


AGAIN = scaled(QUIET, 1.0)
"""Another batch of the same speed."""


def profiles(
    counts: Sequence[Mapping[str, int]], total: int = 1000, first_pid: int = 900
) -> tuple[ProcessProfile, ...]:
    return tuple(
        ProcessProfile(pid=first_pid + i, samples=total, self_samples=MappingProxyType(dict(each)))
        for i, each in enumerate(counts)
    )


def moved(counts: Sequence[Mapping[str, int]], frame: str, by: int, source: str) -> Counts:
    """The same profiles with ``by`` samples of ``source`` in ``frame`` instead."""
    return tuple(
        {**each, frame: each.get(frame, 0) + by, source: each.get(source, 0) - by}
        for each in counts
    )


def changed(**factors: float) -> tuple[float, Counts]:
    """The factor of the whole and the profiles if each frame costs ``factors`` as much.

    Frames cost their samples in µs of the 1000 per token; 38 are the profile's own rest.
    """
    whole = 1.0 + sum(PROFILE[0][name] * (f - 1.0) for name, f in factors.items()) / 1000.0
    counts = tuple(
        {name: round(n * factors.get(name, 1.0) / whole) for name, n in each.items()}
        for each in PROFILE
    )
    return whole, counts


def block(
    quiet_us: float,
    *,
    waiting_us: float = 0.0,
    reference_us: float | None = 5000.0,
    tokens: int = TOKENS_PER_BLOCK,
    delay_ns: int | None = 7_000,
) -> Block:
    """One block of ``tokens`` tokens at ``quiet_us`` each, ``waiting_us`` of them off the CPU."""
    quiet_ns = round(quiet_us * 1e3 * tokens)
    return Block(
        interval=Interval(
            wall_ns=quiet_ns + (delay_ns or 0),
            cpu_ns=round((quiet_us - waiting_us) * 1e3 * tokens),
            run_delay_ns=delay_ns,
        ),
        sequences_ns=((quiet_ns // max(tokens, 1),) * tokens,),
        reference=None
        if reference_us is None
        else Interval(round(reference_us * 1e3), round(reference_us * 1e3), 0),
    )


def run(pid: int, quiet_us: float, *, pressure: float | None = 3.0, **options: Any) -> Run:
    blocks = block(quiet_us * 1.001, **options), block(quiet_us * 0.999, **options)
    return made.run("timed", pid, blocks=blocks, cpu_pressure_pct=pressure)


def evidence(
    times_us: Sequence[float] = AGAIN,
    profile: Sequence[Mapping[str, int]] | None = None,
    *,
    nonce: str = "current",
    first_pid: int = 100,
    process: Mapping[str, Any] | None = None,
    samples: int = 1000,
    **changes: Any,
) -> Evidence:
    """Evidence with one timed process a time; ``process`` goes to each `run`."""
    runs = [run(first_pid + i, time, **(process or {})) for i, time in enumerate(times_us)]
    fields: dict[str, Any] = {
        "nonce": nonce,
        "workload": WORKLOAD,
        "model_sha256": "a" * 64,
        "model": {"path": "model.gguf"},
        "machine": MACHINE,
        "commit": None,
        "requested_environment": {"OMP_NUM_THREADS": "1"},
        "effective_environment": {},
        "tokens": ("52", "10", "81", "58"),
        "token_digest": "t" * 64,
        "token_source": "bytes",
        "runs": tuple(runs),
        "metrics": (made.metric(),),
        "profile": None if profile is None else made.profile_record(profiles(profile, samples)),
    }
    return made.evidence(**{**fields, **changes})


def baseline(
    times_us: Sequence[float] = QUIET,
    profile: Sequence[Mapping[str, int]] | None = None,
    **changes: Any,
) -> Evidence:
    """Evidence as an accepted baseline: another nonce, other processes."""
    return evidence(times_us, profile, **{"nonce": "baseline", "first_pid": 500, **changes})


def measurement(log_times: Sequence[float], profiled: Sequence[ProcessProfile] = ()) -> Measurement:
    """Processes with these log ratios; the reference takes one second and nothing waits."""
    timed = (TimedProcess(0.0, math.exp(-log), 1.0, log, log, log, log, None) for log in log_times)
    return Measurement(tuple(timed), tuple(profiled), reference_follows=True)


# --- two sides in pairs --------------------------------------------------------------------

SPREAD = (0.004, -0.006, 0.001, -0.003, 0.005, -0.001, 0.002, -0.004, 0.003, -0.002)
"""Differences of ten pairs of the same code, as natural logarithms."""


def sides(
    differences: Sequence[float],
    base_profile: Sequence[Mapping[str, int]] | None = PROFILE,
    head_profile: Sequence[Mapping[str, int]] | None = PROFILE,
    **head_changes: Any,
) -> tuple[Evidence, Evidence]:
    """Return base and head of pairs that differ by exactly ``differences`` in log time."""
    us = 1000.0
    times = [us] * len(differences)
    base = evidence(times, base_profile, nonce="base", first_pid=500, side="base")
    head = evidence(times, head_profile, nonce="head", side="head")
    old, new = [], []
    for number, difference in enumerate(differences):
        # Each pair meets the machine at another speed; both of its sides alike.
        pace = us * (1.0 + 0.01 * number)
        after = pace * math.exp(difference)
        old.append(replace(base.runs[number], pair=number, blocks=_pair_blocks(pace)))
        new.append(replace(head.runs[number], pair=number, blocks=_pair_blocks(after)))
    return replace(base, runs=tuple(old)), replace(head, **{"runs": tuple(new), **head_changes})


def _pair_blocks(quiet_us: float) -> tuple[Block, ...]:
    return tuple(block(quiet_us * factor, reference_us=None) for factor in (1.001, 0.999))


def shifted(by: float, count: int = 10) -> list[float]:
    """Return the differences of ``count`` pairs, ``by`` further apart in log time."""
    return [SPREAD[i % len(SPREAD)] + by for i in range(count)]


# --- judging -------------------------------------------------------------------------------


def judge_stored(
    old: Evidence | None,
    new: Evidence,
    thresholds: Thresholds | None = None,
    *,
    share_drift: ShareDrift = "cost",
    analyses: int = 1,
    ci: bool = False,
    **run: Any,
) -> Verdict:
    """Judge ``new`` against a stored baseline; ``run`` holds further fields of the `GatedRun`."""
    baseline = None if old is None else Baseline(Path(), old, "machine")
    policy = GatePolicy(thresholds or Thresholds(), share_drift, analyses, ci)
    return checked(judge(GatedRun(new, **{"grade": "OBSERVED", **run}), baseline, policy))


def with_blocks(side: Evidence, change: Callable[[Block], Block], **fields: Any) -> Evidence:
    """The same side with other blocks, and other ``fields`` of its runs."""
    runs = (
        replace(run, blocks=tuple(map(change, run.blocks)), **fields) if run.blocks else run
        for run in side.runs
    )
    return replace(side, runs=tuple(runs))


def with_clocks(side: Evidence, change: Callable[[Interval], Interval], **fields: Any) -> Evidence:
    """The same side with other times of its blocks, and other ``fields`` of its runs."""
    return with_blocks(
        side, lambda block: replace(block, interval=change(block.interval)), **fields
    )


def with_threads(side: Evidence, parallel: float, delayed: float) -> Evidence:
    """The same side with two threads, which use and wait for so much more than its wall time."""

    def slower(clock: Interval) -> Interval:
        delay_ns = round(clock.wall_ns * delayed)
        return Interval(
            round(clock.wall_ns * (1 + delayed)), round(clock.cpu_ns * parallel), delay_ns
        )

    changed = with_clocks(side, slower, threads=2)
    return replace(changed, workload={**side.workload, "threads": 2})


def judge_paired(
    base: Evidence,
    head: Evidence,
    thresholds: Thresholds | None = None,
    *,
    share_drift: ShareDrift = "cost",
    **pairs: Any,
) -> Verdict:
    """Judge ``head`` against a base measured in pairs; ``pairs`` are fields of the `PairedBase`."""
    policy = GatePolicy(thresholds or Thresholds(), share_drift)
    return checked(judge(GatedRun(head, "OBSERVED"), PairedBase(base, **pairs), policy))


def checked(verdict: Verdict) -> Verdict:
    check_reasons(verdict.reasons)
    line = headline(verdict)
    assert re.fullmatch(verdict.verdict.replace("_", " ") + ": .+", line)
    assert not re.search("None|XX", line), line
    return verdict


def check_reasons(reasons: Iterable[Reason]) -> None:
    """Check that every reason has a code and whole sentences."""
    for reason in reasons:
        assert re.fullmatch(r"[EWI]_[A-Z_]+", reason.code)
        check_sentences(reason.message)


def check_sentences(message: str) -> None:
    """Check that a text ends, starts each sentence with a capital, and shows no placeholder."""
    assert message.endswith("."), message
    assert not re.search(r"\. [a-z]|None|XX|[A-Z]{5,},? [A-Z]{2}", message), message
    assert sum(map(str.islower, message)) > sum(map(str.isupper, message)), message


@contextmanager
def undecided(start: str) -> Iterator[None]:
    """Expect an error whose code, problem and remedy begin so."""
    with pytest.raises(UndecidedError, match=f"^{re.escape(start)}") as raised:
        yield
    for text in (raised.value.problem, raised.value.remedy):
        check_sentences(text)
        assert text[0].isupper() or text[0].isdigit(), text


def codes(verdict: Verdict) -> list[str]:
    return [reason.code for reason in verdict.reasons]
