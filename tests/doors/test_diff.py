"""``flamegate diff`` and the difference that stands beside a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.gate import Verdict, verdict_document
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.receipt.artifacts import ArtifactStore, Baseline
from pytest_flamegate.receipt.metrics import cost_of
from pytest_flamegate.run.difference import Seen, beside_base, beside_baseline, compared, other_work
from pytest_flamegate.run.open import open_profile
from pytest_flamegate.run.publish import Keeper
from pytest_flamegate.run.seal import Sealed
from tests.made import Bundle, bundle
from tests.report import verdicts

SHARES = {"gemv": 0.7, "attention": 0.2, "rms_norm": 0.1}
DEARER = {"gemv": 0.58, "attention": 0.17, "rms_norm": 0.25}
"""A token takes a fifth longer, all of it in rms_norm."""
Told = pytest.CaptureFixture[str]
_PROGRAM = "import sys; from pytest_flamegate.cli import main; sys.exit(main())"


def measured(shares: Mapping[str, float], token_ns: int, seed: int) -> Bundle:
    return bundle(
        shares=shares, token_ns=token_ns, seed=seed, timed=8, profiled=20, sequences=4, jitter=0.01
    )


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Bundle, Bundle]:
    """Two runs, in the directories before and after."""
    base, head = measured(SHARES, 2_000_000, 1), measured(DEARER, 2_400_000, 2)
    base.write(tmp_path / "before")
    head.write(tmp_path / "after")
    monkeypatch.chdir(tmp_path)
    return base, head


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("name", ["", "/receipt.json", "/evidence.json", "/profile.folded"])
def test_it_answers_first_and_exits_with_0(name: str, capsys: Told) -> None:
    assert main(["diff", f"before{name}", f"after{name}"]) == 0
    first, before, after, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("rms_norm costs ")
    assert "µs/token" in first
    assert first.endswith("nothing else changed beyond sampling noise")
    assert "before" in before
    assert "4f2c91a" in after


@pytest.mark.usefixtures("runs")
def test_bare_folded_stacks_are_compared_by_shares_and_say_so(capsys: Told) -> None:
    for side in ("before", "after"):
        Path(f"{side}.folded").write_bytes(Path(side, "profile.folded").read_bytes())
    assert main(["diff", "before.folded", "after.folded"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("rms_norm takes 10 → 25 % of the samples")
    assert "shares only" in said
    assert "µs/token" not in said


def test_the_picture_is_written_with_both_folded_stacks(
    runs: tuple[Bundle, Bundle], capsys: Told
) -> None:
    assert main(["diff", "before", "after", "-o", "out"]) == 0
    assert {path.name for path in Path("out").iterdir()} == {
        "diff.svg", "diff.html", "base.folded", "head.folded"
    }  # fmt: skip
    assert Path("out/base.folded").read_bytes() == runs[0].folded
    assert Path("out/head.folded").read_bytes() == runs[1].folded
    assert main(["diff", "before", "after", "-o", "sub/mine.svg"]) == 0
    assert {path.name for path in Path("sub").iterdir()} == {
        "mine.svg", "mine.html", "mine.base.folded", "mine.head.folded"
    }  # fmt: skip
    assert "rms_norm costs" in Path("sub/mine.svg").read_text()
    assert capsys.readouterr().out.endswith(
        "sub/mine.svg\nsub/mine.html\nsub/mine.base.folded\nsub/mine.head.folded\n"
    )


@pytest.mark.usefixtures("runs")
def test_json_is_all_of_it(capsys: Told) -> None:
    assert main(["diff", "before", "after", "--format=json", "-o", "out"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["functions"][0]["name"] == "rms_norm"
    assert document["measure"] == "cost"
    names = ["diff.svg", "diff.html", "base.folded", "head.folded"]
    assert document["written"] == [f"out/{name}" for name in names]


def test_profiles_that_were_not_taken_alike_are_refused_and_marked_when_drawn(
    runs: tuple[Bundle, Bundle], tmp_path: Path, capsys: Told
) -> None:
    runs[1].with_profile(rate_hz=50, profiler="perf").write(tmp_path / "other")
    assert main(["diff", "before", "other", "-o", "out"]) == 4
    told = capsys.readouterr()
    assert told.err.startswith("E_PROFILES_DIFFER")
    assert "profiler: py-spy and perf" in told.err
    assert "rate (Hz): " in told.err
    assert not Path("out").exists()
    assert main(["diff", "before", "other", "-o", "out", "--anyway"]) == 0
    assert "NOT COMPARABLE" in capsys.readouterr().out
    assert "NOT COMPARABLE" in Path("out/diff.svg").read_text()


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("text", ["not a profile\n", "main (a.py);f (a.py) x\n", ""])
def test_what_is_no_profile_is_refused(text: str, capsys: Told) -> None:
    Path("odd.folded").write_text(text)
    assert main(["diff", "before", "odd.folded"]) == 3
    said = capsys.readouterr()
    assert said.err.startswith("E_")
    assert said.out == ""


@pytest.mark.usefixtures("runs")
def test_what_is_not_there_is_said(capsys: Told) -> None:
    assert main(["diff", "before", "nowhere"]) != 0
    assert "nowhere" in capsys.readouterr().err


def profile_of(triple: Bundle) -> Profile:
    with TemporaryDirectory() as directory:
        triple.write(Path(directory))
        return open_profile(Path(directory)).profile


def test_a_comparison_of_one_process_a_side_knows_no_cost() -> None:
    def seen(seed: int, timed: int) -> Seen:
        triple = bundle(timed=timed, seed=seed)
        return Seen("x", profile_of(triple), triple.evidence)

    assert compared(seen(1, timed=1), seen(2, timed=1)).measure == "share"
    assert compared(seen(1, timed=3), seen(2, timed=3)).measure == "cost"


def test_runs_of_other_work_are_compared_by_what_each_measured() -> None:
    base, head = bundle(timed=3, seed=1), bundle(timed=3, seed=2)
    other = replace(head.evidence, tokens=("another", *head.evidence.tokens))
    before = Seen("a", profile_of(base), base.evidence)
    after = Seen("b", profile_of(head), other)
    assert other_work(before, Seen("b", profile_of(head), head.evidence)) is None
    assert "same tokens" in (other_work(before, after) or "")
    assert compared(before, after).head.cpu_s_per_token == cost_of(
        after.profile.covers, other.metrics
    )


# Beside a run


def sealed(triple: Bundle) -> Sealed:
    return Sealed(triple.receipt, triple.evidence, profile_of(triple), triple.files, None)


def toy(directory: Path) -> Workload:
    return Workload(
        name="4tok", engine="embedded", prompt="x", max_tokens=4, source="embedded",
        directory=directory,
    )  # fmt: skip


def test_a_stored_baseline_leaves_the_difference_and_both_profiles_beside_the_run(
    runs: tuple[Bundle, Bundle], tmp_path: Path
) -> None:
    baseline = Baseline(tmp_path / "before", runs[0].evidence, "machine")
    files = beside_baseline(toy(tmp_path), baseline, sealed(runs[1]), verdicts.regressed()).files
    assert files.keys() == {"diff.svg", "base-profile.folded", "base-evidence.json"}
    assert files["base-profile.folded"] == runs[0].folded
    svg = files["diff.svg"].decode()
    assert "rms_norm costs" in svg
    assert "baseline 4f2c91a" in svg


def test_a_comparison_in_pairs_leaves_the_same(runs: tuple[Bundle, Bundle], tmp_path: Path) -> None:
    base, head = map(sealed, runs)
    files = beside_base(toy(tmp_path), base, head, verdicts.regressed()).files
    assert files.keys() == {"diff.svg", "base-profile.folded", "base-evidence.json"}


@pytest.mark.parametrize("compared_with_it", [True, False])
def test_the_report_of_the_run_has_the_difference_too(
    compared_with_it: bool, runs: tuple[Bundle, Bundle], tmp_path: Path
) -> None:
    base, head = map(sealed, runs)
    beside = dict(beside_base(toy(tmp_path), base, head, verdicts.regressed()).files)
    if not compared_with_it:
        del beside["diff.svg"]
    document = json.dumps(verdict_document(verdicts.regressed())).encode()
    files = {**runs[1].files, **beside, "verdict.json": document}
    ArtifactStore(tmp_path / ".flamegate").publish_run("4tok", files)
    assert main(["report", "-o", "page.html"]) == 0
    page = Path("page.html").read_text("utf-8")
    assert ('"difference":{' in page) is compared_with_it
    assert ("rms_norm costs" in page) is compared_with_it


@pytest.mark.parametrize("name", ["not_comparable", "dishonest", "error"])
def test_what_may_not_be_compared_is_not_drawn(
    name: str, runs: tuple[Bundle, Bundle], tmp_path: Path
) -> None:
    base, head = map(sealed, runs)
    verdict: Verdict = replace(verdicts.regressed(), verdict=name)  # type: ignore[arg-type]
    assert "diff.svg" not in beside_base(toy(tmp_path), base, head, verdict).files
    baseline = Baseline(tmp_path / "before", runs[0].evidence, "machine")
    assert beside_baseline(toy(tmp_path), baseline, head, verdict).files == {}


def test_without_a_profile_there_is_nothing_to_draw(
    runs: tuple[Bundle, Bundle], tmp_path: Path
) -> None:
    base, head = map(sealed, runs)
    bare = replace(head, profile=None)
    assert beside_baseline(toy(tmp_path), None, head, verdicts.no_baseline()).files == {}
    assert "diff.svg" not in beside_base(toy(tmp_path), base, bare, verdicts.regressed()).files


def test_what_a_run_was_compared_with_is_no_part_of_a_baseline(tmp_path: Path) -> None:
    keeper = Keeper(ArtifactStore(tmp_path), "machine")
    triple = bundle()
    files = {**triple.files, "diff.svg": b"x", "base-profile.folded": b"y"}
    accepted = keeper.accept("4tok", files, triple.evidence).path
    assert {path.name for path in accepted.iterdir()} == {*triple.files, "baseline.json"}


def test_what_standard_output_cannot_write_is_escaped(tmp_path: Path) -> None:
    """Nor is a file's name any text: a name is bytes, and an encoding may lack the arrow."""
    name = os.fsdecode(b"a\xff.folded")
    try:
        (tmp_path / name).write_text("main;f 5\n")
    except OSError:
        pytest.skip("this file system takes no names that are not UTF-8")
    for encoding in ("ascii:strict", "utf-8:strict"):
        told = [
            subprocess.run(
                [sys.executable, "-c", _PROGRAM, "diff", name, name, *more],
                cwd=tmp_path,
                env={**os.environ, "PYTHONIOENCODING": encoding},
                capture_output=True,
                timeout=300,
                check=False,
            )
            for more in ((), ("--format", "json", "-o", f"{name}.d"))
        ]
        assert [(done.returncode, done.stderr) for done in told] == [(0, b""), (0, b"")]
        assert b"a\\udcff.folded" in told[0].stdout
        written = json.loads(told[1].stdout)["written"]
        assert os.fsencode(written[0]) == os.fsencode(f"{name}.d/diff.svg")
