"""A calibration as a file: read back exactly, and no failure of the gate if not."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from pytest_flamegate.config.options import COMPARE_BUDGET_S
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.core.json import encode_json, encode_plain
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.gate import calibration as gate_calibration
from pytest_flamegate.gate.analyses import FIRST_ANALYSES
from pytest_flamegate.gate.calibration import FEW_POOL, MIN_POOL, AnalysisPlan
from pytest_flamegate.observe.engine_process import ProcessTime
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.run.calibration import (
    BUDGET_S,
    Calibration,
    calibrate,
    find_known_rates,
    find_supported_thresholds,
    load,
    plan_for,
    recipe_sha256,
    store,
    threshold_error,
)
from tests import made
from tests.run import fakes

WORKLOAD = Workload("decode", "python", "2+2=", 10, "flamegate.toml", target="toy:generate")
MACHINE = "machine-2c-123456"


def calibration(sd: float = 0.01, count: int = 40, **changes: object) -> Calibration:
    random = Random(2)
    made = Calibration(
        created="2026-01-02T03:04:05Z",
        machine_id=MACHINE,
        machine={"cpu_model": "A CPU", "cpu_cores": "2"},
        flamegate_version="0",
        workload=WORKLOAD.name,
        recipe_sha256=recipe_sha256(WORKLOAD),
        engine=WORKLOAD.engine,
        differences=tuple(random.gauss(0.0, sd) for _ in range(count)),
        pair_s=1.25,
        shares_core=True,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / ".flamegate")


def encode(made: Calibration) -> bytes:
    return encode_json(encode_plain(made))


def loaded(
    artifacts: ArtifactStore, workload: Workload = WORKLOAD
) -> tuple[Calibration | None, list[str]]:
    warnings: list[str] = []
    return load(artifacts, MACHINE, workload, warnings.append), warnings


def test_what_is_written_is_read(artifacts: ArtifactStore, tmp_path: Path) -> None:
    assert loaded(artifacts) == (None, [])
    assert not artifacts.root.exists()
    path = store(artifacts, calibration()).path
    assert path == artifacts.root / "calibration" / MACHINE / "decode.json"
    assert loaded(artifacts) == (calibration(), [])
    # It is of the workload as it ran; no link to another is followed.
    missing, (warning,) = loaded(artifacts, replace(WORKLOAD, max_tokens=11))
    assert (missing, "ran differently" in warning) == (None, True)
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    missing, (warning,) = loaded(artifacts)
    assert (missing, "symbolic link" in warning) == (None, True)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (encode(calibration())[:-40], "not JSON"),
        (encode(replace(calibration(), differences=(0.01,) * 40)), "exactly the same"),
        (encode(replace(calibration(), differences=(0.01, 0.02))), "2 A/A pair"),
        (encode(calibration()).replace(b'"pair_s": 1.25', b'"pair_s": "fast"'), "pair_s"),
        (encode(replace(calibration(), pair_s=0.0)), "pair_s"),
        (encode(replace(calibration(), machine_id="elsewhere")), "elsewhere"),
        (encode(replace(calibration(), workload="other")), "other"),
        (encode(calibration()).replace(b'"shares_core": true', b'"pairs": 40'), "shares_core"),
    ],
)
def test_a_file_that_is_no_calibration_is_a_warning(
    artifacts: ArtifactStore, data: bytes, word: str
) -> None:
    path = artifacts.write_calibration(MACHINE, WORKLOAD.name, data).path
    found, (warning,) = loaded(artifacts)
    assert found is None
    assert str(path) in warning
    assert word in warning
    assert warning.endswith("Calibrate again.")


def test_what_does_not_change_the_noise_does_not_matter() -> None:
    same = replace(WORKLOAD, thresholds=Thresholds(2.0), source="pyproject.toml", timeout_s=3.0)
    assert recipe_sha256(same) == recipe_sha256(WORKLOAD)


def test_what_is_known_are_bounds_and_their_basis(artifacts: ArtifactStore) -> None:
    store(artifacts, calibration())
    known = find_known_rates(artifacts, MACHINE, WORKLOAD, COMPARE_BUDGET_S, pytest.fail)
    assert known is not None
    assert 0.0 < (known.false_alarm or 0.0) < 0.002
    assert 0.0 < (known.miss or 0.0) < 0.02
    assert known.basis.startswith("calibrated here on 40 A/A pairs (2026-01-02): 0.0 % (≤ 0.15 %)")
    assert "in 2,000 replays of the whole rule" in known.basis
    assert "flatter" not in known.basis
    few = replace(calibration(), differences=calibration().differences[: FEW_POOL - 1])
    store(artifacts, few)
    known = find_known_rates(artifacts, MACHINE, WORKLOAD, COMPARE_BUDGET_S, pytest.fail)
    assert known is not None
    assert known.basis.endswith("Fewer than 30 pairs flatter a machine")


def test_time_becomes_pairs_and_looks_as_a_comparison_plans_them() -> None:
    assert plan_for(60.0, 1.5, 0.7) == AnalysisPlan(FIRST_ANALYSES, 28)
    assert plan_for(15.0, 1.5, 0.7) == AnalysisPlan(FIRST_ANALYSES, 7)
    assert plan_for(15.0, 1.5, 1.0) == AnalysisPlan(FIRST_ANALYSES, 10)
    assert plan_for(15.0, 30.0, 0.7) == AnalysisPlan(FIRST_ANALYSES, 4)
    # Twice the comparison's budget: looks at up to 56 pairs are planned.
    assert plan_for(2 * COMPARE_BUDGET_S, 1.5, 0.7) == AnalysisPlan((*FIRST_ANALYSES, 40), 40)


def test_a_threshold_that_does_not_hold_is_an_error_with_one_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate_calibration, "DRAWS", 100)
    found = find_supported_thresholds(calibration(0.03), 2.0, 60.0, 0.7)
    error = threshold_error("decode", found)
    assert error is not None
    assert (error.code, error.exit_code) == ("E_THRESHOLD_TOO_SMALL", 4)
    assert "decode to 2 % within 60 s" in error.problem
    (smallest_pct,) = (row.drop_pct for row in found.rows if row.budget_s == 60.0)
    assert smallest_pct is not None
    # For that threshold a comparison has 50 s by itself.
    more = "with flamegate_budget = 60 in pytest's file or give it 110 s"
    assert error.remedy.startswith(f"Set tokens_per_second to {smallest_pct:g} % {more}")
    error = threshold_error("decode", replace(found, rows=()))
    assert error is not None
    assert error.remedy.startswith("Use a quieter machine")


def test_a_spoilt_calibration_is_set_aside_and_a_good_one_replaced(
    artifacts: ArtifactStore,
) -> None:
    path = artifacts.write_calibration(MACHINE, WORKLOAD.name, b"{").path
    placed = store(artifacts, calibration())
    assert placed.path == path
    assert placed.set_aside is not None
    assert placed.set_aside.read_bytes() == b"{"
    (warning,) = placed.warnings
    assert str(placed.set_aside) in warning
    assert loaded(artifacts)[0] is not None
    assert store(artifacts, calibration()).warnings == ()
    assert sorted(path.parent.iterdir()) == sorted([path, placed.set_aside])


@pytest.mark.parametrize(
    ("sequence_s", "pairs"), [(0.2, 40), (0.7, 35), (4.0, MIN_POOL), (20.0, None)]
)
def test_a_calibration_ends_after_its_time_with_pairs_enough(
    monkeypatch: pytest.MonkeyPatch, sequence_s: float, pairs: int | None
) -> None:
    world = fakes.install(monkeypatch)
    world.process_time = ProcessTime(0.0, sequence_s, repeats=True)
    side = fakes.prepared_side(made.bundle())
    if pairs is None:
        with pytest.raises(UndecidedError, match=r"^E_FEW_PROCESSES: .* 40\.0 s"):
            calibrate(side, Progress())
        return
    assert len(calibrate(side, Progress()).differences) == pytest.approx(pairs, abs=2)
    assert world.now_s <= max(BUDGET_S, (MIN_POOL + 1) * 2 * sequence_s) + 2 * sequence_s
