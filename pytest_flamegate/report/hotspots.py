"""The sections of a profile: its hottest frames, and findings in sentences.

A finding is written only if its figures are known and worth a reader's time.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from pytest_flamegate.profile.model import Hotspot
from pytest_flamegate.receipt.metrics import value_of
from pytest_flamegate.receipt.types import Evidence, ProfileRecord
from pytest_flamegate.report import text
from pytest_flamegate.report.sections import (
    NONE,
    Code,
    Items,
    Line,
    Paragraph,
    Picture,
    Section,
    list_names,
    make_section,
    make_table,
)

HOTTEST = 3
"""Functions that a row of a table names."""
_MOST_FRAMES, _LEAST_SHARE = 20, 0.005
_SLOW_TAIL = 1.5
_CONTENDED_PCT = 20.0
_OFF_CPU = 0.05
_OVERHEAD_PCT = 3.0
_COMPLETE = 0.95


def category_shares(hotspots: Sequence[Hotspot]) -> dict[str, float]:
    """Return the self share of each category in ``hotspots``, 0 to 1, largest first."""
    shares: dict[str, float] = {}
    for hotspot in hotspots:
        if hotspot.self_samples:
            shares[hotspot.category] = shares.get(hotspot.category, 0.0) + hotspot.self_share
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def rank_by_self_share(hotspots: Sequence[Hotspot]) -> list[Hotspot]:
    """Return ``hotspots`` hottest first: by self share, then inclusive share, then name."""
    return sorted(hotspots, key=lambda h: (-h.self_share, -h.inclusive_share, h.name, h.module))


def find_hottest(evidence: Evidence | None, most: int = HOTTEST) -> list[Hotspot]:
    """Return the first few frames by self share; none without a profile."""
    profile = evidence.profile if evidence is not None else None
    ranked = rank_by_self_share(profile.hotspots) if profile is not None else []
    return [hotspot for hotspot in ranked if hotspot.self_samples][:most]


def hotspot_section(evidence: Evidence, picture: Picture | None) -> Section:
    """Return the flame graph and the table of the hottest frames."""
    title = "Where the time goes"
    if evidence.profile is None:
        return Section(title, (Paragraph("No profile was taken."),))
    ranked = rank_by_self_share(evidence.profile.hotspots)
    shown = [each for each in ranked if each.self_share >= _LEAST_SHARE][:_MOST_FRAMES]
    rows = [
        (
            str(rank),
            Code(each.name),
            Code(each.module) if each.module else NONE,
            each.category,
            text.count(each.self_samples),
            text.share(each.self_share),
            text.share(each.inclusive_share),
            NONE if each.cpu_s_per_token is None else text.micros(each.cpu_s_per_token),
        )
        for rank, each in enumerate(shown, 1)
    ]
    head = ("rank", "frame", "module", "category", "self samples", "self", "with callees",
            "self µs/token")  # fmt: skip
    left = len(ranked) - len(shown)
    more = f" {text.plural(left, 'further frame')} in evidence.json." if left > 0 else ""
    caption = (
        "Self is the time in a frame itself; with callees adds all it calls. "
        f"Costs are shares of the CPU time of one token.{more}"
        if rows
        else "The profile holds no frame."
    )
    table = make_table(head, rows, right=(0, 4, 5, 6, 7))
    return make_section(title, [picture, table, Paragraph(caption, muted=True)])


# Findings


def finding_section(evidence: Evidence) -> Section:
    """Return unusual properties of a run in sentences, the most important first."""
    findings: list[Line] = []
    if evidence.profile is not None and evidence.profile.samples:
        findings.extend(_find_in_profile(evidence.profile))
    findings.extend(_find_in_latency(evidence))
    findings.extend(_find_in_clocks(evidence))
    return make_section("Findings", [Items(tuple(findings))])


def _find_in_profile(profile: ProfileRecord) -> Iterator[Line]:
    hottest = [each for each in rank_by_self_share(profile.hotspots) if each.self_samples]
    if not hottest:
        return
    top = hottest[:HOTTEST]
    covered = sum(each.self_share for each in top)
    yield (
        *list_names([each.name for each in top]),
        f" {'covers' if len(top) == 1 else 'cover'} {text.share(covered)} of all samples; "
        f"everything else together is {text.share(max(1 - covered, 0.0))}.",
    )
    if profile.completeness < _COMPLETE:
        yield (
            f"Only {text.share(profile.completeness)} of the stacks reach the workload's root: "
            "self shares hold, inclusive shares are too small."
        )
    if profile.overhead_pct is not None and profile.overhead_pct > _OVERHEAD_PCT:
        yield (
            f"Profiling cost {text.percent(profile.overhead_pct)} more CPU for each token; "
            "tokens per second come from processes that were not profiled."
        )


def _find_in_latency(evidence: Evidence) -> Iterator[str]:
    median_ms = value_of(evidence.metrics, "inter_token_latency_ms")
    tail_ms = value_of(evidence.metrics, "inter_token_latency_p95_ms")
    if median_ms and tail_ms and tail_ms / median_ms >= _SLOW_TAIL:
        yield (
            f"One gap between tokens in twenty is {tail_ms / median_ms:.1f} times the median or "
            f"more ({text.seconds(tail_ms / 1e3)} against {text.seconds(median_ms / 1e3)}): "
            "something pauses the decode."
        )


def _find_in_clocks(evidence: Evidence) -> Iterator[str]:
    quiet_s = value_of(evidence.metrics, "quiet_s_per_token")
    cpu_s = value_of(evidence.metrics, "cpu_s_per_token")
    if quiet_s and cpu_s and (quiet_s - cpu_s) / quiet_s >= _OFF_CPU:
        yield (
            f"{text.share((quiet_s - cpu_s) / quiet_s)} of the quiet time was not spent on a CPU "
            f"({text.per_token(quiet_s - cpu_s)}): sleeps, locks, input and output."
        )
    pressure = [
        run.cpu_pressure_pct
        for run in evidence.runs
        if run.role == "timed" and run.cpu_pressure_pct is not None
    ]
    if pressure and statistics.median(pressure) >= _CONTENDED_PCT:
        yield (
            f"Some process waited for a CPU {text.percent(statistics.median(pressure))} of the "
            "time. Wall tokens per second suffer from it, the quiet clock does not."
        )
