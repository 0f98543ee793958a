"""Build what a workload runs, before it runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload import process

if TYPE_CHECKING:
    from pytest_flamegate.workload.spec import Workload

SKIP = "FLAMEGATE_SKIP_BUILD"
_TIMEOUT_S = 3600.0
_LAST_LINES = 8


def build(workload: Workload, *, always: bool = False) -> None:
    """Run the workload's ``build``, unless it has none or ``FLAMEGATE_SKIP_BUILD=1``.

    ``always`` builds all the same: a fresh checkout holds nothing that was built before.
    ``ToolError`` ``E_BUILD_FAILED`` carries the last lines the build wrote.
    """
    if not workload.build or (os.environ.get(SKIP) == "1" and not always):
        return
    result = process.run(
        workload.build,
        timeout_s=_TIMEOUT_S,
        env={**os.environ, **workload.env},
        cwd=workload.directory,
    )
    if result.returncode != 0:
        output = (result.stdout + result.stderr).decode("utf-8", "replace").splitlines()
        told = [line.strip() for line in output if line.strip()][-_LAST_LINES:]
        last = " | ".join(told) or "none"
        ended = "timed out" if result.timed_out else f"ended with status {result.returncode}"
        raise ToolError(
            "E_BUILD_FAILED",
            f"The build of workload {workload.name!r} {ended}. Its last lines: {last}",
            f"Run it by hand: {' '.join(workload.build)}",
        )
