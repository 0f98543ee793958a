"""The embedded engine: a small ternary model and the NumPy kernels that run it.

It runs in a child process that sets the number of BLAS threads before NumPy is imported, so
the parent process imports nothing of this package.
"""

from __future__ import annotations
