"""The model in the evidence of a run, and the one that ``flamegate doctor`` names."""

from pathlib import Path

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.profile import profilers
from pytest_flamegate.run.publish import Outcome
from tests.models.gguf_files import GgufFile, write_large_model
from tests.run import fakes


def gate(root: Path) -> Outcome:
    (root / "m.gguf").write_bytes(GgufFile().packed())
    return fakes.session(root).gate(fakes.toy(root, model="m.gguf"))


def test_the_evidence_describes_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.install(monkeypatch)
    outcome = gate(tmp_path)
    assert outcome.evidence is not None
    facts = dict(outcome.evidence.model)
    assert (facts["path"], facts["name"], facts["architecture"]) == ("m.gguf", "tiny", "bitnet")
    assert facts["quantisation"] == "TQ2_0 99.2 %, F32 0.8 %"
    assert facts["size_bytes"] == (tmp_path / "m.gguf").stat().st_size
    assert facts["sha256"] == outcome.evidence.model_sha256
    assert "bytes_per_token" not in facts


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profilers, "PROFILERS", {})  # trying them takes seconds
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def doctor(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    return {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line.startswith("{")}


def test_the_doctor_says_what_would_be_taken(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "models").mkdir()
    write_large_model(here / "models/large.gguf")
    assert doctor(capsys) == {
        "{model}": f"ok {here}/models/large.gguf (2.2 GB, Q4_0) if none is declared",
        "{tokenizer}": f"ok {here}/models/large.gguf",
    }


def test_the_doctor_says_where_nothing_was_found(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = doctor(capsys)
    assert told["{model}"].startswith("-- E_MODEL_MISSING: No model file was found in")
    assert f"{here}/hub/models--*" in told["{model}"]
    assert told["{tokenizer}"].startswith("-- E_TOKENIZER_MISSING")
