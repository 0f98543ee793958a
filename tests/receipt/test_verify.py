"""One receipt in, one answer out: sources, policies, grades, and no exception ever."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

import pytest_flamegate
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.receipt import Grade, Verification, verify, verify_receipt
from tests.made import bundle
from tests.receipt.documents import VALID, encoded

NOW = datetime(2025, 10, 13, 13, 0, tzinfo=UTC)


def codes(answer: Verification) -> list[str]:
    return [refusal.code for refusal in answer.refusals]


def env(**variables: str) -> dict[str, Any]:
    return {"environment": {"OS": "linux-x86_64", **variables}}


def test_the_package_hands_it_on() -> None:
    assert pytest_flamegate.verify_receipt is verify_receipt
    assert pytest_flamegate.Verification is Verification


def test_files_that_stand_together_are_read_together(tmp_path: Path) -> None:
    answer = verify_receipt(bundle().write(tmp_path), now=NOW)
    assert answer.ok
    assert answer.grade is Grade.OBSERVED
    assert answer.policy == "embedded"
    assert "observed by flamegate" in answer.ceiling


def test_a_receipt_alone_is_consistent_at_best(tmp_path: Path) -> None:
    path = bundle().write(tmp_path)
    (tmp_path / "evidence.json").unlink()
    (tmp_path / "profile.folded").unlink()
    answer = verify_receipt(path, now=NOW)
    assert answer.ok
    assert answer.grade is Grade.CONSISTENT
    assert "unverified claims of its author" in answer.ceiling


def test_evidence_may_stand_elsewhere(tmp_path: Path) -> None:
    triple = bundle()
    evidence = triple.write(tmp_path).with_name("evidence.json")
    receipt = triple.files["receipt.json"]
    assert verify_receipt(receipt, evidence=evidence, now=NOW).grade is Grade.OBSERVED
    folded = triple.files["profile.folded"]
    (tmp_path / "profile.folded").unlink()
    answer = verify_receipt(receipt, evidence=evidence, profile_folded=folded, now=NOW)
    assert answer.grade is Grade.OBSERVED


@pytest.mark.parametrize(
    ("wanted", "ok"),
    [
        (Grade.SELF_REPORTED, True),
        (Grade.CONSISTENT, True),
        (Grade.OBSERVED, False),
        (Grade.REPLAYED, False),
        (Grade.ATTESTED, False),
    ],
)
def test_the_grade_asked_for(wanted: Grade, ok: bool) -> None:
    answer = verify_receipt(encoded(), require_grade=wanted)
    assert answer.ok is ok
    assert codes(answer) == ([] if ok else ["E_GRADE"])
    assert answer.grade is Grade.CONSISTENT
    if wanted is Grade.OBSERVED:
        assert "observed by flamegate" in answer.ceiling


@pytest.mark.parametrize("name", ["observed", "OBSERVED", " Observed "])
def test_grade_by_name(name: str) -> None:
    assert Grade.parse(name) is Grade.OBSERVED
    assert Grade.parse("self-reported") is Grade.SELF_REPORTED


def test_unknown_grade() -> None:
    with pytest.raises(UsageError, match="E_UNKNOWN_GRADE"):
        Grade.parse("SIGNED")


@pytest.mark.parametrize(
    ("changes", "policy", "used", "refused"),
    [
        ({}, None, "bitnet", []),
        ({}, "bitnet", "bitnet", []),
        ({}, "generic", "generic", []),
        ({}, "magic", "bitnet", ["E_UNKNOWN_POLICY"]),
        (env(FLAMEGATE_ENGINE="command"), None, "generic", []),
        (
            {**env(FLAMEGATE_ENGINE="llama-cpp"), "kernels": ["rope"]},
            None,
            "ggml",
            ["E_NO_COMPUTE_KERNEL"],
        ),
        (env(FLAMEGATE_ENGINE="llama-cpp"), "bitnet", "bitnet", []),
        (env(FLAMEGATE_ENGINE="magic"), None, "bitnet", ["E_UNKNOWN_ENGINE"]),
        (env(FLAMEGATE_ENGINE="magic"), "generic", "generic", []),
        (env(FLAMEGATE_ENGINE=""), None, "bitnet", ["E_ENVIRONMENT"]),
    ],
)
def test_which_policy_is_used(
    changes: dict[str, Any], policy: str | None, used: str, refused: list[str]
) -> None:
    answer = verify_receipt(encoded(**changes), policy=policy)
    assert answer.policy == used
    assert codes(answer) == refused


def test_evidence_names_the_engine_before_the_receipt() -> None:
    triple = bundle(engine="python")
    environment = {
        name: value
        for name, value in triple.receipt.environment.items()
        if name != "FLAMEGATE_ENGINE"
    }
    files = triple.with_receipt(environment=environment).files
    answer = verify_receipt(
        files["receipt.json"],
        evidence=files["evidence.json"],
        profile_folded=files["profile.folded"],
        now=NOW,
    )
    assert answer.policy == "generic"
    assert answer.grade is Grade.OBSERVED


@pytest.mark.parametrize(
    "given", [None, 7, 1.5, [], {}, object(), "no such file", b"", "nul\0byte", "", Path()]
)
@pytest.mark.parametrize("where", ["data", "evidence", "profile_folded"])
def test_bad_input_is_refused_and_never_raises(given: Any, where: str) -> None:
    arguments: dict[str, Any] = {"data": encoded(), where: given}
    answer = verify_receipt(**arguments, now=NOW)
    assert "E_INTERNAL" not in codes(answer)
    # Nothing given is nothing missing; a profile without evidence is not looked at.
    harmless = where == "profile_folded" or (where == "evidence" and given is None)
    assert answer.ok is harmless


def test_every_kind_of_bytes() -> None:
    for kind in (bytes, bytearray, memoryview):
        assert verify_receipt(cast("bytes", kind(encoded()))).ok


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        (b"", "E_JSON_SYNTAX"),
        (b"[]", "E_EVIDENCE_SCHEMA"),
        (b"{}", "E_EVIDENCE_SCHEMA"),
        (b'{"a":1,"a":1}', "E_JSON_DUPLICATE_KEY"),
    ],
)
def test_malformed_evidence_is_refused_not_ignored(evidence: bytes, code: str) -> None:
    answer = verify_receipt(encoded(), evidence=evidence)
    assert set(codes(answer)) == {code}
    assert answer.grade is Grade.CONSISTENT


def test_a_verifier_that_fails_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(verify, "read_sources", fail)
    answer = verify_receipt(VALID[0])
    assert codes(answer) == ["E_INTERNAL"]
    assert not answer.ok
    assert answer.grade is Grade.SELF_REPORTED
