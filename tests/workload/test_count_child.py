"""The child that generates once and ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.child import wire
from pytest_flamegate.core import process
from pytest_flamegate.core.process import CompletedCommand

pytestmark = pytest.mark.measures

TARGET = """
import os

def tokens(prompt, max_tokens):
    os.write(1, f"{prompt} {max_tokens}".encode())
    yield from [7, "seven", b"\\xff"][:max_tokens]

def raises(prompt, max_tokens):
    yield 1
    raise ValueError("alas")
"""


def run(
    directory: Path, function: str, tokens: int, prompt: str = "go on"
) -> tuple[CompletedCommand, list[Any]]:
    (directory / "target.py").write_text(TARGET)
    spec = {
        "factory": "pytest_flamegate.child.python:load_engine",
        "target": f"target:{function}",
        "directory": str(directory),
        "prompt": prompt,
        "max_tokens": 99,
    }
    answer, told = directory / "answer", directory / "spec"
    told.write_text(json.dumps(spec))
    module = "pytest_flamegate.child.serve"
    done = process.run(
        [sys.executable, "-P", "-m", module, "count", str(answer), str(told), str(tokens)],
        timeout_s=30.0,
    )
    return done, wire.Parser().feed(answer.read_bytes())


def test_it_generates_what_the_last_argument_says(tmp_path: Path) -> None:
    done, records = run(tmp_path, "tokens", 3)
    assert (done.returncode, done.stdout) == (0, b"go on 3")
    assert records == [
        (wire.TOKEN, 7, ""),
        (wire.TEXT, 5, "seven"),
        (wire.TEXT, 4, "\\xff"),
        (wire.DONE, 0, ""),
    ]


def test_a_prompt_may_be_longer_than_an_argument(tmp_path: Path) -> None:
    prompt = "long " * (1 << 16)
    done, records = run(tmp_path, "tokens", 3, prompt)
    assert (done.returncode, done.stdout.decode()) == (0, f"{prompt} 3")
    assert records[-1] == (wire.DONE, 0, "")


def test_a_failure_is_told_in_place_of_the_end(tmp_path: Path) -> None:
    done, records = run(tmp_path, "raises", 3)
    assert done.returncode == 1
    ((kind, _, text),) = records
    assert kind == wire.FAILED
    assert json.loads(text)["code"] == "E_ENGINE_RAISED"
    assert "ValueError: alas" in json.loads(text)["what"]


def test_a_target_that_is_not_there(tmp_path: Path) -> None:
    done, records = run(tmp_path, "absent", 1)
    assert done.returncode == 1
    assert json.loads(records[0][2])["code"] == "E_TARGET_NOT_FOUND"
