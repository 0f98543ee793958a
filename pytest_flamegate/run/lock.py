"""One measurement at a time on a machine: two side by side would measure each other.

The lock is a file in ``/tmp``, whatever ``TMPDIR`` says, so that all users of the machine
and all their builds see one another. Everybody may write there, so nothing found there is
trusted: a link is not followed, and a file that has another name somewhere is not written.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.locks import (
    acquire_lock,
    describe_holder,
    is_same_file,
    lock_file,
    write_holder,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


DIRECTORY = "FLAMEGATE_LOCK_DIR"
"""Names another directory for the lock: one that containers on one machine share."""
_DEFAULT_DIRECTORY = "/tmp"  # noqa: S108 - the one place that all users share
_NAME = "flamegate.lock"
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TIMEOUT_S = 3600.0


@contextmanager
def machine_lock(tell: Callable[[str], None], timeout_s: float = _TIMEOUT_S) -> Iterator[None]:
    """Wait for all other measurements on the machine to end, then hold it.

    ``tell`` hears once that this waits, and for whom; and where the machine's lock cannot
    be used, that only this user's own runs are waited for. ``ToolError``
    ``E_LOCK_TIMEOUT`` after ``timeout_s``.
    """
    path = Path(os.environ.get(DIRECTORY) or _DEFAULT_DIRECTORY, _NAME)
    try:
        descriptor = _held(path, tell, timeout_s)
    except OSError as error:
        tell(
            f"{path} cannot be the machine's lock ({error.strerror}): "
            "only runs of this user with the same TMPDIR wait for one another"
        )
        own = Path(tempfile.gettempdir(), f"flamegate-{os.getuid()}.lock")
        with lock_file(own, timeout_s):
            yield
        return
    try:
        yield
    finally:
        os.close(descriptor)


def _held(path: Path, tell: Callable[[str], None], timeout_s: float) -> int:
    """Return the open file ``path``, locked; ``OSError`` where it is not fit for that."""
    while True:
        descriptor = _opened(path)
        try:
            _wait(descriptor, path, tell, timeout_s)
            if is_same_file(descriptor, path):
                write_holder(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Somebody cleaned up while we waited: what is locked now has no name any more.
        os.close(descriptor)


def _opened(path: Path) -> int:
    # Opened without O_CREAT first: Linux refuses that on a file of somebody else's in a
    # directory where everybody may write (fs.protected_regular).
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        with suppress(FileExistsError):
            made = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
            os.fchmod(made, 0o666)
            return made
        descriptor = os.open(path, _FLAGS)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise OSError(None, "it is no plain file")
    return descriptor


def _wait(descriptor: int, path: Path, tell: Callable[[str], None], timeout_s: float) -> None:
    try:
        acquire_lock(descriptor, path, 0.0)
    except ToolError:
        tell(f"waiting for {describe_holder(descriptor)} to end its measurement on this machine")
        acquire_lock(descriptor, path, timeout_s)
