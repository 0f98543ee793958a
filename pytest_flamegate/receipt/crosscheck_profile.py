"""Cross-checks over the profile: its bytes, its counts, its processes, the kernels in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.findings import shown
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.registry import Rulebook
from pytest_flamegate.workload.windows import of_one_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flamegate.receipt.case import Case
    from pytest_flamegate.receipt.folded import Folded

RATE_SLACK = 1.2
COUNTED_EVENT = "Ir"
"""Instructions, which are counted one by one; whatever else there is, is sampled."""
SAMPLES_SLACK = 50
"""Samplers start and stop a little outside of the measured blocks."""

CHECKS: Rulebook[Case] = Rulebook()
SHORTFALLS: Rulebook[Case] = Rulebook()

_AGAIN = "Measure again; profile and evidence are written together and changed by nobody."


@CHECKS.rule(
    "E_PROFILE_CHANGED",
    "The evidence names the folded profile by the SHA-256 of its bytes.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _profile_changed(case: Case) -> Iterator[str]:
    # The profile belongs to another run, or was edited.
    profile = case.evidence.profile
    if profile is None or case.folded_sha256 is None:
        return
    if profile.folded_sha256 != case.folded_sha256:
        yield (
            f"The evidence belongs to the profile {profile.folded_sha256[:12]}, and this one is "
            f"{case.folded_sha256[:12]}."
        )


@CHECKS.rule(
    "E_PROFILE_MALFORMED",
    "Every line of the folded profile is a stack and a count.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _profile_malformed(case: Case) -> Iterator[str]:
    # A name with a newline or a semicolon in it would invent frames.
    if case.folded is not None and case.folded.problem is not None:
        yield case.folded.problem


@CHECKS.rule(
    "E_SAMPLE_COUNT",
    "Folded profile, its record and its processes count the same samples.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _sample_count(case: Case) -> Iterator[str]:
    # Shares are only worth the samples behind them.
    profile = case.evidence.profile
    if profile is None:
        return
    if case.folded is not None and case.folded.samples != profile.samples:
        yield (
            f"{profile.samples:,} samples are recorded and the profile holds "
            f"{case.folded.samples:,}."
        )
    pooled = sum(process.samples for process in profile.processes)
    if pooled != profile.samples:
        yield f"{profile.samples:,} samples are recorded and its processes hold {pooled:,}."
    for process in profile.processes:
        if sum(process.self_samples.values()) > process.samples:
            yield f"Process {process.pid} has more samples by frame than samples."


@CHECKS.rule(
    "E_KERNEL_UNSEEN",
    "Every claimed kernel was seen, and one seen in the profile stands there.",
    todo="Name the kernels that the profile shows.",
    protects=Grade.OBSERVED,
    needs={"kernels"},
)
def _kernel_unseen(case: Case) -> Iterator[str]:
    # A name copied from somewhere else has no samples.
    # Where profiler and engine both saw a kernel, the profiler's word counts.
    by_source = sorted(case.evidence.kernels, key=lambda sighting: sighting.source == "profile")
    sightings = {sighting.name: sighting for sighting in by_source}
    for kernel in dict.fromkeys(case.claim.kernels):
        sighting = sightings.get(kernel)
        if sighting is None or sighting.count == 0:
            yield f"The kernel {shown(kernel)} is claimed and was never seen{_top(case.folded)}."
        elif sighting.source == "profile" and case.folded is not None:
            samples = case.folded.inclusive_samples.get(kernel, 0)
            if not samples:
                yield (
                    f"The kernel {shown(kernel)} is claimed and not in the profile"
                    f"{_top(case.folded)}."
                )
            elif sighting.count > samples:
                yield (
                    f"The kernel {shown(kernel)} was seen {sighting.count:,} times, and the "
                    f"profile shows {samples:,} samples of it."
                )


def _top(folded: Folded | None) -> str:
    if folded is None or not folded.self_samples:
        return ""
    hottest = _largest(folded.self_samples)
    return f" ({folded.samples:,} samples): the profile shows {shown(hottest)}"


def _largest(samples: Mapping[str, int]) -> str:
    return max(sorted(samples), key=lambda name: samples[name])


@CHECKS.rule(
    "E_PROFILE_PROCESS",
    "Each profiled process is one of the profiled runs.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _profile_process(case: Case) -> Iterator[str]:
    # Stacks of some other process would say nothing of these runs.
    profile = case.evidence.profile
    if profile is None:
        return
    # A process id comes round again: only with its start does it name a process.
    named = [(process.pid, process.started_ticks) for process in profile.processes]
    most = len(case.profiled) if of_one_process(case.evidence.workload) else 1
    for pid, ticks in dict.fromkeys(named):
        started = {run.started_ticks for run in case.profiled if run.pid == pid}
        same = [t for p, t in named if p == pid and (t == ticks or None in (t, ticks))]
        if len(same) > most:
            yield f"The process {pid} stands twice in the profile."
        if not started:
            yield f"The process {pid} was profiled and is none of the profiled runs."
        elif ticks is not None and None not in started and ticks not in started:
            yield f"The process {pid} that was profiled started at another time than the run's."


@CHECKS.rule(
    "E_PROFILE_NONCE",
    "The profile was taken in this very measurement.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _profile_nonce(case: Case) -> Iterator[str]:
    # Evidence from before the nonce was kept does not say.
    profile = case.evidence.profile
    if profile is not None and profile.nonce not in (None, case.evidence.nonce):
        yield (
            f"The profile is of the measurement {shown(profile.nonce)}, and the evidence of "
            f"{shown(case.evidence.nonce)}."
        )


@CHECKS.rule(
    "E_TOO_MANY_SAMPLES",
    "A profile holds no more samples than its rate allows.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _too_many_samples(case: Case) -> Iterator[str]:
    # Samples are taken of threads that run or wait to run, each thread by itself. A program's
    # children are sampled with it, and are not among its threads.
    profile = case.evidence.profile
    if profile is None or profile.samples == 0:
        return
    if profile.rate_hz <= 0:
        if profile.event != COUNTED_EVENT:
            yield f"{profile.samples:,} samples of {shown(profile.event)} were taken at no rate."
        return
    seconds = 0.0
    for run in case.profiled:
        threads = max(1, run.threads or 1)
        if case.evidence.clock_scope == "process":
            threads = max(threads, case.lanes(run) or 1)
        for block in run.blocks:
            interval = block.interval
            ready_ns = interval.cpu_ns + (interval.run_delay_ns or 0)
            seconds += max(interval.wall_ns * threads, ready_ns) / 1e9
        seconds += (run.load_ns or 0) * threads / 1e9
    most = seconds * profile.rate_hz * RATE_SLACK + SAMPLES_SLACK
    if profile.samples > most:
        yield (
            f"{profile.samples:,} samples at {profile.rate_hz} a second are more than "
            f"{seconds:.1f} s of profiled runs allow."
        )


@SHORTFALLS.rule(
    "W_NO_PROFILE",
    "A profile with samples stands beside the evidence.",
    todo="Measure with a profiler, and keep profile.folded beside the receipt.",
    protects=Grade.OBSERVED,
)
def _no_profile(case: Case) -> Iterator[str]:
    # Without it no kernel was seen to run.
    if case.evidence.profile is None:
        yield "No profiler ran, so no kernel was seen."
    elif case.folded is None:
        yield "The evidence records a profile and profile.folded is not there."
    elif case.folded.samples == 0:
        yield "The profile holds no samples."


@SHORTFALLS.rule(
    "W_KERNELS_FROM_ENGINE",
    "Every claimed kernel was seen in the profile.",
    todo="Profile with a profiler that sees native code.",
    protects=Grade.OBSERVED,
    needs={"kernels"},
)
def _kernels_from_engine(case: Case) -> Iterator[str]:
    # What an engine says about itself is not an observation.
    seen = {each.name for each in case.evidence.kernels if each.source == "profile"}
    told = {each.name for each in case.evidence.kernels} - seen
    for kernel in dict.fromkeys(case.claim.kernels):
        if kernel in told:
            yield f"The kernel {shown(kernel)} was reported by the engine, and by no profiler."


@SHORTFALLS.rule(
    "W_PROFILE_DEGRADED",
    "The profile was taken without compromise.",
    todo="See what the profiler reported (flamegate doctor).",
    protects=None,
)
def _profile_degraded(case: Case) -> Iterator[str]:
    # Shares of a degraded profile may be off.
    profile = case.evidence.profile
    if profile is not None and profile.degraded:
        yield f"The profile is degraded: {', '.join(map(shown, profile.degraded))}."
