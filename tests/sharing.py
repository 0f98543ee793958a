"""Which tests share a worker of pytest-xdist: two that measure never run side by side."""

from __future__ import annotations

from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

QUIET: Mapping[str, frozenset[str]] = {
    "benchmarks": frozenset(["brick_graphs"]),
    "doors": frozenset(
        [
            "batching",
            "bricks_command",
            "calibrated",
            "ini",
            "instruments",
            "kernel_markers",
            "marker",
            "names",
            "opening",
        ]
    ),
    "embedded": frozenset(
        ["inject", "kernels", "model", "tokenizer", "traffic", "transformer", "weights"]
    ),
    "profile": frozenset(
        [
            "callgrind_out",
            "category",
            "counted",
            "difference",
            "fold",
            "fuzz",
            "hotspots",
            "importing",
            "jitdump",
            "normalise",
            "perf_fast",
            "perf_script",
            "permissions",
            "roots",
            "sidecar",
            "subtraction",
            "text",
        ]
    ),
    "workload": frozenset(
        [
            "build",
            "declare",
            "device_nodes",
            "discover",
            "functions",
            "gguf",
            "hub",
            "llama_cpp",
            "model_digest",
            "model_reading",
            "nvml",
            "observation",
            "program",
            "redaction",
            "reported",
            "sampling",
            "search",
            "slowing",
            "split",
            "sse",
            "thresholds",
            "wire",
        ]
    ),
}
"""The rooms whose tests start engines and profilers, each with its modules that do not.

A module that is not known here counts as one that measures.
"""

STEADY: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "doors": frozenset(
            [
                "brick_pass",
                "brick_showing",
                "calibrate",
                "cli",
                "collect",
                "confinement",
                "counted",
                "diff",
                "doctor",
                "faults",
                "hostile_words",
                "import_export",
                "keeping",
                "keys",
                "litter",
                "off",
                "sealing",
                "secrets",
                "settings",
                "shown",
                "signing",
            ]
        ),
        "profile": frozenset(["failing_tools", "speedscope", "speedscope_profile", "tachyon"]),
    }
)
"""The modules of these rooms that do start them, and ask nothing of how fast anything was."""


def together(nodeid: str) -> str:
    """Return the name of what a test shares a worker with: all that measures, or its module.

    What a module has made, it has made once.
    """
    module = nodeid.partition("::")[0]
    room, stem = PurePath(module).parts[-2:]
    name = stem.removeprefix("test_").removesuffix(".py")
    alone = QUIET.get(room, frozenset()) | STEADY.get(room, frozenset())
    return "measuring" if room in QUIET and name not in alone else module
