"""Hidden names beside what is written: not yet given its name, taken away, or set aside.

Every writer makes its hidden names under the lock of the directory they stand in. Whoever
holds that lock so knows that those found there were left by a writer that was killed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LEFT = re.compile(r"\.(?P<name>.+)\.(?P<role>new|old)-[0-9a-f]{12}", re.DOTALL)
_PROBE = re.compile(r"\.flamegate-probe-[0-9a-f]{12}")


def passing(path: Path) -> Path:
    """Return an unused name for what is on its way to ``path``, or out of it: swept."""
    return path.with_name(f".{path.name}.new-{secrets.token_hex(6)}")


def waiting(path: Path) -> Path:
    """Return an unused name for what goes back to ``path`` if the writer is killed."""
    return path.with_name(f".{path.name}.old-{secrets.token_hex(6)}")


def aside(path: Path) -> Path:
    """Return an unused name for what is spoilt at ``path``. Nothing ever removes it."""
    # Microseconds keep two of one second apart; the writer's lock does the rest.
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return path.with_name(f".{path.name}.corrupt-{stamp}")


def probing(directory: Path) -> Path:
    """Return an unused name for a file that only tries whether ``directory`` can be written."""
    return directory / f".flamegate-probe-{secrets.token_hex(6)}"


def tidy(directory: Path, name: str | None = None) -> None:
    """Bring back what ``name`` lost and remove what else killed writers left, under the lock.

    Without a name, of all of them. ``OSError`` where something cannot be brought back or
    taken out of the way of that; what only takes up space may stay.
    """
    for entry, named, role in _left(directory):
        if name not in (None, named):
            continue
        if role == "old" and not os.path.lexists(directory / named):
            entry.rename(directory / named)
        elif role == "old":
            gone = passing(directory / named)
            # Half removed it must not come back.
            entry.rename(gone)
            discard(gone)
        else:
            discard(entry)


def tidy_probes(directory: Path) -> None:
    """Remove the probes that killed writers left, under the lock."""
    for entry in list(directory.iterdir()):
        if _PROBE.fullmatch(entry.name):
            discard(entry)


def discard(path: Path) -> None:
    """Remove the file or directory ``path`` as far as the system lets us."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _left(directory: Path) -> Iterator[tuple[Path, str, str]]:
    for entry in sorted(directory.iterdir()):
        found = _LEFT.fullmatch(entry.name)
        if found is not None:
            yield entry, found["name"], found["role"]
