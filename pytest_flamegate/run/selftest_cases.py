"""The cases of the self test, and the answers that the gate must give in each."""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.hotspots import HotspotChange
from pytest_flamegate.gate.rule import describe_rate_change
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.profile.frames import fold_profile
from pytest_flamegate.profile.hotspots import pool_profiles
from pytest_flamegate.receipt.types import VerdictName
from pytest_flamegate.run.schedule import MIN_PROFILED
from pytest_flamegate.run.seal import ComposedRun, ComposedSide, compose, seal
from pytest_flamegate.run.selftest import (
    Bench,
    Need,
    find_blamed,
    is_certain,
    nothing_measured,
    time_pct,
)
from pytest_flamegate.run.stages import MeasuredSide

Result = Literal["ok", "failed", "undecided", "left out"]
"""``undecided``: noise or too little work; ``left out``: not possible here."""
Answer = tuple[str, Result, str]
"""A few words for the table, the result, and a whole sentence."""
CLEAR = 1.3
"""A drop of so many times the threshold must be found: a gate that misses it is wrong."""
NEAR = 0.5
"""How far a measured slowdown may be from the injected one. A repeated call finds its data in the
cache: each took 64 to 85 % of the time of a first one in the embedded model's hottest function."""
LIMIT_PP = 1.0
"""The drift that is allowed if only shares are limited."""
FEW = 20
"""Samples of each profile if a case leaves too few."""
PROMISED_EXIT_CODES = {"pass": 0, "improved": 0, "regressed": 1, "dishonest": 3}
"""The exit codes that the documents promise; 4 for all other expected verdicts."""
SUMMARIES: dict[Result, tuple[int, str]] = {
    "failed": (1, "Run it again; if the same case fails, report the output of --format=json."),
    "undecided": (4, "Noise hid an answer: run it while the machine is idle, or with --budget=60."),
    "left out": (4, "The lines above say what the cases left out need."),
    "ok": (0, "The gate can be trusted on this machine."),
}
"""The exit code and the advice by the worst result; worst first."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way to try the gate. ``done`` and ``expected`` may name ``Bench.case_texts``."""

    name: str
    done: str
    expected: str
    needs: tuple[Need, ...]
    check: Callable[[Bench], Answer]


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One line of the table. The first case of a comparison takes the time that it takes."""

    name: str
    done: str
    expected: str
    happened: str
    result: Result
    detail: str = ""
    seconds: float = 0.0


def try_case(bench: Bench, case: Case) -> CaseRow:
    """Try one case; an ``UndecidedError`` is an answer too."""
    began_s = time.monotonic()
    answer: Answer
    missing = next(filter(None, map(bench.why_unavailable, case.needs)), None)
    try:
        answer = ("–", "left out", missing) if missing else case.check(bench)
    except UndecidedError as error:
        answer = error.code, "undecided", str(error)
    done, expected = (text.format(**bench.case_texts) for text in (case.done, case.expected))
    seconds = round(time.monotonic() - began_s, 1)
    return CaseRow(case.name, done, expected, *answer, seconds)


def summarize(rows: Sequence[CaseRow]) -> tuple[int, str]:
    """Return the exit code and what the user should do."""
    results = {row.result for row in rows}
    return next(summary for result, summary in SUMMARIES.items() if result in results)


# --- more work in one function --------------------------------------------------------------


def _slow_function(bench: Bench) -> Answer:
    """Expect extra work in one function to close the gate, if it is enough for that."""
    verdict, extra = bench.slowed.verdict, bench.injection
    enough_pct = bench.find_extra_pct(CLEAR * bench.workload.thresholds.tokens_per_second_pct)
    words, result, sentence = _answer(verdict, "regressed")
    if verdict.verdict != "pass" or extra is None or extra.extra_pct >= (enough_pct or math.inf):
        return words, result, sentence
    more = f"--extra {enough_pct}%" if enough_pct else "a larger --extra"
    sentence = f"{extra.frame} takes too little of the time to say: {more}, or slow a hotter one."
    return words, "undecided", sentence


def _name_function(bench: Bench) -> Answer:
    """Expect the verdict on extra work to name its function."""
    verdict, run = bench.slowed.verdict, bench.run
    names = verdict.explained_by[:1] or tuple(row.name for row in verdict.attribution[:1])
    if verdict.verdict != "regressed" or not names:
        return "nothing is named", "undecided", headline(verdict)
    if bench.is_slowed(names[0], run.head.profile):
        return names[0], "ok", headline(verdict)
    # An explanation is certain; the row with the largest change alone is not.
    return names[0], "failed" if verdict.explained_by else "undecided", headline(verdict)


def _measure_size(bench: Bench) -> Answer:
    """Expect the measured slowdown to be the injected one: the function's share × the extra."""
    verdict, injection = bench.slowed.verdict, bench.injection
    rate = verdict.signal()
    injected_pct, measured_pct = bench.injected_pct, bench.slowed_pct
    if not bench.share or not injection or not rate or injected_pct is None or measured_pct is None:
        return "not measured", "undecided", headline(verdict)
    spot = bench.find_slowed(verdict, bench.run.head.profile)
    error = 4.0 * math.sqrt(spot.share.baseline_variance[0]) if spot else bench.share
    less, more = ((1.0 + part) * injection.extra_pct for part in (-NEAR, NEAR))
    low, high = time_pct(rate.ci_high_pct or 0.0), time_pct(rate.ci_low_pct or 0.0)
    is_open = low <= more * (bench.share + error) and high >= less * (bench.share - error)
    result: Result = "undecided" if is_open else "failed"
    if abs(measured_pct - injected_pct) <= NEAR * injected_pct:
        result = "ok"
    return f"{measured_pct:.1f} % of {injected_pct:.1f} %", result, headline(verdict)


def _slow_little(bench: Bench) -> Answer:
    """Expect a slowdown just past the threshold to close the gate."""
    return _answer(bench.small.verdict, "regressed")


def _allow(bench: Bench) -> Answer:
    """Expect the same measurement to pass if a drop as large as that is allowed."""
    verdict = bench.judge(bench.run, bench.allowing)
    words, result, sentence = _answer(verdict, "pass")
    rate = verdict.signal()
    if rate and (rate.ci_low_pct or 0.0) <= -bench.allowing.tokens_per_second_pct:
        result = "undecided"  # too noisy to say that it is within what is allowed
    return words, result, sentence


def _limit_share(bench: Bench) -> Answer:
    """Expect the function's share alone to close the gate if only shares are limited."""
    allowed = replace(bench.allowing, hotspots_pp={"*": LIMIT_PP})
    verdict = bench.judge(bench.run, allowed)
    spot = bench.find_slowed(verdict, bench.run.head.profile)
    failing = [each.name for each in verdict.hotspots if each.decision == "regressed"]
    if spot is None or failing not in ([], [spot.name]):
        words = f"{', '.join(failing) or 'nothing'} regressed"
        return words, "failed" if failing else "undecided", headline(verdict)
    words = f"{spot.name} {spot.share.shift_pp:+.1f} pp, {spot.decision}"
    if failing:
        return words, "ok" if verdict.exit_code == 1 else "failed", headline(verdict)
    rose = spot.share.shift_pp > LIMIT_PP and spot.finding == "costs_more" and is_certain(spot)
    return words, "failed" if rose else "undecided", _describe_share(spot)


def _exchange_sides(bench: Bench) -> Answer:
    """Expect the same measurement, read backwards, to be an improvement."""
    if bench.slowed.verdict.verdict != "regressed":
        return "nothing to read", "undecided", headline(bench.slowed.verdict)
    return _answer(bench.judge(_exchange(bench.run)), "improved")


def _watch_neighbours(bench: Bench) -> Answer:
    """Expect no function to cost more if one became faster, although all other shares rose."""
    verdict = bench.judge(_exchange(bench.run))
    spot = bench.find_slowed(verdict, bench.run.head.profile)
    slower = [each.name for each in verdict.hotspots if each.finding == "costs_more"]
    if slower:
        return f"{slower[0]} costs more", "failed", headline(verdict)
    if spot is None or spot.share.shift_pp >= 0.0 or not is_certain(spot):
        sentence = _describe_share(spot) if spot else headline(verdict)
        return "no share moved for certain", "undecided", sentence
    return f"{-spot.share.shift_pp:+.1f} pp, cost no more", "ok", headline(verdict)


# --- the same code --------------------------------------------------------------------------


def _repeat_code(bench: Bench) -> Answer:
    """Expect the same code to pass."""
    verdict, first = bench.same.verdict, bench.same.first
    if first is not None and first.kind.is_change and not verdict.kind.is_change:
        return f"{first.verdict} once", "undecided", f"{headline(first)}. {_ONCE}"
    return _answer(verdict, "pass")


def _blame_nothing(bench: Bench) -> Answer:
    """Expect no function to cost more or less, and no share to fail."""
    verdict, first = bench.same.verdict, bench.same.first
    if blamed := find_blamed(verdict):
        return blamed[0], "failed", f"{blamed[0]} changed, by the verdict. {headline(verdict)}"
    if first is not None and (blamed := find_blamed(first)):
        return f"{blamed[0]} once", "undecided", f"{headline(first)}. {_ONCE}"
    judged = len(verdict.hotspots)
    return f"none of {judged}", "ok" if judged else "undecided", headline(verdict)


# --- what was measured, changed -------------------------------------------------------------


def _accept_receipt(bench: Bench) -> Answer:
    """Expect the receipts of the measurement to be accepted."""
    run = bench.run
    if run.errors or run.head.verification is None:
        problems = " ".join(error.message for error in run.errors)
        return next((f"rejected, {each.code}" for each in run.errors), "none"), "failed", problems
    return f"accepted, {run.head.grade}", "ok", ""


def _changed(
    name: str,
    done: str,
    change: Callable[[ComposedRun], ComposedRun],
    expected: VerdictName,
    code: str,
    *needs: Need,
) -> Case:
    """Return the case that a run with ``change`` gets that verdict, for the reason ``code``."""

    def check(bench: Bench) -> Answer:
        unchanged, verdict = bench.judge(bench.run), bench.judge(change(bench.run))
        codes = [reason.code for reason in verdict.reasons]
        words = f"{verdict.verdict}, {code if code in codes else codes[0]}"
        if unchanged.verdict in (expected, "dishonest"):
            return words, "failed", f"The unchanged run is too. {headline(unchanged)}"
        _, result, sentence = _answer(verdict, expected)
        return words, result if code in codes else "failed", sentence

    return Case(name, done, f"{expected}, {code}", needs, check)


def _leave_shares_open(bench: Bench) -> Answer:
    """Expect a profile of a few samples to judge no share, and tokens per second all the same."""
    measured = bench.run.measured
    before = bench.judge(bench.run).signal()
    verdict = bench.judge(
        compose(replace(measured, sides=tuple(map(_drop_samples, measured.sides))))
    )
    judged = len(verdict.hotspots)
    is_right = before is not None and verdict.verdict == before.decision and not judged
    words = f"{verdict.verdict}, {judged} shares judged"
    return words, "ok" if is_right else "failed", headline(verdict)


def _drop_samples(side: MeasuredSide) -> MeasuredSide:
    """Leave ``FEW`` samples of one stack in each of the fewest profiles of a side."""
    profiles = [
        replace(each, stacks=dict.fromkeys(list(each.stacks)[:1], FEW), complete=FEW)
        for each in side.profiles[:MIN_PROFILED]
    ]
    profiler = side.side.profiler
    pooled, notes = pool_profiles(profiler.name if profiler else None, profiles)
    return replace(side, profiles=tuple(profiles), pooled=pooled, notes={**side.notes, **notes})


def _change(run: ComposedRun, head: ComposedSide | None = None, **changes: Any) -> ComposedRun:
    """Return the run with another head if one is given, whose evidence has these fields."""
    head = head or run.head
    return replace(run, head=replace(head, evidence=replace(head.evidence, **changes)))


def _exchange(run: ComposedRun) -> ComposedRun:
    """Read a comparison backwards: the base was the change, and the head what it began from."""
    base = replace(run.head, evidence=replace(run.head.evidence, side="base"))
    return replace(_change(run, run.base, side="head"), base=base)


def _copy_base(run: ComposedRun) -> ComposedRun:
    """Hand in the base's own measurement as the head, under the head's nonce."""
    return _change(run, run.base, side="head", nonce=run.head.evidence.nonce)


def _change_prompt(run: ComposedRun) -> ComposedRun:
    return _change(run, workload={**run.head.evidence.workload, "prompt": "another prompt"})


def _forge_figure(run: ComposedRun) -> ComposedRun:
    """Claim a better rate; sealed, its hash fits: the observer's own clock contradicts it."""
    receipt = run.head.receipt
    if receipt is None:
        raise nothing_measured("No receipt was written.")
    receipt = replace(receipt, tokens_per_second=1.5 * receipt.tokens_per_second)
    return seal(replace(run, head=replace(run.head, receipt=receipt)))


def _forge_profile(run: ComposedRun) -> ComposedRun:
    """Cut the hottest function out of the profile and make the hash fit."""
    profile, record = run.head.profile, run.head.evidence.profile
    if profile is None or record is None:
        raise nothing_measured("Nothing was profiled.")
    hottest = record.hotspots[0].name
    rest = {stack: n for stack, n in profile.stacks.items() if stack[-1].name != hottest}
    profile = replace(profile, stacks=rest)
    record = replace(
        record, folded_sha256=hashlib.sha256(fold_profile(profile).encode()).hexdigest()
    )
    return seal(_change(run, replace(run.head, profile=profile), profile=record))


# --- in words -------------------------------------------------------------------------------

_ONCE = "Measured again it did not: one comparison in a hundred may be chance. Run it again."


def _answer(verdict: Verdict, expected: VerdictName) -> Answer:
    """Compare a verdict and its exit code with the expected ones; noise leaves them undecided."""
    rate = verdict.signal()
    changed = verdict.reasons[0].code
    if rate is not None and rate.change_pct is not None:
        changed = describe_rate_change(rate.change_pct)
    words = f"{verdict.verdict}, {changed}"
    if verdict.verdict == "inconclusive":
        return words, "undecided", headline(verdict)
    is_rate = rate is None or rate.decision == expected  # a share alone may fail a run, too
    exit_code = PROMISED_EXIT_CODES.get(expected, 4)
    if is_rate and (verdict.verdict, verdict.exit_code) == (expected, exit_code):
        return words, "ok", headline(verdict)
    return words, "failed", f"Exit code {verdict.exit_code}. {headline(verdict)}"


def _describe_share(spot: HotspotChange) -> str:
    words = f"The share of {spot.name} moved by {spot.share.shift_pp:+.1f} pp"
    least = f"{spot.share.detectable_pp:.0f} pp would be certain with samples that differ so much"
    return spot.reason.message if spot.reason else f"{words}; {least} between processes."


_INJECTED: tuple[Need, ...] = ("injection",)
_PROFILED: tuple[Need, ...] = ("injection", "profile")
_RECEIPT: tuple[Need, ...] = ("profile",)
_SLOWER, _SAME, _BACK = "{extra} of {frame}", "the same code twice", "the same, read backwards"
CASES = (
    Case("slowed", _SLOWER, "regressed, exit code 1", _INJECTED, _slow_function),
    Case("named", _SLOWER, "{frame} is named", _PROFILED, _name_function),
    Case("size", _SLOWER, "the injected time, ± a half", _PROFILED, _measure_size),
    Case("allowed", "the same, {allowed} slower allowed", "pass, exit code 0", _INJECTED, _allow),
    Case("share", "the same, only shares limited", "{frame} regressed", _PROFILED, _limit_share),
    Case("backwards", _BACK, "improved, exit code 0", _INJECTED, _exchange_sides),
    Case("neighbours", _BACK, "other shares rise, cost no more", _PROFILED, _watch_neighbours),
    Case("small", "{frame}, all {small} slower", "regressed, exit code 1", _PROFILED, _slow_little),
    Case("same code", _SAME, "pass, exit code 0", (), _repeat_code),
    Case("no blame", _SAME, "no function costs more or less", _RECEIPT, _blame_nothing),
    Case("receipt", "a receipt as it was written", "accepted", _RECEIPT, _accept_receipt),
    _changed(
        "forged figure",
        "tokens/s × 1.5, the hash made to fit",
        _forge_figure,
        "dishonest",
        "E_TPS_MISMATCH",
        "profile",
    ),
    _changed(
        "forged profile",
        "a function cut out, the hash made to fit",
        _forge_profile,
        "dishonest",
        "E_PROFILE_CONTRADICTION",
        "profile",
    ),
    _changed(
        "copied run", "the base handed in as the head", _copy_base, "dishonest", "E_COPIED_BASELINE"
    ),
    _changed(
        "other prompt",
        "another prompt at the head",
        _change_prompt,
        "not_comparable",
        "E_WORKLOAD_DIFFERS",
    ),
    _changed(
        "no baseline",
        "nothing to compare with",
        lambda run: replace(run, base=None),
        "no_baseline",
        "E_NO_BASELINE",
    ),
    Case("few samples", "20 samples a process", "no share judged", _RECEIPT, _leave_shares_open),
)
"""Every case, in the order in which they are tried."""
