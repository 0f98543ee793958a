from __future__ import annotations

import pytest

from pytest_flamegate.profile.model import Stack
from pytest_flamegate.profile.stacks import trim_stacks
from tests.profile.profiles import native, profile, python, system

START = native("_start", "python3.11")
MAIN = python("main", "child.py")
ROOT = python("measured_sequences", "child.py")
WORK = python("rms_norm")
THREAD = native("start_thread", "libc.so.6")
POOL = python("Thread._bootstrap", "threading.py")
GEMV = native("sgemv", "libblas.so")
LIBC = native("[libc.so.6]", "libc.so.6")
MUSL = native("[ld-musl-x86_64.so.1]", "ld-musl-x86_64.so.1")
LOST = native("[unknown]", "unknown")


@pytest.mark.parametrize(
    ("stack", "root", "kept", "complete"),
    [
        ((START, MAIN, ROOT, WORK), "measured_sequences", (ROOT, WORK), True),
        ((ROOT,), "measured_sequences", (ROOT,), True),
        ((MAIN, ROOT, WORK, ROOT), "measured_sequences", (ROOT, WORK, ROOT), True),
        ((LOST, WORK), "measured_sequences", (LOST, WORK), False),
        ((START, MAIN, WORK), "measured_sequences", (START, MAIN, WORK), False),
        ((MAIN, native("measured_sequences")), "measured_sequences", None, False),
        ((THREAD, WORK, GEMV), "measured_sequences", (THREAD, WORK, GEMV), True),
        ((POOL, WORK), "measured_sequences", (POOL, WORK), True),
        ((START, MAIN, WORK), None, (START, MAIN, WORK), True),
        ((MAIN, WORK), None, (MAIN, WORK), True),
        ((LOST, WORK, GEMV), None, (LOST, WORK, GEMV), False),
        ((LOST, GEMV), "measured_sequences", (LOST, GEMV), False),
        ((START, GEMV), "measured_sequences", (START, GEMV), True),
        ((LIBC, WORK, GEMV), None, (LIBC, WORK, GEMV), True),
        ((LIBC, GEMV), "measured_sequences", (LIBC, GEMV), True),
        ((LIBC, WORK), "measured_sequences", (LIBC, WORK), False),
        ((LIBC, GEMV, LIBC), None, (LIBC, GEMV, LIBC), True),
        ((MUSL, GEMV), None, (MUSL, GEMV), True),
        ((LIBC,), None, (LIBC,), False),
        ((LIBC, system("do_syscall_64")), None, (LIBC, system("do_syscall_64")), False),
        ((native("qsort", "libc.so.6"), GEMV), None, None, False),
        ((native("[libc++.so.1]", "libc++.so.1"), GEMV), None, None, False),
        ((native("[engine]", "engine"), GEMV), None, None, False),
        ((LIBC, POOL, WORK), "measured_sequences", (LIBC, POOL, WORK), True),
        ((native("runtime.goexit.abi0", "engine"), GEMV), None, None, True),
        ((system("execve"),), None, (system("execve"),), False),
        ((), None, (), False),
    ],
)
def test_a_stack_begins_at_the_root_and_says_whether_it_got_there(
    stack: Stack, root: str | None, kept: Stack | None, complete: bool
) -> None:
    taken = trim_stacks(profile({stack: 3}, complete=0), root)
    assert taken.stacks == {stack if kept is None else kept: 3}
    assert taken.complete == (3 if complete else 0)


def test_stacks_that_become_equal_add_up() -> None:
    taken = trim_stacks(profile({(START, ROOT, WORK): 1, (LOST, ROOT, WORK): 2, (START, MAIN): 4}))
    assert taken.stacks == {(ROOT, WORK): 3, (START, MAIN): 4}
    assert taken.completeness == pytest.approx(3 / 7)
