"""What is kept of a run when the disk fails in the middle of it, and what the session says."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.progress import NoProgress
from pytest_flamegate.gate import machine_id
from pytest_flamegate.receipt import artifacts as artifact_files
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.artifacts import OLD_RECORD, RECORD, ArtifactStore
from pytest_flamegate.receipt.documents import encode_evidence
from pytest_flamegate.report.terminal import summary
from pytest_flamegate.run.instruments import Instruments
from pytest_flamegate.run.outcome import Outcome
from pytest_flamegate.run.present import show
from pytest_flamegate.run.publish import Keeper
from pytest_flamegate.run.session import Session
from tests.made import bundle
from tests.report import verdicts

OLD = {"evidence.json": b"old"}
NEW = {"evidence.json": b"new", "verdict.json": b"new"}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def accepted(keeper: Keeper) -> dict[str, bytes]:
    """The baseline's files, but for its record."""
    found = contents(keeper.artifacts.baseline_directory("machine", "toy"))
    assert RECORD in found
    return {name: data for name, data in found.items() if name != RECORD}


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    """One with an earlier run and an accepted baseline."""
    artifacts = ArtifactStore(tmp_path / ".flamegate")
    artifacts.publish_run("toy", OLD)
    artifacts.accept_baseline("machine", "toy", OLD)
    return Keeper(artifacts, "machine")


def keep(keeper: Keeper) -> Any:
    return keeper.keep("toy", NEW, verdicts.no_baseline(), bundle().evidence, accept=True)


def full(*_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_run_is_published_accepted_and_recorded(keeper: Keeper) -> None:
    kept = keep(keeper)
    assert kept.error is None
    assert contents(kept.directory) == NEW
    assert kept.accepted is not None
    assert b'"processes"' in (kept.accepted / RECORD).read_bytes()
    assert accepted(keeper) == NEW
    (line,) = (keeper.artifacts.root / "history" / "runs.jsonl").read_text().splitlines()
    assert json.loads(line)["accepted"] is True


def test_a_spoilt_baseline_is_set_aside_and_named(keeper: Keeper) -> None:
    """What the fixture accepted is no evidence."""
    kept = keep(keeper)
    (aside,) = kept.accepted.parent.glob(".toy.corrupt-*")
    (warning,) = kept.warnings
    assert str(aside) in warning
    assert contents(aside).items() >= OLD.items()
    # Neither another run nor a sweep takes it away, and no list shows it.
    keep(keeper)
    keeper.artifacts.sweep()
    assert contents(aside).items() >= OLD.items()
    assert [path for _, _, path in keeper.artifacts.list_baselines()] == [kept.accepted]
    assert keeper.artifacts.machines_with("toy") == ("machine",)


def test_a_good_baseline_is_replaced_and_leaves_nothing(tmp_path: Path) -> None:
    keeper, triple = Keeper(ArtifactStore(tmp_path), "machine"), bundle()
    for _ in range(2):
        assert keeper.accept("toy", triple.files, triple.evidence).warnings == ()
    assert [
        path.name for path in keeper.artifacts.baseline_directory("machine", "toy").parent.iterdir()
    ] == ["toy"]


@pytest.mark.parametrize("fault", ["edited", "torn", "gone", "record", "stranger", "a file"])
def test_a_baseline_that_is_not_what_was_accepted_is_refused_and_named(
    tmp_path: Path, fault: str
) -> None:
    keeper, triple = Keeper(ArtifactStore(tmp_path), "machine"), bundle()
    directory = keeper.accept("toy", triple.files, triple.evidence).path
    path = directory / "profile.folded"
    if fault == "edited":
        path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    elif fault == "torn":
        os.truncate(path, 10)
    elif fault == "gone":
        path.unlink()
    elif fault == "stranger":
        path = directory / "decode.json"
        path.write_text("{}")
    elif fault == "record":
        path = directory / RECORD
        path.write_text(path.read_text().replace('"machine"', '"engine"', 1))
    else:
        path = directory
        shutil.rmtree(directory)
        directory.write_text("{}")
    with pytest.raises(ReceiptError, match="E_BASELINE_CORRUPT") as raised:
        keeper.baseline("toy")
    assert str(path) in raised.value.problem
    placed = keeper.accept("toy", triple.files, triple.evidence)
    assert placed.set_aside is not None
    assert os.path.lexists(placed.set_aside)
    assert keeper.baseline("toy") is not None


@pytest.mark.parametrize("old", [True, False])
def test_a_baseline_from_before_there_were_digests_stays_readable(
    tmp_path: Path, old: bool
) -> None:
    keeper, triple = Keeper(ArtifactStore(tmp_path), "machine"), bundle()
    directory = keeper.accept("toy", triple.files, triple.evidence).path
    new = keeper.baseline("toy")
    record = json.loads((directory / RECORD).read_text())
    (directory / RECORD).unlink()
    if old:
        (directory / OLD_RECORD).write_text(json.dumps({"batches": record["batches"]}))
    found = keeper.baseline("toy")
    assert found is not None
    assert new is not None
    assert found == replace(new, batches=new.batches if old else ())


def test_a_reader_never_sees_half_of_two_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted anew by another job, after the record was read and before the files are."""
    keeper, triple = Keeper(ArtifactStore(tmp_path), "machine"), bundle()
    keeper.accept("toy", triple.files, triple.evidence)
    real, other = artifact_files._check, {**triple.files, "flamegraph.md": b"of another run"}
    met: list[str] = []

    def check(*arguments: Any) -> None:
        if not met:
            keeper.artifacts.accept_baseline("machine", "toy", other)
        try:
            real(*arguments)
        except ReceiptError as error:
            met.append(error.problem)
            raise

    monkeypatch.setattr(artifact_files, "_check", check)
    found = keeper.baseline("toy")
    assert found is not None
    assert (found.batches, len(met)) == ((), 1)


def test_a_history_that_cannot_be_written_is_a_warning(keeper: Keeper) -> None:
    (keeper.artifacts.root / "history").touch()
    kept = keep(keeper)
    assert kept.error is None
    assert contents(kept.directory) == NEW
    assert kept.accepted is not None
    assert b'"processes"' in (kept.accepted / RECORD).read_bytes()
    assert accepted(keeper) == NEW
    assert any("E_CANNOT_WRITE" in warning for warning in kept.warnings)


def test_a_run_that_cannot_be_accepted_stays_published_and_is_no_baseline(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ArtifactStore, "accept_baseline", full)
    kept = keep(keeper)
    assert kept.accepted is None
    assert kept.error.code == "E_SYSTEM"
    assert contents(kept.directory) == NEW
    assert accepted(keeper) == OLD
    (line,) = (keeper.artifacts.root / "history" / "runs.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["verdict"], told["accepted"]) == ("error", False)


def test_a_full_disk_costs_no_earlier_result(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "write_synced", full)
    with pytest.raises(Exception, match=r"E_CANNOT_WRITE.*No space left"):
        keep(keeper)
    monkeypatch.undo()
    assert contents(keeper.artifacts.latest_directory("toy")) == OLD
    assert accepted(keeper) == OLD


@pytest.mark.parametrize(
    ("profiled", "receipt", "refused"),
    [(False, False, False), (False, True, True), (True, False, True)],
)
def test_only_what_was_not_profiled_needs_no_receipt(
    tmp_path: Path, profiled: bool, receipt: bool, refused: bool
) -> None:
    keeper = Keeper(ArtifactStore(tmp_path), "machine")
    sealed = bundle().sealed()
    evidence = replace(sealed.evidence, receipt_sha256="")
    if not profiled:
        evidence = replace(evidence, profile=None, kernels=())
    files = {"evidence.json": encode_evidence(evidence)}
    if receipt:
        files["receipt.json"] = sealed.files["receipt.json"]
    keeper.artifacts.accept_baseline("machine", "toy", files)
    if refused:
        with pytest.raises(ReceiptError, match="E_BASELINE_CORRUPT"):
            keeper.baseline("toy")
    else:
        assert keeper.baseline("toy") is not None


# The session


def session(root: Path, **changes: Any) -> Session:
    return Session(Settings(root, root / ".flamegate", **changes), NoProgress())


def toy(root: Path) -> Workload:
    return Workload("toy", "python", "x", 1, "flamegate.toml", directory=root)


def failing(error: BaseException) -> Callable[..., Outcome]:
    def fail(*_: object) -> Outcome:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left", "/tmp/x"), ("No space left: '/tmp/x'", "Free")),
        (BlockingIOError(errno.EAGAIN, "Try again"), ("Try again", "end some")),
        (FileNotFoundError(2, "No usable temporary directory"), ("No usable temporary",)),
        (MemoryError(), ("not enough memory",)),
        (RecursionError(), ("nested too deeply",)),
    ],
)
def test_what_the_system_refuses_is_an_error_with_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(Session, "_gate", failing(error))
    outcome = session(tmp_path).gate(toy(tmp_path))
    assert (outcome.exit_code, outcome.verdict.verdict) == (5, "error")
    (reason,) = outcome.verdict.reasons
    assert reason.code == "E_SYSTEM"
    for word in words:
        assert word in reason.message
    assert (outcome.directory / "verdict.json").is_file()


def test_an_interrupt_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "_gate", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        session(tmp_path).gate(toy(tmp_path))


@pytest.mark.parametrize("update", [False, True])
def test_a_place_that_cannot_be_written_is_found_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool
) -> None:
    monkeypatch.setattr(Session, "_gate", failing(AssertionError("it ran")))
    mine = session(tmp_path, update=update)
    mine.artifacts.publish_run("toy", OLD)
    blocked = mine.artifacts.root / "baselines" if update else None
    if blocked is not None:
        blocked.touch()
    else:
        monkeypatch.setattr(store, "write_synced", full)
    outcome = mine.gate(toy(tmp_path))
    assert [reason.code for reason in outcome.verdict.reasons] == ["E_CANNOT_WRITE"]
    assert outcome.exit_code == 5
    assert contents(outcome.directory) == OLD


def test_the_probe_leaves_nothing(tmp_path: Path) -> None:
    ArtifactStore(tmp_path / "not" / "yet").require_writable("machine")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_not_accepted_is_shown_as_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement stands where it is; the verdict on the test is that accepting failed."""
    triple = bundle().sealed()

    def gated(mine: Session, workload: Workload, _: object) -> Outcome:
        from pytest_flamegate.run.seal import Sealed

        sealed = Sealed(triple.receipt, triple.evidence, None, triple.files, None)
        return mine._publish(workload, sealed, verdicts.no_baseline(), None)

    monkeypatch.setattr(Session, "_gate", gated)
    mine = session(tmp_path, update=True)
    (mine.artifacts.root / "history").parent.mkdir()
    (mine.artifacts.root / "history").touch()
    kept = mine.gate(toy(tmp_path))
    assert (kept.fails, kept.accepted) == (
        False,
        mine.artifacts.baseline_directory(machine_id(mine.machine), "toy"),
    )
    row = show(kept, "flamegate.toml::toy", mine.settings).row
    assert any("The history does not have this run" in line for line in summary([row]))
    monkeypatch.setattr(ArtifactStore, "accept_baseline", full)
    refused = mine.gate(toy(tmp_path))
    assert (refused.fails, refused.accepted, refused.exit_code) == (True, None, 5)
    assert contents(refused.directory).keys() >= triple.files.keys()


def test_the_line_before_the_runs_survives_a_system_that_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(Instruments, "profiler", refuse)
    line = session(tmp_path).preamble([toy(tmp_path)])
    assert "E_SYSTEM: The system refused: Resource temporarily unavailable." in line
