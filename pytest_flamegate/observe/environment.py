"""The environment variables that make inference repeatable, in one table."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.process_system import FILLER
from pytest_flamegate.observe.redact import redact_environment

_PROGRAMS = frozenset({"command", "openai"})
_PYTHONS = frozenset({"embedded", "python", "llama-cpp", "benchmark"})
_ALL = _PROGRAMS | _PYTHONS

VARIABLES: Mapping[str, tuple[str, frozenset[str]]] = MappingProxyType(
    {
        "OMP_NUM_THREADS": ("{threads}", _ALL),
        "OMP_DYNAMIC": ("false", _ALL),
        "OPENBLAS_NUM_THREADS": ("{threads}", _ALL),
        "MKL_NUM_THREADS": ("{threads}", _ALL),
        "MKL_DYNAMIC": ("false", _ALL),
        "MKL_CBWR": ("COMPATIBLE", _ALL),
        "VECLIB_MAXIMUM_THREADS": ("{threads}", _ALL),
        "NUMEXPR_NUM_THREADS": ("{threads}", _ALL),
        "PYTHONHASHSEED": ("0", _ALL),
        "CUBLAS_WORKSPACE_CONFIG": (":4096:8", _ALL - {"embedded"}),
        "TOKENIZERS_PARALLELISM": ("false", _PROGRAMS | {"python"}),
        "RAYON_NUM_THREADS": ("{threads}", _ALL - {"embedded"}),
        "VLLM_ENABLE_V1_MULTIPROCESSING": ("0", frozenset({"python"})),
        "LLAMA_ARG_THREADS": ("{threads}", _PROGRAMS),
        "BITNET_DETERMINISTIC": ("1", _PROGRAMS),
        "BITNET_SEED": ("{seed}", _PROGRAMS),
        "RUST_LOG": ("warn", _PROGRAMS),
    }
)
"""Variables that are set by default: value and engines. A workload's own ``env`` overrides them.

docs/engines.md gives the purpose of each. ``{threads}`` and ``{seed}`` are the workload's.
"""

_RECORDED = re.compile(
    r"(?:BITNET|BLAS|BLIS|CUBLAS|CUDA|FLAMEGATE|GGML|GOMP|KMP|LLAMA|MALLOC|MKL|NUMEXPR|OMP|"
    r"OPENBLAS|RAYON|ROCR|VECLIB|VLLM)_[A-Z0-9_]{1,64}|"
    r"GLIBC_TUNABLES|GOTO_NUM_THREADS|PYTHONHASHSEED|PYTHONMALLOC|RUST_BACKTRACE|RUST_LOG|"
    r"RUSTFLAGS|TOKENIZERS_PARALLELISM"
)
"""Names that are recorded whenever a process has them: each may change its speed."""
_OWN = frozenset(
    {FILLER, "FLAMEGATE_ENGINE", "FLAMEGATE_LOCK_DIR", "FLAMEGATE_TREE", "FLAMEGATE_VERSION"}
)
"""Variables that this package sets itself; they are not recorded."""


def requested_variables(workload: Workload) -> Mapping[str, str]:
    """Return the variables that this workload runs with, for the record: secrets are removed."""
    return MappingProxyType(dict(sorted(redact_environment(_fill(workload)).items())))


def make_environment(workload: Workload) -> dict[str, str]:
    """Return the whole environment of a child: that of this process and the variables."""
    return {**os.environ, **_fill(workload)}


def _fill(workload: Workload) -> dict[str, str]:
    values = {
        name: value.format(threads=workload.threads, seed=workload.seed)
        for name, (value, engines) in VARIABLES.items()
        if workload.engine in engines
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
