"""One measurement at a time on a machine: two side by side would measure each other."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.store import lock

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMEOUT_S = 3600.0


@contextmanager
def machine_lock() -> Iterator[None]:
    """Wait for this user's other measurements on the machine to end, then hold the machine."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    with lock(Path(tempfile.gettempdir()) / f"flamegate-{user}.lock", timeout_s=_TIMEOUT_S):
        yield
