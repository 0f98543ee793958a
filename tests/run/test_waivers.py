"""Waivers: what an accepted slowdown covers."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from pytest_flamegate.commands.accept import _encode
from pytest_flamegate.run.waivers import Waiver, find_exceeded_limits, find_excess, read_waiver
from tests.report import verdicts

DAY = date(2026, 11, 28)


@pytest.mark.parametrize(
    ("limits", "excess"),
    [
        ((), "no waiver of toy accepts so much of brick:Up"),
        ((("brick:Up", 35.0),), ""),
        ((("brick:Up", 30.0),), ""),  # measured again, its interval may end elsewhere
        ((("brick:Up", 29.0),), "no waiver of toy accepts so much of brick:Up"),
        ((("calls:f", 35.0),), "no waiver of toy accepts so much of brick:Up"),
    ],
)
def test_a_waiver_of_a_slowdown_accepts_the_limits_that_it_names(
    limits: tuple[tuple[str, float], ...], excess: str, tmp_path: Path
) -> None:
    waiver = Waiver(
        workload="toy", reason="x", author="", accepted=DAY, until=DAY, change_pct=-6.0,
        low_pct=-8.0, limits=limits, base="a" * 40, head="b" * 40, evidence_sha256="0" * 64,
    )  # fmt: skip
    slower = verdicts.regressed()
    assert find_excess([waiver], slower, None, DAY) == ""
    brick = verdicts.signal(
        "brick:Up",
        "us/call",
        "regressed",
        baseline=1.0,
        current=1.3,
        change_pct=30.0,
        ci_low_pct=25.0,
        ci_high_pct=35.0,
    )
    grown = replace(slower, signals=(*slower.signals, brick))
    assert find_exceeded_limits(grown) == (("brick:Up", 35.0),)
    assert find_excess([waiver], grown, None, DAY) == excess
    path = tmp_path / "toy.toml"
    path.write_bytes(_encode(waiver, []))
    assert read_waiver(path) == waiver
