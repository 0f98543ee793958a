"""Nothing is written outside the artifact directory, whatever links stand in it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.files import require_confined
from pytest_flamegate.receipt.artifacts import ArtifactStore, RunLine
from tests.snapshots import snapshot

LINE = RunLine(workload="w", verdict="error", reasons=(), accepted=False)
WRITES: dict[str, Callable[[ArtifactStore], object]] = {
    "publish": lambda artifacts: artifacts.publish_run("w", {"receipt.json": b"{}"}),
    "accept": lambda artifacts: artifacts.accept_baseline("m", "w", {"receipt.json": b"{}"}),
    "calibrate": lambda artifacts: artifacts.write_calibration("m", "w", b"{}"),
    "record": lambda artifacts: artifacts.append_run(LINE),
    "enter": lambda artifacts: artifacts.append_ledger({"workload": "w"}),
    "remove": lambda artifacts: artifacts.remove_baseline(artifacts.baseline_directory("m", "w")),
    "probe": lambda artifacts: artifacts.require_writable("m"),
    "sweep": lambda artifacts: artifacts.sweep(),
}
PLACES = {
    "publish": ("", "latest", "latest/w"),
    "accept": ("", "baselines", "baselines/m", "baselines/m/w"),
    "calibrate": ("", "calibration", "calibration/m", "calibration/m/w.json"),
    "record": ("", "history", "history/runs.jsonl"),
    "enter": ("", "history", "history/ledger.jsonl"),
    "remove": ("", "baselines", "baselines/m", "baselines/m/w"),
    "probe": ("", "latest", "baselines", "baselines/m"),
    "sweep": ("", "latest", "history", "imported", "baselines", "baselines/m", "calibration/m"),
}


def test_every_write_is_tried() -> None:
    assert WRITES.keys() == PLACES.keys()


@pytest.mark.parametrize(
    ("write", "place"), [(write, place) for write, places in PLACES.items() for place in places]
)
@pytest.mark.parametrize("dangling", [False, True])
def test_no_link_is_followed(tmp_path: Path, write: str, place: str, dangling: bool) -> None:
    root, outside = tmp_path / "project" / ".flamegate", tmp_path / "outside"
    link = root / place
    link.parent.mkdir(parents=True)
    outside.mkdir()
    for name in ("receipt.json", "latest", "baselines", "w", ".w.new-0123456789ab"):
        (outside / name).write_text("precious")
    link.symlink_to(outside / "new" if dangling else outside)
    before = snapshot(outside)
    with pytest.raises(FlamegateError) as refused:
        WRITES[write](ArtifactStore(root))
    assert refused.value.code == "E_CANNOT_WRITE"
    assert "symbolic link" in refused.value.problem
    assert snapshot(outside) == before


@pytest.mark.parametrize("write", ["publish", "accept", "calibrate", "record", "enter"])
def test_without_a_link_it_is_written(tmp_path: Path, write: str) -> None:
    WRITES[write](ArtifactStore(tmp_path / ".flamegate"))
    assert (tmp_path / ".flamegate" / PLACES[write][-1]).exists()


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/x"])
def test_what_does_not_lie_below_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(FlamegateError, match="does not lie in"):
        require_confined(tmp_path, tmp_path / path)


def test_a_directory_above_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    root = tmp_path / "link" / ".flamegate"
    assert require_confined(root, root / "latest" / "w") == root / "latest" / "w"
