"""Python that misbehaves as it is measured: a code each, and nothing left running."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.engines import engine
from pytest_flamegate.observe.observer import Observer

pytestmark = pytest.mark.measures

TARGET = """
import os, subprocess, sys, threading, time
from hashlib import sha256

def exits(prompt, max_tokens):
    yield 1
    sys.exit(3)

def silent(prompt, max_tokens):
    time.sleep(600)
    yield 1

def none(prompt, max_tokens):
    return None

def chatters(prompt, max_tokens):
    for stream in (sys.stdout, sys.stderr):
        stream.write("word " * 20_000)
    os.write(1, b"more" * 20_000)
    yield 7

def forks(prompt, max_tokens):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield 7

def threads(prompt, max_tokens):
    threading.Thread(target=time.sleep, args=(600,)).start()
    yield 7

def digest(prompt, max_tokens):
    yield sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
"""


def watched(directory: Path, target: str, **given: object) -> Observer:
    (directory / "bad_target.py").write_text(TARGET)
    (directory / "bad_import.py").write_text("raise RuntimeError('no weights')\n")
    (directory / "bad_exit.py").write_text("import sys; sys.exit(5)\n")
    values: dict[str, object] = {
        "name": "w",
        "engine": "python",
        "prompt": "p",
        "max_tokens": 1,
        "source": "test",
        "directory": directory,
        "target": target,
        "timeout_s": 60.0,
        **given,
    }
    workload = Workload(**values)  # type: ignore[arg-type]
    return Observer(workload, engine("python").plan(workload, None))


def assert_nothing_left() -> None:
    assert psutil.Process().children(recursive=True) == []


@pytest.mark.parametrize(
    ("target", "codes"),
    [
        ("bad_import:generate", {"E_ENGINE_RAISED"}),
        ("bad_exit:generate", {"E_ENGINE_RAISED", "E_ENGINE_DIED"}),
        ("bad_target:exits", {"E_ENGINE_RAISED", "E_ENGINE_DIED"}),
        ("bad_target:none", {"E_NOT_TOKENS"}),
    ],
)
def test_what_breaks_is_told(tmp_path: Path, target: str, codes: set[str]) -> None:
    with pytest.raises(FlamegateError) as refused:
        watched(tmp_path, target, max_tokens=4).run_timed(0.05)
    assert refused.value.code in codes
    assert_nothing_left()


def test_what_never_yields_is_ended(tmp_path: Path) -> None:
    with pytest.raises(FlamegateError, match=r"E_TIMEOUT: .*2 s"):
        watched(tmp_path, "bad_target:silent", timeout_s=2.0).run_timed(0.05)
    assert_nothing_left()


@pytest.mark.parametrize("target", ["chatters", "forks", "threads"])
def test_what_is_untidy_is_measured_and_cleaned_up_after(tmp_path: Path, target: str) -> None:
    observer = watched(tmp_path, f"bad_target:{target}")
    observer.run_timed(0.02)
    assert observer.observation().tokens == ("7",)
    assert_nothing_left()


@pytest.mark.parametrize(
    "prompt",
    ["'\"; touch pwned; $(id)", "two\nlines\r\n", "nul\0inside", "lone \udc80", "x" * (1 << 20)],
    ids=["quotes", "newlines", "nul", "surrogate", "megabyte"],
)
def test_a_prompt_reaches_a_target_as_it_is(tmp_path: Path, prompt: str) -> None:
    from hashlib import sha256

    observer = watched(tmp_path, "bad_target:digest", prompt=prompt)
    observer.run_timed(0.02)
    expected = sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
    assert observer.observation().tokens == (expected,)
    assert "pwned" not in os.listdir(tmp_path)
    assert_nothing_left()


def test_a_prompt_too_long_for_a_command_line_is_told_so(tmp_path: Path) -> None:
    workload = Workload(
        "w", "command", "x" * (1 << 20), 1, "test", directory=tmp_path, command=("true", "{prompt}")
    )
    with pytest.raises(FlamegateError, match=r"E_ARGUMENTS_TOO_LONG: .*128 KiB"):
        Observer(workload, engine("command").plan(workload, None)).run_timed(0.1)
    assert_nothing_left()
