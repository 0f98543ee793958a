"""What is drawn of a run: flame graph, difference, bricks. Nothing is measured for it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.core import process
from pytest_flamegate.core.json import encode_plain
from pytest_flamegate.gate.costs import WAITING
from pytest_flamegate.observe.machine import Bandwidth
from pytest_flamegate.receipt.baseline import Baseline
from pytest_flamegate.receipt.metrics import cost_of
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.run import pictures
from pytest_flamegate.run.open import OpenedProfile, compare_opened, find_other_work
from pytest_flamegate.run.pictures import Pictures, draw, make_brick_view, read_brick_view
from pytest_flamegate.run.seal import ComposedRun
from tests.bricks.factory import make_run, make_totals
from tests.made import Bundle, bundle
from tests.report import factory, verdicts
from tests.run import fakes

SETTINGS = fakes.settings(Path())
CALLS = (
    BrickCall("RmsNorm", 0, 1_000, 1_000, layer=0, phase="decode", elements=64),
    BrickCall("LmHead", 1_000, 4_000, 3_000, phase="decode"),
)
BANDWIDTH = Bandwidth(32e9, 512 << 20, 9, 1, 0.0)
BASE = bundle(timed=5, seed=1, shares={"ternary_gemv": 0.9, "rms_norm": 0.1})
HEAD = bundle(timed=5, seed=2, token_ns=2_300_000, shares={"ternary_gemv": 0.7, "rms_norm": 0.3})


def drawn(run: ComposedRun, verdict: Any = None) -> Pictures:
    return draw(
        run,
        verdict or verdicts.regressed(),
        SETTINGS,
        again="pytest --flamegate",
        directory=Path(".flamegate/latest/4tok"),
    )


@pytest.fixture
def baseline(tmp_path: Path) -> Baseline:
    directory = BASE.write(tmp_path / "before").parent
    return Baseline(directory, BASE.evidence, "machine", BASE.files)


def test_a_run_alone_has_a_flame_graph_and_a_page() -> None:
    found = drawn(fakes.sealed_run(HEAD), verdicts.no_baseline())
    assert found.files.keys() == {"flamegraph.svg", "flamegraph.html", "flamegraph.md"}
    assert '<p class="headline">no baseline: ' in found.files["flamegraph.html"].decode()
    assert found.drawn is not None
    assert found.drawn.difference is None


def test_a_stored_baseline_adds_the_difference_and_its_own_profile(baseline: Baseline) -> None:
    found = drawn(fakes.sealed_run(HEAD, baseline=baseline))
    assert found.files["base-profile.folded"] == BASE.folded
    assert found.files["base-evidence.json"] == BASE.files["evidence.json"]
    svg = found.files["diff.svg"].decode()
    assert "rms_norm costs" in svg
    assert "baseline 4f2c91a" in svg
    assert found.drawn is not None
    assert found.drawn.difference is not None


def test_the_files_of_the_other_side_lie_beside_those_of_the_run() -> None:
    run = fakes.sealed_run(HEAD, BASE)
    assert run.base is not None
    base = replace(run.base, files={**run.base.files, "lines.folded": b"toy.py:1 1\n"})
    found = drawn(replace(run, base=base)).files
    assert found["base-lines.folded"] == b"toy.py:1 1\n"
    assert found["base-profile.folded"] == BASE.folded


@pytest.mark.parametrize("name", ["not_comparable", "dishonest", "error"])
def test_sides_that_may_not_be_compared_have_no_difference(name: str, baseline: Baseline) -> None:
    verdict = replace(verdicts.regressed(), verdict=name)  # type: ignore[arg-type]
    assert "diff.svg" not in drawn(fakes.sealed_run(HEAD, BASE), verdict).files
    found = drawn(fakes.sealed_run(HEAD, baseline=baseline), verdict).files
    assert not {"diff.svg", "base-profile.folded"} & found.keys()


def test_without_a_profile_nothing_is_drawn(baseline: Baseline) -> None:
    sealed = fakes.sealed_run(HEAD, baseline=baseline)
    bare = replace(sealed.head, profile=None, receipt=None)
    assert drawn(replace(sealed, head=bare)) == Pictures()


def test_drawing_starts_no_process(monkeypatch: pytest.MonkeyPatch, baseline: Baseline) -> None:
    monkeypatch.setattr(process, "run", lambda *_, **__: pytest.fail("a process was started"))
    sealed = fakes.sealed_run(HEAD.with_evidence(bricks=evidence().bricks), baseline=baseline)
    assert drawn(sealed).bricks is not None


# Two profiles


def opened(made: Bundle, **changes: Any) -> OpenedProfile:
    side = fakes.run_side(made)
    assert side.profile is not None
    seen = replace(made.evidence, **changes)
    return OpenedProfile(side.profile, "x", cost_of(side.profile.covers, seen.metrics), seen)


def test_two_runs_are_compared_by_cost_if_both_have_enough_processes() -> None:
    one, other = (opened(bundle(timed=1, seed=seed)) for seed in (1, 2))
    assert compare_opened(one, other).measure == "share"
    base, head = opened(BASE), opened(HEAD)
    assert compare_opened(base, head).measure == "cost"
    assert compare_opened(base, head).head.cpu_s_per_token != head.cpu_s_per_token
    # Runs of other work are compared by their own clocks.
    other = opened(HEAD, tokens=("another", *HEAD.evidence.tokens))
    assert find_other_work(base, head) is None
    assert "different tokens" in (find_other_work(base, other) or "")
    assert compare_opened(base, other).head.cpu_s_per_token == other.cpu_s_per_token


# Bricks


def evidence() -> Evidence:
    one = make_run(make_totals("RmsNorm", [1_000]), make_totals("LmHead", [3_000]), wall_ns=5_000)
    return replace(factory.evidence(), bricks=(one,))


def document(nonce: str, calls: tuple[BrickCall, ...] = CALLS) -> bytes:
    return json.dumps({"nonce": nonce, "calls": encode_plain(calls), "wall_ns": 5_000}).encode()


def test_the_table_the_tree_and_the_path() -> None:
    shown, warnings = make_brick_view(evidence(), CALLS, SETTINGS)
    assert shown is not None
    assert warnings == ()
    assert [row.name for row in shown.table.rows] == ["LmHead", "RmsNorm"]
    assert shown.tree == ("Layer 0", "└── RmsNorm  1.0µs (64 elem)", "LmHead  3.0µs")
    assert shown.critical_path == "critical path: 4 of 4 µs, of which LmHead 75 %, RmsNorm 25 %"


def test_an_empty_run_of_bricks_is_a_warning_and_none_is_none() -> None:
    assert make_brick_view(factory.evidence(), CALLS, SETTINGS) == (None, ())
    empty = replace(factory.evidence(), bricks=(make_run(),))
    shown, (warning,) = make_brick_view(empty, None, SETTINGS)
    assert shown is None
    assert "E_NO_BRICKS" in warning


@pytest.mark.parametrize(
    ("beside", "code"),
    [
        (None, "E_NO_BRICKS"),
        (b'{"nonce": 3, "calls": []}', "E_WRONG_TYPE"),
        (document("another"), "E_NO_BRICKS"),
        (document("n" * 32, (replace(CALLS[0], parent=7),)), "E_BRICK_CALLS"),
    ],
    ids=["nothing", "other types", "another run", "no parent"],
)
def test_calls_that_cannot_be_read_leave_the_table(
    beside: bytes | None, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "find_known_bandwidth", lambda threads: None)
    if beside is not None:
        (tmp_path / "bricks.json").write_bytes(beside)
    shown, warnings = read_brick_view(tmp_path, evidence(), SETTINGS)
    assert shown is not None
    assert (shown.tree, shown.critical_path, warnings) == ((), "", ())
    assert re.match(rf"There is no tree of one token\. {code}:", shown.notes[0])


def test_the_bricks_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "find_known_bandwidth", lambda threads: BANDWIDTH)
    seen = evidence()
    # A variant's directory has brackets, and a project's path may have spaces.
    directory = tmp_path / "of mine" / "decode[i2s]"
    directory.mkdir(parents=True)
    (directory / "bricks.json").write_bytes(document(seen.nonce))
    shown, _ = read_brick_view(directory, seen, fakes.settings(tmp_path, bricks=1))
    assert shown is not None
    assert [row.name for row in shown.table.rows] == ["LmHead"]
    assert shown.full_command == "flamegate bricks 'of mine/decode[i2s]'"
    # The factory's model names no bytes a token: a rate is known, a fraction is not.
    assert "for lack of the weights' bytes per token" in shown.roofline


def test_the_picture_has_the_costs_and_the_certainty_of_the_verdict() -> None:
    """The table of a regression and its picture show the same figures, and name the same."""
    rows = verdicts.regressed().attribution
    found = compare_opened(opened(BASE), opened(HEAD), judged=rows)
    before, after = (
        sum(getattr(row, name) for row in rows if row.name != WAITING)
        for name in ("baseline_us", "current_us")
    )
    assert found.total.base == pytest.approx(before / 1e6)
    assert found.total.head == pytest.approx(after / 1e6)
    certain = {row.name for row in rows if row.excludes_zero}
    judged = {row.name for row in rows}
    assert {each.frame.name for each in found.changed} & judged == certain
