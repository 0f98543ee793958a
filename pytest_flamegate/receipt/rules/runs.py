"""Rules over the runs: rate, tokens, the time within a run, and copies."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, dropwhile, pairwise
from typing import NamedTuple

from pytest_flamegate.core.text import quote
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.observe.observation import Run
from pytest_flamegate.receipt.rules.rule import Rulebook, Submission
from pytest_flamegate.receipt.types import Grade

TPS_AGREEMENT = 0.005
"""The same times give the same rate; half a percent is room for rounding."""
CLOCK_SLACK = 0.05
CLOCK_SLACK_NS = 20_000_000
"""CPU time may be counted in ticks of up to 10 ms, at both ends of an interval."""
WALL_SLACK_NS = 1_000_000
WAITS_SLACK = 0.25
"""On a crowded machine the waits of short blocks summed up to 1 % more than their wall time."""
ASLEEP_BELOW = 0.02
"""A CPU that computes is busy; a mock that sleeps between tokens uses 0.01 % of the time."""
ASLEEP_AFTER_NS = 200_000_000

SHORTEST_NS = 20_000
"""Shorter times of a process are equal by chance."""
CHANCE = 1e-3
"""How many repetitions may be expected by chance, of all rows with each other."""
SCALED_CHANCE = 1e-6
"""The same of two runs that are neighbours."""
CAUTION = 4.0
"""Times at the same place of two sequences are equal more often than two times of one sequence."""
SCALED_AGREEMENT = 1e-6
"""Relative difference of two proportional sums of gaps; rounding to nanoseconds causes less."""
_FEWEST = 4
_WHOLE_US = 1000

CHECKS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)
SHORTFALLS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)


@CHECKS.rule("E_TPS_MISMATCH", "tokens_per_second follows from the token times of the timed runs.")
def _check_rate(case: Submission) -> Iterator[str]:
    rate, claimed = case.rate, case.claim.tokens_per_second
    if rate is None:
        return
    if abs(claimed - rate.tokens_per_second) > TPS_AGREEMENT * rate.tokens_per_second:
        yield (
            f"{claimed:.1f} tok/s claimed, {rate.tokens_per_second:.1f} from the token times "
            f"({rate.formula}, {rate.tokens:,} tokens)."
        )


@CHECKS.rule(
    "E_TOKEN_CONTRADICTION",
    "Every sequence has as many tokens as the receipt claims and the evidence lists.",
)
def _check_token_count(case: Submission) -> Iterator[str]:
    # Fewer tokens are less work.
    deterministic, listed = case.claim.deterministic, len(case.evidence.tokens)
    claimed, most = case.claim.tokens_generated, case.claim.tokens_requested
    if listed != claimed:
        yield f"The receipt claims {claimed} tokens; the evidence lists {listed}."
    asked = case.evidence.workload.get("max_tokens")
    if isinstance(asked, int) and asked != most:
        yield f"The receipt requested {most} tokens; the workload requests {asked}."
    for run in case.evidence.runs:
        if run.prompts:
            continue  # each prompt has an answer of its own length: see ``prompts.py``
        if deterministic and run.lengths - {claimed}:
            found = ", ".join(map(str, sorted(run.lengths)))
            yield f"The run of process {run.pid} has sequences of {found} tokens, not {claimed}."
        elif deterministic and run.tokens_per_sequence != claimed:
            stated = run.tokens_per_sequence
            yield f"Process {run.pid} states sequences of {stated} tokens, not {claimed}."
        elif (longest := max(run.lengths, default=0)) > most:
            yield f"Process {run.pid} has a sequence of {longest} tokens; {most} were asked."


@CHECKS.rule("E_TOKEN_CONTRADICTION", "The token digest is that of the listed tokens.")
def _check_token_digest(case: Submission) -> Iterator[str]:
    # A replay is compared with this digest.
    if not case.evidence.tokens:
        yield "The evidence lists no tokens."
        return
    digest, stated = token_digest(case.evidence.tokens), case.evidence.token_digest
    if digest != stated:
        yield f"The evidence states the digest {stated[:12]}; its tokens give {digest[:12]}."


@CHECKS.rule(
    "E_TOKEN_CONTRADICTION", "If a sequence differed, it had another token than the one listed."
)
def _check_difference(case: Submission) -> Iterator[str]:
    # Evidence of older versions does not state the other token.
    at, other, tokens = case.evidence.differs_at, case.evidence.differs_to, case.evidence.tokens
    if case.evidence.answers:
        return  # it may be an answer to a prompt whose tokens are not listed
    if at is None:
        if other is not None:
            yield f"No sequence differs, but the differing token is stated: {quote(other)}."
    elif at > len(tokens):
        yield f"A sequence is said to differ at token {at}, but {len(tokens)} tokens are listed."
    elif at < len(tokens) and other == tokens[at]:
        yield f"A sequence is said to differ at token {at}, but both tokens are {quote(other)}."


@CHECKS.rule(
    "E_NOT_DETERMINISTIC", "A receipt that claims determinism has the same tokens in every run."
)
def _check_same_tokens(case: Submission) -> Iterator[str]:
    if not case.claim.deterministic:
        return
    if case.evidence.differs_at is not None:
        yield f"deterministic is true, but a sequence differs at token {case.evidence.differs_at}."
    for run in case.evidence.runs:
        if run.token_digest != case.evidence.expected_digest(run):
            yield f"deterministic is true, but process {run.pid} generated other tokens."


@CHECKS.rule("E_CLOCK_CONTRADICTION", "The token times of a block fit into its wall time.")
def _check_token_times(case: Submission) -> Iterator[str]:
    # Sequences run one after another within the interval of their block.
    for run in case.evidence.runs:
        for block in run.blocks:
            whole, decode = block.interval, block.decode
            spans = [(block.tokens_ns, whole.wall_ns, "block")]
            if decode is not None:
                spans.append((block.later_tokens_ns, decode.wall_ns, "decode"))
                spans.append((decode.wall_ns, whole.wall_ns, "block"))
            for inner_ns, outer_ns, name in spans:
                if inner_ns > outer_ns * (1 + CLOCK_SLACK) + WALL_SLACK_NS:
                    yield (
                        f"The run of process {run.pid} has {inner_ns / 1e6:.1f} ms of token times "
                        f"in a {name} of {outer_ns / 1e6:.1f} ms."
                    )
            if block.decode_tokens is not None:
                # Tokens that arrived later than the first one of their sequence.
                late = (dropwhile(lambda gap: not gap, gaps[1:]) for gaps in block.sequences_ns)
                observed = sum(1 for _ in chain.from_iterable(late))
                if block.decode_tokens > observed:
                    yield (
                        f"The run of process {run.pid} counts {block.decode_tokens} tokens in a "
                        f"decode, of which {observed} arrived after its start."
                    )


@CHECKS.rule(
    "E_CLOCK_CONTRADICTION",
    "No interval has more CPU time than its wall time on all of the machine's cores.",
)
def _check_cpu_time(case: Submission) -> Iterator[str]:
    cpu_ns, most_ns, blocks = 0.0, 0.0, 0
    for run in case.evidence.runs:
        threads = case.max_parallelism(run)
        if threads is None:
            continue
        for interval in run.intervals:
            if interval.cpu_ns > interval.wall_ns * threads * (1 + CLOCK_SLACK) + CLOCK_SLACK_NS:
                yield (
                    f"The run of process {run.pid} has {interval.cpu_ns / 1e6:.1f} ms of CPU time "
                    f"in {interval.wall_ns / 1e6:.1f} ms on {threads} core(s) or thread(s)."
                )
        if run.role == "timed":
            cpu_ns += sum([block.interval.cpu_ns for block in run.blocks])
            most_ns += run.wall_ns * threads
            blocks += len(run.blocks)
    # A short block can exceed its time within the slack of its clock ticks. A sum of blocks
    # cannot, because ticks come early as often as late.
    if cpu_ns > most_ns * (1 + CLOCK_SLACK) + CLOCK_SLACK_NS * math.sqrt(blocks):
        yield (
            f"The timed runs have {cpu_ns / 1e6:.1f} ms of CPU time in total; their cores or "
            f"threads had {most_ns / 1e6:.1f} ms."
        )


@CHECKS.rule("E_COPIED_RUNS", "No run repeats another or itself, and no process is listed twice.")
def _check_copies(case: Submission) -> Iterator[str]:
    runs = case.evidence.runs
    spent = [block.interval for run in runs for block in run.blocks]
    # Honest processes and blocks never repeat, and then no more of them is compared.
    if len({run.pid for run in runs}) < len(runs) or len(set(spent)) < len(spent):
        yield from _find_copies(case)
    for each in find_repetitions(runs):
        one, other = runs[each.one].pid, runs[each.other].pid
        if each.one == each.other:
            yield f"Two parts of the run of process {one} have {each.times} in common."
        else:
            yield f"The runs of processes {one} and {other} have {each.times} in common."


def _find_copies(case: Submission) -> Iterator[str]:
    """Yield processes that are listed twice, and blocks that begin and last exactly like another.

    Windows of one server share its process.
    """
    blocks: dict[object, int] = {}
    processes: set[tuple[int, int]] = set()
    for run in case.evidence.runs:
        if run.started_ticks is not None and not case.in_windows:
            process = (run.pid, run.started_ticks)
            if process in processes:
                yield f"The process {run.pid} is listed twice among the runs."
            processes.add(process)
        for block in run.blocks:
            times = (block.interval, block.sequences_ns[:1])
            if times in blocks:
                yield f"The runs of processes {blocks[times]} and {run.pid} have one block twice."
            blocks[times] = run.pid


_Row = tuple[int, tuple[int, ...]]
"""The index of a run, and times of it in nanoseconds."""


class Repetition(NamedTuple):
    """Two runs, by index, that share ``times``. The indices are equal if a run repeats itself."""

    one: int
    other: int
    times: str


def find_repetitions(runs: Sequence[Run]) -> Iterator[Repetition]:
    """Yield each pair of ``runs`` that cannot have happened independently, each pair once.

    Two runs that really happened share no times, because the clock counts nanoseconds and honest
    times differ by thousands of them. A coarse clock or a very steady engine repeats times by
    chance, so the chance of each agreement is estimated from times that agree within one sequence,
    which no copy of a whole sequence changes. A copy with random noise in it is not found.
    """
    # Honest sequences hardly ever repeat, and then none is compared any further.
    blocks = [block.sequences_ns for run in runs for block in run.blocks]
    different = set[tuple[int, ...]]().union(*blocks)
    shortest = min(chain(*[run.lengths for run in runs]), default=0)
    gaps: list[_Row] = []
    if len(different) < sum(map(len, blocks)) or shortest < _FEWEST:
        gaps = [(index, row) for index, run in enumerate(runs) for row in _find_gaps(run)]
    # Figures come from timed runs alone, so only those are worth shifting or scaling.
    timed = [(index, run) for index, run in enumerate(runs) if run.role == "timed"]
    long = [(index, row) for index, run in timed for row in _find_gaps(run) if len(row) > _FEWEST]
    # Honest rows hardly ever have their first steps in common, and then none is shifted.
    if len({(row[1] - row[0], row[2] - row[1]) for _, row in long}) == len(long):
        long = []
    steps = [(index, tuple(b - a for a, b in pairwise(row))) for index, row in long]
    clocks = [(index, _list_clock_times(run)) for index, run in enumerate(runs)]
    reported: set[tuple[int, int]] = set()
    for each in chain(
        _find_equal(gaps, "the times of a sequence of tokens"),
        _find_equal(steps, "the differences between token times"),
        _find_equal(clocks, "the times of their processes"),
        _find_scaled(timed),
    ):
        if each[:2] not in reported:
            reported.add(each[:2])
            yield each


def _find_equal(rows: Sequence[_Row], times: str) -> Iterator[Repetition]:
    """Yield rows that are equal, unless their times repeat by chance."""
    if len({row for _, row in rows}) == len(rows):
        return
    long = [entry for entry in rows if len(entry[1]) >= _FEWEST]
    equal, pairs = Counter[int](), Counter[int]()
    for index, row in rows:
        equal[index] += sum(math.comb(count, 2) for count in Counter(row).values())
        pairs[index] += math.comb(len(row), 2)
    overall = (equal.total() + 1) / (pairs.total() + 1)
    first: dict[tuple[int, ...], int] = {}
    for other, row in long:
        if row not in first:
            first[row] = other
            continue
        # A run may be steadier than the others, and then its times repeat more often.
        ends = (first[row], other)
        chance = max(overall, *(equal[run] / max(1, pairs[run]) for run in ends))
        if math.comb(len(long), 2) * (CAUTION * chance) ** len(row) < CHANCE:
            yield Repetition(*ends, times)


def _find_scaled(runs: Sequence[tuple[int, Run]]) -> Iterator[Repetition]:
    """Yield timed runs whose sequences took times proportional to those of another run."""
    measured = [
        (index, sums, sum(sums)) for index, run in runs if len(sums := _sums(run)) > _FEWEST
    ]
    measured = [each for each in measured if each[-1] > 0]
    # Honest runs hardly ever begin with the same share, and then no other share is computed.
    first = sorted([sums[0] / total for _, sums, total in measured])
    if all(other - one > SCALED_AGREEMENT * one for one, other in pairwise(first)):
        return
    found = [
        (tuple([each / total for each in sums]), math.gcd(*sums) / total, index)
        for index, sums, total in measured
    ]
    # Sorted by their first share, proportional runs are neighbours.
    for (one, step, at), (other, other_step, later) in pairwise(sorted(found)):
        if len(one) == len(other) and _is_scaled(one, other, max(step, other_step)):
            yield Repetition(min(at, later), max(at, later), "the proportions of their sequences")


def _is_scaled(one: Sequence[float], other: Sequence[float], step: float) -> bool:
    """Whether all shares agree, and vary by so many clock steps that this is no accident."""
    chance = 1.0
    spread = max(one) - min(one)
    for share, again in zip(one, other, strict=True):
        slack = SCALED_AGREEMENT * share
        if abs(share - again) > slack:
            return False
        chance *= min(1.0, 2 * max(slack, step) / spread) if spread else 1.0
    return chance < SCALED_CHANCE


def _sums(run: Run) -> list[int]:
    """Return the time of each sequence; of each gap if the run has a single sequence."""
    sequences = [gaps for block in run.blocks for gaps in block.sequences_ns if gaps]
    return [*sequences[0]] if len(sequences) == 1 else [*map(sum, sequences)]


def _find_gaps(run: Run) -> list[tuple[int, ...]]:
    """Return the gaps of each sequence, or of each block if its sequences are too short.

    A gap of 0 is left out: the token was read together with the one before it, so its time was
    not observed, and many honest sequences of fast tokens are 0 from end to end.
    """
    rows: list[tuple[int, ...]] = []
    for block in run.blocks:
        if max(map(len, block.sequences_ns), default=0) >= _FEWEST:
            rows += block.sequences_ns
        else:
            rows.append(tuple(chain.from_iterable(block.sequences_ns)))
    return [tuple(filter(None, row)) if 0 in row else row for row in rows]


def _list_clock_times(run: Run) -> tuple[int, ...]:
    """Return wall and CPU times of the process itself, without those in whole microseconds."""
    times = [run.load_ns or 0]
    for interval in run.intervals:
        times += (interval.wall_ns, interval.cpu_ns)
    return tuple([time for time in times if time >= SHORTEST_NS and time % _WHOLE_US])


@SHORTFALLS.rule("W_FEW_RUNS", "The evidence has token times of runs without a profiler.")
def _check_timed_runs(case: Submission) -> Iterator[str]:
    if case.rate is None:
        yield "No timed run has token times, so tokens per second cannot be recomputed."


@SHORTFALLS.rule("W_FEW_RUNS", "A claim of determinism is backed by at least two sequences.")
def _check_two_sequences(case: Submission) -> Iterator[str]:
    sequences = sum(len(block.sequences_ns) for run in case.evidence.runs for block in run.blocks)
    if case.claim.deterministic and sequences < 2:
        yield "deterministic is true, but only one sequence was run."


@SHORTFALLS.rule("W_ASLEEP", "The observed process uses CPU time while it generates.")
def _check_sleep(case: Submission) -> Iterator[str]:
    # A mock that sleeps between tokens, or the client of a server that does the work. Time in
    # which the process waited for a CPU does not count.
    intervals = [block.interval for block in case.timed_blocks]
    ready_ns = sum([interval.wall_ns - (interval.run_delay_ns or 0) for interval in intervals])
    cpu_ns = sum([interval.cpu_ns for interval in intervals])
    asleep = ready_ns > ASLEEP_AFTER_NS and cpu_ns < ASLEEP_BELOW * ready_ns
    if case.claim.backend == "cpu" and asleep:
        yield f"The timed runs used {cpu_ns / 1e6:.1f} ms of CPU time of {ready_ns / 1e6:.1f} ms."


@SHORTFALLS.rule(
    "W_WAITS_EXCEED_WALL",
    "A single thread does not compute and wait for a CPU for longer than its wall time.",
)
def _check_waits(case: Submission) -> Iterator[str]:
    # Threads that started and ended between two counts may have waited too, so this rejects
    # nothing. If any block computed on more than one core there certainly were such threads.
    every = (block.interval for run in case.evidence.runs for block in run.blocks)
    if any(each.cpu_ns > each.wall_ns * (1 + CLOCK_SLACK) + CLOCK_SLACK_NS for each in every):
        return
    intervals = [block.judged for run in case.timed if run.threads == 1 for block in run.blocks]
    cpu_ns = sum([interval.cpu_ns for interval in intervals])
    waited_ns = sum([interval.run_delay_ns or 0 for interval in intervals])
    wall_ns = sum([interval.wall_ns for interval in intervals])
    most_ns = wall_ns * (1 + WAITS_SLACK) + CLOCK_SLACK_NS
    if cpu_ns + waited_ns > most_ns >= cpu_ns:
        yield (
            f"The timed runs of one thread computed for {cpu_ns / 1e6:.1f} ms and waited for "
            f"{waited_ns / 1e6:.1f} ms within {wall_ns / 1e6:.1f} ms."
        )
