"""Many processes that write to one place at once, and what of it is there afterwards."""

from __future__ import annotations

import json
import multiprocessing
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_flamegate.core import locks
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.artifacts import ArtifactStore
from tests.receipt import operations

KINDS = ("append", "count", "publish", "jobs")
NAMES = ("receipt.json", "evidence.json", "profile.folded")


@dataclass(frozen=True)
class Came:
    """``updates`` were acknowledged; ``lost`` of them are not there; ``failed`` writers."""

    kind: str
    writers: int
    updates: int
    lost: int
    corrupt: int
    failed: int
    seconds: float


def write(kind: str, place: Path, tag: str, times: int) -> None:
    """Be one writer."""
    artifacts = ArtifactStore(place)
    store.LOCK_TIMEOUT_S = 600.0
    for index in range(times):
        text = f"{tag}-{index}"
        if kind == "append":
            artifacts.append_ledger({"tag": text, "filling": "x" * 300})
        elif kind == "count":
            counter = place / "counter"
            with locks.lock_file(place / "lock", 600.0):
                count = int(counter.read_text()) if counter.exists() else 0
                store.write_atomic(counter, str(count + 1).encode())
        elif kind == "publish":
            artifacts.publish_run("toy", dict.fromkeys(NAMES, text.encode()))
        else:
            _job(artifacts, text)


def _job(artifacts: ArtifactStore, text: str) -> None:
    """What a CI job does in one directory with others: clear, publish, accept, record."""
    files = dict.fromkeys(NAMES, text.encode())
    artifacts.require_writable("machine")
    artifacts.remove_latest("toy")
    artifacts.publish_run("toy", files)
    artifacts.accept_baseline("machine", "toy", files)
    artifacts.append_ledger({"tag": text})


def start(
    kind: str, place: Path, writers: int, times: int
) -> list[multiprocessing.context.ForkProcess]:
    """Start the writers ``w0``, ``w1`` and so on: copies of this process, which start fast."""
    fork = multiprocessing.get_context("fork")
    crowd = [
        fork.Process(target=write, args=(kind, place, f"w{number}", times))
        for number in range(writers)
    ]
    for writer in crowd:
        writer.start()
    return crowd


def ended(writer: multiprocessing.context.ForkProcess) -> int:
    """Wait for a writer and return its exit status."""
    writer.join()
    assert writer.exitcode is not None
    return writer.exitcode


def together(kind: str, place: Path, writers: int, times: int) -> Came:
    """Let ``writers`` processes make ``times`` updates each, and count what is lost."""
    began = time.perf_counter()
    failed = sum(ended(writer) != 0 for writer in start(kind, place, writers, times))
    seconds = time.perf_counter() - began
    lost, corrupt = _missing(kind, ArtifactStore(place), writers, times)
    corrupt += len(operations.litter(ArtifactStore(place)))
    return Came(kind, writers, writers * times, lost, corrupt, failed, seconds)


def _missing(kind: str, artifacts: ArtifactStore, writers: int, times: int) -> tuple[int, int]:
    """Return how many updates are lost, and how much of what is there is mixed or torn."""
    expected = {f"w{number}-{index}" for number in range(writers) for index in range(times)}
    last = {f"w{number}-{times - 1}" for number in range(writers)}
    if kind == "count":
        return writers * times - int((artifacts.root / "counter").read_text()), 0
    published = operations.tree(artifacts.latest_directory("toy"))
    mixed = 0
    if kind != "append":
        values = set(published.values()) if isinstance(published, dict) else set()
        mixed = int(len(values) != 1 or values.pop().decode() not in last)
    if kind == "publish":
        return 0, mixed
    if kind == "jobs":
        accepted = artifacts.baseline_directory("machine", "toy")
        mixed += int(operations.record_fault(accepted) is not None)
    lines = artifacts.ledger_path.read_bytes().splitlines()
    found, torn = _tags(lines)
    return len(expected - set(found)), torn + mixed + len(found) - len(set(found))


def _tags(lines: list[bytes]) -> tuple[list[str], int]:
    """Return the tag of each line, and how many lines are torn."""
    found, torn = [], 0
    for line in lines:
        try:
            found.append(str(json.loads(line)["tag"]))
        except ValueError:
            torn += 1
    return found, torn
