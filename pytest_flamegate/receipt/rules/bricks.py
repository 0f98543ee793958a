"""Rules over brick runs, in which bricks were timed: their processes, times and calls."""

from collections import Counter
from collections.abc import Iterator, Mapping

from pytest_flamegate.bricks import record
from pytest_flamegate.core.text import quote
from pytest_flamegate.observe.observation import Run
from pytest_flamegate.receipt.rules.rule import Rulebook, Submission
from pytest_flamegate.receipt.types import Grade

THREAD_SLACK = 0.01
"""The bricks of a thread and the sequences are read from one clock, some calls apart."""
SLACK_NS = 1_000_000

_LATER: tuple[record.Provenance, ...] = ("measured_device_event", "derived")
_PROVENANCE: Mapping[record.Sync, tuple[record.Provenance, ...]] = {
    "none": ("measured_wall",),
    "immediate": ("measured_wall",),
    "per_layer": _LATER,
    "deferred": _LATER,
}
"""The possible provenances of a time, by when the run waited for the device."""
_ONCE_PER_LAYER = (
    *("AttentionBlock", "QkvProjection", "RopeEmbedding", "AttentionScore", "OutputProjection"),
    *("FeedForward", "GateUpProjection", "Activation", "DownProjection"),
)
_FOUR_PER_LAYER = ("RmsNorm", "Quantize")
_ONCE_PER_OUTPUT = ("RmsNorm", "LmHead", "Sampling")
"""The bricks of the embedded engine, by how often they run."""

CHECKS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)


@CHECKS.rule("E_BRICKS", "Each record of bricks belongs to one brick run, and vice versa.")
def _check_processes(case: Submission) -> Iterator[str]:
    # Timing bricks in a timed process would slow it down.
    found = [run for run in case.evidence.runs if run.role == "bricks"]
    if not found and not case.evidence.bricks:
        return
    runs = Counter((run.pid, run.started_ticks) for run in found)
    records = Counter((each.pid, each.started_ticks) for each in case.evidence.bricks)
    for pid, _ in records - runs:
        yield f"Process {pid} has a record of bricks, but no brick run."
    for pid, _ in runs - records:
        yield f"Process {pid} has a brick run, but no record of bricks."
    if records and (case.evidence.clock_scope == "process" or case.in_windows):
        yield "Bricks are timed in processes that the observer starts, but this engine has none."


@CHECKS.rule("E_BRICKS", "Bricks take no longer than the sequences, and these no longer than runs.")
def _check_times(case: Submission) -> Iterator[str]:
    for each, run in _pairs(case):
        if each.wall_ns > run.wall_ns + SLACK_NS:
            yield (
                f"Process {each.pid} reports {each.wall_ns / 1e6:.1f} ms of sequences; "
                f"{run.wall_ns / 1e6:.1f} ms were observed."
            )
        for thread in each.lanes:
            if thread.self_ns > each.wall_ns * (1 + THREAD_SLACK) + SLACK_NS:
                yield (
                    f"Process {each.pid} spent {thread.self_ns / 1e6:.1f} ms in bricks of the "
                    f"thread {quote(thread.name)}, but its sequences took "
                    f"{each.wall_ns / 1e6:.1f} ms."
                )


@CHECKS.rule("E_BRICKS", "The totals of a brick agree: calls, shortest, longest, own, whole time.")
def _check_totals(case: Submission) -> Iterator[str]:
    embedded = _is_embedded(case)
    for each in case.evidence.bricks:
        if not each.totals:
            yield f"Process {each.pid} has a brick run but recorded no bricks."
        yield from _whole_times(each)
        yield from _names(each)
        for row in each.totals:
            if (problem := _problem(row, nested=not embedded)) is not None:
                yield f"The brick {quote(row.name)} in process {each.pid} {problem}."
        for field in ("calls", "self_ns"):
            threads = sum(getattr(thread, field) for thread in each.lanes)
            rows = sum(getattr(row, field) for row in each.totals)
            if threads != rows:
                yield f"Process {each.pid}: threads have {threads:,} {field}, bricks {rows:,}."


def _whole_times(each: record.BrickRun) -> Iterator[str]:
    """Yield bricks whose calls together took less than their own time or their longest call.

    Summed over layers and phases, because a nested call of the same brick counts at the outermost.
    """
    total_ns, own_ns = Counter[str](), Counter[str]()
    longest_ns: dict[str, int] = {}
    for row in each.totals:
        total_ns[row.name] += row.total_ns
        own_ns[row.name] += row.self_ns
        longest_ns[row.name] = max(longest_ns.get(row.name, 0), row.max_ns)
    for name, whole_ns in total_ns.items():
        if whole_ns < max(own_ns[name], longest_ns[name]):
            yield (
                f"All calls of the brick {quote(name)} in process {each.pid} took {whole_ns:,} ns; "
                f"its own time is {own_ns[name]:,} ns, its longest call {longest_ns[name]:,} ns."
            )


def _names(each: record.BrickRun) -> Iterator[str]:
    """Yield bricks under an alias or listed twice, whose calls would count twice."""
    rows = Counter((row.name, row.layer, row.phase) for row in each.totals)
    for (name, _, _), times in rows.items():
        if times > 1:
            yield f"The brick {quote(name)} is listed twice in one layer of process {each.pid}."
    for row in each.totals:
        proper = record.resolve_alias(row.name)
        if proper != row.name:
            yield f"Process {each.pid} has a brick {quote(row.name)}, an alias of {proper}."
        category = record.KNOWN_BRICKS.get(row.name, row.category)
        if category != row.category:
            yield f"Process {each.pid} has {quote(row.name)} as {row.category}, not {category}."


def _problem(row: record.BrickTotals, *, nested: bool) -> str | None:
    """Return how ``row`` contradicts itself; if calls are nested the whole may be less."""
    least = most = 0
    numbers = []
    for name, calls in row.durations.items():
        if (number := record.parse_bucket(name)) is None:
            return f"has a duration called {quote(name)}"
        low_ns, high_ns = record.compute_bucket_bounds_ns(number)
        least += calls * low_ns
        most += calls * high_ns
        numbers += [number] if calls else []
    counted = sum(row.durations.values())
    if row.calls < 1 or counted != row.calls:
        return f"has {row.calls:,} calls, but durations of {counted:,}"
    ends = (record.find_bucket(row.min_ns), record.find_bucket(row.max_ns))
    if ends != (min(numbers), max(numbers)):
        return "has a shortest or longest call outside its durations"
    if row.typical_ns is not None and row.typical_ns > row.self_ns:
        return f"has typical calls of {row.typical_ns:,} ns in {row.self_ns:,} ns of own time"
    if row.total_ns > most or (not nested and row.total_ns < max(least, row.self_ns)):
        return f"took {row.total_ns:,} ns, but its calls add up to {least:,} to {most:,} ns"
    return None


@CHECKS.rule("E_BRICKS", "Deferred times of bricks come from device events or are derived.")
def _check_provenance(case: Submission) -> Iterator[str]:
    # Derived times are never gated.
    for each in case.evidence.bricks:
        for row in each.totals:
            if row.provenance not in _PROVENANCE[each.sync]:
                yield (
                    f"Process {each.pid} waited for its device in mode {each.sync!r}, so its brick "
                    f"{quote(row.name)} cannot be {row.provenance}."
                )


@CHECKS.rule("E_BRICKS", "A brick run counts the sequences and tokens that were observed.")
def _check_tokens(case: Submission) -> Iterator[str]:
    # More tokens would make each of them cheaper.
    for each, run in _pairs(case):
        lengths = run.sequence_lengths
        observed = (len(lengths), sum(lengths), sum(lengths) - len(lengths))
        stated = (each.sequences, each.tokens, each.decode_tokens)
        if stated != observed:
            yield (
                f"Process {each.pid} counts {stated} sequences, tokens and tokens of the decode; "
                f"observed were {observed}."
            )


@CHECKS.rule("E_BRICKS", "The embedded engine calls each brick as its tokens and layers require.")
def _check_calls(case: Submission) -> Iterator[str]:
    # More calls would make each of them cheaper, and fewer are work left out.
    if not _is_embedded(case):
        return
    most = case.evidence.workload.get("max_tokens")
    for each, run in _pairs(case):
        lengths = run.sequence_lengths
        # A sequence that ends early has generated one more token, which is not output.
        steps = sum(length if length == most else length + 1 for length in lengths) - len(lengths)
        calls: Counter[tuple[str, str, int | None]] = Counter()
        for row in each.totals:
            calls[row.name, row.phase, row.layer] += row.calls
        layers = {layer for _, _, layer in calls if layer is not None}
        prompt = calls["Embedding", "prefill", None]
        expected = _expected_calls(layers | {0}, prompt, len(lengths), steps)
        # None of these bricks runs in any other phase or layer.
        names = {name for name, _, _ in expected}
        expected |= {key: 0 for key in calls if key[0] in names and key not in expected}
        for (name, phase, layer), count in expected.items():
            if calls[name, phase, layer] != count:
                yield (
                    f"Process {each.pid} called {name} {calls[name, phase, layer]:,} times in "
                    f"{phase}{'' if layer is None else f' in layer {layer}'}; its tokens require "
                    f"{count:,}."
                )
        if layers and max(layers) >= len(layers):
            yield f"Process {each.pid} has a layer {max(layers)}, but only {len(layers)} layers."
        if not prompt or (not run.prompts and prompt % max(len(lengths), 1)):
            yield f"Process {each.pid} read {prompt:,} prompt tokens in {len(lengths):,} sequences."


def _expected_calls(
    layers: set[int], prompt: int, outputs: int, steps: int
) -> dict[tuple[str, str, int | None], int]:
    """Return the calls of the embedded engine by name, phase and layer, for so many tokens."""
    expected: dict[tuple[str, str, int | None], int] = {
        ("Embedding", "prefill", None): prompt,
        ("Embedding", "decode", None): steps,
    }
    for phase, output, forwarded in (("prefill", outputs, prompt), ("decode", steps, steps)):
        expected |= {(name, phase, None): output for name in _ONCE_PER_OUTPUT}
        for layer in sorted(layers):
            expected |= {(name, phase, layer): forwarded for name in _ONCE_PER_LAYER}
            expected |= {(name, phase, layer): 4 * forwarded for name in _FOUR_PER_LAYER}
    return expected


def _pairs(case: Submission) -> Iterator[tuple[record.BrickRun, Run]]:
    """Yield each record with its run; ``_check_processes`` reports a record without one."""
    runs = {(run.pid, run.started_ticks): run for run in case.evidence.runs if run.role == "bricks"}
    for each in case.evidence.bricks:
        run = runs.get((each.pid, each.started_ticks))
        if run is not None:
            yield each, run


def _is_embedded(case: Submission) -> bool:
    return case.evidence.workload.get("engine") == "embedded"
