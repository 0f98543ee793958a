"""A whole run with secrets in every place: they are used, and no file or output shows them."""

from pathlib import Path

import pytest

from pytest_flamegate import verify_receipt
from pytest_flamegate.core.errors import ToolError
from tests.doors.project import Project, workload
from tests.observe.test_redact import FORMS
from tests.run.fakes import World

OURS = "correct-horse-battery"
THEIRS = FORMS["code host"]
PROMPT_SECRET = FORMS["model host"]


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", OURS)
    monkeypatch.setenv("UNRELATED", "never written down")


def read_all(directory: Path) -> str:
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return "\n".join(path.read_text("utf-8", "replace") for path in files)


def test_no_secret_is_written(project: Project, world: World) -> None:
    env = f'{{ SERVICE_TOKEN = "hush", OPTIONS = "--api-key={THEIRS}", SEEN = "{OURS}" }}'
    prompt = f'"log in with {OURS} or {PROMPT_SECRET}"'
    project.declare(workload("w", env=env, prompt=prompt))
    world.shares = {f"gemv_{OURS}": 0.9, "rms_norm": 0.1}
    world.notes = {"W_TOKENS_MERGED": f"token={OURS} was merged."}
    done = project.ask(
        *("--flamegate", "--flamegate-update"),
        *("--flamegate-report=run.html", "--junitxml=junit.xml"),
    )
    done.assert_outcomes(passed=1)
    text = read_all(project.artifacts) + (project.path / "run.html").read_text()
    text += (project.path / "junit.xml").read_text() + done.stdout.str() + done.stderr.str()
    for secret in (OURS, THEIRS, PROMPT_SECRET, "never written down", '"hush"'):
        assert secret not in text, secret
    assert "gemv_redacted" in text
    done.stdout.fnmatch_lines(["*W_SECRET_REDACTED: *"])
    evidence = project.document("w")
    assert evidence["workload"]["prompt"] == "log in with redacted or redacted"
    assert evidence["workload"]["env"] == {
        "SERVICE_TOKEN": "redacted",
        "OPTIONS": "--api-key=redacted",
        "SEEN": "redacted",
    }
    assert "evidence.workload.prompt" in evidence["redacted"]
    # Digests are of the written text, so the claim still holds.
    verification = verify_receipt(project.artifacts / "latest" / "w" / "receipt.json")
    assert (verification.ok, verification.grade.name) == (True, "OBSERVED")


def test_a_secret_in_an_error_of_the_engine_is_redacted(project: Project, world: World) -> None:
    world.fail(ToolError("E_ENGINE_RAISED", f"RuntimeError: cannot log in as {OURS}.", "Mend it."))
    project.declare(workload("w"))
    done = project.ask("--flamegate")
    done.assert_outcomes(failed=1)
    written = read_all(project.artifacts)
    assert "E_ENGINE_RAISED" in written
    assert OURS not in written + done.stdout.str() + done.stderr.str()
