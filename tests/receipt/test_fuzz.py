"""Whatever bytes come in, an answer comes out; and the rules' own crash is never that answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_flamegate.receipt import verify, verify_receipt
from tests.made import bundle
from tests.receipt.documents import INVALID, VALID, document
from tests.receipt.fuzz import answered, fuzz

SEEDS = [path.read_bytes() for path in (*VALID, *INVALID)]
EVIDENCE = bundle(timed=1, profiled=1, blocks=1, sequences=1).files
SMALL = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(10**30), max_value=10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["cpu", "cuda", "real", "1.1.0", "i2s_gemv", "$(date)", "0"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(
                st.text(max_size=6),
                st.sampled_from(
                    [
                        "total_time_ms",
                        "first_token_latency_ms",
                        "average_token_latency_ms",
                        "tokens_generated",
                        "tokens_per_second",
                        "prefill_ms",
                        "failed",
                        "passed",
                        "status",
                        "OS",
                        "path",
                        "FLAMEGATE_ENGINE",
                        "BITNET_SEED",
                    ]
                ),
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=12,
)
FIELDS = [
    *document(),
    "performance_baseline",
    "test_results",
    "corrections",
    "kernel_path",
    "quantization",
    "parity",
    "error",
]


@SMALL
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    answer = verify_receipt(data)
    answered(answer)
    assert not answer.ok


@SMALL
@given(st.sampled_from(SEEDS), st.data())
def test_cut_and_patched_bytes(seed: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(seed)))
    end = data.draw(st.integers(start, min(len(seed), start + 40)))
    answered(verify_receipt(seed[:start] + data.draw(st.binary(max_size=12)) + seed[end:]))


@SMALL
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=4))
def test_any_values_in_the_fields_that_rules_read(changes: dict[str, Any]) -> None:
    data = json.dumps(document(**changes)).encode("utf-8", "replace")
    answered(verify_receipt(data))
    answered(verify_receipt(data, policy="generic", require_gpu_kernels=True, max_age_s=1.0))


@SMALL
@given(st.data())
def test_any_value_anywhere_in_the_evidence(data: st.DataObject) -> None:
    evidence: Any = json.loads(EVIDENCE["evidence.json"])
    part = evidence
    while True:
        keys = list(part) if isinstance(part, dict) else list(range(min(len(part), 3)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        inner = part[key]
        if not isinstance(inner, (dict, list)) or data.draw(st.integers(0, 3)) == 0:
            break
        part = inner
    part[key] = data.draw(VALUES)
    answered(
        verify_receipt(
            EVIDENCE["receipt.json"],
            evidence=json.dumps(evidence).encode("utf-8", "replace"),
            profile_folded=EVIDENCE["profile.folded"],
        )
    )


@SMALL
@given(st.data())
def test_any_bytes_in_the_profile(data: st.DataObject) -> None:
    folded = EVIDENCE["profile.folded"]
    start = data.draw(st.integers(0, len(folded)))
    end = data.draw(st.integers(start, len(folded)))
    changed = folded[:start] + data.draw(st.binary(max_size=30)) + folded[end:]
    answer = verify_receipt(
        EVIDENCE["receipt.json"], evidence=EVIDENCE["evidence.json"], profile_folded=changed
    )
    answered(answer)
    assert (changed == folded) or not answer.ok


def test_a_slice_of_the_long_run() -> None:
    tally = fuzz(2_500, seed=20, evidence_share=0.2)
    assert tally.broken == []
    assert tally.tracebacks == 0
    assert tally.accepted > 30
    assert tally.refused > 500
    assert len(tally.codes) > 40


def test_a_verifier_that_fails_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_crosscheck", None)
    tally = fuzz(500, seed=20, evidence_share=0.5)
    assert tally.tracebacks > 10
    assert tally.tracebacks + tally.accepted + tally.refused == tally.inputs
