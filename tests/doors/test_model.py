"""The model in the evidence of a run, and the one that ``flamegate doctor`` names."""

from pathlib import Path

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.profile import profilers
from tests.models.gguf_files import GgufFile, write_large_model
from tests.run import fakes


@pytest.mark.usefixtures("world")
def test_the_evidence_describes_the_model(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(GgufFile().packed())
    outcome = fakes.session(tmp_path).gate(fakes.toy(tmp_path, model="m.gguf"))
    assert outcome.evidence is not None
    facts = dict(outcome.evidence.model)
    assert (facts["path"], facts["name"], facts["architecture"]) == ("m.gguf", "tiny", "bitnet")
    assert facts["quantisation"] == "TQ2_0 99.2 %, F32 0.8 %"
    assert facts["size_bytes"] == (tmp_path / "m.gguf").stat().st_size
    assert facts["sha256"] == outcome.evidence.model_sha256
    assert "bytes_per_token" not in facts


def test_the_doctor_names_the_model_or_the_places_that_were_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profilers, "PROFILERS", {})  # trying them takes seconds
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def doctor() -> list[str]:
        main(["doctor"])
        lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        return [line for line in lines if line.startswith("{")]

    model, tokenizer = doctor()
    assert model.startswith("{model} -- E_MODEL_MISSING: No model file was found in")
    assert f"{tmp_path}/hub/models--*" in model
    assert tokenizer.startswith("{tokenizer} -- E_TOKENIZER_MISSING")
    (tmp_path / "models").mkdir()
    write_large_model(tmp_path / "models/large.gguf")
    assert doctor() == [
        f"{{model}} ok {tmp_path}/models/large.gguf (2.2 GB, Q4_0) if none is declared",
        f"{{tokenizer}} ok {tmp_path}/models/large.gguf",
    ]
