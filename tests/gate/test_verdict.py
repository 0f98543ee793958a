from __future__ import annotations

import dataclasses

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.gate import EXIT_CODES, Reason, Verdict
from pytest_flamegate.receipt.types import VerdictName
from tests.gate.factory import PROFILE, QUIET, baseline, evidence, judge_stored, moved, scaled

WHY = (Reason("E_WHY", "Because."),)


@pytest.mark.parametrize(
    ("name", "code", "locally", "in_ci"),
    [
        ("pass", 0, False, False),
        ("improved", 0, False, False),
        ("regressed", 1, True, True),
        ("dishonest", 3, True, True),
        ("error", 5, True, True),
        ("inconclusive", 4, False, True),
        ("not_comparable", 4, False, True),
        ("no_baseline", 4, False, True),
    ],
)
def test_exit_code_and_outcome(name: VerdictName, code: int, *, locally: bool, in_ci: bool) -> None:
    verdict = Verdict(verdict=name, reasons=WHY, grade="OBSERVED")
    assert verdict.exit_code == code
    assert verdict.fails_test(ci=False, strict=False) is locally
    assert verdict.fails_test(ci=True, strict=False) is in_ci
    assert verdict.fails_test(ci=False, strict=True) is in_ci
    assert name in EXIT_CODES


def test_there_are_eight_verdicts() -> None:
    assert len(EXIT_CODES) == 8


def test_a_refusal_always_has_a_reason() -> None:
    assert Verdict.unjudged("error", WHY, grade="CONSISTENT").reasons == WHY
    with pytest.raises(ValueError, match="needs a reason"):
        Verdict.unjudged("dishonest", [], grade="CONSISTENT")


def test_a_verdict_cannot_be_edited() -> None:
    verdict = Verdict.unjudged("error", WHY, grade="CONSISTENT")
    with pytest.raises(dataclasses.FrozenInstanceError):
        verdict.verdict = "pass"  # type: ignore[misc]


WIDE = tuple({"a": 400 + i, "b": 600 - i} for i in (0, 180, -180))
NOISY = tuple(
    time * factor for time, factor in zip(QUIET, (1.01, 1.3, 0.8, 1.2, 0.9, 1.02), strict=True)
)


@pytest.mark.parametrize(
    ("times", "before", "after", "timed", "profiled"),
    [
        (scaled(QUIET, 1.0), None, None, False, False),
        (scaled(QUIET, 1.5), None, None, False, False),
        (NOISY, None, None, True, False),
        (scaled(QUIET, 1.0)[:2], None, None, True, False),
        (scaled(QUIET, 1.0), WIDE, moved(WIDE, "a", 80, "b"), False, True),
        (scaled(QUIET, 1.0), PROFILE, PROFILE[:2], False, True),
        (NOISY, PROFILE, PROFILE[:2], True, True),
        (scaled(QUIET, 1.0), PROFILE[:2], PROFILE, False, False),
    ],
)
def test_what_more_would_help(
    times: tuple[float, ...],
    before: tuple[dict[str, int], ...] | None,
    after: tuple[dict[str, int], ...] | None,
    *,
    timed: bool,
    profiled: bool,
) -> None:
    verdict = judge_stored(baseline(profile=before), evidence(times, after), Thresholds())
    more = verdict.more_processes
    assert (more.timed, more.profiled) == (timed, profiled)
    assert bool(more) is (timed or profiled)
