"""Many processes that write to one place at once, and what is there afterwards."""

import json
import multiprocessing
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_flamegate.core import locks
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.artifacts import ArtifactStore, RunLine
from tests.receipt import operations

KINDS = ("count", "publish", "jobs")
NAMES = ("receipt.json", "evidence.json", "profile.folded")


@dataclass(frozen=True)
class CrowdResult:
    """How many ``updates`` were acknowledged, ``lost`` or ``corrupt``, and ``failed`` writers."""

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
        files = dict.fromkeys(NAMES, text.encode())
        if kind == "count":
            counter = place / "counter"
            (place / "lock").mkdir(parents=True, exist_ok=True)
            with locks.lock_directory(place / "lock", 600.0):
                count = int(counter.read_text()) if counter.exists() else 0
                store.write_atomic(counter, str(count + 1).encode())
        elif kind == "publish":
            artifacts.publish_run("toy", files)
        else:  # as CI jobs that share a directory: publish, accept, record
            artifacts.require_writable("machine")
            artifacts.publish_run("toy", files)
            artifacts.accept_baseline("machine", "toy", files)
            artifacts.append_run(RunLine(text, "pass", ("x" * 300,), accepted=True))


def start(
    kind: str, place: Path, writers: int, times: int
) -> list[multiprocessing.context.ForkProcess]:
    """Start the writers ``w0``, ``w1`` and so on: forks of this process, which start fast."""
    fork = multiprocessing.get_context("fork")
    crowd = [
        fork.Process(target=write, args=(kind, place, f"w{number}", times))
        for number in range(writers)
    ]
    for writer in crowd:
        writer.start()
    return crowd


def wait(writer: multiprocessing.context.ForkProcess) -> int:
    """Wait for a writer and return its exit status."""
    writer.join()
    assert writer.exitcode is not None
    return writer.exitcode


def run(kind: str, place: Path, writers: int, times: int) -> CrowdResult:
    """Let ``writers`` processes make ``times`` updates each, and count what is lost."""
    began = time.perf_counter()
    failed = sum(wait(writer) != 0 for writer in start(kind, place, writers, times))
    seconds = time.perf_counter() - began
    lost, corrupt = _inspect(kind, ArtifactStore(place), writers, times)
    corrupt += len(operations.find_litter(ArtifactStore(place)))
    return CrowdResult(writers * times, lost, corrupt, failed, seconds)


def _inspect(kind: str, artifacts: ArtifactStore, writers: int, times: int) -> tuple[int, int]:
    """Return how many updates are lost, and how many things are mixed or torn."""
    if kind == "count":
        return writers * times - int((artifacts.root / "counter").read_text()), 0
    published = operations.read_tree(artifacts.latest_directory("toy"))
    values = set(published.values()) if isinstance(published, dict) else set()
    last = {f"w{number}-{times - 1}".encode() for number in range(writers)}
    corrupt = int(len(values) != 1 or not values <= last)
    if kind == "publish":
        return 0, corrupt
    accepted = artifacts.baseline_directory("machine", "toy")
    corrupt += operations.find_record_fault(accepted) is not None
    # Two writers at once may leave an empty line, which readers skip.
    lines = filter(None, artifacts.runs_path.read_bytes().splitlines())
    tags = [json.loads(line)["workload"] for line in lines]
    expected = {f"w{number}-{index}" for number in range(writers) for index in range(times)}
    return len(expected - set(tags)), corrupt + len(tags) - len(set(tags))
