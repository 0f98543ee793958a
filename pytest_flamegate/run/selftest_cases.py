"""The cases of the self test: three comparisons that are measured, and spoiled measurements."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from pytest_flamegate.core.clocks import utc_now
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.gate import (
    FIRST_ANALYSES,
    GatedRun,
    GatePolicy,
    PairedBase,
    StoredBaseline,
    Verdict,
    headline,
    judge,
)
from pytest_flamegate.gate.rule import FALSE_ALARM_RATE
from pytest_flamegate.gate.signals import describe_rate_change
from pytest_flamegate.receipt import verify_receipt
from pytest_flamegate.receipt.baseline import FOLDED
from pytest_flamegate.receipt.documents import encode_evidence, encode_receipt
from pytest_flamegate.receipt.types import Evidence, Receipt, VerdictName
from pytest_flamegate.run.selftest import Bench, Need, find_share, is_called_by, is_same_function

Result = Literal["ok", "differs", "undecided", "left out"]
"""``undecided``: noise or too little work; ``left out``: not possible here."""
CLEAR = 1.3
"""A drop of so many times the threshold must be found: a gate that misses it is wrong."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The result of a case: a few words for the table, and the whole sentence in ``detail``."""

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
    check: Callable[[Bench], Observed]


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
) -> Callable[[Callable[[Bench], Observed]], Callable[[Bench], Observed]]:
    """Register the function below as a case."""

    def register(check: Callable[[Bench], Observed]) -> Callable[[Bench], Observed]:
        CASES.append(Case(name, done, expected, needs, check))
        return check

    return register


def spoiled(
    name: str, done: str, verdict: VerdictName, code: str, needs: tuple[Need, ...] = ()
) -> Callable[[Callable[[Bench], Verdict]], Callable[[Bench], Verdict]]:
    """Register the function below as a case: its verdict must be this one, for that reason."""

    def register(judge_spoiled: Callable[[Bench], Verdict]) -> Callable[[Bench], Verdict]:
        def check(bench: Bench) -> Observed:
            found = judge_spoiled(bench)
            codes = [reason.code for reason in found.reasons]
            is_expected = found.verdict == verdict and code in codes and not is_open(found)
            shown = code if code in codes else next(iter(codes), "no reason")
            result: Result = "ok" if is_expected else "differs"
            return Observed(f"{found.verdict}, {shown}", result, headline(found))

        CASES.append(Case(name, done, f"{verdict}, {code}", needs, check))
        return judge_spoiled

    return register


def try_all(bench: Bench, cases: Sequence[Case] | None = None) -> Iterator[Row]:
    """Try the cases in turn; any error but ``UndecidedError`` ends them all."""
    for each in CASES if cases is None else cases:
        seen = _try(each, bench)
        # Afterwards: how much work the other function gets depends on the measurements.
        done, expected = (text.format(**bench.words) for text in (each.done, each.expected))
        yield Row(each.name, done, expected, seen.words, seen.result, seen.detail)


def _try(each: Case, bench: Bench) -> Observed:
    for need in each.needs:
        if (reason := bench.lacking(need)) is not None:
            return Observed("–", "left out", reason)
    try:
        return each.check(bench)
    except UndecidedError as error:
        return Observed(error.code, "undecided", str(error))


def exit_code_of(rows: Sequence[Row]) -> int:
    """Return 0 if everything is as expected, 1 if anything differs, else 4."""
    results = {row.result for row in rows}
    if "differs" in results:
        return 1
    return 0 if results == {"ok"} else UndecidedError.exit_code


def is_open(verdict: Verdict) -> bool:
    """Whether a build goes on with this verdict, by any of its answers."""
    return (
        verdict.verdict in ("pass", "improved")
        or verdict.exit_code == 0
        or not verdict.fails_test(ci=True, strict=False)
    )


# Measured


@case("slowed", "{extra} of {frame}", "regressed, exit code 1", ("injection",))
def slowed(bench: Bench) -> Observed:
    """Expect extra work in one function to close the gate."""
    verdict = bench.slowed.verdict
    if verdict.verdict == "regressed" and verdict.exit_code == 1 and not is_open(verdict):
        return _answer(verdict, "ok")
    if verdict.verdict == "inconclusive":
        return _answer(verdict, "undecided")
    reason = _explain_pass(bench) if verdict.verdict == "pass" else None
    return _answer(verdict, "undecided" if reason else "differs", reason)


@case("named", "{extra} of {frame}", "{frame} is named", ("injection", "profile"))
def named(bench: Bench) -> Observed:
    """Expect the verdict on extra work to name its function."""
    assert bench.asked.slowed is not None
    frame, verdict = bench.asked.slowed.frame, bench.slowed.verdict
    names = verdict.explained_by[:1] or tuple(row.name for row in verdict.attribution[:1])
    if verdict.verdict != "regressed" or not names:
        return Observed("nothing is named", "undecided", headline(verdict))
    if is_same_function(frame, names[0]):
        return Observed(names[0], "ok", headline(verdict))
    if is_called_by(frame, names[0], bench.slowed.head):
        return Observed(f"{names[0]}, which it calls", "ok", headline(verdict))
    # An explanation is certain; the row with the largest change alone is not.
    return Observed(names[0], "differs" if verdict.explained_by else "undecided", headline(verdict))


@case("same code", "nothing: the same code twice", "not regressed")
def same_code(bench: Bench) -> Observed:
    """Expect the same code not to close the gate; noise may leave it undecided."""
    verdict = bench.same.verdict
    if verdict.verdict in ("pass", "improved", "inconclusive"):
        return _answer(verdict, "ok")
    rate = verdict.false_alarm_rate
    promised = f" One in {1 / rate:.0f} may be a false alarm: run it again." if rate else ""
    return _answer(verdict, "differs", headline(verdict) + promised)


@case("faster", "{another} made faster", "improved or pass", ("injection", "other"))
def another_faster(bench: Bench) -> Observed:
    """Expect the gate to stay open: next to a faster function the shares of the others rise."""
    verdict = bench.faster.verdict
    if verdict.verdict in ("improved", "pass") and is_open(verdict) and verdict.exit_code == 0:
        return _answer(verdict, "ok")
    return _answer(verdict, "undecided" if verdict.verdict == "inconclusive" else "differs")


@case(
    "neighbours",
    "{another} made faster",
    "shares rise, nothing costs more",
    ("injection", "other", "profile"),
)
def neighbours(bench: Bench) -> Observed:
    """Expect that no function whose share rose is reported to cost more."""
    verdict = bench.faster.verdict
    slower = [spot.name for spot in verdict.hotspots if spot.finding == "costs_more"]
    if slower:
        return Observed(f"{slower[0]} costs more", "differs", headline(verdict))
    rose = [
        spot.share
        for spot in verdict.hotspots
        if spot.share.shift_pp > 0.0 and spot.share.p_adjusted <= FALSE_ALARM_RATE
    ]
    if not rose:
        return Observed("no share rose for certain", "undecided", headline(verdict))
    most = max(rose, key=lambda share: share.shift_pp)
    return Observed(f"{most.name} {most.shift_pp:+.1f} pp, costs no more", "ok", headline(verdict))


def _answer(verdict: Verdict, result: Result, detail: str | None = None) -> Observed:
    """Return a result whose words are the verdict and by how much tokens per second changed."""
    rate = verdict.signal()
    changed = verdict.reasons[0].code
    if rate is not None and rate.change_pct is not None:
        changed = describe_rate_change(rate.change_pct)
    return Observed(f"{verdict.verdict}, {changed}", result, detail or headline(verdict))


def _explain_pass(bench: Bench) -> str | None:
    """Explain why the gate was right to let so little extra work pass; None if it was not."""
    injection = bench.asked.slowed
    assert injection is not None
    share = find_share(injection.frame, bench.slowed.base)
    if share is None:
        return f"No profile says which part of the time {injection.frame} takes."
    allowed_pct = bench.asked.workload.thresholds.tokens_per_second_pct
    # x percent more of a part s changes tokens per second by a factor of 1 / (1 + s·x).
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


# Spoiled


@spoiled("swapped sides", "base and head exchanged", "dishonest", "E_SIDES_SWAPPED")
def _swap_sides(bench: Bench) -> Verdict:
    """Hand in head as the base: slower work would look like an improvement."""
    base, head = _evidence(bench)
    return _judge_pairs(bench, head, base)


@spoiled("swapped baseline", "baseline and run exchanged", "not_comparable", "E_BASELINE_NEWER")
def _swap_baseline(bench: Bench) -> Verdict:
    older, newer = _evidence(bench)
    # Both sides of a comparison are composed within a millisecond of each other.
    return _judge_stored(bench, replace(newer, created=utc_now()), older)


@spoiled("empty profile", "all samples removed", "inconclusive", "E_NO_SAMPLES", ("profile",))
def _remove_samples(bench: Bench) -> Verdict:
    """Take all samples away: in an empty profile no share can drift."""
    base, head = _evidence(bench)
    assert head.profile is not None
    emptied = tuple(
        replace(process, samples=0, self_samples=MappingProxyType({}))
        for process in head.profile.processes
    )
    profile = replace(head.profile, samples=0, processes=emptied)
    return _judge_pairs(bench, base, replace(head, profile=profile))


@spoiled("copied run", "the run accepted as its own baseline", "dishonest", "E_COPIED_BASELINE")
def _copy_run(bench: Bench) -> Verdict:
    _, head = bench.pair
    store, name = bench.store("copied"), bench.asked.workload.name
    store.artifacts.accept_baseline(store.machine_id, name, head.files)
    baseline = store.baseline(name)
    assert baseline is not None
    return _judge_stored(bench, baseline.evidence, head.side.evidence)


@spoiled("copied process", "one process counted twice", "inconclusive", "E_REPEATED_SAMPLES")
def _copy_process(bench: Bench) -> Verdict:
    """Count a copy under another process id, as if it were independent."""
    base, head = _evidence(bench)
    first = next(run for run in head.runs if run.role == "timed")
    copy = replace(first, pid=first.pid + 1, started_ticks=(first.started_ticks or 0) + 1)
    return _judge_pairs(bench, base, replace(head, runs=(*head.runs, copy)))


@spoiled(
    "wrong direction", "the metric's direction flipped", "not_comparable", "E_DIRECTION_DIFFERS"
)
def _flip_direction(bench: Bench) -> Verdict:
    """Let less count as better on one side: slower would be an improvement."""
    base, head = _evidence(bench)
    flipped = tuple(
        replace(metric, direction="lower_is_better")
        if metric.name == "tokens_per_second"
        else metric
        for metric in head.metrics
    )
    return _judge_pairs(bench, base, replace(head, metrics=flipped))


@spoiled("no baseline", "no baseline accepted", "no_baseline", "E_NO_BASELINE")
def _remove_baseline(bench: Bench) -> Verdict:
    found = bench.store("empty").baseline(bench.asked.workload.name)
    return _judge_stored(bench, found.evidence if found else None, _evidence(bench)[1])


@case("edited receipt", "its tokens/s × 1.5", "refused, E_RECEIPT_CHANGED", ("profile",))
def _edit_receipt(bench: Bench) -> Observed:
    return _verify(bench, _forge_rate(bench), _evidence(bench)[1], "E_RECEIPT_CHANGED")


@case("forged receipt", "the same, its hash made to fit", "refused, E_TPS_MISMATCH", ("profile",))
def _forge_receipt(bench: Bench) -> Observed:
    """Edit it and make the hash fit: the observer's own clock contradicts it."""
    receipt = _forge_rate(bench)
    digest = hashlib.sha256(encode_receipt(receipt)).hexdigest()
    evidence = replace(_evidence(bench)[1], receipt_sha256=digest)
    return _verify(bench, receipt, evidence, "E_TPS_MISMATCH")


@spoiled(
    "few pairs", f"all but {FIRST_ANALYSES[0] - 1} pairs removed", "inconclusive", "E_FEW_PAIRS"
)
def _remove_pairs(bench: Bench) -> Verdict:
    count = FIRST_ANALYSES[0] - 1

    def cut(side: Evidence) -> Evidence:
        runs = (run for run in side.runs if run.pair is None or run.pair < count)
        return replace(side, runs=tuple(runs))

    base, head = _evidence(bench)
    return _judge_pairs(bench, cut(base), cut(head))


@spoiled("other tokens", "one token changed", "not_comparable", "E_TOKENS_DIFFER")
def _change_token(bench: Bench) -> Verdict:
    base, head = _evidence(bench)
    tokens = (f"not {head.tokens[0]}", *head.tokens[1:])
    return _judge_pairs(
        bench, base, replace(head, tokens=tokens, token_digest=token_digest(tokens))
    )


def _evidence(bench: Bench) -> tuple[Evidence, Evidence]:
    base, head = bench.pair
    return base.side.evidence, head.side.evidence


def _judge_pairs(bench: Bench, base: Evidence, head: Evidence) -> Verdict:
    return judge(GatedRun(head, "SELF_REPORTED"), PairedBase(base), _policy(bench))


def _judge_stored(bench: Bench, baseline: Evidence | None, current: Evidence) -> Verdict:
    stored = None if baseline is None else StoredBaseline(baseline)
    return judge(GatedRun(current, "SELF_REPORTED"), stored, _policy(bench))


def _policy(bench: Bench) -> GatePolicy:
    return GatePolicy(bench.asked.workload.thresholds, bench.settings.share_drift)


def _forge_rate(bench: Bench) -> Receipt:
    """Return the receipt with a better rate; ``UndecidedError`` if there is no receipt."""
    receipt = bench.pair[1].side.receipt
    if receipt is None:
        raise UndecidedError(
            "E_NO_RECEIPT", "No receipt was written.", "Give it more time (--budget)."
        )
    return replace(receipt, tokens_per_second=1.5 * receipt.tokens_per_second)


def _verify(bench: Bench, receipt: Receipt, evidence: Evidence, code: str) -> Observed:
    """Verify a spoiled receipt. If the honest one is refused too, that shows nothing."""
    sealed = bench.pair[1]
    found = verify_receipt(
        encode_receipt(receipt),
        evidence=encode_evidence(evidence),
        profile_folded=sealed.files[FOLDED],
    )
    codes = [refusal.code for refusal in found.refusals]
    is_honest = sealed.verification is not None and sealed.verification.ok
    is_expected = is_honest and not found.ok and code in codes
    shown = code if code in codes else next(iter(codes), "no reason")
    words = f"{'accepted' if found.ok else 'refused'}, {shown}"
    detail = " ".join(refusal.message for refusal in found.refusals)
    return Observed(words, "ok" if is_expected else "differs", detail)
