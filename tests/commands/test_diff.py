"""``flamegate diff``, and the difference in the report of a run."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.receipt.artifacts import ArtifactStore
from tests.commands.asked import PROGRAM, Command
from tests.made import Bundle, bundle
from tests.report import verdicts

SHARES = {"gemv": 0.7, "attention": 0.2, "rms_norm": 0.1}
SLOWER = {"gemv": 0.58, "attention": 0.17, "rms_norm": 0.25}
"""A token takes a fifth longer, all of it in rms_norm."""


def measured(shares: Mapping[str, float], token_ns: int, seed: int) -> Bundle:
    return bundle(
        shares=shares, token_ns=token_ns, seed=seed, timed=8, profiled=20, sequences=4, jitter=0.01
    )


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Bundle, Bundle]:
    """Two runs, in the directories before and after."""
    base, head = measured(SHARES, 2_000_000, 1), measured(SLOWER, 2_400_000, 2)
    base.write(tmp_path / "before")
    head.write(tmp_path / "after")
    monkeypatch.chdir(tmp_path)
    return base, head


@pytest.mark.usefixtures("runs")
def test_the_first_line_is_the_answer(command: Command) -> None:
    for name in ("", "/receipt.json", "/evidence.json", "/profile.folded"):
        assert main(["diff", f"before{name}", f"after{name}"]) == 0
        first, before, after, *_ = command.read().out.splitlines()
        assert first.startswith("rms_norm costs ")
        assert "µs/token" in first
        assert first.endswith("nothing else changed beyond sampling noise")
        assert "before" in before
        assert "4f2c91a" in after


@pytest.mark.usefixtures("runs")
def test_bare_folded_stacks_are_compared_by_shares_and_say_so(command: Command) -> None:
    for side in ("before", "after"):
        Path(f"{side}.folded").write_bytes(Path(side, "profile.folded").read_bytes())
    printed = command(0, "diff", "before.folded", "after.folded").out
    assert printed.startswith("rms_norm takes 10 → 25 % of the samples")
    assert "shares only" in printed
    assert "µs/token" not in printed


def test_the_picture_is_written_with_both_folded_stacks(
    runs: tuple[Bundle, Bundle], command: Command
) -> None:
    document = json.loads(command(0, "diff", "before", "after", "--format=json", "-o", "out").out)
    assert document["functions"][0]["name"] == "rms_norm"
    assert document["measure"] == "cost"
    names = ["diff.svg", "diff.html", "base.folded", "head.folded"]
    assert document["written"] == [f"out/{name}" for name in names]
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(names)
    assert Path("out/base.folded").read_bytes() == runs[0].folded
    assert Path("out/head.folded").read_bytes() == runs[1].folded
    assert main(["diff", "before", "after", "-o", "sub/mine.svg"]) == 0
    assert "rms_norm costs" in Path("sub/mine.svg").read_text()
    assert command.read().out.endswith(
        "sub/mine.svg\nsub/mine.html\nsub/mine.base.folded\nsub/mine.head.folded\n"
    )


def test_profiles_taken_differently_are_an_error_and_marked_if_drawn(
    runs: tuple[Bundle, Bundle], tmp_path: Path, command: Command
) -> None:
    runs[1].with_profile(rate_hz=50, profiler="perf").write(tmp_path / "other")
    error = command(4, "diff", "before", "other", "-o", "out").err
    assert error.startswith("E_PROFILES_DIFFER")
    assert "profiler: py-spy and perf" in error
    assert "rate (Hz): " in error
    assert not Path("out").exists()
    assert "NOT COMPARABLE" in command(0, "diff", "before", "other", "-o", "out", "--anyway").out
    assert "NOT COMPARABLE" in Path("out/diff.svg").read_text()


@pytest.mark.parametrize("is_compared", [True, False])
def test_the_report_of_a_run_has_the_difference_too(
    is_compared: bool, runs: tuple[Bundle, Bundle], tmp_path: Path
) -> None:
    base, head = runs
    files = {
        **head.files,
        "base-profile.folded": base.folded,
        "base-evidence.json": base.files["evidence.json"],
        "verdict.json": encode_json(verdict_document(verdicts.regressed())),
    }
    if is_compared:
        files["diff.svg"] = b"<svg/>"
    ArtifactStore(tmp_path / ".flamegate").publish_run("4tok", files)
    assert main(["report"]) == 0
    page = Path(".flamegate/report.html").read_text("utf-8")
    assert ('"difference":{' in page) is is_compared
    assert ("rms_norm costs" in page) is is_compared


@pytest.mark.usefixtures("runs")
def test_the_two_sides_of_one_run_are_compared(
    runs: tuple[Bundle, Bundle], tmp_path: Path, command: Command
) -> None:
    assert "E_NO_RUN" in command(2, "diff", "after").err
    assert "E_NO_RUN: There is no file and no run 'nowhere'." in command(2, "diff", "nowhere").err
    base, head = runs
    sides = {"base-profile.folded": base.folded, "base-evidence.json": base.files["evidence.json"]}
    run = ArtifactStore(tmp_path).publish_run("4tok", {**head.files, **sides})
    assert command(0, "diff", str(run)).out.startswith("rms_norm costs ")
    # As the verdict shows it, if it shows a difference.
    (run / "diff.svg").touch()
    (run / "verdict.json").write_bytes(encode_json(verdict_document(verdicts.regressed())))
    assert "  now " in command(0, "diff", str(run)).out


def test_a_name_that_standard_output_cannot_write_is_escaped(tmp_path: Path) -> None:
    """The name of a file is bytes, and an encoding may lack the arrow."""
    name = os.fsdecode(b"a\xff.folded")
    try:
        (tmp_path / name).write_text("main;f 5\n")
    except OSError:
        pytest.skip("this file system takes no names that are not UTF-8")
    done = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, "diff", name, name, *more],
            cwd=tmp_path,
            env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
            capture_output=True,
            check=False,
        )
        for more in ((), ("--format", "json", "-o", f"{name}.d"))
    ]
    assert [(each.returncode, each.stderr) for each in done] == [(0, b""), (0, b"")]
    assert b"a\\udcff.folded" in done[0].stdout
    written = json.loads(done[1].stdout)["written"]
    assert os.fsencode(written[0]) == os.fsencode(f"{name}.d/diff.svg")
