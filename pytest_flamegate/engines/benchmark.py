"""A test that uses pytest-benchmark's fixture: ``target = "tests/test_kernels.py::test_gemv[64]"``.

A fresh process runs pytest on that one test and, when the test calls ``benchmark(f)``, calls
``f`` on command instead. A round of ``calls`` calls stands for a token.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pytest_flamegate.config.workload import BENCHMARK_ENGINE, Workload
from pytest_flamegate.core import limit
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines.base import ROUND, Plan, Served

WORK = ("elements", "bytes", "flops")
"""The options that declare the work of one call."""
_HOST = "pytest_flamegate.child.hosting:host"


class BenchmarkOptions:
    """``calls`` of a round, the ``WORK`` of one call, and arguments of pytest.

    ``setup`` records that the test's own setup is measured with each call.
    """

    calls: Annotated[int, limit(ge=1)]
    elements: Annotated[int, limit(ge=1)]
    bytes: Annotated[int, limit(ge=1)]
    flops: Annotated[int, limit(ge=1)]
    arguments: tuple[str, ...]
    setup: str


class Benchmark:
    """Hosts the test in a child process; no model, no prompt."""

    name = BENCHMARK_ENGINE
    keys = frozenset({"target"})
    options = BenchmarkOptions

    def sees_python(self, workload: Workload) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def validate(self, workload: Workload) -> None:
        """Raise ``UsageError`` ``E_NO_TARGET`` if the target is not the node id of a test."""
        if "::" not in (workload.target or ""):
            raise UsageError(
                "E_NO_TARGET",
                "the engine benchmark needs the node id of a test as target, and target is "
                f"{workload.target!r}.",
                'Write target = "tests/test_kernels.py::test_gemv".',
            )

    def model(self, workload: Workload) -> Path | None:  # noqa: ARG002
        """Return None."""
        return None

    def plan(self, workload: Workload, model: Path | None) -> Plan:  # noqa: ARG002
        """Serve the test's benchmark in a child process."""
        directory = str(workload.directory.resolve())
        arguments: Any = workload.options.get("arguments", ())
        load: dict[str, Any] = {
            "host": _HOST,
            "target": workload.target,
            "directory": directory,
            "arguments": list(arguments),
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

        They are those of ``known``, if it has them, else those that the child found.
        """
        calls, rounds = int(facts["calls"]), int(facts["rounds"])
        earlier = (known or {}).get("calls"), (known or {}).get("max_tokens")
        if isinstance(earlier[0], int) and isinstance(earlier[1], int):
            calls, rounds = earlier[0], earlier[1]
        more = {"setup": facts["setup"]} if "setup" in facts else {}
        options = MappingProxyType({**workload.options, "calls": calls, **more})
        return replace(workload, max_tokens=rounds, options=options)
