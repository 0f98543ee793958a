"""What stands out in a run, said in sentences: every figure is one of the evidence.

A sentence is written only where its figures are there and worth a reader's time.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.metrics import value_of
from pytest_flamegate.report import figures
from pytest_flamegate.report.markup import code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_flamegate.profile.model import Hotspot
    from pytest_flamegate.receipt.types import Evidence, ProfileRecord

# Normal quantiles of a two-sided 1 % test with 95 % power, and the shift asked about.
_Z_SUM = 2.576 + 1.645
_SHIFT = 0.02

_SLOW_TAIL = 1.5
_CONTENDED_PCT = 20.0
_OFF_CPU = 0.05
_OVERHEAD_PCT = 3.0
_COMPLETE = 0.95


def insights(evidence: Evidence) -> list[str]:
    """Return sentences in Markdown, the most telling first; none where nothing stands out."""
    found: list[str] = []
    if evidence.profile is not None and evidence.profile.samples:
        found.extend(_profile(evidence.profile))
    found.extend(_latency(evidence))
    found.extend(_clock(evidence))
    return found


def category_shares(hotspots: Sequence[Hotspot]) -> dict[str, float]:
    """Return the self share of each category in ``hotspots``, 0 to 1, largest first."""
    shares: dict[str, float] = {}
    for hotspot in hotspots:
        if hotspot.self_samples:
            shares[hotspot.category] = shares.get(hotspot.category, 0.0) + hotspot.self_share
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def by_self_share(hotspots: Sequence[Hotspot]) -> list[Hotspot]:
    """Return ``hotspots`` hottest first: by self share, then inclusive share, then name."""
    return sorted(hotspots, key=lambda h: (-h.self_share, -h.inclusive_share, h.name, h.module))


def samples_for_shift(share: float, shift: float = _SHIFT) -> int:
    """Return the samples a side that tell a shift of ``share`` (both 0 to 1) from chance.

    Binomial: two-sided 1 % false alarms, 95 % power. Real samples spread more.
    """
    return round(2 * share * (1 - share) * (_Z_SUM / shift) ** 2)


def _profile(profile: ProfileRecord) -> Iterator[str]:
    hottest = [each for each in by_self_share(profile.hotspots) if each.self_samples]
    if not hottest:
        return
    top = hottest[:3]
    covered = sum(each.self_share for each in top)
    yield (
        f"{_listed([code(each.name) for each in top])} {'covers' if len(top) == 1 else 'cover'} "
        f"{figures.share(covered)} of all samples; everything else together is "
        f"{figures.share(max(1 - covered, 0.0))}."
    )
    shares = category_shares(profile.hotspots)
    told = [f"{code(name)} {figures.share(value)}" for name, value in shares.items()]
    yield f"By category: {', '.join(told)}."
    interpreter = [h for h in hottest if h.category == "python"]
    if interpreter:
        cost = [h.cpu_s_per_token for h in interpreter if h.cpu_s_per_token is not None]
        each = f", {figures.per_token(sum(cost))}" if cost else ""
        yield (
            "Python code that is no kernel of the model takes "
            f"{figures.share(sum(h.self_share for h in interpreter))} of the samples{each}."
        )
    needed = samples_for_shift(top[0].self_share)
    if 0 < top[0].self_share < 1:
        yield (
            f"To tell a shift of {100 * _SHIFT:g} percentage points of {code(top[0].name)} from "
            f"chance takes about {figures.count(needed)} samples on each side (binomial, 1 % false "
            f"alarms, 5 % misses); this profile holds {figures.count(profile.samples)}."
        )
    if profile.completeness < _COMPLETE:
        yield (
            f"Only {figures.share(profile.completeness)} of the stacks reach the workload's root: "
            "self shares hold, inclusive shares are too small."
        )
    if profile.overhead_pct is not None and profile.overhead_pct > _OVERHEAD_PCT:
        yield (
            f"Profiling cost {figures.percent(profile.overhead_pct)} more CPU for each token; "
            "tokens per second come from processes that were not profiled."
        )


def _latency(evidence: Evidence) -> Iterator[str]:
    middle = value_of(evidence.metrics, "inter_token_latency_ms")
    tail = value_of(evidence.metrics, "inter_token_latency_p95_ms")
    if middle and tail and tail / middle >= _SLOW_TAIL:
        yield (
            f"One gap between tokens in twenty is {tail / middle:.1f} times the median or more "
            f"({figures.seconds(tail / 1e3)} against {figures.seconds(middle / 1e3)}): "
            "something pauses the decode."
        )
    first = value_of(evidence.metrics, "time_to_first_token_ms")
    each = value_of(evidence.metrics, "time_per_output_token_ms")
    if first and each and evidence.clock_scope == "sequence":
        yield (
            f"The first token takes {figures.seconds(first / 1e3)}, "
            f"{first / each:.1f} times as long as each further one "
            f"({figures.seconds(each / 1e3)})."
        )


def _clock(evidence: Evidence) -> Iterator[str]:
    quiet = value_of(evidence.metrics, "quiet_s_per_token")
    cpu = value_of(evidence.metrics, "cpu_s_per_token")
    if quiet and cpu and (quiet - cpu) / quiet >= _OFF_CPU:
        yield (
            f"{figures.share((quiet - cpu) / quiet)} of the quiet time was not spent on a CPU "
            f"({figures.per_token(quiet - cpu)}): sleeps, locks, input and output."
        )
    pressure = [
        run.cpu_pressure_pct
        for run in evidence.runs
        if run.role == "timed" and run.cpu_pressure_pct is not None
    ]
    if pressure and statistics.median(pressure) >= _CONTENDED_PCT:
        yield (
            f"Something waited for a CPU {figures.percent(statistics.median(pressure))} of the "
            "time: wall tokens per second suffer from it, the quiet clock does not."
        )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
