"""Cross-checks over the runs: their clocks, their tokens, their processes."""

from __future__ import annotations

import math
from itertools import dropwhile, pairwise
from typing import TYPE_CHECKING

from pytest_flamegate.core.json_old import read_timestamp
from pytest_flamegate.core.text import quote
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.observe.observation import of_one_process
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.metrics import rate_of
from pytest_flamegate.receipt.rules.copies import repetitions
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.core.clocks import Interval
    from pytest_flamegate.observe.observation import Block, Run
    from pytest_flamegate.receipt.rules.subject import Case


TPS_AGREEMENT = 0.005
"""The same times give the same rate; half a percent leaves room for rounding."""
CLOCK_SLACK = 0.05
CLOCK_SLACK_NS = 20_000_000
"""CPU time is counted in ticks of up to 10 ms, at either end of an interval."""
WAITS_SLACK = 0.25
"""On a crowded machine short blocks together came to one hundredth more than their time."""
WALL_SLACK_NS = 1_000_000
ASLEEP_BELOW = 0.02
"""A CPU that computes is busy; a mock that sleeps between tokens shows one part in 10^4."""
ASLEEP_AFTER_NS = 200_000_000

CHECKS: Rulebook[Case] = Rulebook()
SHORTFALLS: Rulebook[Case] = Rulebook()

_AGAIN = "Measure again; receipt and evidence are written together and changed by nobody."


@CHECKS.rule(
    "E_TPS_MISMATCH",
    "tokens_per_second recomputes from the token times of the timed runs.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"tokens_per_second"},
)
def _tps_mismatch(case: Case) -> Iterator[str]:
    # The observer's clock against the claim.
    rate = rate_of(case.evidence.runs)
    claimed = case.claim.tokens_per_second
    if rate is None:
        return
    if abs(claimed - rate.tokens_per_second) > TPS_AGREEMENT * rate.tokens_per_second:
        yield (
            f"{claimed:.1f} tok/s claimed, {rate.tokens_per_second:.1f} from the token times "
            f"({rate.formula}, {rate.tokens:,} tokens)."
        )


@CHECKS.rule(
    "E_TOKEN_COUNT",
    "Every sequence has as many tokens as the receipt claims and the evidence shows.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"tokens_requested", "tokens_generated", "deterministic"},
)
def _token_count(case: Case) -> Iterator[str]:
    # Fewer tokens are less work.
    claimed = case.claim.tokens_generated
    shown_tokens = len(case.evidence.tokens)
    if shown_tokens != claimed:
        yield f"{claimed} tokens are claimed and the evidence shows {shown_tokens}."
    asked = case.evidence.workload.get("max_tokens")
    if isinstance(asked, int) and asked != case.claim.tokens_requested:
        yield (
            f"The receipt requested {case.claim.tokens_requested} tokens and the workload asks "
            f"for {asked}."
        )
    for run in case.evidence.runs:
        lengths = {len(gaps) for block in run.blocks for gaps in block.sequences_ns}
        if case.claim.deterministic and lengths - {claimed}:
            found = ", ".join(map(str, sorted(lengths)))
            yield f"The run of process {run.pid} has sequences of {found} tokens, not {claimed}."
        elif case.claim.deterministic and run.tokens_per_sequence != claimed:
            yield (
                f"The run of process {run.pid} is said to have had {run.tokens_per_sequence} "
                f"tokens a sequence, and had {claimed}."
            )
        elif lengths and max(lengths) > case.claim.tokens_requested:
            yield f"The run of process {run.pid} has a sequence of {max(lengths)} tokens."


@CHECKS.rule(
    "E_TOKEN_DIGEST",
    "The token digest is that of the tokens shown.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _digest_of_tokens(case: Case) -> Iterator[str]:
    # The digest is what a replay will be held against.
    if not case.evidence.tokens:
        yield "The evidence shows no tokens."
        return
    digest = token_digest(case.evidence.tokens)
    if digest != case.evidence.token_digest:
        yield (
            f"The digest {case.evidence.token_digest[:12]} is claimed, and the tokens give "
            f"{digest[:12]}."
        )


@CHECKS.rule(
    "E_TOKENS_DIFFER",
    "A receipt that claims determinism shows the same tokens in every run.",
    remedy="Make the engine deterministic (seed, threads), or say deterministic: false.",
    protects=Grade.OBSERVED,
    needs={"deterministic"},
)
def _tokens_differ(case: Case) -> Iterator[str]:
    # Determinism is shown by digests, not declared.
    if not case.claim.deterministic:
        return
    if case.evidence.differs_at is not None:
        yield f"Determinism is claimed and a sequence differs at token {case.evidence.differs_at}."
    for run in case.evidence.runs:
        if run.token_digest != case.evidence.token_digest:
            yield f"Determinism is claimed and process {run.pid} generated other tokens."


@CHECKS.rule(
    "E_DIFFERENCE_CONTRADICTED",
    "Where a sequence differed it had another token than the one shown there.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _difference_contradicted(case: Case) -> Iterator[str]:
    # Older evidence does not tell what the other token was.
    at, other, tokens = case.evidence.differs_at, case.evidence.differs_to, case.evidence.tokens
    if at is None:
        if other is not None:
            yield f"No sequence is said to differ, and one had {quote(other)} instead."
    elif at > len(tokens):
        yield f"A sequence is said to differ at token {at} of {len(tokens)}."
    elif at < len(tokens) and other == tokens[at]:
        yield f"A sequence is said to differ at token {at}, and had {quote(other)} there as well."


@CHECKS.rule(
    "E_CLOCK_CONTRADICTION",
    "Within a block, token times add up to no more than its wall time.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _clock_contradiction(case: Case) -> Iterator[str]:
    # Sequences run one after another inside the interval that covers them.
    for run in case.evidence.runs:
        for block in run.blocks:
            spans = [(sum(map(sum, block.sequences_ns)), block.interval.wall_ns, "a block")]
            if block.decode is not None:
                decode_ns = sum(sum(gaps[1:]) for gaps in block.sequences_ns)
                spans.append((decode_ns, block.decode.wall_ns, "a decode"))
                spans.append((block.decode.wall_ns, block.interval.wall_ns, "a block"))
            for inner_ns, outer_ns, what in spans:
                if inner_ns > outer_ns * (1 + CLOCK_SLACK) + WALL_SLACK_NS:
                    yield (
                        f"The run of process {run.pid} has {inner_ns / 1e6:.1f} ms of token "
                        f"times in {what} of {outer_ns / 1e6:.1f} ms."
                    )
            if block.decode_tokens is None:
                continue
            after = _after_first_look(block)
            if block.decode_tokens > after:
                yield (
                    f"The run of process {run.pid} counts {block.decode_tokens} tokens into a "
                    f"decode in which {after} came."
                )


def _after_first_look(block: Block) -> int:
    """Return how many tokens came later than the first of their sequence."""
    return sum(1 for gaps in block.sequences_ns for _ in dropwhile(lambda gap: not gap, gaps[1:]))


@CHECKS.rule(
    "E_CPU_EXCEEDS_WALL",
    "No interval holds more CPU time than its wall time on all of the machine's cores.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _cpu_exceeds_wall(case: Case) -> Iterator[str]:
    # A core cannot compute for longer than time passes.
    cpu_ns, most_ns, looks = 0.0, 0.0, 0
    for run in case.evidence.runs:
        lanes = case.lanes(run)
        if lanes is None:
            continue
        for interval in _intervals(run):
            if interval.cpu_ns > interval.wall_ns * lanes * (1 + CLOCK_SLACK) + CLOCK_SLACK_NS:
                yield (
                    f"The run of process {run.pid} has {interval.cpu_ns / 1e6:.1f} ms of CPU time "
                    f"in {interval.wall_ns / 1e6:.1f} ms on {lanes} core(s) or thread(s)."
                )
        if run.role == "timed":
            cpu_ns += sum(block.interval.cpu_ns for block in run.blocks)
            most_ns += sum(block.interval.wall_ns for block in run.blocks) * lanes
            looks += len(run.blocks)
    # Short blocks hide in the slack of their ticks one by one; together they do not, as
    # ticks come early as often as late.
    if cpu_ns > most_ns * (1 + CLOCK_SLACK) + CLOCK_SLACK_NS * math.sqrt(looks):
        yield (
            f"The timed runs have {cpu_ns / 1e6:.1f} ms of CPU time together, and their cores or "
            f"threads had {most_ns / 1e6:.1f} ms."
        )


@CHECKS.rule(
    "E_COPIED_RUNS",
    "No run repeats another or itself, and no process stands twice.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _copied_runs(case: Case) -> Iterator[str]:
    # Nanoseconds never repeat; copies do, even altered, reordered or multiplied.
    runs = case.evidence.runs
    seen: dict[object, int] = {}
    processes: set[tuple[int, int]] = set()
    windows = of_one_process(case.evidence.workload)
    for run in case.evidence.runs:
        if run.started_ticks is not None and not windows:
            process = (run.pid, run.started_ticks)
            if process in processes:
                yield f"The process {run.pid} stands twice among the runs."
            processes.add(process)
        for block in run.blocks:
            timing = (block.interval, block.sequences_ns)
            if timing in seen:
                yield f"The runs of processes {seen[timing]} and {run.pid} hold the same block."
            seen[timing] = run.pid
    for each in repetitions(runs):
        one, other = runs[each.one].pid, runs[each.other].pid
        whose = (
            f"The runs of processes {one} and {other}"
            if each.one != each.other
            else (f"Two parts of the run of process {one}")
        )
        yield f"{whose} share {each.shared} of {each.of} {each.what}."


@SHORTFALLS.rule(
    "W_NO_TIMED_RUN",
    "The evidence holds token times of runs that no profiler touched.",
    remedy="Measure timed runs.",
    protects=Grade.OBSERVED,
)
def _no_timed_run(case: Case) -> Iterator[str]:
    # Without them the rate is the receipt's word.
    if rate_of(case.evidence.runs) is None:
        yield "No timed run holds token times, so tokens per second cannot be recomputed."


@SHORTFALLS.rule(
    "W_DETERMINISM_NOT_SHOWN",
    "A claim of determinism is shown by two sequences at least.",
    remedy="Run the workload twice.",
    protects=Grade.OBSERVED,
    needs={"deterministic"},
)
def _determinism_not_shown(case: Case) -> Iterator[str]:
    # One output equals itself.
    sequences = sum(len(block.sequences_ns) for run in case.evidence.runs for block in run.blocks)
    if case.claim.deterministic and sequences < 2:
        yield "Determinism is claimed and only one sequence was run."


@SHORTFALLS.rule(
    "W_ASLEEP",
    "The process that was observed spends CPU time while it generates.",
    remedy="Observe the process that computes, not a proxy or a mock in front of it.",
    protects=Grade.OBSERVED,
    needs={"backend"},
)
def _asleep(case: Case) -> Iterator[str]:
    # A mock that sleeps between tokens, or the client of a server that does the work:
    # either way nobody saw anything compute. Waiting for a CPU is not held against it.
    intervals = [block.interval for run in case.timed for block in run.blocks]
    ready_ns = sum(interval.wall_ns - (interval.run_delay_ns or 0) for interval in intervals)
    cpu_ns = sum(interval.cpu_ns for interval in intervals)
    asleep = ready_ns > ASLEEP_AFTER_NS and cpu_ns < ASLEEP_BELOW * ready_ns
    if case.claim.backend == "cpu" and asleep:
        yield (
            f"The timed runs computed for {cpu_ns / 1e6:.1f} ms of the {ready_ns / 1e6:.1f} ms in "
            "which they could."
        )


@SHORTFALLS.rule(
    "W_WAITS_EXCEED_WALL",
    "One thread computes and waits for a CPU no longer than time passes.",
    remedy="Measure again; the quiet clock leaves such waits out of what is judged.",
    protects=Grade.OBSERVED,
)
def _waits_exceed_wall(case: Case) -> Iterator[str]:
    # Threads that came and went between two looks may have waited, so this refuses nothing;
    # and where more than one core computed there certainly were some.
    intervals = [block.judged for run in case.timed if run.threads == 1 for block in run.blocks]
    cpu_ns = sum(interval.cpu_ns for interval in intervals)
    waited_ns = sum(interval.run_delay_ns or 0 for interval in intervals)
    wall_ns = sum(interval.wall_ns for interval in intervals)
    most_ns = wall_ns * (1 + WAITS_SLACK) + CLOCK_SLACK_NS
    if cpu_ns + waited_ns > most_ns >= cpu_ns:
        yield (
            f"The timed runs of one thread computed for {cpu_ns / 1e6:.1f} ms and waited for "
            f"{waited_ns / 1e6:.1f} ms in "
            f"{wall_ns / 1e6:.1f} ms."
        )


def _intervals(run: Run) -> Iterator[Interval]:
    for block in run.blocks:
        yield block.interval
        yield from (each for each in (block.reference, block.decode) if each is not None)


CLOCK_SET_S = 300
"""A wall clock may be set while a run lasts; the durations do not come from it."""
TICKS_PER_S = 100
"""Linux tells the start of a process in hundredths of a second, on every common machine."""
TICK_SLACK_S = 0.1
DATE_SLACK_S = 0.01
"""Dates are written in thousandths of a second."""
RATE_SLACK = 0.01
"""The clocks are disciplined apart: a hundredth is more than any of them is let stray."""
MEASURED_WITHIN_S = 24 * 3600
START_SLACK_S = 5.0
"""From reading the clock to the process on a busy machine, and a profiler's own start."""
MOST_STEPS = 2

CROSSCHECK_TIMES_CHECKS: Rulebook[Case] = Rulebook()

_AGAIN_CROSSCHECK_TIMES = (
    "Measure again; receipt and evidence are written together and changed by nobody."
)


@CROSSCHECK_TIMES_CHECKS.rule(
    "E_RUNS_OVERLAP",
    "A run begins after the one before it has ended.",
    remedy=_AGAIN_CROSSCHECK_TIMES,
    protects=Grade.OBSERVED,
)
def _runs_overlap(case: Case) -> Iterator[str]:
    # Runs of one side never overlap, not even where another side runs between them.
    # Windows of one process have its start in common, and only their dates apart.
    windows = of_one_process(case.evidence.workload)
    set_back = 0
    for earlier, later in pairwise(case.evidence.runs):
        if not windows and earlier.started_ticks is not None and later.started_ticks is not None:
            apart_s = (later.started_ticks - earlier.started_ticks) / TICKS_PER_S
            lasted_s = _after_start_s(earlier)
            if lasted_s > apart_s * (1 + RATE_SLACK) + TICK_SLACK_S:
                yield (
                    f"The run of process {later.pid} began {apart_s:.2f} s after that of "
                    f"{earlier.pid}, which took {lasted_s:.2f} s at least."
                )
        apart_s = _started_s(later) - _started_s(earlier)
        lasted_s = _lasted_s(earlier)
        if lasted_s > apart_s + CLOCK_SET_S:
            yield (
                f"The run of process {later.pid} is dated {apart_s:,.0f} s after that of "
                f"{earlier.pid}, which took {lasted_s:,.0f} s at least."
            )
        set_back += windows and lasted_s > apart_s * (1 + RATE_SLACK) + DATE_SLACK_S
    if set_back > MOST_STEPS:
        yield f"{set_back} runs are dated before those before them, of one server, had ended."


@CROSSCHECK_TIMES_CHECKS.rule(
    "E_WINDOW_STARTED",
    "No run of a server that ran before tells of a start, and the server began once.",
    remedy=_AGAIN_CROSSCHECK_TIMES,
    protects=Grade.OBSERVED,
)
def _window_started(case: Case) -> Iterator[str]:
    # Processes of their own, which ran side by side or on other days, relabelled as windows.
    if not of_one_process(case.evidence.workload):
        return
    started: dict[int, int] = {}
    for run in case.evidence.runs:
        if run.load_ns is not None:
            yield f"The server {run.pid} ran before, and took {run.load_ns / 1e6:,.1f} ms to start."
        if run.started_ticks is None:
            continue
        if started.setdefault(run.pid, run.started_ticks) != run.started_ticks:
            yield f"The server {run.pid} began twice, and was to run all the time."


@CROSSCHECK_TIMES_CHECKS.rule(
    "E_RUN_AFTER_WRITING",
    "All runs ended before the evidence was written, and began not long before.",
    remedy=_AGAIN_CROSSCHECK_TIMES,
    protects=Grade.OBSERVED,
)
def _run_after_writing(case: Case) -> Iterator[str]:
    # Time that had not passed yet, or runs kept from some other day.
    created_s = read_timestamp(case.evidence.created).timestamp()
    for run in case.evidence.runs:
        passed_s = created_s - _started_s(run)
        if _lasted_s(run) > passed_s + CLOCK_SET_S:
            yield (
                f"The run of process {run.pid} took {_lasted_s(run):,.0f} s, and the evidence was "
                f"written {passed_s:,.0f} s after it began."
            )
        if passed_s > MEASURED_WITHIN_S:
            yield (
                f"The run of process {run.pid} began {passed_s / 3600:,.1f} hours before the "
                "evidence was written."
            )


@CROSSCHECK_TIMES_CHECKS.rule(
    "E_CLOCKS_DISAGREE",
    "The wall clock and the ticks since boot tell the same of when the runs began.",
    remedy=_AGAIN_CROSSCHECK_TIMES,
    protects=Grade.OBSERVED,
)
def _clocks_disagree(case: Case) -> Iterator[str]:
    # A wall clock is set once or twice while runs last, by minutes at most; not before each.
    if of_one_process(case.evidence.workload):
        return
    offsets_s = [
        (run.pid, _started_s(run) - run.started_ticks / TICKS_PER_S)
        for run in case.evidence.runs
        if run.started_ticks is not None and not _is_wrapped(run)
    ]
    steps = [
        (pid, after_s - before_s)
        for (_, before_s), (pid, after_s) in pairwise(offsets_s)
        if abs(after_s - before_s) > START_SLACK_S
    ]
    for pid, step_s in steps:
        if abs(step_s) > CLOCK_SET_S:
            yield f"By the wall clock process {pid} began {step_s:+,.0f} s from what ticks tell."
    if len(steps) > MOST_STEPS:
        yield f"The wall clock would have been set {len(steps)} times while the runs lasted."


def _is_wrapped(run: Run) -> bool:
    """Whether a profiler began the program, which may take seconds before it does."""
    return run.role == "profiled" and run.load_ns is None


def _started_s(run: Run) -> float:
    return read_timestamp(run.started_at).timestamp()


def _lasted_s(run: Run) -> float:
    """Return what a run took at least from the moment its start was dated."""
    spent_ns = sum(block.interval.wall_ns for block in run.blocks)
    reference_ns = sum(block.reference.wall_ns for block in run.blocks if block.reference)
    # The reference kernel runs once between two blocks, and counts with both of them.
    return (spent_ns + reference_ns / 2 + (run.load_ns or 0)) / 1e9


def _after_start_s(run: Run) -> float:
    """Return what it took at least from the start of the process.

    A profiler's own time is part of the interval where it began the program: only what followed
    the first token was certainly after the program's start.
    """
    if _is_wrapped(run):
        return sum(sum(gaps[1:]) for block in run.blocks for gaps in block.sequences_ns) / 1e9
    return _lasted_s(run)
