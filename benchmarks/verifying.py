"""How fast receipts are verified, alone and with their evidence, and the cost of its parts.

``python -m benchmarks.verifying [--brief] [--markdown]``. Other tools run over the
same bytes in the same run: the standard parser alone, and plain ``jsonschema`` or
``jsonschema-rs``, which only check the form. No other tool compares evidence with a receipt.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from benchmarks.tables import Table, as_markdown, as_text
from pytest_flamegate.receipt import verify_receipt
from tests.made import bundle
from tests.receipt.documents import load_schema

COUNTS = (1_000, 3_000, 10_000)
DISTINCT = 300
"""More than the verifier remembers timestamps: each one is read, as in a directory of many."""
PEERS = 300
SIZES = (1, 10, 100)
WORKLOADS = ("1tok", "10tok")


@dataclass(frozen=True, slots=True)
class Files:
    """One measurement, as bytes."""

    receipt: bytes
    evidence: bytes
    folded: bytes

    @property
    def kilobytes(self) -> float:
        """The size of all three."""
        return (len(self.receipt) + len(self.evidence) + len(self.folded)) / 1e3


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds for so many."""

    count: int
    cpu_s: float
    wall_s: float

    @property
    def each_ms(self) -> float:
        """CPU milliseconds for one."""
        return self.cpu_s / self.count * 1e3


def made(count: int, **wanted: Any) -> list[Files]:
    """Return so many different measurements of the tests' factory."""
    began = datetime(2025, 10, 13, tzinfo=UTC)
    found = []
    for seed in range(count):
        created = (began + timedelta(seconds=seed)).strftime("%Y-%m-%dT%H:%M:%SZ")
        found.append(Files(*bundle(seed=seed, created=created, **wanted).files.values()))
    return found


def measured() -> list[Files]:
    """Run the embedded workloads once each; return their files."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(
            [Path(sys.executable).with_name("flamegate"), "run", *WORKLOADS],
            cwd=name,
            stdout=subprocess.DEVNULL,
            env={key: value for key, value in os.environ.items() if key != "CI"},
            check=False,  # without a baseline it ends with 4
        )
        return read(Path(name) / ".flamegate" / "latest")


def read(latest: Path) -> list[Files]:
    """Return the measurements that stand under ``latest``."""
    names = ("receipt.json", "evidence.json", "profile.folded")
    return [
        Files(*((directory / each).read_bytes() for each in names))
        for directory in sorted(latest.iterdir())
        if all((directory / each).exists() for each in names)
    ]


def spent(do: Callable[[Files], object], files: Sequence[Files], count: int) -> Spent:
    """Do it to so many, over and over again from the first."""
    cpu, wall = time.process_time(), time.perf_counter()
    for each in islice(cycle(files), count):
        do(each)
    return Spent(count, time.process_time() - cpu, time.perf_counter() - wall)


def alone(files: Files) -> None:
    """Verify a receipt without anything beside it."""
    assert verify_receipt(files.receipt).ok


def with_evidence(files: Files) -> None:
    """Verify a receipt, its evidence and its profile."""
    answer = verify_receipt(files.receipt, evidence=files.evidence, profile_folded=files.folded)
    assert answer.ok


def peers() -> dict[str, Callable[[Files], object]]:
    """Return the other tools for the same bytes, by name."""
    plain = {kind: Draft202012Validator(load_schema(kind)) for kind in ("receipt", "evidence")}
    found: dict[str, Callable[[Files], object]] = {
        "the standard parser alone": lambda f: (json.loads(f.receipt), json.loads(f.evidence)),
        "parser and jsonschema, form alone": lambda f: (
            plain["receipt"].is_valid(json.loads(f.receipt)),
            plain["evidence"].is_valid(json.loads(f.evidence)),
        ),
    }
    try:
        rust: Any = importlib.import_module("jsonschema_rs")
    except ImportError:
        return found
    fast = {k: rust.validator_for(load_schema(k)) for k in ("receipt", "evidence")}
    found["parser and jsonschema-rs, form alone"] = lambda f: (
        fast["receipt"].is_valid(json.loads(f.receipt)),
        fast["evidence"].is_valid(json.loads(f.evidence)),
    )
    return found


def counted(what: str, files: Sequence[Files], counts: Sequence[int]) -> Table:
    """Verify more and more of them: twice as many take twice as long."""
    rows = []
    for name, do in (("alone", alone), ("with evidence", with_evidence)):
        spent(do, files, min(len(files), 50))
        took = [spent(do, files, count) for count in counts]
        rows += [
            (
                name,
                f"{each.count:,}",
                f"{each.cpu_s:.2f}",
                f"{each.wall_s:.2f}",
                f"{each.each_ms:.3f}",
                f"{each.each_ms / took[0].each_ms:.2f}",
            )
            for each in took
        ]
    kilobytes = sum(each.kilobytes for each in files) / len(files)
    title = f"Verifying {what} receipts, {kilobytes:.0f} kB each with evidence and profile"
    return Table(
        title, ("", "receipts", "CPU s", "wall s", "CPU ms each", "to the first"), tuple(rows)
    )


def sized() -> Table:
    """Verify larger and larger evidence: twice as large takes twice as long."""
    rows = []
    for size in SIZES:
        files = made(1, timed=3, sequences=100 * size)
        with_evidence(files[0])
        took = min(spent(with_evidence, files, 5).each_ms for _ in range(3))
        rows.append(
            (
                f"{100 * size:,} sequences a block",
                f"{files[0].kilobytes:,.0f}",
                f"{took:.2f}",
                f"{took / files[0].kilobytes * 1e3:.1f}",
            )
        )
    return Table("Verifying larger evidence", ("", "kB", "CPU ms", "CPU ms a MB"), tuple(rows))


def compared(what: str, files: Sequence[Files], count: int) -> Table:
    """Compare with other tools on the same bytes; rounds alternate, the least counts."""
    remedy = {"flamegate, all of it": with_evidence, **peers()}
    best = dict.fromkeys(remedy, float("inf"))
    for _ in range(5):
        for name, do in remedy.items():
            best[name] = min(best[name], spent(do, files, count // 5).each_ms)
    ours = best["flamegate, all of it"]
    rows = tuple((name, f"{ms:.3f}", f"{ms / ours:.2f}") for name, ms in best.items())
    return Table(f"The same {what} bytes", ("", "CPU ms each", "to flamegate"), rows)


def tables(brief: bool) -> Iterator[Table]:
    """Yield a table for each kind of receipt, one over sizes, and one beside others."""
    counts = tuple(count // 50 for count in COUNTS) if brief else COUNTS
    sources = {"factory-made": made(20 if brief else DISTINCT)}
    if real := measured():
        sources["really measured"] = real
    for what, files in sources.items():
        yield counted(what, files, counts)
        yield compared(what, files, 50 if brief else PEERS)
    yield sized()


def main(arguments: Sequence[str]) -> None:
    """Print the tables."""
    show = as_markdown if "--markdown" in arguments else as_text
    for table in tables("--brief" in arguments):
        print(show(table), end="\n\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
