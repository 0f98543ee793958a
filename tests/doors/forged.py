"""A receipt whose every time was scaled alike: it agrees with itself, and nothing else shows it."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.receipt.documents import (
    decode_evidence,
    decode_receipt,
    encode_evidence,
    encode_receipt,
)
from pytest_flamegate.receipt.metrics import cost_of, metrics, overhead_pct

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flamegate.receipt.types import Evidence


def scaled(thing: Any, factor: float, *, reference: bool = False) -> Any:
    """Return runs (or parts of them) with every time divided by ``factor``."""
    if isinstance(thing, Interval):
        waited = thing.run_delay_ns
        return Interval(
            round(thing.wall_ns / factor),
            round(thing.cpu_ns / factor),
            None if waited is None else round(waited / factor),
        )
    if isinstance(thing, tuple):
        return tuple(scaled(each, factor, reference=reference) for each in thing)
    if is_dataclass(thing) and not isinstance(thing, type):
        kept = {"reference"} if not reference else set()
        changed = {
            field.name: scaled(value, factor, reference=reference)
            for field in fields(thing)
            if field.name in ("blocks", "interval", "decode", "reference")
            and field.name not in kept
            if (value := getattr(thing, field.name)) is not None
        }
        if hasattr(thing, "sequences_ns"):
            changed["sequences_ns"] = tuple(
                tuple(round(gap / factor) for gap in gaps) for gaps in thing.sequences_ns
            )
        return replace(thing, **changed)
    return thing


def faster(evidence: Evidence, factor: float, *, reference: bool = False) -> Evidence:
    """Return ``evidence`` as if its timed runs had been ``factor`` times as fast."""
    runs = tuple(
        scaled(run, factor, reference=reference) if run.role == "timed" else run
        for run in evidence.runs
    )
    seen = Observation(
        evidence.nonce,
        runs,
        evidence.tokens,
        evidence.token_digest,
        evidence.token_source,
        evidence.differs_at,
        evidence.clock_scope,
        evidence.requested_environment,
        evidence.effective_environment,
    )
    embedded = evidence.workload["engine"] == "embedded"
    prompt_tokens = len(str(evidence.workload["prompt"]).encode()) + 1 if embedded else None
    figures = {each.name: each for each in metrics(seen, prompt_tokens)}
    told = tuple(figures.get(each.name, each) for each in evidence.metrics)
    profile = evidence.profile
    if profile is not None:
        cost = cost_of(profile.covers, told)
        assert cost is not None
        hotspots = tuple(
            replace(spot, cpu_s_per_token=spot.self_share * cost) for spot in profile.hotspots
        )
        overhead = overhead_pct(runs, evidence.clock_scope)
        if profile.overhead_pct is None:
            overhead = None
        profile = replace(profile, hotspots=hotspots, overhead_pct=overhead)
    return replace(evidence, runs=runs, metrics=told, profile=profile)


def other_tokens(evidence: Evidence) -> Evidence:
    """Return ``evidence`` with another last token, and every digest put right."""
    tokens = (*evidence.tokens[:-1], "7")
    digest = token_digest(tokens)
    runs = tuple(replace(run, token_digest=digest) for run in evidence.runs)
    return replace(evidence, tokens=tokens, token_digest=digest, runs=runs)


def reseal(directory: Path, evidence: Evidence, **claims: Any) -> Path:
    """Write ``evidence`` and a receipt that claims its rate; return the receipt's path."""
    rate = next(each.value for each in evidence.metrics if each.name == "tokens_per_second")
    path = directory / "receipt.json"
    receipt = replace(decode_receipt(path.read_bytes()), **{"tokens_per_second": rate, **claims})
    data = encode_receipt(receipt)
    path.write_bytes(data)
    sealed = replace(evidence, receipt_sha256=hashlib.sha256(data).hexdigest())
    (directory / "evidence.json").write_bytes(encode_evidence(sealed))
    return path


def evidence_in(directory: Path) -> Evidence:
    return decode_evidence((directory / "evidence.json").read_bytes())
