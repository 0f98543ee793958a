"""Rules over what a receipt says about its own run: tests, corrections, seeds, age."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.characters import steering_in_text
from pytest_flamegate.receipt.claim import number, objects, table
from pytest_flamegate.receipt.findings import shown
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.registry import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flamegate.receipt.claim import Claim

CLOCK_DIFFERENCE_S = 24 * 3600
"""How far ahead a timestamp may lie: two machines' clocks and a wrong time zone."""
CLOCK_DIFFERENCE_UNDER_MAX_AGE_S = 300
"""The same where an age is asked for, since a timestamp ahead would stretch it."""

RULES: Rulebook[Claim] = Rulebook()

_OFF = frozenset({"0", "false", "no", "off", "disabled"})
_FAILED = frozenset({"fail", "failed", "failure", "error", "errored", "divergence", "timeout"})


@RULES.rule(
    "E_RUN_FAILED",
    "The receipt does not say that its own run failed.",
    todo="Run again; a failed run has no performance to claim.",
    protects=Grade.CONSISTENT,
)
def _run_failed(claim: Claim) -> Iterator[str]:
    # Fields that some producers add beside the schema.
    document = claim.document
    if document.get("success") is False:
        yield "success is false."
    if document.get("error") not in (None, "", False):
        yield f"error is {shown(document['error'])}."
    for name in ("exit_code", "returncode"):
        if number(document, name):
            yield f"{name} is {shown(document[name])}."
    if _is_failed(document.get("status")):
        yield f"status is {shown(document['status'])}."


@RULES.rule(
    "E_TESTS_FAILED",
    "No test within the receipt failed.",
    todo="Repair what the tests show, then measure.",
    protects=Grade.CONSISTENT,
)
def _tests_failed(claim: Claim) -> Iterator[str]:
    # Performance of a model that computes the wrong thing is no performance.
    for name in ("test_results", "cross_validation", "parity"):
        for path, fields in objects(claim.document.get(name), name):
            yield from _failures(path, fields)


def _failures(path: str, fields: Mapping[str, object]) -> Iterator[str]:
    for name in ("failed", "errors", "failures"):
        if (number(fields, name) or 0) > 0:
            yield f"{path}.{name} is {number(fields, name):g}."
    for name in ("passed", "prefill_decode_parity", "parity_tests_passed", "success"):
        if fields.get(name) is False:
            yield f"{path}.{name} is false."
    for name in ("status", "outcome", "result"):
        if _is_failed(fields.get(name)):
            yield f"{path}.{name} is {shown(fields[name])}."
    error, tolerance = number(fields, "mse"), number(fields, "tolerance")
    if error is not None and tolerance is not None and error > tolerance:
        yield f"{path}.mse is {error:g}, above its tolerance of {tolerance:g}."
    total, passed = number(fields, "total_tests", "total"), number(fields, "passed")
    if total is not None and passed is not None:
        skipped = number(fields, "skipped", "ignored") or 0
        failed = number(fields, "failed") or 0
        if passed + skipped + failed != total:
            yield (
                f"{path} counts {total:g} tests, of which {passed:g} passed, {failed:g} failed "
                f"and {skipped:g} were skipped."
            )


def _is_failed(status: object) -> bool:
    return isinstance(status, str) and status.strip().lower() in _FAILED


@RULES.rule(
    "E_CORRECTED",
    "The figures are as measured: no corrections were applied.",
    todo="Repair the model or the engine instead of correcting what comes out of it.",
    protects=Grade.CONSISTENT,
)
def _corrected(claim: Claim) -> Iterator[str]:
    # A corrected model is another model than the one that is named.
    if claim.document.get("corrections"):
        yield f"corrections is {shown(claim.document['corrections'])}."
    for name in ("model", "model_info"):
        digest = table(claim.document, name).get("effective_correction_digest")
        if digest:
            yield f"{name}.effective_correction_digest is {shown(digest)}."


@RULES.rule(
    "E_NOT_DETERMINISTIC",
    "A receipt that claims determinism does not contradict itself about it.",
    todo="Set the determinism switches before the run, or say deterministic: false.",
    protects=Grade.CONSISTENT,
    needs={"deterministic", "environment"},
)
def _not_deterministic(claim: Claim) -> Iterator[str]:
    # The switches it recorded, and the test it ran.
    if not claim.deterministic:
        return
    for name, value in claim.environment.items():
        switch = value.strip().lower()
        variable = f"_{name.upper()}"
        if variable.endswith("_DETERMINISTIC") and switch in _OFF:
            yield f"deterministic is true and {shown(name)} is {shown(value)}."
        if variable.endswith("_SEED") and switch and not _is_integer(switch):
            yield f"deterministic is true and {shown(name)} is {shown(value)}."
    tests = table(table(claim.document, "test_results"), "determinism_tests")
    if tests.get("identical_sequences") is False:
        yield "deterministic is true and its determinism test saw different sequences."


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-").removeprefix("0x")
    return bool(digits) and all(character in "0123456789abcdef" for character in digits)


@RULES.rule(
    "E_STEERING_CHARACTER",
    "Neither environment nor model holds control or bidirectional characters.",
    todo="Look at the bytes: such a text shows something else than it says.",
    protects=Grade.CONSISTENT,
    needs={"environment", "model"},
)
def _steering_character(claim: Claim) -> Iterator[str]:
    # They end up in terminals, logs and reports.
    for name, fields in (("environment", claim.environment), ("model", claim.model)):
        for key, value in fields.items():
            for text in (key, value):
                steering = steering_in_text(text) if isinstance(text, str) else None
                if steering is not None:
                    yield f"{name}.{key[:40]!a} holds {steering}."


@RULES.rule(
    "E_FROM_THE_FUTURE",
    "The timestamp does not lie ahead of the clock.",
    todo="Check the clocks of both machines.",
    protects=Grade.CONSISTENT,
    needs={"timestamp"},
)
def _from_the_future(claim: Claim) -> Iterator[str]:
    # A run that has not happened yet.
    allowed_s = CLOCK_DIFFERENCE_S
    if claim.max_age_s is not None:
        allowed_s = CLOCK_DIFFERENCE_UNDER_MAX_AGE_S
    if -claim.age_s > allowed_s:
        yield f"timestamp {shown(claim.document['timestamp'])} lies ahead of {claim.now:%Y-%m-%d}."


@RULES.rule(
    "E_EXPIRED",
    "The receipt is no older than its reader allows.",
    todo="Measure again.",
    protects=None,
    needs={"timestamp"},
)
def _expired(claim: Claim) -> Iterator[str]:
    # Against replays of an old receipt.
    if claim.max_age_s is not None and not claim.age_s <= claim.max_age_s:
        yield (
            f"The receipt is {claim.age_s / 3600:,.1f} hours old, more than the "
            f"{claim.max_age_s / 3600:,.1f} allowed."
        )
