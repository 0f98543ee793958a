"""The knobs that make inference repeatable, in one table."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.workload.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.workload.spec import Workload

_FIXED = {
    "BITNET_DETERMINISTIC": "1",
    "OMP_DYNAMIC": "false",
    "MKL_DYNAMIC": "false",
    "MKL_CBWR": "COMPATIBLE",
    "PYTHONHASHSEED": "0",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "TOKENIZERS_PARALLELISM": "false",
    "RUST_LOG": "warn",
}
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

_RECORDED = re.compile(
    r"(?:BITNET|BLAS|BLIS|CUBLAS|CUDA|FLAMEGATE|GGML|GOMP|KMP|LLAMA|MALLOC|MKL|NUMEXPR|OMP|"
    r"OPENBLAS|RAYON|ROCR|VECLIB)_[A-Z0-9_]{1,64}|"
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
    knobs = dict(_FIXED)
    knobs["BITNET_SEED"] = str(workload.seed)
    knobs.update({name: str(workload.threads) for name in _THREADS})
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
