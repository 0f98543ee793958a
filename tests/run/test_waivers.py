"""Waivers: what an accepted slowdown covers."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from pytest_flamegate.commands.accept import _encode
from pytest_flamegate.run.waivers import Waiver, find_exceeded_limits, find_excess, read_waiver
from tests.report import verdicts

DAY = date(2026, 11, 28)
TOO_MUCH = "no waiver of toy accepts so much of brick:Up (us/token)"


def accept(*limits: tuple[str, float]) -> Waiver:
    return Waiver(
        workload="toy", reason="x", author="", accepted=DAY, until=DAY, change_pct=-6.0,
        low_pct=-8.0, limits=limits, base="a" * 40, head="b" * 40, evidence_sha256="0" * 64,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "excess"),
    [
        ((), TOO_MUCH),
        ((("brick:Up (us/token)", 35.0),), ""),
        ((("brick:Up (us/token)", 30.0),), ""),  # measured again, its interval may end elsewhere
        (
            (("brick:Up (us/token)", 29.0),),
            TOO_MUCH,
        ),
        (
            (("brick:Up (us/call)", 35.0),),
            TOO_MUCH,
        ),
        (
            (("calls:f (calls/token)", 35.0),),
            TOO_MUCH,
        ),
        ((("brick:Up (us/token)", 15.0), ("brick:Up (us/token)", 13.1)), ""),  # 1.15 × 1.131
        (
            (("brick:Up (us/token)", 15.0), ("brick:Up (us/token)", 13.0)),
            TOO_MUCH,
        ),
    ],
)
def test_a_waiver_of_a_slowdown_accepts_the_limits_that_it_names(
    limits: tuple[tuple[str, float], ...], excess: str, tmp_path: Path
) -> None:
    waivers = [accept(limit) for limit in limits] or [accept()]
    slower = verdicts.regressed()
    assert find_excess(waivers, slower, None, DAY) == ""
    brick = verdicts.signal(
        "brick:Up",
        "us/token",
        "regressed",
        baseline=1.0,
        current=1.3,
        change_pct=30.0,
        ci_low_pct=25.0,
        ci_high_pct=35.0,
    )
    grown = replace(slower, signals=(*slower.signals, brick))
    assert find_exceeded_limits(grown) == (("brick:Up (us/token)", 35.0),)
    assert find_excess(waivers, grown, None, DAY) == excess
    path = tmp_path / "toy.toml"
    path.write_bytes(_encode(waivers[0], []))
    assert read_waiver(path) == waivers[0]


@pytest.mark.parametrize(
    ("calls", "excess"), [(9.0, ""), (10.0, "accepts so much of calls:f (calls/token, absolute)")]
)
def test_calls_that_the_base_does_not_have_do_not_add_up(calls: float, excess: str) -> None:
    waivers = [
        accept(("calls:f (calls/token, absolute)", 9.0)),
        accept(("calls:f (calls/token, absolute)", 4.0)),
    ]
    slower = verdicts.regressed()
    figures = {"baseline": None, "current": calls, "change_pct": None}
    counted = verdicts.signal("calls:f", "calls/token", "regressed", **figures)
    grown = replace(slower, signals=(*slower.signals, counted))
    found = find_excess(waivers, grown, None, DAY)
    assert found is not None
    assert (excess in found) if excess else not found
