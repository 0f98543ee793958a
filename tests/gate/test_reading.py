from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import encode_json, encode_plain
from pytest_flamegate.gate import Reason, Verdict, headline, verdict_document
from pytest_flamegate.gate.document import StoredVerdict, read_verdict
from tests.report import verdicts

VERDICTS = (
    verdicts.regressed(),
    verdicts.in_pairs(),
    verdicts.no_baseline(),
    verdicts.inconclusive(),
    Verdict.unjudged("error", [Reason("E_NO_SAMPLES", "No sample.")], grade="SELF_REPORTED"),
)


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda verdict: verdict.verdict)
def test_what_is_told_reads_back(verdict: Verdict) -> None:
    told = read_verdict(encode_json(verdict_document(verdict)))
    assert told == StoredVerdict.of(verdict)
    assert told.headline == headline(verdict)
    found = told.verdict
    for name in ("verdict", "reasons", "grade", "pairs", "against", "explained_by", "miss_rate"):
        assert getattr(found, name) == getattr(verdict, name)
    assert found.current_processes == verdict.current_processes
    assert found.signals == tuple(
        replace(each, reasons=(), helped_by=()) for each in verdict.signals
    )
    assert [(cost.name, cost.change_us, cost.explains) for cost in found.attribution] == [
        (cost.name, cost.change_us, cost.explains) for cost in verdict.attribution
    ]


@pytest.mark.parametrize("spoiled", [{}, {"verdict": "fine"}, {"reasons": [{"code": 1}]}])
def test_anything_else_is_refused(spoiled: dict[str, object]) -> None:
    document = (
        {**encode_plain(verdict_document(verdicts.regressed())), **spoiled} if spoiled else {}
    )
    with pytest.raises(ReceiptError, match="E_"):
        read_verdict(json.dumps(document).encode())
