"""The pipeline of a gated run, with fake processes: its order, its files, and each kind of end."""

import errno
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Injection
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.core.git import Commit
from pytest_flamegate.gate.costs import CostChange
from pytest_flamegate.gate.edits import Place
from pytest_flamegate.gate.lines import LineChange
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.receipt import artifacts
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.types import VerdictName
from pytest_flamegate.run import prepare, schedule, seal, session, stages
from pytest_flamegate.run.pictures import Pictures, draw
from pytest_flamegate.run.prepare import Workbench
from pytest_flamegate.run.publish import Outcome
from tests.models.gguf_files import GgufFile
from tests.report.verdicts import share
from tests.run import fakes
from tests.run.fakes import Lines, World, toy

FILES = {
    "receipt.json",
    "evidence.json",
    "profile.folded",
    "flamegraph.svg",
    "flamegraph.html",
    "flamegraph.md",
    "verdict.json",
}
CLEAN = Commit("a" * 40, "main", 0, "c" * 64)
OTHER = Commit("b" * 40, "main", 0, "d" * 64)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    monkeypatch.setenv("FLAMEGATE_LOCK_DIR", str(tmp_path))
    monkeypatch.setattr(prepare, "read_commit", lambda directory: CLEAN)
    return fakes.install(monkeypatch)


def gate(root: Path, **changes: Any) -> Outcome:
    return fakes.session(root, **changes).gate(toy(root))


def accept(root: Path) -> Outcome:
    return gate(root, update=True)


def codes(outcome: Outcome) -> list[str]:
    return [reason.code for reason in outcome.verdict.reasons]


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def history(root: Path) -> list[dict[str, Any]]:
    lines = (root / ".flamegate" / "history" / "runs.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_evidence_describes_the_model(tmp_path: Path, world: World) -> None:
    (tmp_path / "m.gguf").write_bytes(GgufFile().packed())
    evidence = fakes.session(tmp_path).gate(toy(tmp_path, model="m.gguf")).evidence
    assert evidence is not None
    facts = dict(evidence.model)
    assert (facts["path"], facts["name"], facts["architecture"]) == ("m.gguf", "tiny", "bitnet")
    assert facts["quantisation"] == "TQ2_0 99.2 %, F32 0.8 %"
    assert facts["size_bytes"] == (tmp_path / "m.gguf").stat().st_size
    assert facts["sha256"] == evidence.model_sha256
    assert "bytes_per_token" not in facts


def test_a_first_run_writes_every_file_and_has_no_baseline(world: World, tmp_path: Path) -> None:
    outcome = gate(tmp_path)
    assert (outcome.verdict.verdict, outcome.verdict.grade) == ("no_baseline", "OBSERVED")
    assert outcome.directory == tmp_path / ".flamegate" / "latest" / "toy"
    assert names(outcome.directory) == FILES
    assert (outcome.error, outcome.fails, outcome.warnings) == (None, False, ())
    assert history(tmp_path)[0]["verdict"] == "no_baseline"
    # Timed processes come first: a profiler never touches them.
    assert world.started == sorted(world.started, reverse=True)


def test_a_mistyped_option_leaves_the_earlier_result(world: World, tmp_path: Path) -> None:
    first = gate(tmp_path)
    world.fail(UsageError("E_UNKNOWN_FRAME", "There is no such function.", "Name another."))
    mistyped = gate(tmp_path, inject=Injection("no", 10.0))
    assert (mistyped.verdict.verdict, mistyped.fails) == ("error", True)
    assert not mistyped.is_written
    assert names(first.directory) == FILES
    assert len(history(tmp_path)) == 1


def test_without_a_profiler_there_is_no_receipt_and_still_a_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLAMEGATE_LOCK_DIR", str(tmp_path))
    fakes.install(monkeypatch, profiled=False)
    outcome = gate(tmp_path, update=True)
    assert outcome.receipt is None
    assert names(outcome.directory) == {"evidence.json", "verdict.json"}
    assert gate(tmp_path).verdict.verdict == "pass"


def test_evidence_is_encoded_and_verified_once_and_the_baseline_read_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(tmp_path)
    world.token_ns = round(1.2 * fakes.TOKEN_NS)
    calls: list[str] = []

    def count(module: Any, name: str) -> None:
        real = getattr(module, name)

        def counted(*given: Any, **more: Any) -> Any:
            calls.append(name)
            return real(*given, **more)

        monkeypatch.setattr(module, name, counted)

    count(seal, "encode_evidence")
    count(seal, "verify_receipt")
    count(artifacts, "read_baseline")
    assert gate(tmp_path).verdict.verdict == "regressed"
    assert sorted(calls) == ["encode_evidence", "read_baseline", "verify_receipt"]


def test_a_dishonest_run_leaves_no_receipt(world: World, tmp_path: Path) -> None:
    """Processes that took the very same times were copied."""
    world.jitter = 0.0
    outcome = gate(tmp_path)
    assert (outcome.verdict.verdict, outcome.exit_code, outcome.fails) == ("dishonest", 3, True)
    assert outcome.receipt is None
    assert "receipt.json" not in names(outcome.directory)


def test_notes_of_the_observer_are_reasons_and_warnings(world: World, tmp_path: Path) -> None:
    world.notes = {"W_TOKENS_MERGED": "Tokens were merged.", "I_ONE_PROCESS": "One process."}
    outcome = gate(tmp_path)
    assert codes(outcome)[-2:] == ["W_TOKENS_MERGED", "I_ONE_PROCESS"]
    assert outcome.warnings == ("W_TOKENS_MERGED: Tokens were merged.",)


# Two sides


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sides of a comparison without git: the base is what the fake world says of it."""
    asked: list[str] = []

    def pair(bench: Workbench, task: stages.Task) -> stages.Prepared:
        asked.append(str(task.rev))
        workload = task.workload
        sides = tuple(
            prepare.prepare_side(workload, bench.machine, fakes.FakeProfiler(), role=role)  # type: ignore[arg-type]
            for role in ("base", "head")
        )
        sides = (replace(sides[0], subject=replace(sides[0].subject, commit=OTHER)), sides[1])
        return stages.Prepared(sides, 50.0, pair_counts=(5, 8, 12))

    monkeypatch.setattr(Workbench, "_prepare_pair", pair)
    return asked


def test_a_suspicion_is_settled_in_pairs_with_the_baselines_commit(
    world: World, tmp_path: Path, checkout: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine got slower since the baseline was accepted; the code did not."""
    accept(tmp_path)
    monkeypatch.setattr(prepare, "read_commit", lambda directory: OTHER)
    world.token_ns = world.base_token_ns = round(1.2 * fakes.TOKEN_NS)
    outcome = gate(tmp_path)
    assert checkout == [CLEAN.revision]
    assert outcome.verdict.verdict == "pass"
    (reason,) = [each for each in outcome.verdict.reasons if each.code == "I_STORED_BASELINE"]
    assert "it is regressed: 16." in reason.message
    assert ".." not in reason.message


@pytest.mark.parametrize(
    ("baseline", "here"),
    [(CLEAN, CLEAN), (replace(CLEAN, uncommitted=1), OTHER), (None, OTHER), (CLEAN, None)],
)
def test_a_suspicion_is_left_if_the_commit_is_the_same_or_not_clean(
    world: World,
    tmp_path: Path,
    checkout: list[str],
    monkeypatch: pytest.MonkeyPatch,
    baseline: Commit | None,
    here: Commit | None,
) -> None:
    monkeypatch.setattr(prepare, "read_commit", lambda directory: baseline)
    accept(tmp_path)
    monkeypatch.setattr(prepare, "read_commit", lambda directory: here)
    world.token_ns = round(1.2 * fakes.TOKEN_NS)
    outcome = gate(tmp_path)
    assert outcome.verdict.verdict == "regressed"
    assert ("I_NOT_COMPARED" in codes(outcome)) == (here == baseline)  # it says why
    assert checkout == []


def test_a_stricter_threshold_on_the_same_run_is_settled_in_pairs_too(
    world: World, tmp_path: Path, checkout: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(tmp_path)
    monkeypatch.setattr(prepare, "read_commit", lambda directory: OTHER)
    world.token_ns = world.base_token_ns = round(1.2 * fakes.TOKEN_NS)
    opened = fakes.session(tmp_path)
    loose = toy(tmp_path, thresholds=Thresholds(30.0))
    assert opened.gate(loose).verdict.verdict == "pass"
    assert checkout == []
    assert opened.gate(toy(tmp_path)).verdict.verdict == "pass"
    assert checkout == [CLEAN.revision]


def test_a_fault_of_the_system_in_the_pairs_leaves_the_verdict_of_the_stored_baseline(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(tmp_path)
    monkeypatch.setattr(prepare, "read_commit", lambda directory: OTHER)
    monkeypatch.setattr(Workbench, "_prepare_pair", full)
    world.token_ns = round(1.2 * fakes.TOKEN_NS)
    outcome = gate(tmp_path)
    assert outcome.verdict.verdict == "regressed"
    assert "I_NOT_COMPARED" in codes(outcome)


@pytest.mark.usefixtures("checkout")
def test_an_open_answer_says_why_the_announced_pairs_were_not_measured(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headline has the reason of the stored baseline alone."""
    accept(tmp_path)
    monkeypatch.setattr(prepare, "read_commit", lambda directory: OTHER)

    def fail(*_: object) -> None:
        raise UsageError("E_SAME_CODE", "The module is an installed copy.", "Install with -e.")

    monkeypatch.setattr(Workbench, "_prepare_pair", fail)
    # Far less than this noise allows to decide.
    strict = toy(tmp_path, thresholds=Thresholds(0.1))
    outcome = fakes.session(tmp_path).gate(strict)
    assert outcome.verdict.verdict == "inconclusive"
    (warning,) = [each for each in outcome.warnings if each.startswith("I_NOT_COMPARED: ")]
    assert warning.endswith("E_SAME_CODE: The module is an installed copy. Install with -e.")


# Ends that are no verdict


def test_an_error_of_the_system_has_a_code(world: World, tmp_path: Path) -> None:
    world.fail(OSError(errno.ENOSPC, "No space left", "/tmp/x"))
    outcome = gate(tmp_path)
    assert (outcome.exit_code, outcome.verdict.verdict, outcome.fails) == (5, "error", True)
    (reason,) = outcome.verdict.reasons
    assert reason.code == "E_SYSTEM"
    assert "No space left: '/tmp/x'. Free" in reason.message
    assert names(outcome.directory) == {"verdict.json"}
    assert outcome.is_written


def full(*_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("update", [False, True])
def test_a_directory_that_cannot_be_written_is_found_before_anything_runs(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool
) -> None:
    earlier = gate(tmp_path)
    world.started.clear()
    if update:
        (tmp_path / ".flamegate" / "baselines").touch()
    else:
        monkeypatch.setattr(tempfile, "TemporaryFile", full)
    outcome = gate(tmp_path, update=update)
    assert codes(outcome) == ["E_CANNOT_WRITE"]
    assert (outcome.exit_code, world.started) == (5, [])
    assert names(earlier.directory) == FILES


@pytest.mark.usefixtures("world")
def test_a_run_that_cannot_be_accepted_is_an_error_and_stays_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ArtifactStore, "accept_baseline", full)
    outcome = accept(tmp_path)
    assert (outcome.fails, outcome.accepted, outcome.exit_code) == (True, None, 5)
    assert names(outcome.directory) == FILES
    (line,) = history(tmp_path)
    assert (line["verdict"], line["accepted"]) == ("error", False)


@pytest.mark.usefixtures("world")
def test_a_history_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / ".flamegate").mkdir()
    (tmp_path / ".flamegate" / "history").touch()
    outcome = accept(tmp_path)
    assert outcome.accepted is not None
    assert "The history does not have this run" in outcome.warnings[-1]


@pytest.mark.usefixtures("world")
def test_a_baseline_that_was_edited_is_an_error_unless_it_is_replaced(tmp_path: Path) -> None:
    accepted = accept(tmp_path).accepted
    assert accepted is not None
    path = accepted / "profile.folded"
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    assert codes(gate(tmp_path)) == ["E_BASELINE_CORRUPT"]
    again = accept(tmp_path)
    assert again.accepted == accepted
    assert any("was corrupt" in warning for warning in again.warnings)
    assert gate(tmp_path).verdict.verdict == "pass"


@pytest.mark.parametrize("fails", [False, True])
def test_the_bar_is_full_only_after_a_result(world: World, tmp_path: Path, fails: bool) -> None:
    if fails:
        world.fail(ToolError("E_PROFILER", "It fails.", "Repair it."), "profiled")
    progress = Lines()
    fakes.session(tmp_path, progress).gate(toy(tmp_path))
    announced = "announce toy: 6 processes × 1.0 s, profile 6 s: about 12 s"
    assert progress.lines == ["begin toy", announced, *["end"] * (not fails), "stop"]


def test_time_for_pairs_is_announced_if_a_baseline_may_leave_a_doubt(
    world: World, tmp_path: Path, checkout: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def announced(**changes: Any) -> list[str]:
        progress = Lines()
        session = fakes.session(tmp_path, progress, **changes)
        session.announce([toy(tmp_path), toy(tmp_path, "other")])
        session.gate(toy(tmp_path))
        return [line for line in progress.lines if line.startswith("announce")]

    assert announced(update=True)[0] == "announce 2 workloads, about 0:30, 15 s each"
    monkeypatch.setattr(prepare, "read_commit", lambda directory: OTHER)
    world.token_ns = round(1.2 * fakes.TOKEN_NS)
    first, _, doubt, *_ = announced()
    assert first.endswith(
        "; up to about 1:20 if a doubtful result is measured again, in pairs with its baseline's "
        "commit"
    )
    assert checkout
    assert doubt.startswith("announce toy: regressed: ")
    assert doubt.endswith(" is measured in pairs with it, up to about 0:50 more")


def test_the_longest_time_of_pairs_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = "announce 2 workloads, up to about 1:40, 50 s each, plus builds"
    busy = " (longer while this machine is busy, as it is now)"
    for load, more in (("", ""), (", longer", busy)):
        monkeypatch.setattr(schedule, "describe_load", lambda load=load: load)
        progress = Lines()
        session = fakes.session(tmp_path, progress, against="HEAD~1")
        session.announce([toy(tmp_path), toy(tmp_path, "other")])
        assert progress.lines == [expected + more]


def test_a_secret_that_no_check_saw_is_not_written(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The title of a picture is made after the secrets were removed."""

    def leak(*given: Any, **more: Any) -> Pictures:
        drawn = draw(*given, **more)
        return replace(drawn, files={**drawn.files, "flamegraph.svg": b"k3-9fQ7xW2mVb8Rt5"})

    monkeypatch.setenv("API_TOKEN", "k3-9fQ7xW2mVb8Rt5")
    monkeypatch.setattr(session, "draw", leak)
    outcome = gate(tmp_path)
    assert codes(outcome) == ["E_SECRET"]
    assert names(outcome.directory) == {"verdict.json"}


@pytest.mark.parametrize(
    ("declared", "threshold_pp", "strict", "wanted"),
    [
        ({"*": 5.0}, 5.0, False, ()),
        ({"*": 5.0}, 5.0, True, ("profiled",)),
        ({"*": 5.0, "heavy": 5.0}, 5.0, False, ("profiled",)),
    ],
)
def test_more_profiles_of_an_unchanged_whole_are_for_declared_shares(
    declared: dict[str, float], threshold_pp: float, strict: bool, wanted: tuple[str, ...]
) -> None:
    moved, _ = share("heavy", 0.5, 0.51, "unchanged")
    wide = replace(moved.share, detectable_pp=9.0)
    spot = replace(moved, share=wide, threshold_pp=threshold_pp)
    passed = Verdict("pass", (), grade="OBSERVED", hotspots=(spot,), pairs=3)
    thresholds = Thresholds(hotspots_pp=declared)
    assert session.wanted_processes(passed, thresholds, strict=strict) == wanted
    fine = replace(passed, hotspots=(replace(spot, share=moved.share),))
    assert session.wanted_processes(fine, thresholds, strict=strict) == ()


@pytest.mark.parametrize(
    ("name", "change_us", "has_lines", "wanted"),
    [
        ("regressed", 40.0, True, ()),
        ("regressed", -40.0, True, ("profiled",)),
        ("regressed", None, True, ("profiled",)),
        ("regressed", None, False, ()),
    ],
)
def test_a_regression_is_profiled_until_a_slower_line_is_certain(
    name: VerdictName, change_us: float | None, has_lines: bool, wanted: tuple[str, ...]
) -> None:
    lines: tuple[LineChange, ...] = ()
    if change_us is not None:
        cost = CostChange("a.c:3", 80.0, 80.0 + change_us, change_us, 9.0, 9.0, 0.0, change_us / 50)
        lines = (LineChange(Place("a.c", 3, 3, is_changed=True), cost),)
    verdict = Verdict(name, (), "OBSERVED", explained_by=("heavy",), lines=lines, pairs=3)
    found = session.wanted_processes(verdict, Thresholds(), has_lines=has_lines)
    assert found == wanted
