"""The cases that spoil what was honestly measured, each in one way."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate import FIRST_LOOKS, judge, judge_pairs
from pytest_flamegate.receipt import verify_receipt
from pytest_flamegate.receipt.build import encode_evidence, encode_receipt
from pytest_flamegate.receipt.shelves import FOLDED
from pytest_flamegate.sealing import seal
from pytest_flamegate.selftest.case import Happened, case, closed
from pytest_flamegate.workload.digest import token_digest

if TYPE_CHECKING:
    from pytest_flamegate.gate import Verdict
    from pytest_flamegate.receipt.types import Evidence, Receipt
    from pytest_flamegate.sealing import Sealed
    from pytest_flamegate.selftest.bench import Bench

FASTER = 1.5


@case("swapped sides", "base and head exchanged", "dishonest, E_SIDES_SWAPPED")
def swapped_sides(bench: Bench) -> Happened:
    """Hand in head as the base: slower work would look like an improvement."""
    base, head = bench.pair
    return closed(_paired(bench, head.evidence, base.evidence), "dishonest", "E_SIDES_SWAPPED")


@case("swapped baseline", "baseline and run exchanged", "not_comparable, E_SIDES_SWAPPED")
def swapped_baseline(bench: Bench) -> Happened:
    """Hand in a run as the baseline that is younger than what it is held to."""
    older, newer = bench.pair
    return closed(
        _stored(bench, newer.evidence, older.evidence), "not_comparable", "E_SIDES_SWAPPED"
    )


@case("no samples", "a profiler that saw nothing", "refused, E_NO_SAMPLES", ("profile",))
def no_samples(bench: Bench) -> Happened:
    """Seal what a profiler took no sample of."""
    unmeasured = bench.side("head", None, bench.settings.compare_budget_s)
    try:
        seal(unmeasured.subject, unmeasured.measuring)
    except UndecidedError as error:
        fits = error.code == "E_NO_SAMPLES" and error.exit_code != 0
        return Happened(f"refused, {error.code}", "ok" if fits else "differs", str(error))
    return Happened("sealed", "differs", "A profile without a sample was sealed.")


@case("empty profile", "all samples removed", "inconclusive, E_NO_SAMPLES", ("profile",))
def empty_profile(bench: Bench) -> Happened:
    """Take all samples away: in an empty profile no share can drift."""
    base, head = bench.pair
    profile = head.evidence.profile
    assert profile is not None
    emptied = tuple(
        replace(process, samples=0, self_samples=MappingProxyType({}))
        for process in profile.processes
    )
    spoiled = replace(head.evidence, profile=replace(profile, samples=0, processes=emptied))
    return closed(_paired(bench, base.evidence, spoiled), "inconclusive", "E_NO_SAMPLES")


@case("copied run", "the run accepted as its own baseline", "dishonest, E_COPIED_BASELINE")
def copied_run(bench: Bench) -> Happened:
    """Hold a run to itself: it can only pass."""
    _, head = bench.pair
    keeper = bench.keeper("copied")
    name = bench.asked.workload.name
    keeper.shelves.accept(keeper.machine_id, name, head.files)
    baseline = keeper.baseline(name)
    assert baseline is not None
    return closed(
        _stored(bench, baseline.evidence, head.evidence), "dishonest", "E_COPIED_BASELINE"
    )


@case("copied process", "one process counted twice", "inconclusive, E_CONSTANT_SAMPLES")
def copied_process(bench: Bench) -> Happened:
    """Count a copy under another process id, as if it were independent."""
    base, head = bench.pair
    first = next(run for run in head.evidence.runs if run.role == "timed")
    copy = replace(first, pid=first.pid + 1, started_ticks=(first.started_ticks or 0) + 1)
    spoiled = replace(head.evidence, runs=(*head.evidence.runs, copy))
    return closed(_paired(bench, base.evidence, spoiled), "inconclusive", "E_CONSTANT_SAMPLES")


@case("wrong direction", "the metric's direction flipped", "not_comparable, E_DIRECTION_DIFFERS")
def wrong_direction(bench: Bench) -> Happened:
    """Let less count as better on one side: slower would be an improvement."""
    base, head = bench.pair
    flipped = tuple(
        replace(metric, direction="lower_is_better")
        if metric.name == "tokens_per_second"
        else metric
        for metric in head.evidence.metrics
    )
    spoiled = replace(head.evidence, metrics=flipped)
    return closed(_paired(bench, base.evidence, spoiled), "not_comparable", "E_DIRECTION_DIFFERS")


@case("no baseline", "no baseline accepted", "no_baseline, E_NO_BASELINE")
def no_baseline(bench: Bench) -> Happened:
    """Hold a run to nothing: that is no pass."""
    _, head = bench.pair
    found = bench.keeper("empty").baseline(bench.asked.workload.name)
    verdict = _stored(bench, found.evidence if found else None, head.evidence)
    return closed(verdict, "no_baseline", "E_NO_BASELINE")


@case("edited receipt", "its tokens/s × 1.5", "refused, E_RECEIPT_CHANGED", ("profile",))
def edited_receipt(bench: Bench) -> Happened:
    """Edit a figure by hand: the evidence names other bytes."""
    _, head = bench.pair
    return _refused(head, _edited(head), head.evidence, "E_RECEIPT_CHANGED")


@case("forged receipt", "the same, its hash made to fit", "refused, E_TPS_MISMATCH", ("profile",))
def forged_receipt(bench: Bench) -> Happened:
    """Edit it and make the hash fit: the observer's own clock contradicts it."""
    _, head = bench.pair
    receipt = _edited(head)
    digest = hashlib.sha256(encode_receipt(receipt)).hexdigest()
    fitting = replace(head.evidence, receipt_sha256=digest)
    return _refused(head, receipt, fitting, "E_TPS_MISMATCH")


@case("few pairs", f"all but {FIRST_LOOKS[0] - 1} pairs removed", "inconclusive, E_FEW_PAIRS")
def few_pairs(bench: Bench) -> Happened:
    """Leave fewer pairs than the first look needs, whatever they say."""
    base, head = (_first_pairs(side.evidence, FIRST_LOOKS[0] - 1) for side in bench.pair)
    return closed(_paired(bench, base, head), "inconclusive", "E_FEW_PAIRS")


@case("other tokens", "one token changed", "not_comparable, E_TOKENS_DIFFER")
def other_tokens(bench: Bench) -> Happened:
    """Change a token of one side: it did other work."""
    base, head = bench.pair
    tokens = (f"not {head.evidence.tokens[0]}", *head.evidence.tokens[1:])
    spoiled = replace(head.evidence, tokens=tokens, token_digest=token_digest(tokens))
    return closed(_paired(bench, base.evidence, spoiled), "not_comparable", "E_TOKENS_DIFFER")


def _paired(bench: Bench, base: Evidence, head: Evidence) -> Verdict:
    return judge_pairs(
        base,
        head,
        bench.asked.workload.thresholds,
        grade="SELF_REPORTED",
        share_drift=bench.settings.share_drift,
    )


def _stored(bench: Bench, baseline: Evidence | None, current: Evidence) -> Verdict:
    return judge(
        baseline,
        current,
        bench.asked.workload.thresholds,
        grade="SELF_REPORTED",
        share_drift=bench.settings.share_drift,
    )


def _first_pairs(evidence: Evidence, count: int) -> Evidence:
    kept = tuple(
        run
        for run in evidence.runs
        if run.role != "timed" or (run.pair is not None and run.pair < count)
    )
    return replace(evidence, runs=kept)


def _edited(sealed: Sealed) -> Receipt:
    """Return the receipt with a better figure; ``UndecidedError`` where none was written."""
    if sealed.receipt is None:
        raise UndecidedError(
            "E_NO_RECEIPT", "No receipt was written.", "Give it more time (--budget)."
        )
    return replace(sealed.receipt, tokens_per_second=FASTER * sealed.receipt.tokens_per_second)


def _refused(sealed: Sealed, receipt: Receipt, evidence: Evidence, code: str) -> Happened:
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
