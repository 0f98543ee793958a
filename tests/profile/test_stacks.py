"""Where a stack begins, whether it is whole, and the frames of flamegate itself."""

import inspect
from dataclasses import replace

import pytest

from pytest_flamegate.child import embedded, serve
from pytest_flamegate.profile.frames import make_python_frame, path_prefixes
from pytest_flamegate.profile.model import Stack
from pytest_flamegate.profile.stacks import (
    OWN_FRAME,
    WORKLOAD_ROOT,
    cut_stacks_error,
    hide_own_frames,
    trim_stacks,
)
from tests.profile.profiles import native, profile, python, system

SERVE = "pytest_flamegate/child/serve.py"
START = native("_start", "python3.11")
MAIN = python("main", "run.py")
ROOT = python("measured_sequences", SERVE)
WORK = python("rms_norm")
THREAD = native("start_thread", "libc.so.6")
POOL = python("Thread._bootstrap", "threading.py")
GEMV = native("sgemv", "libblas.so")
LIBC = native("[libc.so.6]", "libc.so.6")
MUSL = native("[ld-musl-x86_64.so.1]", "ld-musl-x86_64.so.1")
LOST = native("[unknown]", "unknown")


@pytest.mark.parametrize(
    ("stack", "root", "trimmed", "complete"),
    [
        ((START, MAIN, ROOT, WORK), WORKLOAD_ROOT, (ROOT, WORK), True),
        ((MAIN, ROOT, WORK, GEMV), WORKLOAD_ROOT, (ROOT, WORK, GEMV), True),
        ((LOST, WORK), WORKLOAD_ROOT, (LOST, WORK), False),
        ((START, MAIN, WORK), WORKLOAD_ROOT, (START, MAIN, WORK), False),
        ((MAIN, native(WORKLOAD_ROOT)), WORKLOAD_ROOT, None, False),
        ((THREAD, WORK, GEMV), WORKLOAD_ROOT, None, True),
        ((POOL, WORK), WORKLOAD_ROOT, None, True),
        ((START, MAIN, WORK), None, None, True),
        ((LOST, WORK, GEMV), None, None, False),
        ((LOST, GEMV), WORKLOAD_ROOT, None, False),
        ((LIBC, WORK, GEMV), None, None, True),
        ((LIBC, GEMV), WORKLOAD_ROOT, None, True),
        ((LIBC, WORK), WORKLOAD_ROOT, None, False),
        ((MUSL, GEMV), None, None, True),
        ((LIBC,), None, None, False),
        ((LIBC, system("do_syscall_64")), None, None, False),
        ((native("qsort", "libc.so.6"), GEMV), None, None, False),
        ((native("[libc++.so.1]", "libc++.so.1"), GEMV), None, None, False),
        ((LIBC, POOL, WORK), WORKLOAD_ROOT, None, True),
        ((native("runtime.goexit.abi0", "engine"), GEMV), None, None, True),
        ((), None, None, False),
    ],
)
def test_a_stack_begins_at_the_root_and_is_complete_if_it_got_there(
    stack: Stack, root: str | None, trimmed: Stack | None, complete: bool
) -> None:
    taken = trim_stacks(profile({stack: 3}, complete=0), root)
    assert taken.stacks == {stack if trimmed is None else trimmed: 3}
    assert taken.complete == (3 if complete else 0)


def test_stacks_that_become_equal_add_up() -> None:
    taken = trim_stacks(profile({(START, ROOT, WORK): 1, (LOST, ROOT, WORK): 2, (START, MAIN): 4}))
    assert taken.stacks == {(ROOT, WORK): 3, (START, MAIN): 4}
    assert taken.completeness == pytest.approx(3 / 7)


def own(name: str, module: str) -> Stack:
    return (python(name, f"pytest_flamegate/{module}"),)


def test_frames_of_flamegate_below_the_root_are_hidden() -> None:
    """What they cost is counted for the frame that called them."""
    adapter = own("generate", "child/python.py")
    engine = own("Transformer.generate", "child/embedded/transformer.py")
    shown = {(ROOT, *engine, GEMV): 7, (ROOT, native("f", "pytest_flamegate/child/x.so")): 1}
    hidden = {
        (ROOT, *adapter, WORK): 5,
        (ROOT, WORK, *own("Brick.__exit__", "bricks/marks.py")): 2,
        (ROOT, *own("_Server.began", "child/serve.py")): 1,
    }
    assert hide_own_frames({**shown, **hidden}) == {**shown, (ROOT, WORK): 7, (ROOT,): 1}


def test_the_serving_loop_is_one_frame_and_no_part_of_the_workload() -> None:
    run = python("_run_code", "<frozen runpy>")
    loop = (run, python("main", SERVE), python("guarded", SERVE))
    write = own("_write", "child/wire.py")
    taken = trim_stacks(profile({(*loop, *write): 3, (*loop, GEMV): 1, (*loop, ROOT, WORK): 96}))
    assert taken.stacks == {(OWN_FRAME,): 4, (ROOT, WORK): 96}
    assert taken.completeness == 0.96


def test_frames_of_a_profiled_flamegate_stay() -> None:
    """Only stacks of a served engine are touched, and a profile of the project itself is not."""
    stacks = {(START, *own("session", "run/session.py"), *own("judge", "gate/judge.py")): 4}
    assert hide_own_frames(stacks) == trim_stacks(profile(stacks), None).stacks == stacks


def test_the_places_of_the_serving_loop_and_the_embedded_engine_are_those_of_the_package() -> None:
    root = make_python_frame(WORKLOAD_ROOT, inspect.getfile(serve), path_prefixes(None))
    assert root == ROOT
    assert hasattr(serve, WORKLOAD_ROOT)
    engine = make_python_frame("f", f"{embedded.__path__[0]}/kernels.py", path_prefixes(None))
    assert hide_own_frames({(root, engine): 1}) == {(root, engine): 1}


@pytest.mark.parametrize(
    ("call_graph", "remedy"),
    [
        ("python", "works outside"),
        ("dwarf,8192", 'call_graph = "dwarf,65528"'),
        ("fp", "-fno-omit-frame-pointer"),
    ],
)
def test_a_profile_whose_stacks_are_cut_is_an_error(call_graph: str, remedy: str) -> None:
    taken = profile({(ROOT,): 100}, call_graph=call_graph, complete=89)
    error = cut_stacks_error(taken, 0.9)
    assert error is not None
    assert (error.code, "89.0% of 100 stacks" in error.problem) == ("E_STACKS_CUT", True)
    assert remedy in error.remedy
    assert cut_stacks_error(replace(taken, complete=90), 0.9) is None
    # It has no stacks to complete.
    assert cut_stacks_error(replace(taken, call_graph="none"), 0.9) is None
