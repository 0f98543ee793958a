"""perf's output for the embedded engine, repeated to any number of samples.

The stacks stay as recorded; each sample has a time of its own, its leaf an address of
its own, and its callers the addresses of one of many layouts of the address space.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.profile.profilers.perf import EVENT
from pytest_flamegate.profile.profilers.perf_data import FIELDS, perf_environment
from pytest_flamegate.profile.profilers.tools import find_program

RATE_HZ = 499
TOKENS = 500
RUNS = 4
LAYOUTS = 64
_PID = 16592
_AT_ONCE = 1000

Frames = tuple[bytes, ...]
"""The text after the address in each line of a sample, leaf first."""


def recorded(call_graph: str, runs: int = RUNS) -> list[Frames]:
    """Return the samples of real runs. Raises ``ToolError``."""
    program = find_program("perf")
    samples = [sample for _ in range(runs) for sample in split(_printed(program, call_graph))]
    if not samples:
        raise ToolError("E_NO_SAMPLES", "perf recorded no sample.", "Try again.")
    return samples


def _printed(program: str, call_graph: str) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        raw = Path(name) / "perf.data"
        record = ["record", "-e", EVENT, "-F", str(RATE_HZ), "-N", "--call-graph", call_graph]
        engine = [sys.executable, "-m", "pytest_flamegate.child.embedded", "--prompt", "Once"]
        engine += ["--max-tokens", str(TOKENS)]
        environment = perf_environment()
        subprocess.run(
            [program, *record, "-o", str(raw), "--", *engine],
            env=environment,
            check=True,
            capture_output=True,
        )
        read = ["script", "-f", "--no-inline", "--max-stack", "1024", "-F", FIELDS, "-i", str(raw)]
        ended = subprocess.run([program, *read], env=environment, check=True, capture_output=True)
        return ended.stdout


def split(printed: bytes) -> list[Frames]:
    """Return the samples that have frames."""
    samples = []
    for sample in printed.split(b"\n\n"):
        lines = sample.strip(b"\n").split(b"\n")[1:]
        if lines and all(line.startswith(b"\t") for line in lines):
            samples.append(tuple(line[18:] for line in lines))
    return samples


def depths(samples: Sequence[Frames]) -> str:
    """Return how deep the stacks are, in words."""
    found = [len(frames) for frames in samples]
    return f"{statistics.median(found):g} frames in the median, {statistics.fmean(found):.1f} mean"


def near_depth(samples: Sequence[Frames], low: int, high: int) -> list[Frames]:
    """Return the samples of at least ``low`` and at most ``high`` frames."""
    return [frames for frames in samples if low <= len(frames) <= high]


def write(path: Path, samples: Sequence[Frames], count: int, *, command: bool = False) -> None:
    """Write ``count`` samples drawn from ``samples`` as perf prints them.

    With ``command`` each header begins with the command and counts the event, as perf's own
    defaults have it and others' tools want it.
    """
    with path.open("wb") as stream:
        for chunk in _chunks(samples, count, command=command):
            stream.write(chunk)


def _chunks(samples: Sequence[Frames], count: int, *, command: bool) -> Iterator[bytes]:
    rng = random.Random(0)
    callers = [[_callers(frames, rng) for _ in range(LAYOUTS)] for frames in samples]
    header = b"%d/%d %5d.%06d: cpu-clock: \n\t%16x %b%b\n"
    if command:
        header = header.replace(b"%d/", b"engine %d/", 1).replace(b": c", b": 1 c", 1)
    at_us = 3_955_000_000
    for first in range(0, count, _AT_ONCE):
        lines = []
        for _ in range(min(_AT_ONCE, count - first)):
            at_us += rng.randrange(1000, 3000)
            which = rng.randrange(len(samples))
            address = rng.getrandbits(40)
            leaf, rest = samples[which][0], callers[which][rng.randrange(LAYOUTS)]
            time = divmod(at_us, 10**6)
            lines.append(header % (_PID, _PID, *time, address, leaf, rest))
        yield b"\n".join([*lines, b""])


def _callers(frames: Frames, rng: random.Random) -> bytes:
    return b"".join(b"\n\t%16x %b" % (rng.getrandbits(47), frame) for frame in frames[1:])
