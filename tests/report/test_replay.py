"""A replay in one line, and as plain data."""

from __future__ import annotations

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.receipt import Grade, Notice, Refusal, Verification
from pytest_flamegate.receipt.rules.replay import RateAgain, Replayed
from pytest_flamegate.report import verification_text
from pytest_flamegate.report.terminal import replay_document, replay_line

RATE = RateAgain("inside", 512.0, 498.0, 471.0, 1527.0, 480.0)


def verification(
    rate: RateAgain | None, refusals: tuple[Refusal, ...] = (), warnings: tuple[Notice, ...] = ()
) -> Verification:
    replayed = None if rate is None else Replayed("0" * 64, 8, ("1",), None, rate)
    ok = not refusals
    return Verification(
        ok, Grade.OBSERVED, refusals, warnings, "bitnet", "little.", replayed=replayed
    )


def test_the_line_says_both_rates_and_the_digest() -> None:
    assert replay_line(verification(RATE)) == (
        "replayed here: 8 processes, digest equal, 512 tok/s claimed, 498 (471 to 1,527) here"
    )
    slow = RateAgain("inside", 0.5126, 0.498, 0.471, 0.527)
    assert "0.513 tok/s claimed, 0.498 (0.471 to 0.527) here" in str(
        replay_line(verification(slow))
    )


def test_what_was_not_compared_is_not_shown() -> None:
    refused = verification(RateAgain("unknown", 512.0), (Refusal("E_REPLAY_TOKENS", "No."),))
    assert replay_line(refused) == "replayed here: 8 processes, digest differs, 512 tok/s claimed"
    open_end = verification(RATE, warnings=(Notice("W_REPLAY_NOT_DETERMINISTIC", "No."),))
    assert "digest not compared" in str(replay_line(open_end))


def test_without_a_replay_there_is_nothing_to_say() -> None:
    assert replay_line(verification(None)) is None
    assert replay_document(verification(None)) is None
    assert "replay" not in verification_text(verification(None))


def test_the_same_as_data() -> None:
    document = replay_document(verification(RATE))
    assert document is not None
    assert (document["processes"], document["tokens"], document["rate"]) == (8, "equal", "inside")
    assert (document["low"], document["high"]) == (471.0, 1527.0)


def test_why_nothing_ran_stands_first_with_nothing_hidden_in_it() -> None:
    error = UndecidedError("E_REPLAY_UNTRUSTED", 'It would run "\x1b[2J".', "Declare it.")
    text = verification_text(verification(None, warnings=(Notice("W_X", "Y."),)), error=error)
    lines = text.splitlines()
    assert lines[1] == "not replayed:"
    assert lines[2] == '  E_REPLAY_UNTRUSTED   It would run "\\x1b[2J". Declare it.'
