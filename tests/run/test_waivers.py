"""Waivers: what an accepted slowdown covers."""

from dataclasses import replace
from datetime import date

import pytest

from pytest_flamegate.run.waivers import Waiver, find_exceeded_limits, find_excess
from tests.report import verdicts

DAY = date(2026, 11, 28)


@pytest.mark.parametrize(
    ("limits", "excess"),
    [
        ((), "no waiver of toy accepts that it exceeds brick:Up"),
        (("brick:Up",), ""),
        (("calls:f",), "no waiver of toy accepts that it exceeds brick:Up"),
    ],
)
def test_a_waiver_of_a_slowdown_accepts_the_limits_that_it_names(
    limits: tuple[str, ...], excess: str
) -> None:
    waiver = Waiver(
        workload="toy", reason="x", author="", accepted=DAY, until=DAY, change_pct=-6.0,
        low_pct=-8.0, limits=limits, base="a" * 40, head="b" * 40, evidence_sha256="0" * 64,
    )  # fmt: skip
    slower = verdicts.regressed()
    assert find_excess([waiver], slower, None, DAY) == ""
    brick = verdicts.signal("brick:Up", "us/call", "regressed", baseline=1.0, current=1.3)
    grown = replace(slower, signals=(*slower.signals, brick))
    assert find_exceeded_limits(grown) == ("brick:Up",)
    assert find_excess([waiver], grown, None, DAY) == excess
