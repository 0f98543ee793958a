"""The cases of the self test, and the answers that the gate must give in each."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate import Verdict, headline
from pytest_flamegate.gate.rule import FALSE_ALARM_RATE, describe_rate_change
from pytest_flamegate.receipt import verify_receipt
from pytest_flamegate.receipt.baseline import FOLDED
from pytest_flamegate.receipt.documents import encode_evidence, encode_receipt
from pytest_flamegate.run.selftest import Bench, Need, find_share, is_called_by, is_same_function

Result = Literal["ok", "differs", "undecided", "left out"]
"""``undecided``: noise or too little work; ``left out``: not possible here."""
CLEAR = 1.3
"""A drop of so many times the threshold must be found: a gate that misses it is wrong."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way to try the gate.

    ``done`` and ``expected`` may name ``{frame}``, ``{extra}`` and ``{another}``. ``check``
    returns a few words for the table, the result, and a whole sentence.
    """

    name: str
    done: str
    expected: str
    needs: tuple[Need, ...]
    check: Callable[[Bench], tuple[str, Result, str]]


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One line of the table."""

    name: str
    done: str
    expected: str
    happened: str
    result: Result
    detail: str = ""


def try_case(bench: Bench, case: Case) -> CaseRow:
    """Try one case; an ``UndecidedError`` is an answer too."""
    answer: tuple[str, Result, str]
    missing = next(filter(None, map(bench.why_unavailable, case.needs)), None)
    try:
        answer = ("–", "left out", missing) if missing else case.check(bench)
    except UndecidedError as error:
        answer = error.code, "undecided", str(error)
    # Afterwards: how much work the other function gets depends on the measurements.
    done, expected = (text.format(**bench.case_texts) for text in (case.done, case.expected))
    return CaseRow(case.name, done, expected, *answer)


def exit_code_of(rows: Sequence[CaseRow]) -> int:
    """Return 0 if everything is as expected, 1 if anything differs, else 4."""
    results = {row.result for row in rows}
    if "differs" in results:
        return 1
    return 0 if results == {"ok"} else UndecidedError.exit_code


def _slow_function(bench: Bench) -> tuple[str, Result, str]:
    """Expect extra work in one function to close the gate."""
    verdict = bench.slowed.verdict
    if verdict.verdict == "regressed":
        return _answer(verdict, "ok")
    if verdict.verdict == "inconclusive":
        return _answer(verdict, "undecided")
    reason = _explain_pass(bench) if verdict.verdict == "pass" else None
    return _answer(verdict, "undecided" if reason else "differs", reason)


def _name_function(bench: Bench) -> tuple[str, Result, str]:
    """Expect the verdict on extra work to name its function."""
    assert bench.plan.slowed is not None
    frame, verdict = bench.plan.slowed.frame, bench.slowed.verdict
    sentence = headline(verdict)
    names = verdict.explained_by[:1] or tuple(row.name for row in verdict.attribution[:1])
    if verdict.verdict != "regressed" or not names:
        return "nothing is named", "undecided", sentence
    if is_same_function(frame, names[0]):
        return names[0], "ok", sentence
    if is_called_by(frame, names[0], bench.slowed.head):
        return f"{names[0]}, which it calls", "ok", sentence
    # An explanation is certain; the row with the largest change alone is not.
    return names[0], "differs" if verdict.explained_by else "undecided", sentence


def _repeat_code(bench: Bench) -> tuple[str, Result, str]:
    """Expect the same code not to close the gate; noise may leave it undecided."""
    verdict = bench.same.verdict
    if verdict.verdict in ("pass", "improved", "inconclusive"):
        return _answer(verdict, "ok")
    rate = verdict.false_alarm_rate
    promised = f" One in {1 / rate:.0f} may be a false alarm: run it again." if rate else ""
    return _answer(verdict, "differs", headline(verdict) + promised)


def _speed_up_another(bench: Bench) -> tuple[str, Result, str]:
    """Expect the gate to stay open: next to a faster function the shares of the others rise."""
    verdict = bench.faster.verdict
    if verdict.verdict in ("improved", "pass"):
        return _answer(verdict, "ok")
    return _answer(verdict, "undecided" if verdict.verdict == "inconclusive" else "differs")


def _watch_neighbours(bench: Bench) -> tuple[str, Result, str]:
    """Expect that no function whose share rose is reported to cost more."""
    verdict = bench.faster.verdict
    slower = [spot.name for spot in verdict.hotspots if spot.finding == "costs_more"]
    if slower:
        return f"{slower[0]} costs more", "differs", headline(verdict)
    rose = [
        spot.share
        for spot in verdict.hotspots
        if spot.share.shift_pp > 0.0 and spot.share.p_adjusted <= FALSE_ALARM_RATE
    ]
    if not rose:
        return "no share rose for certain", "undecided", headline(verdict)
    most = max(rose, key=lambda share: share.shift_pp)
    return f"{most.name} {most.shift_pp:+.1f} pp, costs no more", "ok", headline(verdict)


def _forge_receipt(bench: Bench) -> tuple[str, Result, str]:
    """Claim a better rate and make the hash fit: the observer's own clock contradicts it."""
    found = bench.slowed if bench.plan.slowed else bench.same
    honest = found.head
    if honest is None or honest.receipt is None:
        raise UndecidedError(
            "E_NOTHING_MEASURED",
            f"Too little was measured to forge its receipt. {found.verdict.reasons[0].message}",
            "Give it more time (--budget sets the seconds).",
        )
    receipt = honest.receipt
    forged = encode_receipt(replace(receipt, tokens_per_second=1.5 * receipt.tokens_per_second))
    evidence = replace(honest.evidence, receipt_sha256=hashlib.sha256(forged).hexdigest())
    verification = verify_receipt(
        forged, evidence=encode_evidence(evidence), profile_folded=honest.files[FOLDED]
    )
    codes = [error.code for error in verification.refusals]
    # If the honest receipt is rejected too, a rejection shows nothing.
    is_honest = honest.verification is not None and honest.verification.ok
    is_expected = is_honest and not verification.ok and _FORGED in codes
    shown = _FORGED if _FORGED in codes else next(iter(codes), "no reason")
    words = f"{'accepted' if verification.ok else 'rejected'}, {shown}"
    detail = " ".join(error.message for error in verification.refusals)
    return words, "ok" if is_expected else "differs", detail


def _answer(verdict: Verdict, result: Result, detail: str | None = None) -> tuple[str, Result, str]:
    """Return a result whose words are the verdict and by how much tokens per second changed."""
    rate = verdict.signal()
    changed = verdict.reasons[0].code
    if rate is not None and rate.change_pct is not None:
        changed = describe_rate_change(rate.change_pct)
    return f"{verdict.verdict}, {changed}", result, detail or headline(verdict)


def _explain_pass(bench: Bench) -> str | None:
    """Explain why the gate was right to let so little extra work pass; None if it was not."""
    injection = bench.plan.slowed
    assert injection is not None
    share = find_share(injection.frame, bench.slowed.base)
    if share is None:
        return f"No profile says which part of the time {injection.frame} takes."
    allowed_pct = bench.plan.workload.thresholds.tokens_per_second_pct
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


_FORGED = "E_TPS_MISMATCH"
_INJECTED: tuple[Need, ...] = ("injection",)
_FASTER: tuple[Need, ...] = ("injection", "other")
CASES = (
    Case("slowed", "{extra} of {frame}", "regressed, exit code 1", _INJECTED, _slow_function),
    Case(
        "named", "{extra} of {frame}", "{frame} is named", (*_INJECTED, "profile"), _name_function
    ),
    Case("same code", "nothing: the same code twice", "not regressed", (), _repeat_code),
    Case("faster", "{another} made faster", "improved or pass", _FASTER, _speed_up_another),
    Case(
        "neighbours",
        "{another} made faster",
        "shares rise, nothing costs more",
        (*_FASTER, "profile"),
        _watch_neighbours,
    ),
    Case(
        "forged receipt",
        "its tokens/s × 1.5, its hash made to fit",
        f"rejected, {_FORGED}",
        ("profile",),
        _forge_receipt,
    ),
)
"""Every case, in the order in which they are tried."""
