"""Cross-checks over the hotspots: their samples, their shares and their cost.

Gates read the hotspots and the samples of each process, and people read the profile:
all three have to tell the same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.core.text import quote
from pytest_flamegate.observe.observation import of_one_process
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.metrics import cost_of
from pytest_flamegate.receipt.rules.figures import FIGURE_AGREEMENT
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flamegate.receipt.rules.subject import Case, Folded


CHECKS: Rulebook[Case] = Rulebook()

_AGAIN = "Measure again; profile and evidence are written together and changed by nobody."


@CHECKS.rule(
    "E_HOTSPOT_UNSEEN",
    "Each function of the folded profile is one hotspot, with as many samples.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _hotspot_unseen(case: Case) -> Iterator[str]:
    # More samples than were seen blame a function, fewer or none acquit it.
    profile, folded = case.evidence.profile, case.folded
    if profile is None or folded is None:
        return
    told: set[str] = set()
    for hotspot in profile.hotspots:
        own = folded.self_samples.get(hotspot.name, 0)
        inclusive = folded.inclusive_samples.get(hotspot.name, 0)
        if (hotspot.self_samples, hotspot.inclusive_samples) != (own, inclusive):
            yield (
                f"The hotspot {quote(hotspot.name)} has {hotspot.self_samples:,} own and "
                f"{hotspot.inclusive_samples:,} inclusive samples, and the profile shows {own:,} "
                f"and {inclusive:,}."
            )
        if hotspot.name in told:
            yield f"The hotspot {quote(hotspot.name)} stands twice."
        told.add(hotspot.name)
    for name, inclusive in folded.inclusive_samples.items():
        if name not in told:
            yield f"The profile shows {inclusive:,} samples of {quote(name)}, which is no hotspot."


@CHECKS.rule(
    "E_HOTSPOT_SHARE",
    "A hotspot's shares are its samples by those of the profile.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _hotspot_share(case: Case) -> Iterator[str]:
    # Shares are gated, and samples are what they were counted from.
    profile = case.evidence.profile
    if profile is None or profile.samples == 0:
        return
    for hotspot in profile.hotspots:
        for what, share, samples in (
            ("own", hotspot.self_share, hotspot.self_samples),
            ("inclusive", hotspot.inclusive_share, hotspot.inclusive_samples),
        ):
            counted = samples / profile.samples
            if abs(share - counted) > FIGURE_AGREEMENT:
                yield (
                    f"The {what} share of {quote(hotspot.name)} is {share:.2%}, and {samples:,} of "
                    f"{profile.samples:,} samples are {counted:.2%}."
                )


@CHECKS.rule(
    "E_HOTSPOT_COST",
    "A hotspot costs its own share of the CPU time per token of the phase that was sampled.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _hotspot_cost(case: Case) -> Iterator[str]:
    # A share may grow because the rest became faster: only the cost tells.
    profile = case.evidence.profile
    if profile is None:
        return
    cost_s = cost_of(profile.covers, case.evidence.metrics)
    for hotspot in profile.hotspots:
        stated_s = hotspot.cpu_s_per_token
        if stated_s is None:
            continue
        if cost_s is None:
            yield f"{quote(hotspot.name)} has a cost, and there is no metric of CPU time."
        elif abs(stated_s - hotspot.self_share * cost_s) > FIGURE_AGREEMENT * cost_s:
            yield (
                f"{quote(hotspot.name)} costs {stated_s:.4g} CPU seconds a token, and "
                f"{hotspot.self_share:.2%} of {cost_s:.4g} are {hotspot.self_share * cost_s:.4g}."
            )


@CHECKS.rule(
    "E_PROCESS_SAMPLES",
    "The samples of all processes together are those of the folded profile, by function.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _process_samples(case: Case) -> Iterator[str]:
    # How far shares vary from process to process decides what counts as drift.
    profile, folded = case.evidence.profile, case.folded
    if profile is None or folded is None:
        return
    pooled: Counter[str] = Counter()
    for process in profile.processes:
        pooled.update(process.self_samples)
    for name in sorted(pooled.keys() | folded.self_samples.keys()):
        seen = folded.self_samples.get(name, 0)
        if pooled[name] != seen:
            yield (
                f"The processes have {pooled[name]:,} own samples of {quote(name)}, and the "
                f"profile shows {seen:,}."
            )


RATE_SLACK = 1.2
COUNTED_EVENT = "Ir"
"""Instructions, which are counted one by one; whatever else there is, is sampled."""
SAMPLES_SLACK = 50
"""Samplers start and stop a little outside of the measured blocks."""

CROSSCHECK_PROFILE_CHECKS: Rulebook[Case] = Rulebook()
SHORTFALLS: Rulebook[Case] = Rulebook()

_AGAIN_CROSSCHECK_PROFILE = (
    "Measure again; profile and evidence are written together and changed by nobody."
)


@CROSSCHECK_PROFILE_CHECKS.rule(
    "E_PROFILE_CHANGED",
    "The evidence names the folded profile by the SHA-256 of its bytes.",
    remedy=_AGAIN_CROSSCHECK_PROFILE,
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


@CROSSCHECK_PROFILE_CHECKS.rule(
    "E_PROFILE_MALFORMED",
    "Every line of the folded profile is a stack and a count.",
    remedy=_AGAIN_CROSSCHECK_PROFILE,
    protects=Grade.OBSERVED,
)
def _profile_malformed(case: Case) -> Iterator[str]:
    # A name with a newline or a semicolon in it would invent frames.
    if case.folded is not None and case.folded.problem is not None:
        yield case.folded.problem


@CROSSCHECK_PROFILE_CHECKS.rule(
    "E_SAMPLE_COUNT",
    "Folded profile, its record and its processes count the same samples.",
    remedy=_AGAIN_CROSSCHECK_PROFILE,
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


@CROSSCHECK_PROFILE_CHECKS.rule(
    "E_KERNEL_UNSEEN",
    "Every claimed kernel was seen, and one seen in the profile stands there.",
    remedy="Name the kernels that the profile shows.",
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
            yield f"The kernel {quote(kernel)} is claimed and was never seen{_top(case.folded)}."
        elif sighting.source == "profile" and case.folded is not None:
            samples = case.folded.inclusive_samples.get(kernel, 0)
            if not samples:
                yield (
                    f"The kernel {quote(kernel)} is claimed and not in the profile"
                    f"{_top(case.folded)}."
                )
            elif sighting.count > samples:
                yield (
                    f"The kernel {quote(kernel)} was seen {sighting.count:,} times, and the "
                    f"profile shows {samples:,} samples of it."
                )


def _top(folded: Folded | None) -> str:
    if folded is None or not folded.self_samples:
        return ""
    hottest = _largest(folded.self_samples)
    return f" ({folded.samples:,} samples): the profile shows {quote(hottest)}"


def _largest(samples: Mapping[str, int]) -> str:
    return max(sorted(samples), key=lambda name: samples[name])


@CROSSCHECK_PROFILE_CHECKS.rule(
    "E_PROFILE_PROCESS",
    "Each profiled process is one of the profiled runs.",
    remedy=_AGAIN_CROSSCHECK_PROFILE,
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


@CROSSCHECK_PROFILE_CHECKS.rule(
    "E_PROFILE_NONCE",
    "The profile was taken in this very measurement.",
    remedy=_AGAIN_CROSSCHECK_PROFILE,
    protects=Grade.OBSERVED,
)
def _profile_nonce(case: Case) -> Iterator[str]:
    # Evidence from before the nonce was kept does not say.
    profile = case.evidence.profile
    if profile is not None and profile.nonce not in (None, case.evidence.nonce):
        yield (
            f"The profile is of the measurement {quote(profile.nonce)}, and the evidence of "
            f"{quote(case.evidence.nonce)}."
        )


@CROSSCHECK_PROFILE_CHECKS.rule(
    "E_TOO_MANY_SAMPLES",
    "A profile holds no more samples than its rate allows.",
    remedy=_AGAIN_CROSSCHECK_PROFILE,
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
            yield f"{profile.samples:,} samples of {quote(profile.event)} were taken at no rate."
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
    remedy="Measure with a profiler, and keep profile.folded beside the receipt.",
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
    remedy="Profile with a profiler that sees native code.",
    protects=Grade.OBSERVED,
    needs={"kernels"},
)
def _kernels_from_engine(case: Case) -> Iterator[str]:
    # What an engine says about itself is not an observation.
    seen = {each.name for each in case.evidence.kernels if each.source == "profile"}
    told = {each.name for each in case.evidence.kernels} - seen
    for kernel in dict.fromkeys(case.claim.kernels):
        if kernel in told:
            yield f"The kernel {quote(kernel)} was reported by the engine, and by no profiler."


@SHORTFALLS.rule(
    "W_PROFILE_DEGRADED",
    "The profile was taken without compromise.",
    remedy="See what the profiler reported (flamegate doctor).",
    protects=None,
)
def _profile_degraded(case: Case) -> Iterator[str]:
    # Shares of a degraded profile may be off.
    profile = case.evidence.profile
    if profile is not None and profile.degraded:
        yield f"The profile is degraded: {', '.join(map(quote, profile.degraded))}."
