"""Which operations ggml runs, as it tells a callback before each of them."""

from __future__ import annotations

import ctypes
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_NO_WORK = frozenset({"NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"})
"""Operations that only say how to look at a tensor."""


@contextmanager
def counting(library: ModuleType, params: Any) -> Iterator[Counter[str]]:
    """Count operations by name in every context that is made with ``params``.

    ``library`` is the module ``llama_cpp``. It costs a call into Python for each operation,
    so nothing that is timed runs so. A context made within has to be freed within.
    """
    counts: Counter[str] = Counter()
    described = library.llama_cpp._lib.ggml_op_desc  # found in the ggml that it is linked with
    described.argtypes, described.restype = [ctypes.c_void_p], ctypes.c_char_p

    def asked(tensor: int, ask: bool, _: object) -> bool:
        if ask:
            name = described(tensor).decode()
            if name not in _NO_WORK:
                counts[name] += 1
        return not ask  # False: its result need not be held for us; True: go on

    params.cb_eval = library.ggml_backend_sched_eval_callback(asked)
    yield counts
