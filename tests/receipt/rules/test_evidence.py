"""The limits of each rule over receipt and evidence; the corpus of forgeries breaks all of them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import replace
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.receipt import Grade
from pytest_flamegate.receipt.documents import decode_evidence
from pytest_flamegate.receipt.rules.rule import Folded, read_folded
from tests.made import Bundle, bundle
from tests.receipt import gpu
from tests.receipt.forgeries import book, draft
from tests.receipt.rules.changes import (
    Make,
    codes,
    each_run,
    map_blocks,
    slow,
    verify,
    with_metric,
    with_model,
    with_share,
)

HOUR_S = 3600.0


def program(**options: Any) -> Bundle:
    return bundle(clock_scope="process", **options)


def claim_rate(factor: float) -> Bundle:
    made = bundle()
    return made.with_receipt(tokens_per_second=made.receipt.tokens_per_second * factor)


def differing(at: int | None, other: str | None) -> Bundle:
    """A receipt that claims no determinism, with a sequence that differed."""
    made = bundle().with_receipt(deterministic=False)
    return made.with_evidence(differs_at=at, differs_to=other)


def first_block(made: Bundle, change: Callable[[Block], Block]) -> Bundle:
    blocks = made.evidence.runs[0].blocks
    return made.with_run(0, blocks=(change(blocks[0]), *blocks[1:])).recomputed()


def busy(made: Bundle, cores: float) -> Bundle:
    """The first block uses the CPU time of ``cores`` cores."""
    return first_block(made, with_share("cpu_ns", cores))


def without_cores(made: Bundle) -> Bundle:
    return made.with_evidence(machine={"os": "linux"})


def with_decode(tokens: int) -> Bundle:
    """The first block has a decode of its own, which counts ``tokens`` of its four."""
    decode = Interval(4_000_000, 3_900_000, 0)
    gaps = (5_000_000, 0, 2_000_000, 2_000_000)
    return first_block(
        program(),
        lambda block: replace(block, sequences_ns=(gaps,), decode=decode, decode_tokens=tokens),
    )


def with_gaps(factor: float) -> Bundle:
    """Token times are ``factor`` of what they were, and the blocks as long as before."""
    return map_blocks(
        bundle(),
        lambda block: replace(
            block,
            sequences_ns=tuple(
                tuple(int(gap * factor) for gap in gaps) for gaps in block.sequences_ns
            ),
        ),
    )


def earlier(stamp: str, by_s: float) -> str:
    moved = datetime.fromisoformat(stamp) - timedelta(seconds=by_s)
    return moved.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def redated(made: Bundle, *by_s: float) -> Bundle:
    """Date each run later by its number of seconds; ticks stay."""
    for index, (run, seconds) in enumerate(zip(made.evidence.runs, by_s, strict=False)):
        made = made.with_run(index, started_at=earlier(run.started_at, -seconds))
    return made


def days_before(hours: float) -> Bundle:
    """All runs started ``hours`` before the evidence was written, by both clocks."""
    made = bundle()
    for index, run in enumerate(made.evidence.runs):
        ticks = (run.started_ticks or 0) - round(hours * HOUR_S * 100) + 10**9
        made = made.with_run(index, started_ticks=ticks)
    return redated(made, *[-hours * HOUR_S] * len(made.evidence.runs))


def long_load(index: int = 0) -> Bundle:
    """One run took ten minutes to load."""
    return bundle().with_run(index, load_ns=600 * 10**9).recomputed()


def all_at_once() -> Bundle:
    """One run took ten minutes to load, and all start at one date, without ticks."""
    return each_run(
        long_load(), started_ticks=None, started_at=bundle().evidence.runs[0].started_at
    )


def slow_reference() -> Bundle:
    """The reference kernel takes 0.6 s, and runs before, between and after the blocks of a run.

    A run of it between two blocks is recorded in both, so that their sum is more than the run took.
    """
    made = bundle(blocks=6)
    first = made.evidence.runs[0]
    for index, run in enumerate(made.evidence.runs[:3]):
        blocks = tuple(
            replace(block, reference=Interval(1_200_000_000 + 100 * index + at, 1_000_000_000, 0))
            for at, block in enumerate(run.blocks)
        )
        before_s = 5 * (3 - index)
        ticks, date = (
            (first.started_ticks or 0) - 100 * before_s,
            earlier(first.started_at, before_s),
        )
        made = made.with_run(index, blocks=blocks, started_ticks=ticks, started_at=date)
    return made


def launched_late(index: int, ticks: int) -> Bundle:
    """A profiler starts the programs of its runs; one process started so much after its date."""
    made = each_run(program(token_ns=20_000_000), load_ns=None)
    assert made.evidence.profile is not None
    processes = made.evidence.profile.processes
    made = made.with_profile(processes=[replace(each, started_ticks=None) for each in processes])
    run = made.evidence.runs[index]
    return made.with_run(index, started_ticks=(run.started_ticks or 0) + ticks)


def first_gap_unseen() -> Bundle:
    """The observer was late: the first two tokens of each sequence came at one moment."""
    return map_blocks(
        bundle(),
        lambda block: replace(
            block,
            sequences_ns=tuple((0, sum(gaps[:2]), *gaps[2:]) for gaps in block.sequences_ns),
        ),
    )


def with_hotspot(**changes: Any) -> Bundle:
    """The hottest function has other fields."""
    made = bundle()
    assert made.evidence.profile is not None
    spots = made.evidence.profile.hotspots
    return made.with_profile(hotspots=(replace(spots[0], **changes), *spots[1:]))


def without_costs() -> Bundle:
    made = bundle()
    assert made.evidence.profile is not None
    spots = [replace(each, cpu_s_per_token=None) for each in made.evidence.profile.hotspots]
    return made.with_profile(hotspots=tuple(spots))


def with_process(**changes: Any) -> Bundle:
    """The first profiled process has other fields."""
    made = bundle()
    assert made.evidence.profile is not None
    processes = made.evidence.profile.processes
    return made.with_profile(processes=(replace(processes[0], **changes), *processes[1:]))


def reading(times: float) -> Bundle:
    """A model whose weights, read once per token, need ``times`` the bandwidth of two cores."""
    size_bytes = times * 2 * 100e9 / slow().receipt.tokens_per_second
    return with_model(slow(), int(size_bytes))


FORGED: list[tuple[str, Make]] = [
    ("E_TPS_MISMATCH", lambda: claim_rate(1.01)),
    ("E_CLOCK_CONTRADICTION", lambda: busy(without_cores(bundle()), 1.9)),
    ("E_CLOCK_CONTRADICTION", all_at_once),
    ("E_CLOCK_CONTRADICTION", long_load),
    ("E_CLOCK_CONTRADICTION", lambda: long_load(index=4)),
    ("E_CLOCK_CONTRADICTION", lambda: launched_late(0, 52)),
    ("E_METRIC_MISMATCH", lambda: with_metric(bundle(), "quiet_s_per_token", value=0.9998)),
    ("E_METRIC_MISMATCH", lambda: with_metric(bundle(), "prefill_tokens_per_second", value=1.03)),
    ("E_METRIC_MISMATCH", lambda: with_metric(bundle(), "cpu_s_per_token", samples=300)),
    ("E_METRIC_MISMATCH", lambda: with_metric(bundle(), "load_ms", name="tokens_per_second")),
    ("E_METRIC_MISMATCH", lambda: bundle().with_run(0, blocks=())),
    ("E_PROFILE_CONTRADICTION", lambda: with_hotspot(name="rms_norm")),
    ("E_PROFILE_CONTRADICTION", lambda: with_hotspot(cpu_s_per_token=None)),
    ("E_PROFILE_CONTRADICTION", lambda: bundle().with_evidence(metrics=())),
    ("E_PROFILE_CONTRADICTION", lambda: with_process(pid=4004, started_ticks=None)),
    *gpu.FORGERIES,
]

HONEST: dict[str, Make] = {
    "a reference kernel slow on a busy machine": slow_reference,
    "a wall clock that was set": lambda: redated(bundle(), -200, -200),
    "a wall clock that was set back": lambda: redated(bundle(), 200, 200),
    "a profiler that starts a program late": lambda: launched_late(3, 60),
    "a profiler that starts the last program late": lambda: launched_late(4, 40_000),
    "a first token that was not observed": first_gap_unseen,
    "two runs within one pair of ticks": lambda: bundle(token_ns=30_000, timed=12),
    "asleep for a moment": lambda: map_blocks(
        bundle(token_ns=500_000), with_share("cpu_ns", 0.001)
    ),
    "a rounded rate": lambda: claim_rate(1.002),
    "more threads than were counted": lambda: busy(bundle(), 1.9),
    "a program with children": lambda: busy(without_cores(program()), 7.0),
    "figures of four digits": lambda: with_metric(bundle(), "load_ms", value=1.00005),
    "a profile of an older version": lambda: bundle().with_profile(nonce=None),
    "unknown costs": without_costs,
    "another table of categories": lambda: with_hotspot(category="other"),
    "a sequence that ended late": lambda: differing(4, "47"),
    **dict(gpu.HONEST),
}

LIMITS: list[tuple[str, Callable[[Any], Bundle], Any, Any]] = [
    ("E_CLOCK_CONTRADICTION", days_before, 23.0, 25.0),
    ("E_CLOCK_CONTRADICTION", with_decode, 2, 3),
    ("W_TIME_UNACCOUNTED", with_gaps, 0.6, 0.4),
    ("W_FASTER_THAN_MEMORY", reading, 3.0, 5.0),
    (
        "E_CLOCK_CONTRADICTION",  # steps of the wall clock
        lambda steps: redated(bundle(timed=6), *[10 * min(n, steps) for n in range(8)]),
        2,
        3,
    ),
    (
        "E_CLOCK_CONTRADICTION",  # receipt and evidence apart
        lambda hour: bundle().with_receipt(timestamp=f"2025-10-12T{hour}:00:00Z"),
        13,
        11,
    ),
]
"""A code, evidence by some number, and the numbers just within and just beyond the limit."""


@pytest.mark.parametrize(("code", "make"), FORGED)
def test_a_contradiction_rejects_the_receipt(code: str, make: Make) -> None:
    answer = verify(make())
    assert code in {refusal.code for refusal in answer.refusals}
    assert "E_INTERNAL" not in codes(answer)
    assert answer.grade is Grade.CONSISTENT


@pytest.mark.parametrize(("code", "make"), gpu.SHORT)
def test_a_shortfall_lowers_the_grade_and_rejects_nothing(code: str, make: Make) -> None:
    answer = verify(make())
    assert code in {notice.code for notice in answer.warnings}
    assert answer.refusals == ()
    assert answer.grade is Grade.CONSISTENT


@pytest.mark.parametrize("name", HONEST)
def test_honest_evidence_reaches_observed(name: str) -> None:
    answer = verify(HONEST[name](), require_grade=Grade.OBSERVED)
    assert answer.refusals == ()


@pytest.mark.parametrize(
    ("cores", "times", "changes"), [("16", 8, {}), ("2", 100, {"rate_hz": 0, "event": "Ir"})]
)
def test_samples_of_children_and_counts_of_instructions_may_be_many(
    cores: str, times: int, changes: dict[str, Any]
) -> None:
    made = draft.load("program")
    made.evidence["machine"]["cpu_cores"] = cores
    made.stacks = {path: count * times for path, count in made.stacks.items()}
    made.recount().profile.update(changes)
    answer = book.verify(made.reseal().files())
    assert (answer.refusals, answer.grade) == ((), Grade.OBSERVED)


@pytest.mark.parametrize(("code", "make", "within", "beyond"), LIMITS)
def test_rules_begin_at_their_limits(
    code: str, make: Callable[[Any], Bundle], within: Any, beyond: Any
) -> None:
    assert code not in codes(verify(make(within)))
    assert code in codes(verify(make(beyond)))


def test_a_folded_profile_is_counted_by_leaf_and_by_name_in_a_stack() -> None:
    found = read_folded(b" 1\nf (a.py);g (a.py);f (a.py) 4\nf (a.py);g (a.py) 2\n")
    frames = frozenset(Frame(name, "a.py", "python") for name in "fg")
    assert found == Folded(7, {"f": 4, "g": 2}, {"f": 6, "g": 6}, frames)
    line = b";".join(b"%c (a.py)" % each for each in b"abcdefg") + b" 1\n"
    assert "".join(read_folded(line).inclusive_samples) == "abcdefg"
    assert read_folded(b"f\xff") == Folded(
        0, {}, {}, problem="The folded profile is not UTF-8 at byte 1."
    )
    bad = read_folded(b"f (a.py)\n")
    assert bad == Folded(0, {}, {}, problem=bad.problem)
    assert bad.problem


def test_a_key_twice_in_place_of_an_optional_one_is_found() -> None:
    data = bundle().files["evidence.json"].replace(b'"decode_tokens": null', b'"decode": null', 1)
    with pytest.raises(ReceiptError) as caught:
        decode_evidence(data)
    assert caught.value.code == "E_JSON_DUPLICATE_KEY"


@pytest.mark.parametrize("name", ["schema_version", "decode_tokens", "metrics"])
def test_a_name_with_a_space_in_it_is_another_field(name: str) -> None:
    data = bundle().files["evidence.json"].replace(f'"{name}"'.encode(), f'"{name} "'.encode())
    if name == "decode_tokens":  # it has a default, and older evidence does not state it
        assert decode_evidence(data) == bundle().evidence
        return
    with pytest.raises(ReceiptError, match="is missing"):
        decode_evidence(data)
