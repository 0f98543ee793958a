"""Everything the store does, on each state that it may find, and the results that are allowed.

``tests.receipt.points`` kills each operation, or lets it fail, at each of its system calls.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.core.json import decode_json, encode_plain
from pytest_flamegate.receipt import baseline, store
from pytest_flamegate.receipt.artifacts import ArtifactStore, RunLine
from pytest_flamegate.receipt.baseline import BASELINE_FILES, RECORD, BaselineRecord

MACHINE, WORKLOAD = "machine", "toy"
OLD = {name: f"old {name}".encode() for name in BASELINE_FILES[:9]}
NEW = {name: f"new {name}".encode() for name in BASELINE_FILES}
SPOILT = b'{"torn'
HEX = "0123456789ab"
LITTER = re.compile(r"\..+\.(new|old)-[0-9a-f]{12}")
_FOREIGN = {"latest/other/receipt.json": b"another", "baselines/machine/.other.corrupt-x": b"kept"}
RUN = RunLine(WORKLOAD, "pass", ("R_NO_CHANGE",), accepted=False, nonce="9f1c2b7a5e3d40816c8a")
_LINE = json.dumps({**encode_plain(RUN), "nonce": "earlier"}).encode() + b"\n"
_LATEST, _BASELINE = f"latest/{WORKLOAD}", f"baselines/{MACHINE}/{WORKLOAD}"
_CALIBRATION = f"calibration/{MACHINE}/{WORKLOAD}.json"

View = Any
"""What a reader finds: plain values, None for nothing."""
Act = Callable[[ArtifactStore], object]
States = dict[str, dict[str, bytes]]


@dataclass(frozen=True)
class Operation:
    """``act`` on each of ``states`` (files by path) leads from one view to ``new``.

    ``between`` contains views that are allowed if it is killed, besides the old and the new one.
    ``spoilt`` is the directory in which a spoilt file must be set aside.
    """

    name: str
    act: Act
    view: Callable[[ArtifactStore], View]
    new: View
    states: States
    between: tuple[View, ...] = ()
    spoilt: str | None = None

    def expect(self, old: View) -> View:
        """Return the view after an acknowledged operation; a record is added to what is there."""
        return [*old, self.new] if self.view is _view_runs else self.new

    def old_views(self, state: str, old: View) -> tuple[View, ...]:
        """Return the views that count as the old one: also a result that is hidden by a crash."""
        hidden = any(f".old-{HEX}" in path for path in self.states[state])
        return (old, OLD) if hidden else (old,)

    def find_touched(self, state: str, artifacts: ArtifactStore) -> list[str]:
        """Return an error for each file of others that was changed."""
        expected = _FOREIGN if self.states[state] else {}
        found = {path: read_tree(artifacts.root / path) for path in expected}
        return [f"{path} was touched" for path in expected if found[path] != expected[path]]

    def lost_spoilt(self, artifacts: ArtifactStore) -> bool:
        """Whether a spoilt file is neither in its place nor set aside."""
        if self.spoilt is None:
            return False
        place = artifacts.root / self.spoilt
        kept = [*place.glob(f".{WORKLOAD}*.corrupt-*"), *place.glob(f"{WORKLOAD}*")]
        return not any(read_tree(path) in (SPOILT, {"evidence.json": SPOILT}) for path in kept)


def prepare(artifacts: ArtifactStore, files: dict[str, bytes]) -> None:
    """Make a state: ``files``, and files of others that must not be touched."""
    for path, data in {**files, **(_FOREIGN if files else {})}.items():
        place = artifacts.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def read_tree(directory: Path) -> dict[str, bytes] | bytes | None:
    """Return the files of a directory, the bytes of a file, or None."""
    if directory.is_dir():
        return {path.name: path.read_bytes() for path in directory.iterdir()}
    return directory.read_bytes() if directory.is_file() else None


def read_runs(path: Path) -> list[RunLine]:
    """Return the complete lines of a history."""
    lines = []
    for data in path.read_bytes().split(b"\n")[:-1] if path.exists() else ():
        with suppress(ReceiptError):
            lines.append(decode_json(data, RunLine))
    return lines


def find_litter(artifacts: ArtifactStore) -> list[str]:
    """Return the leftovers of killed writers."""
    found = artifacts.root.parent.rglob("*")
    return [path.name for path in found if LITTER.fullmatch(path.name)]


def find_record_fault(directory: Path) -> str | None:
    """Return the error of a baseline whose record does not fit its files."""
    try:
        record = decode_json((directory / RECORD).read_bytes(), BaselineRecord)
        baseline._read_digested_files(directory, record)
    except FlamegateError as error:
        return f"corrupt: {error.problem}"
    return None


def _view_latest(artifacts: ArtifactStore) -> View:
    return read_tree(artifacts.latest_directory(WORKLOAD))


def _view_baseline(artifacts: ArtifactStore) -> View:
    """The files without their record, which is checked: it holds the time of accepting."""
    directory = artifacts.baseline_directory(MACHINE, WORKLOAD)
    found = read_tree(directory)
    if isinstance(found, dict) and RECORD in found:
        del found[RECORD]
        return find_record_fault(directory) or found
    return found


def _view_runs(artifacts: ArtifactStore) -> View:
    return [line.nonce for line in read_runs(artifacts.runs_path)]


def _view_calibration(artifacts: ArtifactStore) -> View:
    return read_tree(artifacts.calibration_path(MACHINE, WORKLOAD))


def _publish(artifacts: ArtifactStore) -> None:
    artifacts.publish_run(WORKLOAD, NEW)


def _in_two_steps(artifacts: ArtifactStore) -> None:
    """Publish as on a file system that cannot exchange two names."""
    with patch.object(store, "exchange_names", lambda _one, _other: False):
        _publish(artifacts)


def _accept(artifacts: ArtifactStore, *, spoilt: bool = False) -> None:
    artifacts.accept_baseline(MACHINE, WORKLOAD, NEW, set_aside=spoilt)


def _prune(artifacts: ArtifactStore) -> None:
    artifacts.remove_baseline(artifacts.baseline_directory(MACHINE, WORKLOAD))


def _calibrate(artifacts: ArtifactStore) -> None:
    artifacts.write_calibration(MACHINE, WORKLOAD, b"new")


def _record(artifacts: ArtifactStore) -> None:
    artifacts.append_run(RUN)


def _probe(artifacts: ArtifactStore) -> None:
    artifacts.require_writable(MACHINE)


def _under(directory: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{directory}/{name}": data for name, data in files.items()}


_HALF = dict(list(NEW.items())[:3])
_LEFT = {
    **_under(f"latest/.{WORKLOAD}.new-{HEX}", _HALF),
    **_under(f"latest/.renamed away.new-{HEX}", _HALF),
    **_under(f"baselines/{MACHINE}/.{WORKLOAD}.new-{HEX}", _HALF),
    f"calibration/{MACHINE}/.{WORKLOAD}.json.new-{HEX}": b"ne",
}


def _states(place: str, old: dict[str, bytes]) -> States:
    parent, _, name = place.rpartition("/")
    hidden = {path.replace(place, f"{parent}/.{name}.old-{HEX}", 1): d for path, d in old.items()}
    found = {"nothing": {}, "others' alone": {".gitignore": b"# mine\n"}, "old": old}
    found["old and leftovers"] = {**old, **_LEFT}
    return found if place in old else {**found, "cut off between two steps": hidden}


def _line_states(path: str) -> States:
    return {
        "nothing": {},
        "old": {path: 3 * _LINE},
        "torn": {path: 2 * _LINE + _LINE[:40]},
        "spoilt": {path: _LINE + b"\0" * 40 + b"\n" + _LINE},
        "empty": {path: b""},
    }


_PUBLISHED = _states(_LATEST, _under(_LATEST, OLD))
_ACCEPTED = _states(_BASELINE, _under(_BASELINE, OLD))
_CALIBRATED = _states(_CALIBRATION, {_CALIBRATION: b"old"})
_SPOILT = _under(_BASELINE, {"evidence.json": SPOILT})
OPERATIONS = (
    Operation("publish", _publish, _view_latest, NEW, _PUBLISHED),
    Operation("publish in two steps", _in_two_steps, _view_latest, NEW, _PUBLISHED, (None,)),
    Operation("accept", _accept, _view_baseline, NEW, _ACCEPTED),
    Operation(
        "accept over what is spoilt",
        partial(_accept, spoilt=True),
        _view_baseline,
        NEW,
        {"a directory": _SPOILT, "a file": {_BASELINE: SPOILT}, "leftovers": {**_SPOILT, **_LEFT}},
        between=(None,),
        spoilt=f"baselines/{MACHINE}",
    ),
    Operation("prune", _prune, _view_baseline, None, _ACCEPTED),
    Operation("calibrate", _calibrate, _view_calibration, b"new", _CALIBRATED),
    Operation("record", _record, _view_runs, RUN.nonce, _line_states("history/runs.jsonl")),
    Operation("probe and sweep", _probe, _view_latest, OLD, {"old": _PUBLISHED["old"] | _LEFT}),
)
