"""Tricks of a job that measures and uploads its files: what it changes, and the judge's answer.

The run in the upload is that of a slower change; if ``is_lucky``, the first that passes after one
that does not.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

GREEN = "green"
Change = Callable[[Path], object]
_DAY = re.compile(r"\b\d{4}-\d\d-\d\d(?=T\d\d:)")
_SIDES = ("receipt.json", "evidence.json", "profile.folded")


@dataclass(frozen=True, eq=False)
class Upload:
    """One trick: ``change`` gets the directory of the run in the upload."""

    name: str
    does: str
    by_check: str
    change: Change
    options: tuple[str, ...] = ()
    is_lucky: bool = False


def _edit(name: str, change: Callable[[dict[str, Any]], object]) -> Change:
    def edit(run: Path) -> None:
        document = json.loads((run / name).read_text())
        change(document)
        (run / name).write_text(json.dumps(document))

    return edit


def _copy_side(run: Path, source: str, target: str) -> None:
    for name in _SIDES:
        shutil.copy(run / f"{source}{name}", run / f"{target}{name}")


def _link_out(run: Path) -> None:
    outside = run.parent.parent / "elsewhere"
    shutil.move(run, outside)
    run.symlink_to(outside)


def _link_file(run: Path) -> None:
    moved = (run / "receipt.json").rename(run.parent / "receipt.json")
    (run / "receipt.json").symlink_to(moved)


def _invent(run: Path) -> None:
    """Write a head that never ran: the base's figures under the head's name, told consistently."""
    head, base = (json.loads((run / f"{side}evidence.json").read_text()) for side in ("", "base-"))
    _copy_side(run, "base-", "")
    blocks = [block for process in base["runs"] for block in process["blocks"]]
    for number, block in enumerate(blocks, 1):
        # Equal times, and pairs that differ by the same, are found out.
        block["interval"]["run_delay_ns"] += number**2
    text = json.dumps({**base, "side": head["side"], "commit": head["commit"]})
    (run / "evidence.json").write_text(text.replace(base["nonce"], head["nonce"]))


def _add_passing(run: Path) -> None:
    """Add a run of the same commits that passes, since it is invented."""
    lucky = run.parent.parent / "again/toy"
    shutil.copytree(run, lucky)
    _invent(lucky)


def _make_older(run: Path) -> None:
    """Date every moment of both sides a week back, and put the digests right."""
    for side in ("", "base-"):
        receipt, evidence = (run / f"{side}{name}" for name in _SIDES[:2])
        digest = hashlib.sha256(receipt.read_bytes()).hexdigest()
        for path in (receipt, evidence):
            path.write_text(_DAY.sub(_week_before, path.read_text()))
        older = hashlib.sha256(receipt.read_bytes()).hexdigest()
        evidence.write_text(evidence.read_text().replace(digest, older))


def _week_before(day: re.Match[str]) -> str:
    return (date.fromisoformat(day[0]) - timedelta(days=7)).isoformat()


def _leave(run: Path) -> None:
    """Nothing is changed: the answer depends on the options of the reader."""


def _fill(run: Path) -> None:
    with (run / "evidence.json").open("r+b") as file:
        file.truncate(5 << 30)


def _make_directories(run: Path) -> None:
    for number in range(2001):
        (run.parent / str(number)).mkdir()


UPLOADS = (
    Upload(
        "verdict-edited",
        "Writes another word into `verdict.json`.",
        "regressed",
        _edit("verdict.json", lambda found: found.update(verdict="pass", exit_code=0)),
    ),
    Upload(
        "base-made-slower",
        "Lowers the rate in the receipt of the base.",
        "E_RECEIPT_CHANGED",
        _edit("base-receipt.json", lambda found: found.update(tokens_per_second=1.0)),
    ),
    Upload(
        "head-as-its-base",
        "Uploads the files of the head as those of the base.",
        "E_OTHER_COMMIT",
        lambda run: _copy_side(run, "", "base-"),
    ),
    Upload(
        "base-as-the-head",
        "Uploads the files of the base as those of the head.",
        "E_OTHER_COMMIT",
        lambda run: _copy_side(run, "base-", ""),
    ),
    Upload(
        "work-injected-into-the-base",
        "Uploads a base that states work injected by `--inject`.",
        "E_OTHER_WORKLOAD",
        _edit(
            "base-evidence.json", lambda found: found["workload"].update(injection="matmul:+99%")
        ),
    ),
    Upload(
        "base-of-another-machine",
        "Uploads a base that was measured on another machine.",
        "E_NOT_TOGETHER",
        _edit("base-evidence.json", lambda found: found["machine"].update(cpu_model="other")),
    ),
    Upload("run-left-out", "Uploads no run of the workload.", "E_NO_RUN", shutil.rmtree),
    Upload(
        "base-left-out",
        "Uploads the run without its base.",
        "E_RUN_INCOMPLETE",
        lambda run: (run / "base-evidence.json").unlink(),
    ),
    Upload(
        "passing-run-added",
        "Uploads another run beside the slower one: an invented one that passes.",
        "regressed",
        _add_passing,
    ),
    Upload(
        "directory-linked",
        "Uploads a link to a directory outside of the upload.",
        "E_NO_RUN",
        _link_out,
    ),
    Upload("file-linked", "Uploads a link in place of a file.", "E_RUN_INCOMPLETE", _link_file),
    Upload("old-run", "Uploads a run of last week.", "E_EXPIRED", _make_older, ("--max-age=6d",)),
    Upload("huge-file", "Uploads a file of 5 GB.", "E_TOO_LARGE", _fill),
    Upload(
        "many-directories",
        "Uploads thousands of directories.",
        "E_TOO_MANY_RUNS",
        _make_directories,
    ),
    Upload(
        "unsigned",
        "Uploads files that nobody signed, if the policy names a key.",
        "E_SIGNATURE_MISSING",
        _leave,
        ("--key=../key.pub",),
    ),
    Upload(
        "evidence-invented",
        "Writes evidence that is consistent in itself, of a run that never took place.",
        GREEN,
        _invent,
    ),
    Upload(
        "luckiest-attempt",
        "Measures until a run passes, and uploads that one.",
        GREEN,
        _leave,
        is_lucky=True,
    ),
    Upload(
        "attempts-left-out",
        "The same, if the judge knows that it is the second attempt.",
        "E_ATTEMPTS_MISSING",
        _leave,
        ("--attempt=2",),
        is_lucky=True,
    ),
)
