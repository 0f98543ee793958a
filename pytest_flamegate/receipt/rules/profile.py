"""Rules over the profile: its samples, processes and hotspots, and the kernels that it shows.

Gates read the hotspots and the samples of each process, and people read the folded profile, so
all three must state the same.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from pytest_flamegate.core.text import quote
from pytest_flamegate.profile.stacks import WORKLOAD_ROOT
from pytest_flamegate.receipt.metrics import cost_of
from pytest_flamegate.receipt.reported import engine_kernels
from pytest_flamegate.receipt.rules.figures import FIGURE_AGREEMENT
from pytest_flamegate.receipt.rules.rule import Folded, Rulebook, Submission
from pytest_flamegate.receipt.types import Grade

RATE_SLACK = 1.2
COUNTED_EVENT = "Ir"
"""Instructions are counted one by one; all other events are sampled at a rate."""
_COMPLETENESS_SLACK = 0.01
SAMPLES_SLACK = 50
"""Samplers start and stop slightly outside the measured blocks."""

CHECKS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)
SHORTFALLS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)


@CHECKS.rule("E_RECEIPT_CHANGED", "The evidence has the SHA-256 of the folded profile.")
def _check_digest(case: Submission) -> Iterator[str]:
    profile = case.evidence.profile
    if profile is None or case.folded_sha256 is None:
        return
    if profile.folded_sha256 != case.folded_sha256:
        stated = profile.folded_sha256[:12]
        yield f"The evidence is of the profile {stated}, not {case.folded_sha256[:12]}."


@CHECKS.rule("E_PROFILE_CONTRADICTION", "Each line of the folded profile is a stack and a count.")
def _check_lines(case: Submission) -> Iterator[str]:
    # A name with a newline or a semicolon in it would add frames.
    if case.folded is not None and case.folded.problem is not None:
        yield case.folded.problem


@CHECKS.rule(
    "E_PROFILE_CONTRADICTION", "Folded profile, record and processes have equal sample counts."
)
def _check_totals(case: Submission) -> Iterator[str]:
    profile, folded = case.evidence.profile, case.folded
    if profile is None:
        return
    if folded is not None and folded.samples != profile.samples:
        yield f"The record has {profile.samples:,} samples; the stacks have {folded.samples:,}."
    pooled = sum(process.samples for process in profile.processes)
    if pooled != profile.samples:
        yield f"The record has {profile.samples:,} samples; its processes have {pooled:,}."
    for process in profile.processes:
        by_name = sum(process.self_samples.values())
        if by_name > process.samples:
            yield f"Process {process.pid} has {by_name:,} samples by name, but {process.samples:,}."


@CHECKS.rule(
    "E_PROFILE_CONTRADICTION",
    "The processes have as many samples of each function as the folded profile.",
)
def _check_processes(case: Submission) -> Iterator[str]:
    # The spread of a share over the processes decides which change counts as drift.
    profile, folded = case.evidence.profile, case.folded
    if profile is None or folded is None:
        return
    pooled: dict[str, int] = {}
    for process in profile.processes:
        for name, count in process.self_samples.items():
            pooled[name] = pooled.get(name, 0) + count
    if pooled == folded.self_samples:
        return
    for name in sorted(pooled.keys() | folded.self_samples.keys()):
        own, counted = pooled.get(name, 0), folded.self_samples.get(name, 0)
        if own != counted:
            yield f"{quote(name)} has {own:,} samples in processes, {counted:,} in stacks."


@CHECKS.rule("E_PROFILE_CONTRADICTION", "A profile has no more samples than its rate allows.")
def _check_most_samples(case: Submission) -> Iterator[str]:
    # Each thread that runs or waits to run is sampled. The children of a program are sampled
    # too, and are not among its threads.
    profile = case.evidence.profile
    if profile is None or profile.samples == 0:
        return
    if profile.rate_hz <= 0:
        if profile.event != COUNTED_EVENT:
            yield f"{profile.samples:,} samples of {quote(profile.event)} have no rate."
        return
    seconds = 0.0
    for run in case.profiled:
        threads = max(1, run.threads or 1)
        if case.evidence.clock_scope == "process":
            threads = max(threads, case.max_parallelism(run) or 1)
        for block in run.blocks:
            interval = block.interval
            ready_ns = interval.cpu_ns + (interval.run_delay_ns or 0)
            seconds += max(interval.wall_ns * threads, ready_ns) / 1e9
        seconds += (run.load_ns or 0) * threads / 1e9
    most = seconds * profile.rate_hz * RATE_SLACK + SAMPLES_SLACK
    if profile.samples > most:
        rate = f"{seconds:.1f} s at {profile.rate_hz} Hz"
        yield f"The profile has {profile.samples:,} samples; {rate} allow {most:,.0f}."


@CHECKS.rule("E_PROFILE_CONTRADICTION", "Each profiled process is one of the profiled runs.")
def _check_profiled_runs(case: Submission) -> Iterator[str]:
    profile = case.evidence.profile
    if profile is None:
        return
    # Process ids are reused: only together with its start does one identify a process.
    named = [(process.pid, process.started_ticks) for process in profile.processes]
    most = len(case.profiled) if case.in_windows else 1
    for pid, ticks in dict.fromkeys(named):
        started = {run.started_ticks for run in case.profiled if run.pid == pid}
        same = [t for p, t in named if p == pid and (t == ticks or None in (t, ticks))]
        if len(same) > most:
            yield f"The process {pid} is listed twice in the profile."
        if not started:
            yield f"The profile is of process {pid}, which is not one of the profiled runs."
        elif ticks is not None and None not in started and ticks not in started:
            yield f"The profiled process {pid} started at another time than the run of that id."


@CHECKS.rule("E_PROFILE_CONTRADICTION", "The profile was taken in this measurement.")
def _check_nonce(case: Submission) -> Iterator[str]:
    # Evidence of older versions has no nonce in its profile.
    profile = case.evidence.profile
    if profile is not None and profile.nonce not in (None, case.evidence.nonce):
        stated, known = quote(profile.nonce), quote(case.evidence.nonce)
        yield f"The profile is of the measurement {stated}, the evidence of {known}."


@CHECKS.rule(
    "E_PROFILE_CONTRADICTION",
    "The hotspots are the functions of the folded profile, their frames and samples, in order.",
)
def _check_hotspots(case: Submission) -> Iterator[str]:
    # A changed count blames or acquits a function, and pages show the first ones. The category is
    # not compared: the table of categories differs between versions.
    profile, folded = case.evidence.profile, case.folded
    if profile is None or folded is None:
        return
    listed: set[str] = set()
    frames = {(frame.name, frame.module, frame.kind) for frame in folded.frames}
    for hotspot in profile.hotspots:
        own = folded.self_samples.get(hotspot.name, 0)
        inclusive = folded.inclusive_samples.get(hotspot.name, 0)
        if (hotspot.self_samples, hotspot.inclusive_samples) != (own, inclusive):
            yield (
                f"The hotspot {quote(hotspot.name)} has {hotspot.self_samples:,} own and "
                f"{hotspot.inclusive_samples:,} inclusive samples; the folded profile has {own:,} "
                f"and {inclusive:,}."
            )
        if own + inclusive and (hotspot.name, hotspot.module, hotspot.kind) not in frames:
            yield (
                f"The hotspot {quote(hotspot.name)} is {hotspot.kind} in {quote(hotspot.module)}, "
                "and the folded profile has no such frame."
            )
        if hotspot.name in listed:
            yield f"The hotspot {quote(hotspot.name)} is listed twice."
        listed.add(hotspot.name)
    for name, inclusive in folded.inclusive_samples.items():
        if name not in listed:
            yield f"{quote(name)} has {inclusive:,} samples, but is not among the hotspots."
    for before, after in pairwise(profile.hotspots):
        if after.self_samples > before.self_samples:
            yield f"The hotspot {quote(after.name)} ranks above {quote(before.name)}, but follows."


@CHECKS.rule(
    "E_PROFILE_CONTRADICTION",
    "The shares of a hotspot are its samples by those of all, and it costs its own share of the "
    "CPU time per token of its phase.",
)
def _check_shares(case: Submission) -> Iterator[str]:
    # A share also grows if the rest became faster; only the cost shows the difference.
    profile = case.evidence.profile
    if profile is None:
        return
    cost_s = cost_of(profile.covers, case.evidence.metrics)
    has_costs = any(hotspot.cpu_s_per_token is not None for hotspot in profile.hotspots)
    for hotspot in profile.hotspots:
        for kind, share, samples in (
            ("own", hotspot.self_share, hotspot.self_samples),
            ("inclusive", hotspot.inclusive_share, hotspot.inclusive_samples),
        ):
            counted = samples / max(1, profile.samples)
            if abs(share - counted) > FIGURE_AGREEMENT:
                yield (
                    f"The {kind} share of {quote(hotspot.name)} is {share:.2%}; {samples:,} of "
                    f"{profile.samples:,} samples are {counted:.2%}."
                )
        stated_s = hotspot.cpu_s_per_token
        if stated_s is not None and cost_s is None:
            yield f"{quote(hotspot.name)} has a cost, but there is no metric of CPU time."
        elif stated_s is None and has_costs:
            yield f"{quote(hotspot.name)} has no cost, and other functions have one."
        elif stated_s is not None and cost_s is not None:
            own_s = hotspot.self_share * cost_s
            if abs(stated_s - own_s) > FIGURE_AGREEMENT * cost_s:
                yield (
                    f"{quote(hotspot.name)} costs {stated_s:.4g} CPU seconds per token; "
                    f"{hotspot.self_share:.2%} of {cost_s:.4g} are {own_s:.4g}."
                )


@CHECKS.rule(
    "E_PROFILE_CONTRADICTION", "All stacks that begin in the served engine count as complete."
)
def _check_completeness(case: Submission) -> Iterator[str]:
    # No share is judged of a profile whose stacks are cut.
    profile, folded = case.evidence.profile, case.folded
    if profile is None or folded is None or profile.call_graph == "none":
        return
    whole = folded.inclusive_samples.get(WORKLOAD_ROOT, 0) / max(1, folded.samples)
    if whole > profile.completeness + _COMPLETENESS_SLACK:
        yield f"{profile.completeness:.1%} of the stacks are said to be complete; {whole:.1%} are."


@CHECKS.rule(
    "E_KERNEL_UNSEEN", "Each claimed kernel was seen, and in the profile if the evidence says so."
)
def _check_claimed_kernels(case: Submission) -> Iterator[str]:
    # If profiler and engine both name a kernel, the profiler counts.
    by_source = sorted(case.evidence.kernels, key=lambda sighting: sighting.source == "profile")
    sightings = {sighting.name: sighting for sighting in by_source}
    for kernel in dict.fromkeys(case.claim.kernels):
        sighting = sightings.get(kernel)
        if sighting is None or sighting.count == 0:
            yield f"The kernel {quote(kernel)} is claimed but was never seen{_top(case.folded)}."
        elif sighting.source == "profile" and case.folded is not None:
            samples = case.folded.inclusive_samples.get(kernel, 0)
            if not samples:
                yield f"{quote(kernel)} is claimed but not in the profile{_top(case.folded)}."
            elif sighting.count > samples:
                yield f"{quote(kernel)} has {sighting.count:,} sightings, but {samples:,} samples."


def _top(folded: Folded | None) -> str:
    if folded is None or not folded.self_samples:
        return ""
    hottest = max(sorted(folded.self_samples), key=lambda name: folded.self_samples[name])
    return f" ({folded.samples:,} samples): the profile shows {quote(hottest)}"


@CHECKS.rule(
    "E_KERNEL_UNSEEN",
    "A kernel attributed to the engine is in its reports, as often, and none is left out.",
)
def _check_reported_kernels(case: Submission) -> Iterator[str]:
    # An added name, or a reported fallback that was left out.
    kernels = case.evidence.kernels
    if not case.has_reports and {each.source for each in kernels} <= {"profile"}:
        return
    profiled = {each.name for each in kernels if each.source == "profile"}
    reported = {
        (each.name, each.told_by): each.count
        for each in engine_kernels(case.evidence.runs, profiled)
    }
    listed = Counter((each.name, each.told_by) for each in kernels if each.source == "engine")
    for each in kernels:
        count = reported.get((each.name, each.told_by), 0)
        if each.source == "engine" and count != each.count:
            yield (
                f"{quote(each.told_by)} is said to report {each.count:,} calls of the kernel "
                f"{quote(each.name)}; the reports of the runs have {count:,}."
            )
    for name, source in reported:
        if listed[name, source] != 1:
            yield f"{quote(source)} reports {quote(name)}, listed {listed[name, source]} times."


@CHECKS.rule("E_MOCK_KERNEL", "No kernel that ran is a mock, whether or not it is claimed.")
def _check_unclaimed_mocks(case: Submission) -> Iterator[str]:
    # A claim is easily shortened. Reports also contain names that are no kernel's.
    named = [each.name for each in case.evidence.kernels if each.count]
    reports = (report for run in case.evidence.runs for report in run.reported)
    named += [name for report in reports for name, count in report.kernels.items() if count]
    for name in dict.fromkeys(named):
        if "mock" in name.casefold() and name not in case.claim.kernels:
            yield f"The mock {quote(name)} ran, but the receipt does not name it."


@SHORTFALLS.rule("W_NO_PROFILE", "A profile with samples belongs to the evidence.")
def _check_profile(case: Submission) -> Iterator[str]:
    if case.evidence.profile is None:
        yield "No profiler ran, so no kernel was seen."
    elif case.folded is None:
        yield "The evidence records a profile, but profile.folded is missing."
    elif case.folded.samples == 0:
        yield "The profile has no samples."


@SHORTFALLS.rule("W_KERNELS_FROM_ENGINE", "Each claimed kernel was seen in the profile.")
def _check_kernel_sources(case: Submission) -> Iterator[str]:
    profiled = {each.name for each in case.evidence.kernels if each.source == "profile"}
    reported = {each.name for each in case.evidence.kernels} - profiled
    for kernel in dict.fromkeys(case.claim.kernels):
        if kernel in reported:
            yield f"The kernel {quote(kernel)} was reported by the engine, but by no profiler."


@SHORTFALLS.rule("W_PROFILE_DEGRADED", "The profile was taken without compromise.", protects=None)
def check_degraded(case: Submission) -> Iterator[str]:
    """Yield the compromises of the profiler: they also keep the profile from being a baseline."""
    profile = case.evidence.profile
    if profile is not None and profile.degraded:
        yield f"The profile is degraded: {', '.join(map(quote, profile.degraded))}."
