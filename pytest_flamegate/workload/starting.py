"""Start a process that generates on command, and tell it what to load."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pytest_flamegate.workload import child as child_side
from pytest_flamegate.workload import determinism, process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.workload.engines.base import Served
    from pytest_flamegate.workload.spec import Workload

_PACKAGE = Path(child_side.__file__).parents[1]
_ELSEWHERE = f"""\
import importlib.util, runpy, sys
spec = importlib.util.spec_from_file_location(
    {_PACKAGE.name!r}, {str(_PACKAGE / "__init__.py")!r},
    submodule_search_locations=[{str(_PACKAGE)!r}])
sys.modules[spec.name] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""Runs a module in another environment, which gains this package and nothing that is beside it."""


def start(
    plan: Served,
    workload: Workload,
    env: Mapping[str, str],
    python_flags: Sequence[str],
    cpu: int | None,
) -> tuple[process.Child, int, int]:
    """Start the child; return it, what to read its reports from and what to command it through.

    ``cpu`` is the one core it is bound to. ``ToolError`` ``E_CANNOT_START`` where it cannot run.
    """
    command_read, command_write = os.pipe()
    report_read, report_write = os.pipe()
    try:
        if plan.call is None:
            with tempfile.TemporaryFile() as spec:
                started = process.start(
                    _argv(plan, workload, (command_read, report_write), spec, python_flags),
                    env=env,
                    cwd=workload.directory,
                    pass_fds=(command_read, report_write, spec.fileno()),
                    cpu=cpu,
                )
        else:
            started = process.fork(
                lambda: _serve_call(
                    plan, workload, (command_read, report_write), (command_write, report_read)
                ),
                cpu=cpu,
            )
    except BaseException:
        os.close(command_write)
        os.close(report_read)
        raise
    finally:
        os.close(command_read)
        os.close(report_write)
    return started, report_read, command_write


def _argv(
    plan: Served,
    workload: Workload,
    fds: tuple[int, int],
    spec: IO[bytes],
    python_flags: Sequence[str],
) -> list[str]:
    """Return the command line; ``spec`` takes what to load, for a prompt may be too long for it."""
    told = {**plan.load, "prompt": workload.prompt, "max_tokens": workload.max_tokens}
    spec.write(json.dumps(told).encode())
    spec.seek(0)
    numbers = [str(fd) for fd in (*fds, spec.fileno())]
    return [*command(plan, child_side.__name__, python_flags), *numbers]


def command(plan: Served, module: str, python_flags: Sequence[str] = ()) -> list[str]:
    """Return what runs ``module`` of this package on the interpreter that the plan names."""
    if plan.python is None:
        return [sys.executable, *python_flags, "-P", "-m", module]
    return [plan.python, *python_flags, "-P", "-c", _ELSEWHERE, module]


def _serve_call(
    plan: Served, workload: Workload, own: tuple[int, int], parents: tuple[int, int]
) -> None:
    """Serve a callable of this process, in the fork of it."""
    for fd in parents:
        os.close(fd)
    call = plan.call
    assert call is not None
    read_fd, write_fd = own

    # What is loaded already has read its own; what the callable loads now will read these.
    os.environ.update(determinism.environment(workload))

    def work() -> None:
        child_side.allow_profiler()
        child_side.serve(call, workload.prompt, workload.max_tokens, read_fd, write_fd)

    child_side.guarded(work, write_fd)
