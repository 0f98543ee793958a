from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks import folders, grown
from benchmarks.folding import Input, compared, require_all, table
from benchmarks.timed import Took, alternating, median, timed, times_slower
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.profile.profilers.perf_script import parse_script
from tests.profile.profiles import DATA

pytestmark = pytest.mark.measures

SAMPLES = grown.split((DATA / "perf-script-dwarf.txt").read_bytes())


def test_what_is_grown_reads_as_the_same_stacks(tmp_path: Path) -> None:
    path = tmp_path / "printed.txt"
    grown.write(path, SAMPLES, 2500)
    text = path.read_bytes()
    real = parse_script([(DATA / "perf-script-dwarf.txt").read_bytes()])
    made = parse_script([text])
    assert made.stacks.keys() == real.stacks.keys()
    assert sum(made.stacks.values()) == 2500
    assert made.span_ns > 0
    leaves = [s.split(b"\n")[1][1:17] for s in text.split(b"\n\n") if s.strip()]
    assert len(set(leaves)) > 2400


def test_headers_with_a_command_are_what_others_read(tmp_path: Path) -> None:
    path = tmp_path / "printed.txt"
    grown.write(path, SAMPLES, 1, command=True)
    first = path.read_bytes().split(b"\n")[0]
    assert first.startswith(b"engine 16592/16592  3955.0")
    assert first.endswith(b": 1 cpu-clock: ")


def test_depths_are_told_and_chosen() -> None:
    samples = [(b"a",) * depth for depth in (1, 2, 6)]
    assert grown.depths(samples) == "2 frames in the median, 3.0 mean"
    assert grown.near_depth(samples, 2, 6) == samples[1:]


def test_ours_is_run_on_a_file_and_loses_no_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "found", lambda _: None)
    shown = compared(Input("dwarf", SAMPLES, 300), tmp_path, 1)
    assert shown.rows[0][0] == "flamegate"
    assert {line[1] for line in shown.rows[1:]} == {"not installed"}
    assert shown.title.startswith("Folding 300 samples: dwarf, ")


def test_a_program_that_skips_samples_is_refused(tmp_path: Path) -> None:
    folded = tmp_path / "x.folded"
    folded.write_text("a b;c 3\nd 4\n")
    require_all(folded, 7)
    with pytest.raises(ToolError, match=r"x.folded holds 7 of 8 samples"):
        require_all(folded, 8)


def test_others_get_the_file_in_place_of_perf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stand-in that does as flamegraph does: ask $PERF, give it on, keep what comes back.
    program = tmp_path / "flamegraph"
    program.write_text('#!/bin/sh\neval "set -- $6"\n"$PERF" script | "$@" > "$OUT"\n')
    program.chmod(0o755)
    monkeypatch.setattr(
        folders, "found", lambda name: str(program) if name == program.name else None
    )
    printed, folded = tmp_path / "printed.txt", tmp_path / "its own.folded"
    printed.write_text("a;b 3\n")
    told = folders.folding(printed, folded)
    argv = told["inferno (in flamegraph)"]
    assert argv is not None
    timed(argv, {**os.environ, "OUT": str(tmp_path / "drawn")})
    assert folded.read_text() == "a;b 3\n"
    assert (tmp_path / "drawn").read_text() == "nothing 1\n"
    assert told["stackcollapse-perf.pl"] is None


def test_medians_and_ratios_over_the_rounds() -> None:
    ours = [Took(1.0, 1.0, 2**20), Took(2.0, 1.0, 2**20), Took(4.0, 3.0, 2**21)]
    theirs = [Took(3.0, 3.0, 2**22), Took(4.0, 3.0, 2**22), Took(4.0, 3.0, 2**22)]
    assert median(ours) == Took(2.0, 1.0, 2**20)
    assert times_slower(theirs, ours) == 2.0
    shown = table("x", 4000, ["flamegate", "a", "b"], {"flamegate": ours, "a": theirs})
    assert shown.rows[0] == ("flamegate", "2", "2.00", "1.00", "1", "1.00")
    assert shown.rows[1] == ("a", "1", "4.00", "3.00", "4", "2.00")
    assert shown.rows[2] == ("b", "not installed", "–", "–", "–", "–")


def test_memory_and_time_are_those_of_the_program() -> None:
    held = timed([sys.executable, "-c", "x = bytearray(80 << 20); sum(range(10**6))"])
    assert held.peak_bytes > 80 << 20
    assert held.user_s > 0
    small = timed([sys.executable, "-ISc", "pass"])
    assert small.peak_bytes < 40 << 20


def test_a_program_that_fails_is_told() -> None:
    with pytest.raises(SystemExit, match=r"status 3: .*why"):
        timed([sys.executable, "-c", "import sys; print('why', file=sys.stderr); sys.exit(3)"])


def test_every_program_is_run_once_a_round() -> None:
    took = alternating({"a": ["true"], "b": ["true"]}, 3, dict(os.environ))
    assert {name: len(each) for name, each in took.items()} == {"a": 3, "b": 3}
