"""The store of runs and baselines, and which measurements a baseline rests on."""

import json
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
from pytest_flamegate.run.pictures import Pictures
from pytest_flamegate.run.publish import (
    RunStore,
    publish,
)
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
        placed = store.accept("toy", files)
        assert placed.warnings == ()
        assert {path.name for path in placed.path.iterdir()} == {*made.files, RECORD}
        assert [path.name for path in placed.path.parent.iterdir()] == ["toy"]


@pytest.mark.parametrize("fault", ["torn", "no record", "record", "stranger", "a file"])
def test_a_baseline_that_is_not_what_was_accepted_is_an_error_that_names_the_file(
    store: RunStore, fault: str
) -> None:
    made = bundle()
    directory = store.accept("toy", made.files).path
    path = directory / ("profile.folded" if fault == "torn" else RECORD)
    if fault == "torn":
        os.truncate(path, 10)
    elif fault == "no record":
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
    placed = store.accept("toy", made.files)
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
    store.accept("toy", made.files)
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
    assert len(met) == 1


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


def test_a_run_that_cannot_be_accepted_leaves_no_good_verdict(store: RunStore) -> None:
    place = store.artifacts.baseline_directory("machine", "4tok")
    place.parent.mkdir(parents=True)
    place.symlink_to("/nowhere")
    outcome = publish(
        fakes.sealed_run(bundle()), verdicts.no_baseline(), Pictures(), store, accept=True
    )
    assert outcome.error is not None
    stored = json.loads((outcome.directory / "verdict.json").read_text())
    assert (stored["verdict"], outcome.verdict.verdict) == ("error", "error")
