"""Targets of the engine python in a process of their own: tokens, errors, and nothing left."""

import os
from hashlib import sha256
from pathlib import Path

import psutil
import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.engines import engine
from pytest_flamegate.observe.observer import Observer

TARGET = """
import os, subprocess, sys, threading, time
from hashlib import sha256
import numpy as np

def numbers(prompt, max_tokens):
    yield from np.arange(max_tokens)

def whole(prompt, max_tokens):
    return list(range(max_tokens))

def exits(prompt, max_tokens):
    yield 1
    sys.exit(3)

def raises(prompt, max_tokens):
    yield 0
    raise ValueError("out of memory")

def empty(prompt, max_tokens):
    yield from ()

def none(prompt, max_tokens):
    return None

def unstable(prompt, max_tokens):
    yield object()

async def later(prompt, max_tokens):
    yield 0

def silent(prompt, max_tokens):
    time.sleep(600)
    yield 1

def chatters(prompt, max_tokens):
    for stream in (sys.stdout, sys.stderr):
        stream.write("word " * 20_000)
    os.write(1, b"more" * 20_000)
    yield 7

def leaves(prompt, max_tokens):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    threading.Thread(target=time.sleep, args=(600,)).start()
    yield 7

def digest(prompt, max_tokens):
    yield sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
"""


def observe(directory: Path, target: str, **given: object) -> Observer:
    (directory / "toy.py").write_text(TARGET)
    (directory / "bad_import.py").write_text("raise RuntimeError('no weights')\n")
    (directory / "bad_exit.py").write_text("import sys; sys.exit(5)\n")
    values: dict[str, object] = {"prompt": "p", "max_tokens": 4, "timeout_s": 60.0, **given}
    workload = Workload(
        "w",
        "python",
        source="test",
        directory=directory,
        target=target,
        **values,  # type: ignore[arg-type]
    )
    return Observer(workload, engine("python").plan(workload, None))


@pytest.fixture(autouse=True)
def _nothing_left() -> object:
    yield
    assert psutil.Process().children(recursive=True) == []


@pytest.mark.parametrize("target", ["numbers", "whole"])
def test_tokens_are_the_same_in_each_process(tmp_path: Path, target: str) -> None:
    observer = observe(tmp_path, f"toy:{target}")
    for _ in range(2):
        observer.run_timed(0.02)
    assert observer.observation().tokens == ("0", "1", "2", "3")
    assert observer.observation().differs_at is None


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("absent:generate", "E_TARGET_NOT_FOUND", "absent"),
        ("toy:TARGET", "E_TARGET_NOT_FOUND", "TARGET"),
        ("bad_import:generate", "E_ENGINE_RAISED", "no weights"),
        ("bad_exit:generate", "E_ENGINE_RAISED", "5"),
        ("toy:exits", "E_ENGINE_RAISED", "3"),
        ("toy:raises", "E_ENGINE_RAISED", "ValueError: out of memory"),
        ("toy:empty", "E_NO_TOKENS", "generated nothing"),
        ("toy:none", "E_NOT_TOKENS", "None"),
        ("toy:unstable", "E_BAD_TOKEN", "'object'"),
        ("toy:later", "E_NOT_TOKENS", "event loop"),
    ],
)
def test_errors_of_targets(tmp_path: Path, target: str, code: str, words: str) -> None:
    with pytest.raises(FlamegateError, match=rf"(?s){code}.*{words}"):
        observe(tmp_path, target).run_timed(0.02)


def test_a_target_that_never_yields_is_ended(tmp_path: Path) -> None:
    with pytest.raises(FlamegateError, match=r"E_TIMEOUT: .*2 s"):
        observe(tmp_path, "toy:silent", timeout_s=2.0).run_timed(0.05)


@pytest.mark.parametrize("target", ["chatters", "leaves"])
def test_output_and_processes_of_a_target_do_no_harm(tmp_path: Path, target: str) -> None:
    observer = observe(tmp_path, f"toy:{target}", max_tokens=1)
    observer.run_timed(0.02)
    assert observer.observation().tokens == ("7",)


@pytest.mark.parametrize(
    "prompt",
    ["'\"; touch pwned; $(id)\r\n", "nul\0inside", "lone \udc80", "x" * (1 << 20)],
    ids=["quotes", "nul", "surrogate", "megabyte"],
)
def test_a_prompt_reaches_a_target_unchanged(tmp_path: Path, prompt: str) -> None:
    observer = observe(tmp_path, "toy:digest", prompt=prompt, max_tokens=1)
    observer.run_timed(0.02)
    expected = sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
    assert observer.observation().tokens == (expected,)
    assert "pwned" not in os.listdir(tmp_path)


def test_a_prompt_too_long_for_a_command_line(tmp_path: Path) -> None:
    workload = Workload(
        "w", "command", "x" * (1 << 20), 1, "test", directory=tmp_path, command=("true", "{prompt}")
    )
    with pytest.raises(FlamegateError, match=r"E_ARGUMENTS_TOO_LONG: .*128 KiB"):
        Observer(workload, engine("command").plan(workload, None)).run_timed(0.1)
