"""The environment variables that make inference repeatable, in one table."""

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
class Variable:
    """One variable: its value, the reason for it, the moment it is read, and its engines.

    ``value`` may hold the workload's ``{threads}`` and ``{seed}``. ``since`` is the moment before
    which the variable must be set; a process has it from its start.
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
    Variable("OMP_NUM_THREADS", "{threads}", "threads of OpenMP (ggml, oneDNN)", _POOL),
    Variable("OMP_DYNAMIC", "false", "OpenMP takes no fewer threads under load", _POOL),
    Variable("OPENBLAS_NUM_THREADS", "{threads}", "threads of OpenBLAS: helpers spin", _LOADED),
    Variable("MKL_NUM_THREADS", "{threads}", "threads of MKL", _LOADED),
    Variable("MKL_DYNAMIC", "false", "MKL takes no fewer threads under load", _LOADED),
    Variable("MKL_CBWR", "COMPATIBLE", "MKL adds in one order on every CPU", "MKL's first call"),
    Variable("VECLIB_MAXIMUM_THREADS", "{threads}", "threads of Apple's Accelerate", _LOADED),
    Variable("NUMEXPR_NUM_THREADS", "{threads}", "threads of numexpr", _LOADED),
    Variable("PYTHONHASHSEED", "0", "sets and dictionaries keep one order", "Python starts"),
    Variable(
        "CUBLAS_WORKSPACE_CONFIG",
        ":4096:8",
        "cuBLAS adds in one order",
        "any CUDA context is made",
        _ALL - {"embedded"},
    ),
    Variable(
        "TOKENIZERS_PARALLELISM",
        "false",
        "no threads of Hugging Face tokenizers",
        "the first text is split",
        _PROGRAMS | {"python"},
    ),
    Variable(
        "RAYON_NUM_THREADS", "{threads}", "threads of Rust's rayon", _POOL, _ALL - {"embedded"}
    ),
    Variable(
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        "0",
        "vLLM schedules in one order, in one process",
        "vllm is imported",
        frozenset({"python"}),
    ),
    Variable(
        "LLAMA_ARG_THREADS", "{threads}", "threads of llama.cpp's programs", _STARTED, _PROGRAMS
    ),
    Variable("BITNET_DETERMINISTIC", "1", "BitNet's own switch", _STARTED, _PROGRAMS),
    Variable("BITNET_SEED", "{seed}", "BitNet's seed", _STARTED, _PROGRAMS),
    Variable("RUST_LOG", "warn", "no time goes into messages", _STARTED, _PROGRAMS),
)
"""All variables that are set by default; a workload's own ``env`` overrides them."""

_RECORDED = re.compile(
    r"(?:BITNET|BLAS|BLIS|CUBLAS|CUDA|FLAMEGATE|GGML|GOMP|KMP|LLAMA|MALLOC|MKL|NUMEXPR|OMP|"
    r"OPENBLAS|RAYON|ROCR|VECLIB|VLLM)_[A-Z0-9_]{1,64}|"
    r"GLIBC_TUNABLES|GOTO_NUM_THREADS|PYTHONHASHSEED|PYTHONMALLOC|RUST_BACKTRACE|RUST_LOG|"
    r"RUSTFLAGS|TOKENIZERS_PARALLELISM"
)
"""Names that are recorded whenever a process has them: each may change its speed."""
_OWN = frozenset({"FLAMEGATE_ENGINE", "FLAMEGATE_TREE", "FLAMEGATE_VERSION"})
"""Variables that this package sets itself; they are not recorded."""


def requested_variables(workload: Workload) -> Mapping[str, str]:
    """Return the variables that this workload runs with, for the record: secrets are removed."""
    return MappingProxyType(dict(sorted(redact_environment(_fill(workload)).items())))


def make_environment(workload: Workload) -> dict[str, str]:
    """Return the whole environment of a child: that of this process and the variables."""
    return {**os.environ, **_fill(workload)}


def _fill(workload: Workload) -> dict[str, str]:
    values = {
        variable.name: variable.value.format(threads=workload.threads, seed=workload.seed)
        for variable in VARIABLES
        if workload.engine in variable.engines
    }
    values.update(workload.env)
    return values


def read_variables(pid: int, names: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of ``names`` in process ``pid``, and of others that change its speed.

    Values of secrets are removed, and all other variables left out. Empty if the environment
    cannot be read, as outside Linux.
    """
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return MappingProxyType({})
    found = {}
    for entry in entries:
        name, _, value = entry.decode("utf-8", "replace").partition("=")
        if name in names or (_RECORDED.fullmatch(name) and name not in _OWN):
            found[name] = value
    return MappingProxyType(dict(sorted(redact_environment(found).items())))
