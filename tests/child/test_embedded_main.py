from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_flamegate.engines.embedded import WORKLOADS

pytestmark = pytest.mark.measures

PROGRAM = [sys.executable, "-m", "pytest_flamegate.child.embedded"]


def run(*arguments: str | bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, timeout=60, check=False)


def test_prints_the_answer_and_nothing_else() -> None:
    _, prompt, max_tokens = WORKLOADS[1]
    done = run("--prompt", prompt, "--max-tokens", str(max_tokens))
    assert (done.returncode, done.stdout, done.stderr) == (0, b" 2+2 is 4.", b"")


def test_each_byte_comes_when_it_is_known() -> None:
    reading, writing = os.pipe()
    try:
        with subprocess.Popen(
            [*PROGRAM, "--prompt", "The gate", "--max-tokens", "400"],
            stdout=writing,
            stderr=subprocess.PIPE,
        ) as process:
            os.close(writing)
            first = os.read(reading, 4096)
            rest = b""
            reads = 1
            while chunk := os.read(reading, 4096):
                rest += chunk
                reads += 1
            assert process.wait(60) == 0
    finally:
        os.close(reading)
    assert first.startswith(b" ")
    assert len(first + rest) == 355
    assert reads > 20, "a buffered program would give all of it in one piece"


def test_a_reader_that_leaves_is_no_error() -> None:
    with subprocess.Popen(
        [*PROGRAM, "--prompt", "The gate", "--max-tokens", "400"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (["--prompt", "x", "--max-tokens", "600"], 2, b"E_CONTEXT_LENGTH"),
        (["--prompt", "x", "--model", "/no/such.gguf"], 5, b"E_MODEL_MISSING"),
        ([], 2, b"--prompt"),
    ],
)
def test_refusals(arguments: list[str], exit_code: int, says: bytes) -> None:
    done = run(*arguments)
    assert done.returncode == exit_code
    assert says in done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""


def test_a_prompt_that_is_not_utf8_is_taken_as_bytes() -> None:
    done = run("--prompt", b"a\xff", "--max-tokens", "1")
    assert done.returncode == 0, done.stderr


def test_blas_is_told_to_use_one_thread_before_numpy_is_imported(tmp_path: Path) -> None:
    spy = (
        "import os, sys\n"
        "class Spy:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'numpy':\n"
        "            print(os.environ.get('OPENBLAS_NUM_THREADS'), file=sys.stderr)\n"
        "sys.meta_path.insert(0, Spy())\n"
        "from pytest_flamegate.child.embedded.__main__ import main\n"
        "assert 'numpy' not in sys.modules\n"
        "main(['--prompt', '2+2=', '--max-tokens', '1'])\n"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", spy], capture_output=True, env=environment, timeout=60, check=True
    )
    assert (done.stdout, done.stderr.split()) == (b"4", [b"1"])
