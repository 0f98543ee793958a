"""The cost of reading a model's header: time and memory, beside gguf-py.

    pip install gguf
    python -m benchmarks.engines header [--rounds 5]

Two files: the shape of a large model (2 GB of weights as a hole; 128,256 tokens with scores
and types, 280,000 merges) and the shipped one. Each reading is a process of its own; the
cost of starting Python and of the imports is measured as well, and subtracted. sha256 is read once
over the large file and once taken from the cache of digests.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks.tables import Table
from pytest_flamegate.engines.gguf import SHIPPED_MODEL
from tests.models.gguf_files import write_large_model

_MEASURED = """
import json, re, sys, time
{imports}
def peak_kib():
    return int(re.search(r"VmHWM:\\s+([0-9]+)", open("/proc/self/status").read())[1])
open("/proc/self/clear_refs", "w").write("5")  # the peak so far is that of the start
before = peak_kib()
began, began_cpu = time.perf_counter(), time.process_time()
{call}
took, took_cpu = time.perf_counter() - began, time.process_time() - began_cpu
print(json.dumps([1e3 * took, 1e3 * took_cpu, (peak_kib() - before) / 1024]))
"""
_PATH = "from pathlib import Path\npath = Path(sys.argv[1])\n"
READERS = {
    "flamegate": (
        _PATH + "from pytest_flamegate.models.discover import read_model",
        "read_model(path)",
    ),
    "gguf-py": (_PATH + "from gguf import GGUFReader", "GGUFReader(path)"),
}
DIGEST = (
    _PATH + "from pytest_flamegate.models.files import model_sha256",
    "model_sha256(path)",
)


def read(how: tuple[str, str], path: Path) -> tuple[float, ...]:
    """Return wall ms, CPU ms and MiB that one reading took, beyond start and imports."""
    program = _MEASURED.format(imports=how[0], call=how[1])
    said = subprocess.run(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, check=True
    )
    return tuple(json.loads(said.stdout.splitlines()[-1]))


def row(name: str, file: str, figures: list[tuple[float, ...]]) -> tuple[str, ...]:
    """Return the medians of one reader, and its least wall time."""
    wall, cpu, grew = (statistics.median(each) for each in zip(*figures, strict=True))
    least = min(each[0] for each in figures)
    return (name, file, *(f"{value:,.1f}" for value in (wall, least, cpu, grew)))


def table(rounds: int) -> Table:
    """Return the cost of each reader, medians over the rounds."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = name
        large = Path(name, "large.gguf")
        write_large_model(large)
        files = {f"{large.stat().st_size / 1e9:.1f} GB": large, "shipped": SHIPPED_MODEL}
        rows = [
            row(reader, file, [read(how, path) for _ in range(rounds)])
            for reader, how in READERS.items()
            if reader != "gguf-py" or find_spec("gguf") is not None
            for file, path in files.items()
        ]
        subprocess.run(["sleep", "2.5"], check=True)  # a file of just now is not kept
        size = next(iter(files))
        rows.append(row("sha256, read", size, [read(DIGEST, large)]))
        rows.append(row("sha256, kept", size, [read(DIGEST, large) for _ in range(rounds)]))
    head = ("reader", "file", "ms", "ms, least", "CPU ms", "MiB at the peak")
    return Table(f"Reading a model's header ({rounds} rounds)", head, tuple(rows))
