"""Secrets reach the process that is measured, and nothing that is written down."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_flamegate.receipt.compose import recipe
from pytest_flamegate.workload import determinism
from pytest_flamegate.workload.redaction import REDACTED, redacted
from pytest_flamegate.workload.spec import Workload

NAMES = {
    "OPENAI_API_KEY": True,
    "HF_TOKEN": True,
    "hf_token": True,
    "TOKEN": True,
    "CLIENT_SECRET_ID": True,
    "DB_PASSWORD": True,
    "PASSWORDS": True,
    "TOKENIZERS_PARALLELISM": False,
    "KEYBOARD": False,
    "MONKEY": False,
    "BITNET_SEED": False,
    "MAX_TOKENS": False,
}


@pytest.mark.parametrize(("name", "secret"), NAMES.items())
def test_names_that_sound_like_secrets(name: str, secret: bool) -> None:
    assert redacted({name: "value"}) == {name: REDACTED if secret else "value"}


def test_a_secret_is_given_and_not_told() -> None:
    env = {"HF_TOKEN": "hush", "MODE": "fast"}
    workload = Workload("w", "python", "x", 1, "flamegate.toml", env=env)
    told = {"HF_TOKEN": REDACTED, "MODE": "fast"}
    given = determinism.environment(workload)
    assert {name: given[name] for name in env} == env
    assert recipe(workload)["env"] == told
    requested = determinism.requested(workload)
    assert {name: requested[name] for name in env} == told


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is known")
def test_what_a_process_got_is_not_told_either() -> None:
    env = {"HF_TOKEN": "hush", "MODE": "fast", "OTHER": "kept out"}
    program = "print('up', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = determinism.effective(process.pid, {"HF_TOKEN": "", "MODE": ""})
        process.kill()
    assert found == {"HF_TOKEN": REDACTED, "MODE": "fast"}
