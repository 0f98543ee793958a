"""The store of runs and baselines, and which measurements a baseline rests on."""

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.git import Commit
from pytest_flamegate.receipt import baseline as baseline_files
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.baseline import RECORD
from pytest_flamegate.receipt.documents import encode_evidence
from pytest_flamegate.receipt.types import Batch
from pytest_flamegate.run.pictures import Pictures
from pytest_flamegate.run.publish import (
    MAX_BATCHES,
    RunStore,
    batch_of,
    joined_batches,
    publish,
)
from tests.gate.factory import QUIET, baseline, evidence
from tests.made import bundle
from tests.report import verdicts
from tests.run import fakes

CLEAN = Commit("a" * 40, "main", 0, "c" * 64)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(ArtifactStore(tmp_path), "machine")


def test_a_good_baseline_is_replaced_and_has_no_file_of_the_other_side(store: RunStore) -> None:
    made = bundle()
    files = {**made.files, "diff.svg": b"x", "base-profile.folded": b"y"}
    for _ in range(2):
        placed = store.accept("toy", files, made.evidence)
        assert placed.warnings == ()
        assert {path.name for path in placed.path.iterdir()} == {*made.files, RECORD}
        assert [path.name for path in placed.path.parent.iterdir()] == ["toy"]


@pytest.mark.parametrize("fault", ["torn", "gone", "no record", "record", "stranger", "a file"])
def test_a_baseline_that_is_not_what_was_accepted_is_an_error_that_names_the_file(
    store: RunStore, fault: str
) -> None:
    made = bundle()
    directory = store.accept("toy", made.files, made.evidence).path
    path = directory / ("profile.folded" if fault in ("torn", "gone") else RECORD)
    if fault == "torn":
        os.truncate(path, 10)
    elif fault in ("gone", "no record"):
        path.unlink()
    elif fault == "stranger":
        path = directory / "instructions.svg"
        path.write_text("{}")
    elif fault == "record":
        path.write_text(path.read_text().replace('"machine"', '"engine"', 1))
    else:
        path = directory
        shutil.rmtree(directory)
        directory.write_text("{}")
    with pytest.raises(ReceiptError, match="E_BASELINE_CORRUPT") as raised:
        store.baseline("toy")
    assert str(path) in raised.value.problem
    # Accepting sets it aside: nothing removes it, and no list shows it.
    placed = store.accept("toy", made.files, made.evidence)
    assert placed.set_aside is not None
    store.artifacts.sweep()
    assert os.path.lexists(placed.set_aside)
    assert store.baseline("toy") is not None
    assert [entry[:2] for entry in store.artifacts.list_baselines()] == [("machine", "toy")]


def test_a_reader_never_sees_half_of_two_baselines(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job accepts anew after the record was read and before the files are."""
    made = bundle()
    store.accept("toy", made.files, made.evidence)
    real = baseline_files._read_digested_files
    other = {**made.files, "flamegraph.md": b"of another run"}
    met: list[str] = []

    def check(*arguments: Any) -> Any:
        if not met:
            store.artifacts.accept_baseline("machine", "toy", other)
        try:
            return real(*arguments)
        except ReceiptError as error:
            met.append(error.problem)
            raise

    monkeypatch.setattr(baseline_files, "_read_digested_files", check)
    found = store.baseline("toy")
    assert found is not None
    assert (found.batches, len(met)) == ((), 1)


@pytest.mark.parametrize(
    ("has_profile", "has_receipt", "is_error"),
    [(False, False, False), (False, True, True), (True, False, True)],
)
def test_only_a_run_without_a_profile_needs_no_receipt(
    store: RunStore, has_profile: bool, has_receipt: bool, is_error: bool
) -> None:
    made = bundle()
    recorded = replace(made.evidence, receipt_sha256="")
    if not has_profile:
        recorded = replace(recorded, profile=None, kernels=())
    files = {"evidence.json": encode_evidence(recorded)}
    if has_receipt:
        files["receipt.json"] = made.files["receipt.json"]
    store.artifacts.accept_baseline("machine", "toy", files)
    if is_error:
        with pytest.raises(ReceiptError, match="E_BASELINE_CORRUPT"):
            store.baseline("toy")
    else:
        assert store.baseline("toy") is not None


# Batches


def test_a_batch_is_the_mean_of_its_processes() -> None:
    made = batch_of(baseline())
    logs = [math.log(time * 1e-6) for time in QUIET]
    assert made.processes == len(QUIET)
    assert made.log_time == pytest.approx(sum(logs) / len(logs), abs=1e-4)
    assert made.log_time_ratio == pytest.approx(made.log_time - math.log(5e-3), abs=1e-4)


@pytest.mark.parametrize(
    ("old", "new", "joins"),
    [
        (CLEAN, CLEAN, True),
        (CLEAN, replace(CLEAN, revision="b" * 40), True),  # a commit of baselines in between
        (CLEAN, replace(CLEAN, tree="d" * 64), False),
        (replace(CLEAN, tree=""), replace(CLEAN, tree=""), False),
        (replace(CLEAN, uncommitted=1), CLEAN, False),
        (CLEAN, replace(CLEAN, uncommitted=1), False),
        (None, None, False),
    ],
)
def test_only_the_very_same_code_is_one_more_batch(
    old: Commit | None, new: Commit | None, joins: bool
) -> None:
    before = baseline(commit=old)
    found = joined_batches(before, (batch_of(before),), evidence(commit=new))
    assert [batch.nonce for batch in found] == (["baseline"] * joins + ["current"])
    other_model = evidence(commit=new, model_sha256="b" * 64)
    assert len(joined_batches(before, (batch_of(before),), other_model)) == 1


def test_the_same_run_counts_once_and_the_oldest_batches_leave() -> None:
    before = baseline(commit=CLEAN)
    assert len(joined_batches(before, (batch_of(before),), replace(before))) == 1
    many = tuple(Batch(f"n{index}", "", 5, 0.0, 0.0) for index in range(MAX_BATCHES + 5))
    found = joined_batches(before, many, evidence(commit=CLEAN))
    assert len(found) == MAX_BATCHES
    assert found[-1].nonce == "current"


def test_an_accepted_run_that_is_a_doubtful_baseline_is_accepted_with_a_warning(
    store: RunStore,
) -> None:
    sealed = fakes.sealed_run(bundle(timed=2))
    assert sealed.head.verification is not None
    codes = [each.code for each in sealed.head.verification.unfit]
    outcome = publish(sealed, verdicts.no_baseline(), Pictures(), store, accept=True)
    assert outcome.accepted is not None
    assert codes
    for code in codes:
        assert any(each.startswith(f"A doubtful baseline. {code}: ") for each in outcome.warnings)
