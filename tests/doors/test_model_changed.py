"""A model that is replaced while it is measured, and what a run says of one that is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.embedded import SHIPPED_MODEL
from pytest_flamegate.models.facts import read_model_facts
from pytest_flamegate.run.publish import Outcome
from pytest_flamegate.run.session import Session
from tests.workload.gguf_files import GgufFile, write_large_model

pytestmark = pytest.mark.measures

PRINTS = "print('a b c')"
REPLACES = "import os, sys; p = sys.argv[1]; open(p + '~', 'wb').write(open(p, 'rb').read())"
REPLACES = f"{REPLACES}; os.replace(p + '~', p); {PRINTS}"


def gated(root: Path, program: str) -> Outcome:
    (root / "m.gguf").write_bytes(GgufFile().packed())
    workload = Workload(
        name="w",
        engine="command",
        prompt="p",
        max_tokens=3,
        source="flamegate.toml",
        directory=root,
        command=(sys.executable, "-c", program, "{model}"),
        token_unit="word",
    )
    settings = Settings(root, root / ".flamegate", profiler="none", budget_s=0.1)
    return Session(settings).gate(workload)


def test_the_same_bytes_in_another_file_are_a_change(tmp_path: Path) -> None:
    outcome = gated(tmp_path, REPLACES)
    assert outcome.verdict.verdict == "error"
    assert outcome.fails
    assert [reason.code for reason in outcome.verdict.reasons] == ["E_MODEL_CHANGED"]
    # Its inode may well have the number of the last one that was removed; its ctime has not.
    assert "m.gguf changed while it was measured" in outcome.verdict.reasons[0].message
    assert {path.name for path in outcome.directory.iterdir()} == {"verdict.json"}


def test_a_model_that_stays_is_told(tmp_path: Path) -> None:
    outcome = gated(tmp_path, PRINTS)
    assert outcome.verdict.verdict == "no_baseline"
    assert outcome.evidence is not None
    told = dict(outcome.evidence.model)
    assert (told["path"], told["name"], told["architecture"]) == ("m.gguf", "tiny", "bitnet")
    assert told["quantisation"] == "TQ2_0 99.2 %, F32 0.8 %"
    assert told["size_bytes"] == (tmp_path / "m.gguf").stat().st_size
    assert told["sha256"] == outcome.evidence.model_sha256
    assert "bytes_per_token" not in told


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
        "{model}": f"ok {here}/models/large.gguf (2.2 GB, Q4_0) where none is declared",
        "{tokenizer}": f"ok {here}/models/large.gguf",
    }


def test_the_doctor_says_where_nothing_was_found(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = doctor(capsys)
    assert told["{model}"].startswith("-- E_MODEL_MISSING: No model file was found in")
    assert f"{here}/hub/models--*" in told["{model}"]
    assert told["{tokenizer}"].startswith("-- E_TOKENIZER_MISSING")
