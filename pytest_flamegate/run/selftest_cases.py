"""The cases that really measure: a slowed function, the same code, another function faster."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.core.clocks import utc_now
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.gate import (
    FIRST_ANALYSES,
    GatedRun,
    GatePolicy,
    PairedBase,
    StoredBaseline,
    headline,
    judge,
)
from pytest_flamegate.gate.rule import FALSE_ALARM_RATE
from pytest_flamegate.gate.signals import describe_rate_change
from pytest_flamegate.receipt import verify_receipt
from pytest_flamegate.receipt.baseline import FOLDED
from pytest_flamegate.receipt.documents import encode_evidence, encode_receipt
from pytest_flamegate.run.processes import Budget, SideProcesses
from pytest_flamegate.run.selftest import Bench, Need, below, means, share_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_flamegate.gate import Verdict
    from pytest_flamegate.receipt.types import Evidence, Receipt, VerdictName
    from pytest_flamegate.run.seal import SealedSide


Result = Literal["ok", "differs", "undecided", "left out"]
"""``undecided``: noise or too little work, said so; ``left out``: not possible here."""
_DIFFERS, _UNDECIDED = 1, UndecidedError.exit_code


@dataclass(frozen=True, slots=True)
class Happened:
    """What came of a case: a few words for the table, and in ``detail`` all of it."""

    words: str
    result: Result
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One way to try the gate. Its words may name ``{frame}``, ``{extra}`` and ``{another}``."""

    name: str
    done: str
    expected: str
    needs: tuple[Need, ...]
    check: Callable[[Bench], Happened]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    done: str
    expected: str
    happened: str
    result: Result
    detail: str = ""


CASES: list[Case] = []
"""Every case, in the order in which they are tried."""


def case(
    name: str, done: str, expected: str, needs: tuple[Need, ...] = ()
) -> Callable[[Callable[[Bench], Happened]], Callable[[Bench], Happened]]:
    """Register the function below as a case."""

    def register(check: Callable[[Bench], Happened]) -> Callable[[Bench], Happened]:
        CASES.append(Case(name, done, expected, needs, check))
        return check

    return register


def try_all(bench: Bench, cases: Sequence[Case] | None = None) -> Iterator[Row]:
    """Try one case after another; what raises anything but ``UndecidedError`` ends them all."""
    for each in CASES if cases is None else cases:
        happened = _happened(each, bench)
        # Afterwards: how much the other function gets follows from what was measured.
        done, expected = (text.format(**bench.words) for text in (each.done, each.expected))
        yield Row(each.name, done, expected, happened.words, happened.result, happened.detail)


def _happened(each: Case, bench: Bench) -> Happened:
    for need in each.needs:
        if (why := bench.lacking(need)) is not None:
            return Happened("–", "left out", why)
    try:
        return each.check(bench)
    except UndecidedError as error:
        return Happened(error.code, "undecided", str(error))


def exit_code_of(rows: Sequence[Row]) -> int:
    """Return 0 where all is as expected, 1 where anything differs, else 4: less was shown."""
    results = {row.result for row in rows}
    if "differs" in results:
        return _DIFFERS
    return 0 if results == {"ok"} else _UNDECIDED


def is_open(verdict: Verdict) -> bool:
    """Whether a build goes on with this verdict, by any of the words that say so."""
    return (
        verdict.verdict in ("pass", "improved")
        or verdict.exit_code == 0
        or not verdict.fails_test(ci=True, strict=False)
    )


def closed(verdict: Verdict, name: VerdictName, code: str) -> Happened:
    """Return ok where the verdict is ``name``, for the reason ``code``, and stops a build."""
    codes = [reason.code for reason in verdict.reasons]
    fits = verdict.verdict == name and code in codes and not is_open(verdict)
    shown = code if code in codes else next(iter(codes), "no reason")
    return Happened(f"{verdict.verdict}, {shown}", "ok" if fits else "differs", headline(verdict))


CLEAR = 1.3
"""How far past the threshold a drop has to be for a gate that missed it to be called wrong."""


@case("slowed", "{extra} of {frame}", "regressed, exit code 1", ("injection",))
def slowed(bench: Bench) -> Happened:
    """Expect extra work in one function to close the gate."""
    verdict = bench.slowed.verdict
    if verdict.verdict == "regressed" and verdict.exit_code == 1 and not is_open(verdict):
        return Happened(_told(verdict), "ok", headline(verdict))
    if verdict.verdict == "inconclusive":
        return Happened(_told(verdict), "undecided", headline(verdict))
    small = _too_small(bench) if verdict.verdict == "pass" else None
    if small is not None:
        return Happened(_told(verdict), "undecided", small)
    return Happened(_told(verdict), "differs", headline(verdict))


@case("named", "{extra} of {frame}", "{frame} is named", ("injection", "profile"))
def named(bench: Bench) -> Happened:
    """Expect the verdict on extra work to say in which function it is."""
    assert bench.asked.slowed is not None
    frame, verdict = bench.asked.slowed.frame, bench.slowed.verdict
    names = verdict.explained_by[:1] or tuple(row.name for row in verdict.attribution[:1])
    if verdict.verdict != "regressed" or not names:
        return Happened("nothing is named", "undecided", headline(verdict))
    if means(frame, names[0]):
        return Happened(names[0], "ok", headline(verdict))
    if below(frame, names[0], bench.slowed.head):
        return Happened(f"{names[0]}, which it calls", "ok", headline(verdict))
    # What explains it is certain; the row with the largest change alone is not.
    return Happened(names[0], "differs" if verdict.explained_by else "undecided", headline(verdict))


@case("same code", "nothing: the same code twice", "not regressed")
def same_code(bench: Bench) -> Happened:
    """Expect the same code not to close the gate; noise may leave it undecided."""
    verdict = bench.same.verdict
    if verdict.verdict in ("pass", "improved", "inconclusive"):
        return Happened(_told(verdict), "ok", headline(verdict))
    rate = verdict.false_alarm_rate
    promised = f" One in {1 / rate:.0f} may be a false alarm: run it again." if rate else ""
    return Happened(_told(verdict), "differs", headline(verdict) + promised)


@case("faster", "{another} made faster", "improved or pass", ("injection", "other"))
def another_faster(bench: Bench) -> Happened:
    """Expect the gate to stay open: beside a faster function the others only weigh more."""
    verdict = bench.faster.verdict
    if verdict.verdict in ("improved", "pass") and is_open(verdict) and verdict.exit_code == 0:
        return Happened(_told(verdict), "ok", headline(verdict))
    undecided = verdict.verdict == "inconclusive"
    return Happened(_told(verdict), "undecided" if undecided else "differs", headline(verdict))


@case(
    "neighbours",
    "{another} made faster",
    "shares rise, nothing costs more",
    ("injection", "other", "profile"),
)
def neighbours(bench: Bench) -> Happened:
    """Expect of none whose share rose to be told that it costs more."""
    verdict = bench.faster.verdict
    dearer = [spot.name for spot in verdict.hotspots if spot.finding == "costs_more"]
    if dearer:
        return Happened(f"{dearer[0]} costs more", "differs", headline(verdict))
    rose = [
        spot.share
        for spot in verdict.hotspots
        if spot.share.shift_pp > 0.0 and spot.share.p_adjusted <= FALSE_ALARM_RATE
    ]
    if not rose:
        return Happened("no share rose for certain", "undecided", headline(verdict))
    most = max(rose, key=lambda share: share.shift_pp)
    return Happened(f"{most.name} {most.shift_pp:+.1f} pp, costs no more", "ok", headline(verdict))


def _told(verdict: Verdict) -> str:
    """Return the verdict and by how much tokens per second changed."""
    rate = verdict.signal()
    if rate is None or rate.change_pct is None:
        return f"{verdict.verdict}, {verdict.reasons[0].code}"
    return f"{verdict.verdict}, {describe_rate_change(rate.change_pct)}"


def _too_small(bench: Bench) -> str | None:
    """Say why the gate was right to let so little work pass; None where it was not."""
    injection = bench.asked.slowed
    assert injection is not None
    share = share_of(injection.frame, bench.slowed.base)
    if share is None:
        return f"No profile says what part of the time {injection.frame} takes."
    allowed_pct = bench.asked.workload.thresholds.tokens_per_second_pct
    # What x percent more of a part s does to tokens per second: 1 / (1 + s·x).
    drop_pct = 100.0 * (1.0 - 1.0 / (1.0 + share * injection.extra_pct / 100.0))
    if drop_pct >= CLEAR * allowed_pct:
        return None
    left = 1.0 - CLEAR * allowed_pct / 100.0
    enough = f"Say --extra {math.ceil(100.0 * (1.0 / left - 1.0) / share)}%" if left > 0 else ""
    return (
        f"{injection.frame} takes {100.0 * share:.0f} % of the time, so "
        f"+{injection.extra_pct:g} % of it is {drop_pct:.1f} % of tokens per second, and "
        f"{allowed_pct:g} % is allowed. {enough or 'Allow less'}, or slow a hotter function."
    )


FASTER = 1.5


@case("swapped sides", "base and head exchanged", "dishonest, E_SIDES_SWAPPED")
def swapped_sides(bench: Bench) -> Happened:
    """Hand in head as the base: slower work would look like an improvement."""
    base, head = bench.pair
    return closed(
        _paired(bench, head.side.evidence, base.side.evidence), "dishonest", "E_SIDES_SWAPPED"
    )


@case("swapped baseline", "baseline and run exchanged", "not_comparable, E_BASELINE_NEWER")
def swapped_baseline(bench: Bench) -> Happened:
    """Hand in a run as the baseline that is younger than what it is held to."""
    older, newer = bench.pair
    # Both sides of a comparison are composed within a millisecond of each other.
    baseline = replace(newer.side.evidence, created=utc_now())
    return closed(
        _stored(bench, baseline, older.side.evidence),
        "not_comparable",
        "E_BASELINE_NEWER",
    )


@case("no samples", "a profiler that saw nothing", "refused, E_NO_SAMPLES", ("profile",))
def no_samples(bench: Bench) -> Happened:
    """Hand in a measurement in which the profiler took no sample."""
    unmeasured = SideProcesses(bench.side("head", None), Budget(1.0))
    try:
        unmeasured.pooled_profile()
    except UndecidedError as error:
        fits = error.code == "E_NO_SAMPLES" and error.exit_code != 0
        return Happened(f"refused, {error.code}", "ok" if fits else "differs", str(error))
    return Happened("accepted", "differs", "A profile without a sample was accepted.")


@case("empty profile", "all samples removed", "inconclusive, E_NO_SAMPLES", ("profile",))
def empty_profile(bench: Bench) -> Happened:
    """Take all samples away: in an empty profile no share can drift."""
    base, head = bench.pair
    profile = head.side.evidence.profile
    assert profile is not None
    emptied = tuple(
        replace(process, samples=0, self_samples=MappingProxyType({}))
        for process in profile.processes
    )
    spoiled = replace(head.side.evidence, profile=replace(profile, samples=0, processes=emptied))
    return closed(_paired(bench, base.side.evidence, spoiled), "inconclusive", "E_NO_SAMPLES")


@case("copied run", "the run accepted as its own baseline", "dishonest, E_COPIED_BASELINE")
def copied_run(bench: Bench) -> Happened:
    """Hold a run to itself: it can only pass."""
    _, head = bench.pair
    store = bench.store("copied")
    name = bench.asked.workload.name
    store.artifacts.accept_baseline(store.machine_id, name, head.files)
    baseline = store.baseline(name)
    assert baseline is not None
    return closed(
        _stored(bench, baseline.evidence, head.side.evidence), "dishonest", "E_COPIED_BASELINE"
    )


@case("copied process", "one process counted twice", "inconclusive, E_REPEATED_SAMPLES")
def copied_process(bench: Bench) -> Happened:
    """Count a copy under another process id, as if it were independent."""
    base, head = bench.pair
    first = next(run for run in head.side.evidence.runs if run.role == "timed")
    copy = replace(first, pid=first.pid + 1, started_ticks=(first.started_ticks or 0) + 1)
    spoiled = replace(head.side.evidence, runs=(*head.side.evidence.runs, copy))
    return closed(_paired(bench, base.side.evidence, spoiled), "inconclusive", "E_REPEATED_SAMPLES")


@case("wrong direction", "the metric's direction flipped", "not_comparable, E_DIRECTION_DIFFERS")
def wrong_direction(bench: Bench) -> Happened:
    """Let less count as better on one side: slower would be an improvement."""
    base, head = bench.pair
    flipped = tuple(
        replace(metric, direction="lower_is_better")
        if metric.name == "tokens_per_second"
        else metric
        for metric in head.side.evidence.metrics
    )
    spoiled = replace(head.side.evidence, metrics=flipped)
    return closed(
        _paired(bench, base.side.evidence, spoiled), "not_comparable", "E_DIRECTION_DIFFERS"
    )


@case("no baseline", "no baseline accepted", "no_baseline, E_NO_BASELINE")
def no_baseline(bench: Bench) -> Happened:
    """Hold a run to nothing: that is no pass."""
    _, head = bench.pair
    found = bench.store("empty").baseline(bench.asked.workload.name)
    verdict = _stored(bench, found.evidence if found else None, head.side.evidence)
    return closed(verdict, "no_baseline", "E_NO_BASELINE")


@case("edited receipt", "its tokens/s × 1.5", "refused, E_RECEIPT_CHANGED", ("profile",))
def edited_receipt(bench: Bench) -> Happened:
    """Edit a figure by hand: the evidence names other bytes."""
    _, head = bench.pair
    return _refused(head, _edited(head), head.side.evidence, "E_RECEIPT_CHANGED")


@case("forged receipt", "the same, its hash made to fit", "refused, E_TPS_MISMATCH", ("profile",))
def forged_receipt(bench: Bench) -> Happened:
    """Edit it and make the hash fit: the observer's own clock contradicts it."""
    _, head = bench.pair
    receipt = _edited(head)
    digest = hashlib.sha256(encode_receipt(receipt)).hexdigest()
    fitting = replace(head.side.evidence, receipt_sha256=digest)
    return _refused(head, receipt, fitting, "E_TPS_MISMATCH")


@case("few pairs", f"all but {FIRST_ANALYSES[0] - 1} pairs removed", "inconclusive, E_FEW_PAIRS")
def few_pairs(bench: Bench) -> Happened:
    """Leave fewer pairs than the first look needs, whatever they say."""
    base, head = (_first_pairs(side.side.evidence, FIRST_ANALYSES[0] - 1) for side in bench.pair)
    return closed(_paired(bench, base, head), "inconclusive", "E_FEW_PAIRS")


@case("other tokens", "one token changed", "not_comparable, E_TOKENS_DIFFER")
def other_tokens(bench: Bench) -> Happened:
    """Change a token of one side: it did other work."""
    base, head = bench.pair
    tokens = (f"not {head.side.evidence.tokens[0]}", *head.side.evidence.tokens[1:])
    spoiled = replace(head.side.evidence, tokens=tokens, token_digest=token_digest(tokens))
    return closed(_paired(bench, base.side.evidence, spoiled), "not_comparable", "E_TOKENS_DIFFER")


def _paired(bench: Bench, base: Evidence, head: Evidence) -> Verdict:
    return judge(GatedRun(head, "SELF_REPORTED"), PairedBase(base), _policy(bench))


def _stored(bench: Bench, baseline: Evidence | None, current: Evidence) -> Verdict:
    stored = None if baseline is None else StoredBaseline(baseline)
    return judge(GatedRun(current, "SELF_REPORTED"), stored, _policy(bench))


def _policy(bench: Bench) -> GatePolicy:
    return GatePolicy(bench.asked.workload.thresholds, bench.settings.share_drift)


def _first_pairs(evidence: Evidence, count: int) -> Evidence:
    kept = tuple(
        run
        for run in evidence.runs
        if run.role != "timed" or (run.pair is not None and run.pair < count)
    )
    return replace(evidence, runs=kept)


def _edited(sealed: SealedSide) -> Receipt:
    """Return the receipt with a better figure; ``UndecidedError`` where none was written."""
    if sealed.side.receipt is None:
        raise UndecidedError(
            "E_NO_RECEIPT", "No receipt was written.", "Give it more time (--budget)."
        )
    return replace(
        sealed.side.receipt, tokens_per_second=FASTER * sealed.side.receipt.tokens_per_second
    )


def _refused(sealed: SealedSide, receipt: Receipt, evidence: Evidence, code: str) -> Happened:
    """Verify a spoiled receipt, after the honest one: a refusal of both would show nothing."""
    found = verify_receipt(
        encode_receipt(receipt),
        evidence=encode_evidence(evidence),
        profile_folded=sealed.files[FOLDED],
    )
    codes = [refusal.code for refusal in found.refusals]
    honest = sealed.verification is not None and sealed.verification.ok
    fits = honest and not found.ok and code in codes
    shown = code if code in codes else next(iter(codes), "no reason")
    words = f"{'accepted' if found.ok else 'refused'}, {shown}"
    detail = " ".join(refusal.message for refusal in found.refusals)
    return Happened(words, "ok" if fits else "differs", detail)
