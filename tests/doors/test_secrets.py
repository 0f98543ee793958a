"""A whole run with secrets in every place: they are used, and no file or output shows them."""

import json
from pathlib import Path

import pytest

from pytest_flamegate import verify_receipt
from pytest_flamegate.core.errors import ToolError
from tests.doors.project import Project, workload
from tests.observe.test_redact import FORMS
from tests.run import fakes

OURS = "correct-horse-battery"
THEIRS = FORMS["code host"]
PROMPT_SECRET = FORMS["model host"]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> fakes.World:
    monkeypatch.setenv("REGISTRY_PASSWORD", OURS)
    monkeypatch.setenv("UNRELATED", "never written down")
    return fakes.install(monkeypatch)


def read_all(directory: Path) -> str:
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return "\n".join(path.read_text("utf-8", "replace") for path in files)


def test_no_secret_is_written(project: Project, world: fakes.World) -> None:
    env = f'{{ SERVICE_TOKEN = "hush", OPTIONS = "--api-key={THEIRS}", SEEN = "{OURS}" }}'
    prompt = f'"log in with {OURS} or {PROMPT_SECRET}"'
    project.declare(workload("w", env=env, prompt=prompt))
    done = project.ask(
        *("--flamegate", "--flamegate-update"),
        *("--flamegate-report=run.html", "--junitxml=junit.xml"),
    )
    done.assert_outcomes(passed=1)
    text = read_all(project.artifacts) + (project.path / "run.html").read_text()
    text += (project.path / "junit.xml").read_text() + done.stdout.str() + done.stderr.str()
    for secret in (OURS, THEIRS, PROMPT_SECRET, "never written down", '"hush"'):
        assert secret not in text, secret
    done.stdout.fnmatch_lines(["*W_SECRET_REDACTED: *"])
    latest = project.artifacts / "latest" / "w"
    evidence = json.loads((latest / "evidence.json").read_text())
    assert evidence["workload"]["prompt"] == "log in with redacted or redacted"
    assert evidence["workload"]["env"] == {
        "SERVICE_TOKEN": "redacted",
        "OPTIONS": "--api-key=redacted",
        "SEEN": "redacted",
    }
    assert "evidence.workload.prompt" in evidence["redacted"]
    # Digests are of the written text, so the claim still holds.
    verification = verify_receipt(latest / "receipt.json")
    assert (verification.ok, verification.grade.name) == (True, "OBSERVED")


def test_a_secret_in_an_error_of_the_engine_is_redacted(
    project: Project, world: fakes.World
) -> None:
    def fail(role: str) -> None:
        raise ToolError("E_ENGINE_RAISED", f"RuntimeError: cannot log in as {OURS}.", "Mend it.")

    world.on_process = fail
    project.declare(workload("w"))
    require_hidden(project, "E_ENGINE_RAISED")


def require_hidden(project: Project, code: str) -> None:
    """Run once; the error is there, and the secret is nowhere."""
    done = project.ask("--flamegate")
    done.assert_outcomes(failed=1)
    written = read_all(project.artifacts)
    assert code in written
    assert OURS not in written + done.stdout.str() + done.stderr.str()
