"""SIGTERM ends a run as Ctrl-C does: processes, servers and worktrees go before this one."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator


class Terminated(KeyboardInterrupt):
    """SIGTERM came. Whoever cleans up on Ctrl-C cleans up."""


@contextmanager
def terminable() -> Iterator[None]:
    """Raise ``Terminated`` where SIGTERM comes inside, unless somebody else handles it.

    Only the main thread can ask for signals; elsewhere nothing changes.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminated(*_: object) -> NoReturn:
    # Once: a second one, sent in impatience, ends this process at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated
