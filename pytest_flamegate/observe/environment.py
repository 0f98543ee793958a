"""The environment variables that make inference repeatable: as requested, and as observed."""

import os
import re
from collections.abc import Mapping
from types import MappingProxyType

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.process_system import FILLER, read_proc
from pytest_flamegate.engines import engine
from pytest_flamegate.observe.redact import redact_environment

_RECORDED = re.compile(
    r"(?:BITNET|BLAS|BLIS|CUBLAS|CUDA|FLAMEGATE|GGML|GOMP|KMP|LLAMA|MALLOC|MKL|NUMEXPR|OMP|"
    r"OPENBLAS|RAYON|ROCR|VLLM)_[A-Z0-9_]{1,64}|"
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
    """Return the engine's variables with threads and seed filled in, then the declared ones.

    A declared variable wins: with ``env = { OMP_NUM_THREADS = "2" }`` two threads run.
    """
    values = {
        name: value.format(threads=workload.threads, seed=workload.seed)
        for name, value in engine(workload.engine).variables.items()
    }
    values.update(workload.env)
    return values


def read_variables(pid: int, names: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of ``names`` in process ``pid``, and of others that change its speed.

    Values of secrets are removed, and all other variables left out. Empty if the environment
    cannot be read, as outside Linux.
    """
    found = {}
    for entry in read_proc(pid, "environ").split(b"\0"):
        name, _, value = entry.decode("utf-8", "replace").partition("=")
        if name in names or (_RECORDED.fullmatch(name) and name not in _OWN):
            found[name] = value
    return MappingProxyType(dict(sorted(redact_environment(found).items())))
