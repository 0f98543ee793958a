"""Process trees that do not want to end, and what ending them leaves.

Run as ``python -S -E trees.py SHAPE FILE``: makes the tree, whose processes each write a line
to FILE, and hangs. Needs the standard library alone, so that a tree starts fast.
"""

import os
import signal
import sys
import time
from collections.abc import Callable

SLEEP_S = 600.0


def born(ignoring: bool = True) -> None:
    if ignoring:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    descriptor = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    os.close(descriptor)


def hang() -> None:
    while True:
        time.sleep(SLEEP_S)


def child(act: Callable[[], object] = hang, *, session: bool = False, ignoring: bool = True) -> int:
    pid = os.fork()
    if pid == 0:
        if session:
            os.setsid()
        born(ignoring)
        act()
        os._exit(0)
    return pid


def ignores_term() -> None:
    child()


def orphans() -> None:
    """Their parent is dead and never waited for."""
    child(lambda: (child(), child(session=True)))


def ended_root() -> None:
    """Nobody but orphans in sessions of their own is left."""
    child(lambda: child(session=True), session=True)
    os._exit(0)


def stopped() -> None:

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        hang()

    child(stop, ignoring=False)
    child(stop, session=True)
    born(ignoring=False)
    os.kill(os.getpid(), signal.SIGSTOP)


def forks_on() -> None:
    """Each child forks the next as long as it is let, and goes on."""

    def chain(left: int) -> None:
        if left:
            time.sleep(0.002)
            child(lambda: chain(left - 1), session=left % 3 == 0)
        hang()

    child(lambda: chain(40))


def execs() -> None:
    """Another program, in a session of its own, behind a parent that ends."""
    child(
        lambda: child(lambda: os.execv("/bin/sleep", ["sleep", "600"]), session=True), session=True
    )


def catches_term() -> None:
    """A handler that goes on: this one costs the whole grace."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    child()


SHAPES = {
    "ignores SIGTERM": (ignores_term, 2),
    "orphans": (orphans, 4),
    "root has ended": (ended_root, 3),
    "stopped": (stopped, 3),
    "forks on": (forks_on, 12),
    "runs a program": (execs, 3),
    "handles SIGTERM, goes on": (catches_term, 2),
}
"""What makes each shape, and how many lines say that it stands (of those still forking, some)."""


if __name__ == "__main__":
    if sys.argv[1] != "stopped":
        born()
    SHAPES[sys.argv[1]][0]()
    hang()
