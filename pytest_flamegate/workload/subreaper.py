"""Make this process the parent of its orphaned grandchildren, while it has children.

Linux only (``prctl`` PR_SET_CHILD_SUBREAPER); elsewhere orphans go to init, which
reaps them too. The setting is counted and given back: a test process is a guest.
"""

from __future__ import annotations

import ctypes
import sys
import threading

_SET_CHILD_SUBREAPER = 36
_GET_CHILD_SUBREAPER = 37

_lock = threading.Lock()
_users = 0
_before = 0


def acquire() -> None:
    """Start being a subreaper, unless this process already is one."""
    global _users, _before
    with _lock:
        if _users == 0:
            _before = _get()
            _set(1)
        _users += 1


def release() -> None:
    """Give the setting back when the last user is done."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            _set(_before)


def _get() -> int:
    if sys.platform != "linux":
        return 0
    value = ctypes.c_int(0)
    ctypes.CDLL(None, use_errno=True).prctl(_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0)
    return value.value


def _set(value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, value, 0, 0, 0)
