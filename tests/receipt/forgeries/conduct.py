"""Receipts that state their own failure, and hope that only figures are read."""

from random import Random
from typing import Any

from tests.receipt.forgeries.book import SERVED, Book
from tests.receipt.forgeries.draft import Draft

BOOK = Book("conduct")


@BOOK.refused("E_RUN_FAILED")
def failed_run(draft: Draft, source: Random) -> None:
    """Hands in a run that failed, with figures in it."""
    statements: list[dict[str, Any]] = [
        {"success": False},
        {"error": "out of memory"},
        {"exit_code": source.choice([-9, 1, 137])},
        {"returncode": source.randint(1, 255)},
        {"status": source.choice(["failed", "Error", " TIMEOUT "])},
    ]
    draft.receipt |= source.choice(statements)


@BOOK.refused("E_RUN_FAILED")
def failed_tests(draft: Draft, source: Random) -> None:
    """Hands in figures of a model that fails its own tests."""
    statements: list[dict[str, Any]] = [
        {"test_results": {"total_tests": 5, "passed": 4, "failed": 1}},
        {"test_results": [{"name": "parity", "outcome": "failed"}]},
        {"test_results": {"accuracy": {"i2s": {"mse": 2e-3, "tolerance": 1e-3}}}},
        {"cross_validation": {"parity_tests_passed": False}},
        {"parity": {"status": "Divergence"}},
    ]
    draft.receipt |= source.choice(statements)


@BOOK.refused("E_RUN_FAILED")
def tests_that_vanished(draft: Draft, source: Random) -> None:
    """Takes the failed tests out of the list and leaves their total."""
    total = source.randint(2, 500)
    passed = source.randrange(total)
    draft.receipt["test_results"] = {"total_tests": total, "passed": passed}


@BOOK.refused("E_CORRECTED")
def corrected(draft: Draft, source: Random) -> None:
    """Corrects the output of the model, and measures the rest."""
    if source.random() < 0.5:
        draft.receipt["corrections"] = [{"layer": source.randrange(32), "factor": 1.5}]
    else:
        draft.receipt["model_info"] = {"effective_correction_digest": f"{source.getrandbits(64):x}"}


@BOOK.refused("E_NOT_DETERMINISTIC", of=SERVED)
def determinism_turned_off(draft: Draft, source: Random) -> None:
    """Claims determinism with its switch off, in receipt and process alike."""
    odd = {"BITNET_DETERMINISTIC": ["0", "false", " Off "], "BITNET_SEED": ["random", "time()"]}
    name = source.choice(sorted(odd))
    setting = {name: source.choice(odd[name])}
    draft.receipt["environment"] |= setting
    draft.evidence["effective_environment"] |= setting
    draft.evidence["requested_environment"] |= setting


@BOOK.refused("E_NOT_DETERMINISTIC")
def determinism_test_failed(draft: Draft, source: Random) -> None:
    """Claims determinism beside a test of it that failed."""
    draft.receipt["test_results"] = {"determinism_tests": {"identical_sequences": False}}


@BOOK.refused("E_HIDDEN_CHARACTER")
def terminal_steered(draft: Draft, source: Random) -> None:
    """Puts characters into names that clear the screen or turn the line round in a log."""
    steering = source.choice("\x1b\u202e\r\n\x07\u2066\x9b\ufeff")
    text = f"a{steering}b{source.randrange(1000)}"
    if source.random() < 0.5:
        draft.receipt["environment"][source.choice(["CPU", text])] = text
    else:
        for model in (draft.receipt["model"], draft.evidence["model"]):
            model["path"] = text
