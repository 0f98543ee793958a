"""A fixed piece of work that a machine's speed is measured by.

Its cost rises and falls with the machine's (clock, cache and memory taken by
neighbours, placement of a process), but never with a change to the code under
test. Workload time divided by reference time is therefore quieter than either.
It resembles a decode: matrix-vector products over more memory than a core's own
caches hold, with small vector operations between them.
"""

from __future__ import annotations

import numpy as np

_MATRICES = 4
_SIDE = 1536


class Reference:
    """The reference kernel; its matrices take 38 MB and are allocated once."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._matrices = [
            rng.standard_normal((_SIDE, _SIDE), dtype=np.float32) for _ in range(_MATRICES)
        ]
        self._vector = rng.standard_normal(_SIDE, dtype=np.float32)

    def run(self, times: int) -> None:
        """Do the fixed work ``times`` times (about 2 ms each)."""
        for _ in range(times):
            vector = self._vector
            for matrix in self._matrices:
                vector = matrix @ vector
                for _ in range(8):
                    scale = np.float32(1.0) / np.sqrt(vector.dot(vector) / _SIDE + 1e-5)
                    vector = vector * scale
