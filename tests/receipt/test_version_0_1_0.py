"""Documents that version 0.1.0 wrote are still read, verified and used as a baseline.

``data/version-0.1.0`` was written by that version: an accepted baseline, the history, and a signed
receipt from a comparison in pairs. Never write these files anew.
"""

import shutil
from pathlib import Path

import pytest

from pytest_flamegate import cli
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.gate.judge import GatedRun, GatePolicy, judge
from pytest_flamegate.receipt import verify_receipt
from pytest_flamegate.receipt.artifacts import ArtifactStore

DATA = Path(__file__).parent / "data" / "version-0.1.0"
MACHINE = "amd-epyc-2c-7202f2"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(DATA / "flamegate", tmp_path / ".flamegate")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("place", [f"baselines/{MACHINE}/toy", "latest/toy"])
def test_receipts_and_their_evidence_verify(place: str) -> None:
    found = verify_receipt(DATA / "flamegate" / place / "receipt.json")
    assert found.ok
    assert found.grade.name == "OBSERVED"


def test_a_signature_verifies(capsys: pytest.CaptureFixture[str]) -> None:
    receipt = str(DATA / "flamegate/latest/toy/receipt.json")
    key = str(DATA / "flamegate.key.pub")
    code = cli.main(["verify-receipt", receipt, "--key", key, "--require-grade", "ATTESTED"])
    assert code == 0, capsys.readouterr().out


def test_a_baseline_is_listed_and_judged_against(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["baseline", "list"]) == 0
    assert MACHINE in capsys.readouterr().out
    assert cli.main(["baseline", "show", "toy"]) == 0
    found = ArtifactStore(project / ".flamegate").read_baseline(MACHINE, "toy")
    assert found is not None
    verdict = judge(GatedRun(found.evidence, "OBSERVED"), found, GatePolicy(Thresholds()))
    # The very same processes cannot be evidence for both sides.
    assert [reason.code for reason in verdict.reasons] == ["E_COPIED_BASELINE"]


def test_verdict_and_profile_become_a_page(project: Path) -> None:
    assert cli.main(["report", "-o", "page.html"]) == 0
    page = (project / "page.html").read_text()
    assert "pass" in page
    assert "step.<locals>" in page or "step.&lt;locals&gt;" in page


def test_two_runs_are_compared(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = f".flamegate/baselines/{MACHINE}/toy", ".flamegate/latest/toy"
    assert cli.main(["diff", before, after]) == 4  # sampled at different rates
    assert "E_PROFILES_DIFFER" in capsys.readouterr().err
    assert cli.main(["diff", before, after, "--anyway"]) == 0
    assert "µs/token" in capsys.readouterr().out
