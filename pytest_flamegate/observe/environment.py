"""The knobs that make inference repeatable, in one table."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.observe.redact import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.config.workload import Workload


_PROGRAMS = frozenset({"command", "openai"})
_PYTHONS = frozenset({"embedded", "python", "llama-cpp", "benchmark"})
_ALL = _PROGRAMS | _PYTHONS


@dataclass(frozen=True, slots=True)
class Knob:
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
KNOBS = (
    Knob("OMP_NUM_THREADS", "{threads}", "threads of OpenMP (ggml, oneDNN)", _POOL),
    Knob("OMP_DYNAMIC", "false", "OpenMP takes no fewer threads under load", _POOL),
    Knob("OPENBLAS_NUM_THREADS", "{threads}", "threads of OpenBLAS: helpers spin", _LOADED),
    Knob("MKL_NUM_THREADS", "{threads}", "threads of MKL", _LOADED),
    Knob("MKL_DYNAMIC", "false", "MKL takes no fewer threads under load", _LOADED),
    Knob("MKL_CBWR", "COMPATIBLE", "MKL adds in one order on every CPU", "MKL's first call"),
    Knob("VECLIB_MAXIMUM_THREADS", "{threads}", "threads of Apple's Accelerate", _LOADED),
    Knob("NUMEXPR_NUM_THREADS", "{threads}", "threads of numexpr", _LOADED),
    Knob("PYTHONHASHSEED", "0", "sets and dictionaries keep one order", "Python starts"),
    Knob(
        "CUBLAS_WORKSPACE_CONFIG",
        ":4096:8",
        "cuBLAS adds in one order",
        "any CUDA context is made",
        _ALL - {"embedded"},
    ),
    Knob(
        "TOKENIZERS_PARALLELISM",
        "false",
        "no threads of Hugging Face tokenizers",
        "the first text is split",
        _PROGRAMS | {"python"},
    ),
    Knob("RAYON_NUM_THREADS", "{threads}", "threads of Rust's rayon", _POOL, _ALL - {"embedded"}),
    Knob(
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        "0",
        "vLLM schedules in one order, in one process",
        "vllm is imported",
        frozenset({"python"}),
    ),
    Knob("LLAMA_ARG_THREADS", "{threads}", "threads of llama.cpp's programs", _STARTED, _PROGRAMS),
    Knob("BITNET_DETERMINISTIC", "1", "BitNet's own switch", _STARTED, _PROGRAMS),
    Knob("BITNET_SEED", "{seed}", "BitNet's seed", _STARTED, _PROGRAMS),
    Knob("RUST_LOG", "warn", "no time goes into messages", _STARTED, _PROGRAMS),
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


def requested(workload: Workload) -> Mapping[str, str]:
    """Return the knobs this workload runs with, as they are recorded: without its secrets."""
    return MappingProxyType(dict(sorted(redacted(_knobs(workload)).items())))


def environment(workload: Workload) -> dict[str, str]:
    """Return the whole environment of the child: this process's own, and the knobs."""
    return {**os.environ, **_knobs(workload)}


def _knobs(workload: Workload) -> dict[str, str]:
    """Return the knobs themselves; the workload's own ``env`` wins."""
    knobs = {
        knob.name: knob.value.format(threads=workload.threads, seed=workload.seed)
        for knob in KNOBS
        if workload.engine in knob.engines
    }
    knobs.update(workload.env)
    return knobs


def effective(pid: int, names: Mapping[str, str]) -> Mapping[str, str]:
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
    return MappingProxyType(dict(sorted(redacted(found).items())))
