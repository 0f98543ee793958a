"""A test that uses pytest-benchmark's fixture: ``target = "tests/test_kernels.py::test_gemv[64]"``.

A fresh process runs pytest on that one test and, where the test calls ``benchmark(f)``, calls
``f`` on command instead: what stands for a token is a round of ``calls`` calls.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_flamegate.config.workload import BENCHMARK_ENGINE
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines.base import ROUND, Plan, Served

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Kinds


WORK = ("elements", "bytes", "flops")
"""What a test may declare that one call works on."""
HOST = "pytest_flamegate.child.hosting:host"


class Benchmark:
    """Hosts the test in a child process; no model, no prompt."""

    name = BENCHMARK_ENGINE
    keys = frozenset({"target"})
    options: Mapping[str, Kinds] = MappingProxyType(
        {
            "calls": (int,),
            **dict.fromkeys(WORK, (int,)),
            "arguments": (list,),
            "setup": (str,),
        }
    )

    def sees_python(self, workload: Workload) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def validate(self, workload: Workload) -> None:
        """Refuse a target that is no test's node id, and figures that are none."""
        if "::" not in (workload.target or ""):
            raise UsageError(
                "E_NO_TARGET",
                f"Workload {workload.name!r} has the engine benchmark and no usable target "
                f"({workload.target!r}).",
                'Say target = "tests/test_kernels.py::test_gemv", the node id of a test.',
            )
        for key in ("calls", *WORK):
            value = workload.options.get(key, 1)
            if not isinstance(value, int) or value < 1:
                raise UsageError(
                    "E_BAD_VALUE",
                    f"Workload {workload.name!r} has {key} = {value!r}.",
                    "Give a whole number from 1 on, for one call.",
                )

    def model(self, workload: Workload) -> Path | None:  # noqa: ARG002
        """Return None."""
        return None

    def plan(self, workload: Workload, model: Path | None) -> Plan:  # noqa: ARG002
        """Serve the test's benchmark in a child process."""
        directory = str(workload.directory.resolve())
        load: dict[str, Any] = {
            "host": HOST,
            "target": workload.target,
            "directory": directory,
            "arguments": list(_texts(workload.options.get("arguments", ()))),
            # As ``python -m pytest`` has it, and ``pytest`` has not.
            "on_path": directory in map(os.path.realpath, sys.path),
        }
        if "calls" in workload.options:
            load["calls"] = workload.options["calls"]
        return Served(load, token_unit=ROUND)

    def prompt_tokens(self, workload: Workload) -> int | None:  # noqa: ARG002
        """Return None: there is no prompt."""
        return None

    def needs_facts(self, workload: Workload) -> bool:
        """Return whether the calls of a round are not declared."""
        return "calls" not in workload.options

    def complete(
        self, workload: Workload, facts: Mapping[str, str], known: Mapping[str, object] | None
    ) -> Workload:
        """Return ``workload`` with the calls of a round and the rounds of a sequence.

        Those of ``known``, if it has them, else those that the child found.
        """
        calls, rounds = int(facts["calls"]), int(facts["rounds"])
        earlier = (known or {}).get("calls"), (known or {}).get("max_tokens")
        if isinstance(earlier[0], int) and isinstance(earlier[1], int):
            calls, rounds = earlier[0], earlier[1]
        more = {"setup": facts["setup"]} if "setup" in facts else {}
        options = MappingProxyType({**workload.options, "calls": calls, **more})
        return replace(workload, max_tokens=rounds, options=options)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, (list, tuple)) else ()
