"""Python code in a child process: a function that yields tokens, or a test that is a benchmark."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypedDict

from pytest_flamegate.config.workload import BENCHMARK_ENGINE, Workload
from pytest_flamegate.core import limit
from pytest_flamegate.engines.base import (
    PYTHON_VARIABLES,
    ROUND,
    DeclarationError,
    Engine,
    Plan,
    Served,
)

WORK = ("elements", "bytes", "flops")
"""The options of a benchmark that declare the work of one call."""


class PythonOptions(TypedDict, total=False):
    """``kernel_trace``: torch.profiler traces the kernels, or the target itself does."""

    kernel_trace: Literal["torch", "target"]


class Python(Engine):
    """Imports ``target = "module:function"``, and calls it with prompt and max_tokens."""

    name = "python"
    keys = frozenset({"target", "model"})
    options = PythonOptions
    runs_python = True
    origin_keys = ("target",)
    variables = PYTHON_VARIABLES

    def validate(self, workload: Workload) -> None:
        """Raise ``UsageError`` ``E_BAD_VALUE`` for a missing or misspelt target."""
        names = (workload.target or "").split(":")
        parts = [part for name in names for part in name.split(".")]
        if len(names) != 2 or not all(map(str.isidentifier, parts)):
            raise _target_error(
                workload,
                "a target module:function of dotted Python names",
                'Write target = "module:function", with the module as import names it '
                "(src.engine for src/engine.py); it is called with prompt and max_tokens.",
            )

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Serve the target in a child process; it loads the model itself."""
        load: dict[str, Any] = {
            "factory": "pytest_flamegate.child.python:load_engine",
            "target": workload.target,
            "directory": str(workload.directory.resolve()),
        }
        if workload.injection is not None:
            load["inject"] = [workload.injection.frame, workload.injection.extra_pct]
        return Served(load)


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


class Benchmark(Engine):
    """Hosts a test with pytest-benchmark's fixture: ``target = "tests/test_gemv.py::test[64]"``.

    A fresh process runs pytest on that one test and, when the test calls ``benchmark(f)``, calls
    ``f`` on command instead. A round of ``calls`` calls stands for a token; there is no prompt.
    """

    name = BENCHMARK_ENGINE
    keys = frozenset({"target"})
    options = BenchmarkOptions
    runs_python = True
    origin_keys = ("target",)

    def validate(self, workload: Workload) -> None:
        """Raise ``UsageError`` ``E_BAD_VALUE`` if the target is not the node id of a test."""
        if "::" not in (workload.target or ""):
            raise _target_error(
                workload,
                "the node id of a test as target",
                'Write target = "tests/test_kernels.py::test_gemv".',
            )

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Serve the test's benchmark in a child process."""
        directory = str(workload.directory.resolve())
        load: dict[str, Any] = {
            "host": "pytest_flamegate.child.hosting:host",
            "target": workload.target,
            "directory": directory,
            "arguments": [*workload.options.get("arguments", ())],  # type: ignore[misc]
            # As ``python -m pytest`` has it, and ``pytest`` has not.
            "on_path": directory in map(os.path.realpath, sys.path),
        }
        if "calls" in workload.options:
            load["calls"] = workload.options["calls"]
        return Served(load, token_unit=ROUND)

    def needs_facts(self, workload: Workload) -> bool:
        """Return whether the calls of a round are not declared."""
        return "calls" not in workload.options

    def complete(
        self, workload: Workload, facts: Mapping[str, str], known: Mapping[str, object] | None
    ) -> Workload:
        """Return ``workload`` with the calls and rounds of ``known``, else those of the child."""
        calls, rounds = int(facts["calls"]), int(facts["rounds"])
        earlier = (known or {}).get("calls"), (known or {}).get("max_tokens")
        if isinstance(earlier[0], int) and isinstance(earlier[1], int):
            calls, rounds = earlier[0], earlier[1]
        more = {"setup": facts["setup"]} if "setup" in facts else {}
        options = MappingProxyType({**workload.options, "calls": calls, **more})
        return replace(workload, max_tokens=rounds, options=options)


def _target_error(workload: Workload, wanted: str, remedy: str) -> DeclarationError:
    problem = f"the engine {workload.engine} needs {wanted}, and target is {workload.target!r}."
    return DeclarationError(problem, remedy, "target")
