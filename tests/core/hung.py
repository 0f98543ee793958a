"""Starts a tree that hangs, ends it, and counts what is left."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from pytest_flamegate.core import process
from tests.core import trees

_OF_THIS_RUN = "FLAMEGATE_TREES_OF"
_STANDS_S = 60.0


@dataclass(frozen=True)
class Left:
    """What ending one tree took, and left of its ``members`` and of its kind."""

    shape: str
    members: int
    seconds: float
    survivors: int
    zombies: int


def hang(shape: str, directory: Path) -> Left:
    """Start a tree of one shape, wait until it stands, and end it."""
    log = directory / f"{os.getpid()}-{time.monotonic_ns()}"
    program = [sys.executable, "-S", "-E", trees.__file__, shape, str(log)]
    child = process.start(program, env={**os.environ, _OF_THIS_RUN: log.name})
    try:
        deadline = time.monotonic() + _STANDS_S
        while (lines := _lines(log)) < trees.SHAPES[shape][1]:
            if time.monotonic() > deadline:
                raise AssertionError(f"{shape} does not stand: {lines}, {child.stderr_text()}")
            time.sleep(0.002)
    finally:
        began = time.perf_counter()
        child.end()
        seconds = time.perf_counter() - began
    members = _lines(log)
    log.unlink()
    return Left(shape, members, seconds, len(_survivors(log.name)), _zombies())


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _survivors(name: str) -> list[int]:
    needle = f"{_OF_THIS_RUN}={name}".encode()
    found = []
    for pid in psutil.pids():
        try:
            if needle in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def _zombies() -> int:
    children = psutil.Process().children(recursive=True)
    return sum(process.status() == psutil.STATUS_ZOMBIE for process in children)
