"""The knobs that make inference repeatable, in one table."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.observe.redact import redact_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.config.workload import Workload


_PROGRAMS = frozenset({"command", "openai"})
_PYTHONS = frozenset({"embedded", "python", "llama-cpp", "benchmark"})
_ALL = _PROGRAMS | _PYTHONS


@dataclass(frozen=True, slots=True)
class EngineVariable:
    """One variable of the environment: its value, for which engines, why, and since when.

    In ``value`` the workload's ``{threads}`` and ``{seed}`` are filled in. ``since`` says what
    it has to be set before; all are, for a process gets them when it starts.
    """

    name: str
    value: str
    why: str
    since: str
    engines: frozenset[str] = _ALL


_LOADED = "the library is loaded"
_POOL = "the first parallel loop"
_STARTED = "the program starts"
VARIABLES = (
    EngineVariable("OMP_NUM_THREADS", "{threads}", "threads of OpenMP (ggml, oneDNN)", _POOL),
    EngineVariable("OMP_DYNAMIC", "false", "OpenMP takes no fewer threads under load", _POOL),
    EngineVariable(
        "OPENBLAS_NUM_THREADS", "{threads}", "threads of OpenBLAS: helpers spin", _LOADED
    ),
    EngineVariable("MKL_NUM_THREADS", "{threads}", "threads of MKL", _LOADED),
    EngineVariable("MKL_DYNAMIC", "false", "MKL takes no fewer threads under load", _LOADED),
    EngineVariable(
        "MKL_CBWR", "COMPATIBLE", "MKL adds in one order on every CPU", "MKL's first call"
    ),
    EngineVariable("VECLIB_MAXIMUM_THREADS", "{threads}", "threads of Apple's Accelerate", _LOADED),
    EngineVariable("NUMEXPR_NUM_THREADS", "{threads}", "threads of numexpr", _LOADED),
    EngineVariable("PYTHONHASHSEED", "0", "sets and dictionaries keep one order", "Python starts"),
    EngineVariable(
        "CUBLAS_WORKSPACE_CONFIG",
        ":4096:8",
        "cuBLAS adds in one order",
        "any CUDA context is made",
        _ALL - {"embedded"},
    ),
    EngineVariable(
        "TOKENIZERS_PARALLELISM",
        "false",
        "no threads of Hugging Face tokenizers",
        "the first text is split",
        _PROGRAMS | {"python"},
    ),
    EngineVariable(
        "RAYON_NUM_THREADS", "{threads}", "threads of Rust's rayon", _POOL, _ALL - {"embedded"}
    ),
    EngineVariable(
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        "0",
        "vLLM schedules in one order, in one process",
        "vllm is imported",
        frozenset({"python"}),
    ),
    EngineVariable(
        "LLAMA_ARG_THREADS", "{threads}", "threads of llama.cpp's programs", _STARTED, _PROGRAMS
    ),
    EngineVariable("BITNET_DETERMINISTIC", "1", "BitNet's own switch", _STARTED, _PROGRAMS),
    EngineVariable("BITNET_SEED", "{seed}", "BitNet's seed", _STARTED, _PROGRAMS),
    EngineVariable("RUST_LOG", "warn", "no time goes into messages", _STARTED, _PROGRAMS),
)
"""Every knob that is turned without being asked for; a workload's own ``env`` wins over it."""

_RECORDED = re.compile(
    r"(?:BITNET|BLAS|BLIS|CUBLAS|CUDA|FLAMEGATE|GGML|GOMP|KMP|LLAMA|MALLOC|MKL|NUMEXPR|OMP|"
    r"OPENBLAS|RAYON|ROCR|VECLIB|VLLM)_[A-Z0-9_]{1,64}|"
    r"GLIBC_TUNABLES|GOTO_NUM_THREADS|PYTHONHASHSEED|PYTHONMALLOC|RUST_BACKTRACE|RUST_LOG|"
    r"RUSTFLAGS|TOKENIZERS_PARALLELISM"
)
"""Names that are recorded where a process has them, asked for or not: each may change its speed."""
_OURS = frozenset({"FLAMEGATE_ENGINE", "FLAMEGATE_TREE", "FLAMEGATE_VERSION"})
"""What this package says in these names it says itself; the marker of a process tree is no news."""


def requested_variables(workload: Workload) -> Mapping[str, str]:
    """Return the knobs this workload runs with, as they are recorded: without its secrets."""
    return MappingProxyType(dict(sorted(redact_environment(_knobs(workload)).items())))


def make_environment(workload: Workload) -> dict[str, str]:
    """Return the whole environment of the child: this process's own, and the knobs."""
    return {**os.environ, **_knobs(workload)}


def _knobs(workload: Workload) -> dict[str, str]:
    """Return the knobs themselves; the workload's own ``env`` wins."""
    knobs = {
        knob.name: knob.value.format(threads=workload.threads, seed=workload.seed)
        for knob in VARIABLES
        if workload.engine in knob.engines
    }
    knobs.update(workload.env)
    return knobs


def read_variables(pid: int, names: Mapping[str, str]) -> Mapping[str, str]:
    """Return what ``pid`` really got of ``names`` (Linux; elsewhere nothing is known).

    Of all the others only those are kept that are known to change how fast it runs, and of a
    secret no more than its name. The whole environment is never recorded.
    """
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return MappingProxyType({})
    found = {}
    for entry in entries:
        name, _, value = entry.decode("utf-8", "replace").partition("=")
        if name in names or (_RECORDED.fullmatch(name) and name not in _OURS):
            found[name] = value
    return MappingProxyType(dict(sorted(redact_environment(found).items())))
