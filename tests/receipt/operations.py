"""Each operation of the store, the states that it may find, and the results that are allowed.

One table for the tests and for ``benchmarks/durability.py``, which kill each operation, or let
it fail, at each of its system calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pytest_flamegate.core import locks
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.json import decode_json, decode_plain, encode_plain
from pytest_flamegate.receipt import artifacts as artifact_files
from pytest_flamegate.receipt import baseline, store
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.baseline import BASELINE_FILES, RECORD, BaselineRecord
from tests.receipt.test_history import RUN as HISTORY_RUN

MACHINE, WORKLOAD = "machine", "toy"
OLD = {name: f"old {name}".encode() for name in BASELINE_FILES[:9]}
NEW = {name: f"new {name}".encode() for name in BASELINE_FILES}
SPOILT = b'{"torn'
HEX = "0123456789ab"
LITTER = re.compile(r"\.(.+\.(new|old)|flamegate-probe)-[0-9a-f]{12}|\.flamegate-probe-.*")
_FOREIGN = {"latest/other/receipt.json": b"another", "baselines/machine/.other.corrupt-x": b"kept"}
_RUN = {**encode_plain(HISTORY_RUN), "workload": WORKLOAD}
_LINE = json.dumps({**_RUN, "nonce": "earlier"}).encode() + b"\n"

View = Any
"""The content that a reader finds, as plain values; None if there is nothing."""


@dataclass(frozen=True)
class Operation:
    """``act`` leads from each of ``states`` (files by path) to the view ``new``.

    ``between`` holds the views that are allowed after a kill, besides the old and the new one.
    """

    name: str
    act: Callable[[ArtifactStore], object]
    view: Callable[[ArtifactStore], View]
    new: View
    states: dict[str, dict[str, bytes]]
    between: tuple[View, ...] = ()
    spoilt: str | None = None


def under(directory: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{directory}/{name}": data for name, data in files.items()}


def tree(directory: Path) -> dict[str, bytes] | bytes | None:
    """Return the files of a directory, the bytes of a file, or None."""
    if directory.is_file():
        return directory.read_bytes()
    if not directory.is_dir():
        return None
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def _latest(artifacts: ArtifactStore) -> View:
    return tree(artifacts.latest_directory(WORKLOAD))


def _accepted(artifacts: ArtifactStore) -> View:
    """The files, once their record has been checked: it holds the time of accepting."""
    directory = artifacts.baseline_directory(MACHINE, WORKLOAD)
    found = tree(directory)
    if isinstance(found, dict) and RECORD in found:
        del found[RECORD]
        return record_fault(directory) or found
    return found


def record_fault(directory: Path) -> str | None:
    """Return the error of a baseline whose files are not those in its record, else None."""
    try:
        record = decode_json((directory / RECORD).read_bytes(), BaselineRecord)
        baseline._read_digested_files(directory, record)
    except FlamegateError as error:
        return f"corrupt: {error.problem}"
    return None


def _runs(artifacts: ArtifactStore) -> View:
    return [line.nonce for line in artifact_files.read_runs(artifacts.runs_path).lines]


def _ledger(artifacts: ArtifactStore) -> View:
    return list(artifact_files.read_history(artifacts.ledger_path, lambda document: document).lines)


def _calibration(artifacts: ArtifactStore) -> View:
    return tree(artifacts.calibration_path(MACHINE, WORKLOAD))


def _count(artifacts: ArtifactStore) -> View:
    return tree(artifacts.root / "counter")


def _publish(artifacts: ArtifactStore) -> None:
    artifacts.publish_run(WORKLOAD, NEW)


def _in_two_steps(act: Callable[[ArtifactStore], object], artifacts: ArtifactStore) -> None:
    def cannot(one: Path, other: Path) -> bool:
        return False

    real, store.exchange_names = store.exchange_names, cannot
    try:
        act(artifacts)
    finally:
        store.exchange_names = real


def _accept(artifacts: ArtifactStore, *, spoilt: bool = False) -> None:
    artifacts.accept_baseline(MACHINE, WORKLOAD, NEW, set_aside=spoilt)


def _calibrate(artifacts: ArtifactStore, *, spoilt: bool = False) -> None:
    artifacts.write_calibration(MACHINE, WORKLOAD, b"new", set_aside=spoilt)


def _increment(artifacts: ArtifactStore) -> None:
    path = artifacts.root / "counter"
    with locks.lock_file(artifacts.root / "lock", 5.0):
        store.write_atomic(path, b"2")


def _probe(artifacts: ArtifactStore) -> None:
    artifacts.require_writable(MACHINE)


_LATEST, _SHELF = f"latest/{WORKLOAD}", f"baselines/{MACHINE}/{WORKLOAD}"
_CALIBRATED = f"calibration/{MACHINE}/{WORKLOAD}.json"
_HALF = dict(list(NEW.items())[:3])
_LEFT = {
    **under(f"latest/.{WORKLOAD}.new-{HEX}", _HALF),
    **under(f"latest/.renamed away.new-{HEX}", _HALF),
    **under(f"baselines/{MACHINE}/.{WORKLOAD}.new-{HEX}", _HALF),
    **under(f"baselines/{MACHINE}/.gone.new-{HEX}", _HALF),
    f"calibration/{MACHINE}/.{WORKLOAD}.json.new-{HEX}": b"ne",
    f".counter.new-{HEX}": b"",
    f"latest/.flamegate-probe-{HEX}": b"x" * 100,
    f"../.flamegate-probe-{HEX}": b"x" * 100,
}


def _states(place: str, old: dict[str, bytes], *, waits: bool = False) -> dict[str, Any]:
    found = {
        "nothing": {},
        "others' alone": {".gitignore": b"# mine\n"},
        "old": old,
        "old and leftovers": {**old, **_LEFT},
    }
    if waits:
        parent, _, name = place.rpartition("/")
        moved = {
            path.replace(place, f"{parent}/.{name}.old-{HEX}", 1): d for path, d in old.items()
        }
        found["cut off between two steps"] = moved
    return found


def _of_lines(path: str) -> dict[str, Any]:
    return {
        "nothing": {},
        "old": {path: 3 * _LINE},
        "torn": {path: 2 * _LINE + _LINE[:40]},
        "spoilt": {path: _LINE + b"\0" * 40 + b"\n" + _LINE},
        "empty": {path: b""},
    }


_PUBLISHED = _states(_LATEST, under(_LATEST, OLD), waits=True)
_ACCEPTED = _states(_SHELF, under(_SHELF, OLD), waits=True)
OPERATIONS = (
    Operation("publish", _publish, _latest, NEW, _PUBLISHED),
    Operation(
        "publish in two steps",
        partial(_in_two_steps, _publish),
        _latest,
        NEW,
        _PUBLISHED,
        between=(None,),
    ),
    Operation(
        "clear", lambda artifacts: artifacts.remove_latest(WORKLOAD), _latest, None, _PUBLISHED
    ),
    Operation("accept", _accept, _accepted, NEW, _ACCEPTED),
    Operation(
        "accept in two steps",
        partial(_in_two_steps, _accept),
        _accepted,
        NEW,
        _ACCEPTED,
        between=(None,),
    ),
    Operation(
        "accept over what is spoilt",
        partial(_accept, spoilt=True),
        _accepted,
        NEW,
        {
            "a directory": under(_SHELF, {"evidence.json": SPOILT}),
            "a file": {_SHELF: SPOILT},
            "leftovers": {**under(_SHELF, {"evidence.json": SPOILT}), **_LEFT},
        },
        between=(None,),
        spoilt=f"baselines/{MACHINE}",
    ),
    Operation(
        "prune",
        lambda artifacts: artifacts.remove_baseline(
            artifacts.baseline_directory(MACHINE, WORKLOAD)
        ),
        _accepted,
        None,
        _ACCEPTED,
    ),
    Operation(
        "calibrate", _calibrate, _calibration, b"new", _states(_CALIBRATED, {_CALIBRATED: b"old"})
    ),
    Operation(
        "calibrate in two steps",
        partial(_in_two_steps, _calibrate),
        _calibration,
        b"new",
        _states(_CALIBRATED, {_CALIBRATED: b"old"}),
    ),
    Operation(
        "calibrate over what is spoilt",
        partial(_calibrate, spoilt=True),
        _calibration,
        b"new",
        {"a file": {_CALIBRATED: SPOILT}, "leftovers": {_CALIBRATED: SPOILT, **_LEFT}},
        between=(None,),
        spoilt=f"calibration/{MACHINE}",
    ),
    Operation(
        "record",
        lambda artifacts: artifacts.append_run(decode_plain(_RUN, artifact_files.RunLine)),
        _runs,
        _RUN["nonce"],
        _of_lines("history/runs.jsonl"),
    ),
    Operation(
        "enter",
        lambda artifacts: artifacts.append_ledger({"gate": 2}),
        _ledger,
        {"gate": 2},
        _of_lines("history/ledger.jsonl"),
    ),
    Operation(
        "write a report",
        lambda artifacts: store.write_atomic(artifacts.root.parent / "out" / "report.html", b"2"),
        lambda artifacts: tree(artifacts.root.parent / "out" / "report.html"),
        b"2",
        {
            "nothing": {},
            "old": {"../out/report.html": b"1"},
            "old and leftovers": {
                "../out/report.html": b"1",
                f"../out/.report.html.new-{HEX}": b"",
                f"../out/.report.html.old-{HEX}": b"1",
            },
            "a waiting old one": {f"../out/.report.html.old-{HEX}": b"1"},
        },
    ),
    Operation(
        "count under a lock", _increment, _count, b"2", _states("counter", {"counter": b"1"})
    ),
    Operation("probe and sweep", _probe, _latest, OLD, {"old": _PUBLISHED["old"] | _LEFT}),
)


def prepare(artifacts: ArtifactStore, files: dict[str, bytes]) -> None:
    """Make the state: ``files``, and others' that nothing may touch; none where it is fresh."""
    for path, data in {**files, **(_FOREIGN if files else {})}.items():
        place = artifacts.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def restores(operation: Operation, state: str) -> bool:
    """Whether the state hides an old result, which the operation brings back first."""
    return any(f".old-{HEX}" in path for path in operation.states[state])


def appends(operation: Operation) -> bool:
    return operation.view in (_runs, _ledger)


def after(operation: Operation, old: View, times: int = 1) -> View:
    """Return what is to be seen once the operation was acknowledged ``times`` times."""
    return [*old, *[operation.new] * times] if appends(operation) else operation.new


def standing(operation: Operation, state: str, old: View) -> tuple[View, ...]:
    """Return the views that count as the old one: also what a killed writer had hidden."""
    hidden = OLD if isinstance(operation.new, dict) or operation.new is None else b"1"
    return (old, hidden) if restores(operation, state) else (old,)


def foreign_faults(operation: Operation, state: str, artifacts: ArtifactStore) -> list[str]:
    """Say what was touched that is none of the operation's."""
    expected = _FOREIGN if operation.states[state] else {}
    return [
        f"{path} was touched"
        for path, data in expected.items()
        if tree(artifacts.root / path) != data
    ]


def litter(artifacts: ArtifactStore) -> list[str]:
    """Return what killed writers left and nobody swept."""
    found = artifacts.root.parent.rglob("*")
    return [path.name for path in found if LITTER.fullmatch(path.name)]


def spoilt_lost(operation: Operation, artifacts: ArtifactStore) -> bool:
    """Whether what was to be set aside is neither there any more nor set aside."""
    if operation.spoilt is None:
        return False
    shelf = artifacts.root / operation.spoilt
    kept = [*shelf.glob(f".{WORKLOAD}*.corrupt-*"), shelf / WORKLOAD, shelf / f"{WORKLOAD}.json"]
    return not any(tree(path) in (SPOILT, {"evidence.json": SPOILT}) for path in kept)
