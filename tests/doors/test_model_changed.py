"""Facts about the model of a run; a model that is replaced while it is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.gguf import SHIPPED_MODEL
from pytest_flamegate.models.discover import read_model_facts
from pytest_flamegate.profile import profilers
from pytest_flamegate.run.publish import Outcome
from tests.models.gguf_files import GgufFile, write_large_model
from tests.run import fakes


def gate(root: Path) -> Outcome:
    (root / "m.gguf").write_bytes(GgufFile().packed())
    return fakes.session(root).gate(fakes.toy(root, model="m.gguf"))


def test_the_same_bytes_in_another_file_are_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"

    def replace_model(role: str) -> None:
        # Its inode may have the number of the last file that was removed; its ctime has not.
        (tmp_path / "other").write_bytes(path.read_bytes())
        (tmp_path / "other").replace(path)

    fakes.install(monkeypatch, on_process=replace_model)
    outcome = gate(tmp_path)
    assert outcome.fails
    assert [reason.code for reason in outcome.verdict.reasons] == ["E_MODEL_CHANGED"]
    assert "m.gguf changed while it was measured" in outcome.verdict.reasons[0].message
    assert {path.name for path in outcome.directory.iterdir()} == {"verdict.json"}


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


def test_what_a_token_reads_is_told_where_it_is_known(tmp_path: Path) -> None:
    workload = Workload("w", "embedded", "p", 1, "x", tmp_path)
    told = read_model_facts(SHIPPED_MODEL, workload)
    assert told["bytes_per_token"] == 3_004_416
    assert told["path"] == "model.gguf"


def test_facts_of_a_broken_model_are_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(ToolError, match="E_MODEL_BROKEN"):
        read_model_facts(tmp_path / "m.gguf", Workload("w", "command", "p", 1, "x", tmp_path))


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
