"""Wait for a file descriptor, whatever its number: ``select`` stops at 1023."""

from __future__ import annotations

import select


def readable(fd: int, timeout_s: float) -> bool:
    """Whether ``fd`` has data, or its end, within ``timeout_s``."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1e3))
