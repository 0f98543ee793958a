"""Answers about receipts and differences, as text and as plain data."""

import json
from dataclasses import replace

import pytest

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.profile.difference import ProfileSide, compare_profiles
from pytest_flamegate.receipt import Grade, Notice, Refusal, Verification
from pytest_flamegate.receipt.rules.replay import RateAgain, Replayed
from pytest_flamegate.report.difference import difference_document, difference_text
from pytest_flamegate.report.terminal import replay_document, replay_line, verification_text
from tests.report import factory
from tests.report.factory import BASE, COMPARED, HEAD, compared, slowed

RATE = RateAgain("inside", 512.0, 498.0, 471.0, 1527.0, 480.0)
CEILING = "a green answer would prove little. Nothing more."


def verification(
    *refusals: Refusal, rate: RateAgain | None = None, warnings: tuple[Notice, ...] = ()
) -> Verification:
    replayed = None if rate is None else Replayed("0" * 64, 8, ("1",), None, rate)
    return Verification(
        not refusals, Grade.CONSISTENT, refusals, warnings, "bitnet", CEILING, replayed=replayed
    )


def test_a_rejected_receipt_gives_its_reasons() -> None:
    found = verification(
        Refusal("E_KERNEL_UNSEEN", 'kernel "i2s\x1b" is claimed and not seen.', "Profile it."),
        Refusal("E_TPS", "512.0 tok/s claimed, 48.1 from the token times."),
        warnings=(Notice("W_DUPLICATE", "A kernel is named twice."),),
    )
    assert verification_text(found, path="r.json", required="observed") == (
        "r.json: rejected (grade CONSISTENT, wanted OBSERVED)   policy bitnet\n"
        "honest: no\n"
        '  E_KERNEL_UNSEEN   kernel "i2s\\x1b" is claimed and not seen. Profile it.\n'
        "  E_TPS             512.0 tok/s claimed, 48.1 from the token times.\n"
        "  W_DUPLICATE       A kernel is named twice.\n"
        "usable as a baseline: not evaluated (verification failed)\n"
        f"{CEILING}"
    )


def test_honesty_and_use_as_a_baseline_are_separate_answers() -> None:
    unfit = (Notice("F_NO_COMMIT", "2 file(s) differed.", "Commit."),)
    lines = verification_text(replace(verification(), honest=True, unfit=unfit)).splitlines()
    assert "honest: yes, CONSISTENT" in lines
    assert lines[-3:-1] == [
        "usable as a baseline: no",
        "  F_NO_COMMIT   2 file(s) differed. Commit.",
    ]
    usable = verification_text(replace(verification(), honest=True)).splitlines()
    assert usable[0] == "accepted (grade CONSISTENT)   policy bitnet"
    assert usable[-2:] == ["usable as a baseline: yes", CEILING]
    assert "\x1b[1;32m" in verification_text(verification(), colour=True)


def test_a_replay_that_proves_too_little_is_neither_accepted_nor_rejected() -> None:
    undecided = verification(rate=RateAgain("unknown", 512.0, why="Too few processes."))
    assert verification_text(undecided).startswith("not replayed (grade")
    assert verification_text(replace(undecided, obtained_again=True)).startswith("accepted (")
    assert not verification_text(replace(undecided, ok=False)).startswith(("accepted", "not"))


def test_a_replay_as_a_line_and_as_data() -> None:
    assert replay_line(verification(rate=RATE)) == (
        "replayed here: 8 processes, digest equal, 512 tok/s claimed, 498 (471 to 1,527) here"
    )
    differing = verification(Refusal("E_REPLAY_TOKENS", "No."), rate=RateAgain("unknown", 512.0))
    assert replay_line(differing) == "replayed here: 8 processes, digest differs, 512 tok/s claimed"
    varying = Notice("W_REPLAY_NOT_DETERMINISTIC", "No.")
    assert "digest not compared" in str(replay_line(verification(rate=RATE, warnings=(varying,))))
    document = replay_document(verification(rate=RATE)) or {}
    assert (document["processes"], document["tokens"], document["rate"]) == (8, "equal", "inside")
    assert (document["low"], document["high"]) == (471.0, 1527.0)
    assert (replay_line(verification()), replay_document(verification())) == (None, None)


def test_the_reason_why_nothing_ran_comes_first_with_nothing_hidden_in_it() -> None:
    error = UndecidedError("E_REPLAY_UNTRUSTED", 'It would run "\x1b[2J".', "Declare it.")
    lines = verification_text(verification(), error=error).splitlines()
    assert lines[1] == "not replayed:"
    assert lines[2] == '  E_REPLAY_UNTRUSTED   It would run "\\x1b[2J". Declare it.'


# Differences


def test_warnings_come_before_the_table() -> None:
    found = compared(slowed("rms_norm", 3.0), costs=False)
    head = replace(found.head.profile, profiler="perf")
    found = compare_profiles(found.base, replace(found.head, profile=head))
    lines = difference_text(found, colour=True).splitlines()
    assert lines[0].startswith("\x1b[1;33mrms_norm")
    assert lines[1].startswith("  NOT COMPARABLE")
    assert "profiler: py-spy and perf" in lines[1]
    assert lines[2].startswith("  shares only")
    assert "smaller" in lines[-4]


def test_the_document_holds_every_function_and_is_plain_json() -> None:
    document = json.loads(json.dumps(difference_document(compared(slowed("rms_norm", 2.0)))))
    first = document["functions"][0]
    assert (first["name"], first["state"]) == ("rms_norm", "up")
    assert (first["own"]["base"], first["own"]["change"]) == (100e-6, 100e-6)
    assert {each["name"] for each in document["functions"]} == {
        frame.name for stack in COMPARED for frame in stack
    }
    assert (document["base"]["name"], document["head"]["name"]) == (BASE, HEAD)


@pytest.mark.parametrize("count", [1, 2])
def test_exact_counts_have_a_z_only_if_they_are_equal(count: int) -> None:
    base, head = (
        ProfileSide("a", replace(factory.profile({(factory.python("f"),): n}), unit="instructions"))
        for n in (1, count)
    )
    document = difference_document(compare_profiles(base, head))
    assert document["unit"] == "instructions"
    json.dumps(document, allow_nan=False)
