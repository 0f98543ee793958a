"""Rules over origin: receipt and evidence belong together, by names, digests and dates."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import groupby, pairwise

from pytest_flamegate.core.json import parse_timestamp
from pytest_flamegate.core.text import quote
from pytest_flamegate.engines import ENGINES
from pytest_flamegate.observe.observation import MOST_AT_ONCE, Run
from pytest_flamegate.receipt.rules.rule import Rulebook, Submission
from pytest_flamegate.receipt.types import Grade

CLOCK_SET_S = 300
"""A wall clock may be set during a run. Durations come from another clock."""
TICKS_PER_S = 100
"""Linux states the start of a process in 1/100 s on every common machine."""
TICK_SLACK_S = 0.1
DATE_SLACK_S = 0.01
"""Dates are written in milliseconds."""
RATE_SLACK = 0.01
"""The clocks are disciplined independently; none may drift by as much as 1 %."""
MEASURED_WITHIN_S = 24 * 3600
WRITTEN_WITHIN_S = 24 * 3600
START_SLACK_S = 5.0
"""From reading the clock to the start of the process on a busy machine, under a profiler."""
MAX_STEPS = 2
"""A wall clock is set once or twice during a measurement, not before each run."""

CHECKS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)
SHORTFALLS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)

_COVERED = {"sequence": ("sequence",), "process": ("process", "decode")}
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@CHECKS.rule("E_RECEIPT_CHANGED", "The evidence has the SHA-256 of the receipt.")
def _check_digest(case: Submission) -> Iterator[str]:
    if case.evidence.receipt_sha256 != case.receipt_sha256:
        stated = case.evidence.receipt_sha256[:12]
        yield f"The evidence is of the receipt {stated}, not {case.receipt_sha256[:12]}."


@CHECKS.rule(
    "E_ORIGIN_MISMATCH",
    "Receipt and evidence name the same engine, tool, Python, system and environment.",
)
def _check_environment(case: Submission) -> Iterator[str]:
    evidence, machine = case.evidence, case.evidence.machine
    system = f"{machine['os']}-{machine['arch']}" if {"os", "arch"} <= machine.keys() else None
    recorded: dict[str, object] = {
        **evidence.effective_environment,
        "FLAMEGATE_ENGINE": evidence.workload.get("engine"),
        "FLAMEGATE_VERSION": evidence.flamegate_version,
        "OS": system,
        "PYTHON_VERSION": machine.get("python"),
    }
    for name, value in case.claim.environment.items():
        known = recorded.get(name)
        if known is not None and known != value:
            yield f"{quote(name)} is {quote(value)} in the receipt, {quote(known)} in the evidence."


@CHECKS.rule("E_ORIGIN_MISMATCH", "Receipt and evidence name the same model.")
def _check_model(case: Submission) -> Iterator[str]:
    evidence, claimed = case.evidence, case.claim.model
    named = evidence.model.get("sha256")
    if named is not None and named != evidence.model_sha256:
        yield f"The evidence names two models: {quote(named)} and {quote(evidence.model_sha256)}."
    for name, recorded in {**evidence.model, "sha256": evidence.model_sha256}.items():
        if claimed.get(name) is not None and claimed[name] != recorded:
            given = quote(claimed[name])
            yield f"model.{name[:40]} is {given} in the receipt, {quote(recorded)} in the evidence."


@CHECKS.rule("E_ORIGIN_MISMATCH", "Clocks and profile cover the phase that the engine runs in.")
def _check_scope(case: Submission) -> Iterator[str]:
    # A served engine relabelled as a program would get a less strict kernel policy.
    scope = case.evidence.clock_scope
    engine = case.evidence.workload.get("engine")
    known = ENGINES.get(str(engine))
    if known is not None and scope != known.clock_scope:
        expected = f"the {known.clock_scope}, not the {scope}"
        yield f"The clocks of the engine {quote(engine)} cover {expected}."
    profile = case.evidence.profile
    if profile is not None and profile.covers not in _COVERED[scope]:
        yield f"The profile covers the {profile.covers}, but the clocks cover the {scope}."


@CHECKS.rule("E_ORIGIN_MISMATCH", "A commit is named by its full hash.")
def _check_commit(case: Submission) -> Iterator[str]:
    # The name of a branch is other code tomorrow.
    commit = case.evidence.commit
    if commit is None:
        return
    if _HASH.fullmatch(commit.revision) is None:
        yield f"The commit {quote(commit.revision)} is not a full hash."
    if commit.tree and _HASH.fullmatch(commit.tree) is None:
        yield f"The digest of the commit's code is {quote(commit.tree)}, which is not a hash."


@CHECKS.rule("E_ORIGIN_MISMATCH", "A run shares its core only with the other side of its pair.")
def _check_sharing(case: Submission) -> Iterator[str]:
    # What the other side used is left out of the rate, so a run alone would look faster.
    for run in case.evidence.runs:
        is_alone = None in (case.evidence.side, run.pair, run.cpu) or run.role == "traced"
        if run.shares_core and is_alone:
            yield f"Process {run.pid} shared its core, but belongs to no pair on one core."


@CHECKS.rule(
    "E_CLOCK_CONTRADICTION",
    "A run begins after the previous run has ended, unless the two shared a core each in pairs "
    "that ran at once.",
)
def _check_order(case: Submission) -> Iterator[str]:
    # Windows of one server share its start and differ only in their dates.
    set_back, in_windows = 0, case.in_windows
    pairs = _list_pairs(case.evidence.runs)
    following = [each for runs in pairs for each in pairwise(runs)]
    turns = [(one[-1], other[0]) for one, other in pairwise(pairs)]
    following += [each for each in turns if not _may_overlap(*each)]
    is_beside = any(_may_overlap(*each) for each in turns)
    if is_beside:
        following += [
            (one[-1], other[0]) for one, other in zip(pairs, pairs[MOST_AT_ONCE:], strict=False)
        ]
    for earlier, later in following:
        lasted_s = earlier.lasted_s
        first, second = earlier.started_ticks, later.started_ticks
        if not in_windows and first is not None and second is not None:
            apart_s = (second - first) / TICKS_PER_S
            after_s = _lasted_after_start_s(earlier)
            if after_s > apart_s * (1 + RATE_SLACK) + TICK_SLACK_S:
                yield f"Process {later.pid} started {apart_s:.2f} s after a run of {after_s:.2f} s."
        apart_s = _parse_seconds(later.started_at) - _parse_seconds(earlier.started_at)
        if lasted_s > apart_s + CLOCK_SET_S:
            yield f"Process {later.pid} is dated {apart_s:,.0f} s after a run of {lasted_s:,.0f} s."
        # The start of a process is dated when it is launched, that of a window when it is asked.
        least_s = lasted_s if in_windows else 0.0
        set_back += least_s > apart_s * (1 + RATE_SLACK) + DATE_SLACK_S
    # Of pairs that run at once, one step of the clock sets back all.
    if set_back > MAX_STEPS * (MOST_AT_ONCE if is_beside else 1):
        yield f"{set_back} runs are dated before the previous run."


def _list_pairs(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs of each pair in turn; a short program runs several times in one.

    Runs outside of pairs stand alone.
    """
    numbered = groupby(
        enumerate(runs), lambda each: (each[1].role, each[1].pair, each[1].pair is None and each[0])
    )
    return [[run for _, run in pair] for _, pair in numbered]


def _may_overlap(one: Run, other: Run) -> bool:
    """Whether these belong to two pairs that ran at once, each on a core."""
    shared = one.shares_core and other.shares_core and one.role == other.role
    return shared and one.cpu != other.cpu and one.pair != other.pair


@CHECKS.rule("E_CLOCK_CONTRADICTION", "A server that ran before the measurement started once.")
def _check_windows(case: Submission) -> Iterator[str]:
    # Processes of their own, relabelled as windows of one server, would skip the rule above.
    if not case.in_windows:
        return
    started: dict[int, int] = {}
    for run in case.evidence.runs:
        if run.load_ns is not None:
            yield f"The server {run.pid} ran before, but started in {run.load_ns / 1e6:,.1f} ms."
        ticks = run.started_ticks
        if ticks is not None and started.setdefault(run.pid, ticks) != ticks:
            yield f"The server {run.pid} ran all the time, but has two different starts."


@CHECKS.rule(
    "E_CLOCK_CONTRADICTION",
    "All runs ended before the evidence was written, and began at most 24 hours before.",
)
def _check_runs_before_evidence(case: Submission) -> Iterator[str]:
    created_s = _parse_seconds(case.evidence.created)
    for run in case.evidence.runs:
        passed_s = created_s - _parse_seconds(run.started_at)
        if run.lasted_s > passed_s + CLOCK_SET_S:
            yield f"Process {run.pid} ran {run.lasted_s:,.0f} s, but {passed_s:,.0f} s passed."
        if passed_s > MEASURED_WITHIN_S:
            yield f"Process {run.pid} began {passed_s / 3600:,.1f} hours before the evidence."


@CHECKS.rule("E_CLOCK_CONTRADICTION", "Dates and process start times agree on when the runs began.")
def _check_two_clocks(case: Submission) -> Iterator[str]:
    if case.in_windows:
        return
    offsets_s = [
        (run.pid, _parse_seconds(run.started_at) - run.started_ticks / TICKS_PER_S)
        for run in case.evidence.runs
        if run.started_ticks is not None and not _started_by_profiler(run)
    ]
    steps = [
        (pid, after_s - before_s)
        for (_, before_s), (pid, after_s) in pairwise(offsets_s)
        if abs(after_s - before_s) > START_SLACK_S
    ]
    for pid, step_s in steps:
        if abs(step_s) > CLOCK_SET_S:
            yield f"The date of process {pid} differs by {step_s:+,.0f} s from its start in ticks."
    if len(steps) > MAX_STEPS:
        yield f"The wall clock would have been set {len(steps)} times during the runs."


@CHECKS.rule("E_CLOCK_CONTRADICTION", "Receipt and evidence were written within 24 hours.")
def _check_written_together(case: Submission) -> Iterator[str]:
    created = parse_timestamp(case.evidence.created)
    age_s = (case.claim.now - created).total_seconds()
    apart_s = abs(case.claim.age_s - age_s)
    if apart_s > WRITTEN_WITHIN_S:
        yield f"Receipt and evidence were written {apart_s / 3600:,.1f} hours apart."


@CHECKS.rule("E_EXPIRED", "Evidence and runs are no older than the reader allows.", protects=None)
def _check_age(case: Submission) -> Iterator[str]:
    # A receipt may be dated up to a day later than its evidence. One finding is enough.
    most_s, now = case.claim.max_age_s, case.claim.now
    if most_s is None or not case.claim.age_s <= most_s:
        return
    last_run = max(parse_timestamp(run.started_at) for run in case.evidence.runs)
    age_s = (now - min(last_run, parse_timestamp(case.evidence.created))).total_seconds()
    if not age_s <= most_s:
        yield (
            f"The last run began, or the evidence was written, {age_s / 3600:,.1f} hours ago; "
            f"{most_s / 3600:,.1f} are allowed."
        )


def _started_by_profiler(run: Run) -> bool:
    """Whether a profiler started the program, which may take it seconds."""
    return run.role == "profiled" and run.load_ns is None


@lru_cache(maxsize=1024)
def _parse_seconds(stamp: str) -> float:
    # Several rules read the dates of a receipt one after another; their form was checked before.
    return datetime.fromisoformat(stamp.upper()).timestamp()


def _lasted_after_start_s(run: Run) -> float:
    """Return the shortest possible time from the start of the process to the end of the run.

    If a profiler started the program, the interval includes the profiler's own start. Only the
    time after the first token is certain to follow the program's start.
    """
    if _started_by_profiler(run):
        return sum(block.later_tokens_ns for block in run.blocks) / 1e9
    return run.lasted_s


@SHORTFALLS.rule("W_EVIDENCE_INCOMPLETE", "The evidence states what was run.")
def _check_recipe(case: Submission) -> Iterator[str]:
    recipe = case.evidence.workload
    engine = ENGINES.get(str(recipe.get("engine")))
    keys = engine.origin_keys if engine is not None else ()
    stated = [value for name in keys if isinstance(value := recipe.get(name), (str, list, tuple))]
    if keys and not any(stated):
        yield f"The recipe of the engine {quote(recipe['engine'])} has no {' or '.join(keys)}."


@SHORTFALLS.rule(
    "W_MODEL_NOT_HASHED", "The evidence has the SHA-256 of the model file.", protects=None
)
def _check_model_hash(case: Submission) -> Iterator[str]:
    # A server or a callable may have no file to hash.
    if case.evidence.model_sha256 is None:
        yield "No model file was hashed, so another model may have run."
