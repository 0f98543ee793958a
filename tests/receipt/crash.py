"""Kills a writer at each of its system calls, and tells what is left each time.

Run as ``python -m tests.receipt.crash SCENARIO DIRECTORY``. Every point is one forked
child that kills itself right before (or right after) its n-th call; the points end
with the child that survives. Prints one JSON list.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.core import files
from pytest_flamegate.receipt import store

if TYPE_CHECKING:
    from collections.abc import Callable


OLD = {"receipt.json": b"old receipt", "evidence.json": b"old evidence", "flamegraph.svg": b"old"}
NEW = {"receipt.json": b"new receipt", "evidence.json": b"new evidence", "verdict.json": b"new"}
CALLS = ("open", "write", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "close")


def _publish(place: Path) -> None:
    store.publish(place / "run", NEW)


def _clear(place: Path) -> None:
    store.clear(place / "run")


def _write(place: Path) -> None:
    store.write_atomic(place / "run" / "receipt.json", NEW["receipt.json"])


def _append(place: Path) -> None:
    store.append_line(place / "run" / "receipt.json", b"line")


def _cannot_swap(one: Path, other: Path) -> bool:
    return False


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "publish": _publish,
    "publish-in-two-steps": _publish,
    "clear": _clear,
    "write": _write,
    "append": _append,
}


def _arm(point: int, when: str) -> None:
    """Let the ``point``-th watched call kill this process."""
    left = point

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **named)
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return run

    for name in CALLS:
        setattr(os, name, watched(getattr(os, name)))
    files.exchange_names = watched(files.exchange_names)


def _contents(directory: Path) -> dict[str, str] | None:
    if not directory.is_dir():
        return None
    return {path.name: path.read_text() for path in sorted(directory.iterdir())}


def _point(scenario: str, place: Path, point: int, when: str) -> dict[str, Any]:
    store.publish(place / "run", OLD)
    child = os.fork()
    if child == 0:
        _arm(point, when)
        SCENARIOS[scenario](place)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    left = _contents(place / "run")
    SCENARIOS[scenario](place)
    repaired = _contents(place / "run")
    litter = sorted(path.name for path in place.iterdir() if path.name != "run")
    return {
        "killed": os.WIFSIGNALED(status),
        "status": os.waitstatus_to_exitcode(status),
        "left": left,
        "repaired": repaired,
        "litter": litter,
    }


def main(scenario: str, place: Path) -> list[dict[str, Any]]:
    """Return what each point left behind."""
    if scenario == "publish-in-two-steps":
        files.exchange_names = _cannot_swap
    points: list[dict[str, Any]] = []
    for when in ("before", "after"):
        point = 0
        while point == 0 or points[-1]["killed"]:
            point += 1
            points.append(_point(scenario, place, point, when))
    return points


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
