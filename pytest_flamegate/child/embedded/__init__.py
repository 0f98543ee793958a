"""The default engine: a small ternary model, its tokenizer, its kernels.

It runs as a child process that sets the number of BLAS threads before NumPy is
imported, so nothing in here imports NumPy until ``transformer`` is.
"""

from __future__ import annotations

from pytest_flamegate.child.embedded.workloads import MODEL_PATH, WORKLOADS

__all__ = ["MODEL_PATH", "WORKLOADS"]
