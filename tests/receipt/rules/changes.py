"""Changes of a bundle by a forger, an odd engine or an odd machine."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.text import Finding
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.receipt import Verification, verify_receipt
from pytest_flamegate.receipt.types import Metric
from tests.made import Bundle, bundle

NOW = datetime(2025, 10, 13, 13, 0, tzinfo=UTC)
OTHER_SHA256 = "ab" * 32

Make = Callable[[], Bundle]


def verify(made: Bundle, **options: Any) -> Verification:
    files = made.files
    return verify_receipt(
        files["receipt.json"],
        evidence=files["evidence.json"],
        profile_folded=files["profile.folded"],
        **{"now": NOW, **options},
    )


def codes(answer: Verification) -> set[str]:
    findings: list[Finding] = [*answer.refusals, *answer.warnings]
    return {finding.code for finding in findings}


def refusals(made: Bundle) -> set[str]:
    return {refusal.code for refusal in verify(made).refusals}


# Runs and blocks


def map_blocks(made: Bundle, change: Callable[[Block], Block], role: str = "") -> Bundle:
    """Change every block of the runs of ``role``, by default of all runs."""
    for index, run in enumerate(made.evidence.runs):
        if role in ("", run.role):
            made = made.with_run(index, blocks=tuple(map(change, run.blocks)))
    return made.recomputed()


def first_block(made: Bundle, change: Callable[[Block], Block], run: int = 0) -> Bundle:
    """Change the first block of one run."""
    blocks = made.evidence.runs[run].blocks
    return made.with_run(run, blocks=(change(blocks[0]), *blocks[1:]))


def each_run(made: Bundle, **changes: Any) -> Bundle:
    for index in range(len(made.evidence.runs)):
        made = made.with_run(index, **changes)
    return made


def with_interval(**changes: Any) -> Callable[[Block], Block]:
    return lambda block: replace(block, interval=replace(block.interval, **changes))


def scale_gaps(factor: float) -> Callable[[Block], Block]:
    def change(block: Block) -> Block:
        sequences = tuple(tuple(int(gap * factor) for gap in gaps) for gaps in block.sequences_ns)
        return replace(block, sequences_ns=sequences)

    return change


def asleep(made: Bundle) -> Bundle:
    """Every run uses a thousandth of its time."""
    return map_blocks(
        made,
        lambda block: with_interval(cpu_ns=block.interval.wall_ns // 1000)(block),
    )


def waiting(made: Bundle, share: float) -> Bundle:
    """Every block waits for a CPU for ``share`` of its time."""
    return map_blocks(
        made,
        lambda block: with_interval(run_delay_ns=int(share * block.interval.wall_ns))(block),
    )


def busy(made: Bundle, cores: float) -> Bundle:
    """The first block uses the CPU time of ``cores`` cores."""
    return first_block(
        made,
        lambda block: with_interval(cpu_ns=round(cores * block.interval.wall_ns))(block),
    ).recomputed()


def copied(made: Bundle) -> Bundle:
    return made.with_run(1, blocks=made.evidence.runs[0].blocks)


def multiplied(made: Bundle) -> Bundle:
    """The second run is the first one, 3 % slower, and nothing else of it is equal."""

    def change(block: Block) -> Block:
        wall_ns, cpu_ns = (
            round(each * 1.03) + 1234 for each in (block.interval.wall_ns, block.interval.cpu_ns)
        )
        return with_interval(wall_ns=wall_ns, cpu_ns=cpu_ns)(scale_gaps(1.03)(block))

    return made.with_run(1, blocks=tuple(map(change, made.evidence.runs[0].blocks))).recomputed()


def same_process(made: Bundle) -> Bundle:
    first = made.evidence.runs[0]
    return made.with_run(1, pid=first.pid, started_ticks=first.started_ticks)


def with_decode(made: Bundle, tokens: int) -> Bundle:
    """The first block has a decode of its own, which counts ``tokens`` of its four."""
    decode = Interval(4_000_000, 3_900_000, 0)
    gaps = (5_000_000, 0, 2_000_000, 2_000_000)
    return first_block(
        made,
        lambda block: replace(block, sequences_ns=(gaps,), decode=decode, decode_tokens=tokens),
    )


def slow(**options: Any) -> Bundle:
    return bundle(token_ns=20_000_000, **options)


def without_timed_blocks(made: Bundle) -> Bundle:
    for index, run in enumerate(made.evidence.runs):
        if run.role == "timed":
            made = made.with_run(index, blocks=())
    return made


def one_sequence() -> Bundle:
    made = bundle(timed=1, profiled=1, blocks=1, sequences=1)
    return made.with_run(1, blocks=(replace(made.evidence.runs[1].blocks[0], sequences_ns=()),))


def differing(at: int | None, other: str | None) -> Bundle:
    """A receipt that claims no determinism, with a sequence that differed."""
    made = bundle().with_receipt(deterministic=False)
    return made.with_evidence(differs_at=at, differs_to=other)


# Dates


def shift(stamp: str, by_s: float) -> str:
    moved = datetime.fromisoformat(stamp) + timedelta(seconds=by_s)
    return moved.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def redated(made: Bundle, *by_s: float) -> Bundle:
    """Date each run later by its number of seconds; ticks stay."""
    for index, (run, seconds) in enumerate(zip(made.evidence.runs, by_s, strict=False)):
        made = made.with_run(index, started_at=shift(run.started_at, seconds))
    return made


def all_at_once(made: Bundle) -> Bundle:
    """All runs start when the first one did, by both clocks."""
    first = made.evidence.runs[0]
    return each_run(made, started_ticks=first.started_ticks, started_at=first.started_at)


def long_load(made: Bundle, index: int = 0) -> Bundle:
    """One run took ten minutes to load."""
    return made.with_run(index, load_ns=600 * 10**9).recomputed()


def slow_reference(made: Bundle) -> Bundle:
    """The reference kernel takes 0.6 s, and runs before, between and after the blocks of a run.

    A run of it between two blocks is recorded in both, so that their sum is more than the run took.
    """
    timed = [run for run in made.evidence.runs if run.role == "timed"]
    for index, run in enumerate(timed):
        blocks = tuple(
            replace(block, reference=Interval(1_200_000_000 + 100 * index + at, 1_000_000_000, 0))
            for at, block in enumerate(run.blocks)
        )
        before_s = 5 * (len(timed) - index)
        made = made.with_run(
            index,
            blocks=blocks,
            started_ticks=(timed[0].started_ticks or 0) - 100 * before_s,
            started_at=shift(timed[0].started_at, -before_s),
        )
    return made


# Model, machine, recipe, metrics


def with_machine(made: Bundle, **facts: str) -> Bundle:
    return made.with_evidence(machine={**made.evidence.machine, **facts})


def with_python(made: Bundle, version: str) -> Bundle:
    environment = {**made.receipt.environment, "PYTHON_VERSION": "CPython 3.11.7"}
    return with_machine(made.with_receipt(environment=environment), python=version)


def without_cores(made: Bundle) -> Bundle:
    return made.with_evidence(machine={"os": "linux"})


def with_model(made: Bundle, size_bytes: int) -> Bundle:
    """Receipt and evidence state another size of the model file."""
    model = {**made.evidence.model, "size_bytes": size_bytes}
    return made.with_evidence(model=model).with_receipt(model=model)


def with_recipe(made: Bundle, **changes: Any) -> Bundle:
    return made.with_evidence(workload={**made.evidence.workload, **changes})


def with_metric(made: Bundle, name: str, /, **changes: Any) -> Bundle:
    """One metric has other fields; ``value`` is a factor."""

    def edit(old: Metric) -> Metric:
        return replace(old, **{**changes, "value": old.value * changes.get("value", 1.0)})

    found = (edit(each) if each.name == name else each for each in made.evidence.metrics)
    return made.with_evidence(metrics=tuple(found))


# Kernels and profile


def with_sighting(made: Bundle, index: int, **changes: Any) -> Bundle:
    kernels = list(made.evidence.kernels)
    kernels[index] = replace(kernels[index], **changes)
    return made.with_evidence(kernels=tuple(kernels))


def reported_by_engine(made: Bundle, *names: str) -> Bundle:
    """The engine reports ``names`` (by default every kernel), and the profile does not."""
    reported = names or made.receipt.kernels
    left = tuple(each for each in made.evidence.kernels if each.name not in reported)
    return made.with_evidence(kernels=left).with_reports(kernels=dict.fromkeys(reported, 5))


def with_hotspot(made: Bundle, **changes: Any) -> Bundle:
    """The hottest function has other fields."""
    assert made.evidence.profile is not None
    spots = made.evidence.profile.hotspots
    return made.with_profile(hotspots=(replace(spots[0], **changes), *spots[1:]))


def with_process(made: Bundle, **changes: Any) -> Bundle:
    """The first profiled process has other fields."""
    assert made.evidence.profile is not None
    processes = made.evidence.profile.processes
    return made.with_profile(processes=(replace(processes[0], **changes), *processes[1:]))


def without_hottest(made: Bundle) -> Bundle:
    assert made.evidence.profile is not None
    return made.with_profile(hotspots=made.evidence.profile.hotspots[1:])


def with_moved_samples(made: Bundle) -> Bundle:
    """In one process, samples of the hottest function belong to another."""
    assert made.evidence.profile is not None
    own = dict(made.evidence.profile.processes[0].self_samples)
    own["ternary_gemv"] -= 20
    own["rms_norm"] += 20
    return with_process(made, self_samples=own)


def with_more_samples(made: Bundle, times: int) -> Bundle:
    """All samples are multiplied, in stacks, hotspots and processes."""
    profile = made.evidence.profile
    assert profile is not None
    lines = (line.rpartition(" ") for line in made.folded.decode().splitlines())
    folded = "".join(f"{stack} {int(count) * times}\n" for stack, _, count in lines)
    processes = tuple(
        replace(
            each,
            samples=each.samples * times,
            self_samples={name: count * times for name, count in each.self_samples.items()},
        )
        for each in profile.processes
    )
    hotspots = tuple(
        replace(
            each,
            self_samples=each.self_samples * times,
            inclusive_samples=each.inclusive_samples * times,
        )
        for each in profile.hotspots
    )
    samples = profile.samples * times
    made = made.with_profile(samples=samples, processes=processes, hotspots=hotspots)
    return replace(made, folded=folded.encode()).sealed()
