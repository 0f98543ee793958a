"""A whole run with secrets in every place: they are used, and stand in no file of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_flamegate import verify_receipt
from tests.doors.project import QUICK, SEEN, workload, write_toy
from tests.observe.test_redact import FORMS

OURS = "correct-horse-battery"
THEIRS = FORMS["code host"]
PROMPT_SECRET = FORMS["model host"]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_toy(pytester.path)
    toy = pytester.path / "toy.py"
    toy.write_text(
        toy.read_text() + "\n\ndef tells(prompt, max_tokens):\n"
        "    for letter in os.environ['REGISTRY_PASSWORD'][:max_tokens]:\n"
        "        hash_round(1, 4000)\n"
        "        yield letter\n"
        "\n\ndef breaks(prompt, max_tokens):\n"
        "    raise RuntimeError('cannot log in as ' + os.environ['REGISTRY_PASSWORD'])\n"
    )
    monkeypatch.setenv("REGISTRY_PASSWORD", OURS)
    monkeypatch.setenv("UNRELATED", "never written down")
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    return pytester.path


def everything(directory: Path) -> str:
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return "\n".join(path.read_text("utf-8", "replace") for path in files)


def test_none_is_written(project: Path, pytester: pytest.Pytester) -> None:
    env = f'{{ SERVICE_TOKEN = "hush", OPTIONS = "--api-key={THEIRS}", SEEN = "{OURS}" }}'
    prompt = f'"log in with {OURS} or {PROMPT_SECRET}"'
    declared = workload("w", env=env, prompt=prompt, max_tokens="40")
    (project / "flamegate.toml").write_text(declared)
    done = pytester.runpytest_subprocess(
        *SEEN, "--flamegate-update", "--flamegate-report=run.html", "--junitxml=junit.xml"
    )
    done.assert_outcomes(passed=1)
    told = everything(project / ".flamegate") + (project / "run.html").read_text()
    told += (project / "junit.xml").read_text() + done.stdout.str() + done.stderr.str()
    for secret in (OURS, THEIRS, PROMPT_SECRET, "never written down", '"hush"'):
        assert secret not in told, secret
    done.stdout.fnmatch_lines(["*W_SECRET_REDACTED: *"])
    latest = project / ".flamegate" / "latest" / "w"
    evidence = json.loads((latest / "evidence.json").read_text())
    assert evidence["workload"]["prompt"] == "log in with redacted or redacted"
    assert evidence["workload"]["env"] == {
        "SERVICE_TOKEN": "redacted",
        "OPTIONS": "--api-key=redacted",
        "SEEN": "redacted",
    }
    assert "evidence.workload.prompt" in evidence["redacted"]
    assert evidence["effective_environment"]["OMP_PROC_BIND"] == "close"
    # Digests are of what was written: the claim still holds.
    verification = verify_receipt(latest / "receipt.json")
    assert (verification.ok, verification.grade.name) == (True, "OBSERVED")


@pytest.mark.parametrize(
    ("target", "code"), [("tells", "E_SECRET_IN_OUTPUT"), ("breaks", "E_ENGINE")]
)
def test_what_the_engine_tells_is_refused_or_cleaned(
    project: Path, pytester: pytest.Pytester, target: str, code: str
) -> None:
    declared = workload("w", target, max_tokens=str(len(OURS)))
    (project / "flamegate.toml").write_text(declared)
    done = pytester.runpytest_subprocess(*QUICK)
    done.assert_outcomes(failed=1)
    told = everything(project / ".flamegate")
    assert code in told
    assert OURS not in told + done.stdout.str() + done.stderr.str()
