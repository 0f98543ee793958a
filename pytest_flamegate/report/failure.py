"""Why a test failed, in ten seconds of reading: the answer, the figures, where it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.gate.cost import MOST
from pytest_flamegate.gate.signals import in_words
from pytest_flamegate.gate.throughput import TOKENS_PER_SECOND, WALL_TOKENS_PER_SECOND
from pytest_flamegate.gate.words import MOST_OF_IT, headline
from pytest_flamegate.report import figures
from pytest_flamegate.report.failed_bricks import brick_lines
from pytest_flamegate.report.provenance import revision
from pytest_flamegate.report.signals import amounts, certain, cost_cells
from pytest_flamegate.report.terminal import colour_of
from pytest_flamegate.report.text import columns, paint, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_flamegate.gate.cost import CostChange
    from pytest_flamegate.gate.signals import Signal
    from pytest_flamegate.gate.verdict import Verdict
    from pytest_flamegate.receipt.types import Evidence

_CLOCKS = {
    TOKENS_PER_SECOND: "tokens/s (quiet clock)",
    WALL_TOKENS_PER_SECOND: "tokens/s (wall clock)",
}
_CERTAIN = 5
_STEADY = 2
_REASONS = 12
_LONG = 2000
_BESIDE = frozenset(
    {
        "I_STORED_BASELINE",
        "I_NOT_COMPARED",
        "I_NOTE",
        "I_INSTRUCTIONS",
        "I_WAITING",
        "I_OTHER_PROGRAM",
        "W_KNOBS",
        "W_NOT_DETERMINISTIC",
        "W_SAME_PROGRAM",
        "W_PROFILER_FALLBACK",
        "W_NOT_COUNTED",
    }
)
"""What the figures of a regression do not say."""


def failure_section(
    verdict: Verdict,
    evidence: Evidence | None,
    baseline: Evidence | None,
    *,
    paths: Sequence[str],
    again: str,
    accept: str | None,
    colour: bool = False,
) -> str:
    """Return what a failed test shows, as plain aligned text without a line break at its end.

    ``paths`` name the files that prove it, the most telling first; ``again`` is the
    command that measures it again and ``accept`` the one that takes it as the new
    baseline (None where it cannot be accepted). With ``colour`` the answer is coloured.
    """
    answer = visible(headline(verdict), _LONG)
    lines = [paint(answer, colour_of(verdict)) if colour else answer]
    lines += columns(list(_rates(verdict)), indent=2, gap=2)
    lines += _phases(verdict)
    lines += _where(verdict)
    lines += brick_lines(verdict)
    lines += _explained(verdict)
    lines += _shares(verdict)
    lines += _reasons(verdict)
    if verdict.error_rate_basis:
        lines.append(f"  error rates  {visible(verdict.error_rate_basis)}")
    told = [("evidence", " · ".join(_evidence(verdict, evidence, baseline, paths)))]
    told.append(("again", visible(again, _LONG)))
    if accept is not None:
        told.append(("accept", visible(accept, _LONG)))
    lines += columns(told, indent=2, gap=2)
    return "\n".join(lines)


def _rates(verdict: Verdict) -> Iterator[tuple[str, str, str, str]]:
    for signal in verdict.signals:
        label = _CLOCKS.get(signal.name)
        if label is None:
            continue
        change = "" if signal.change_pct is None else in_words(signal.change_pct)
        shown = " → ".join(amounts(signal)) + _machines_part(signal)
        yield label, shown, change, ", ".join(_sureness(verdict, signal))


def _machines_part(signal: Signal) -> str:
    """Say what of the raw figures is the machine's own change of speed, taken out of the change."""
    told = any(reason.code == "I_MACHINE_SPEED" for reason in signal.reasons)
    if not told or not signal.baseline or not signal.current or signal.change_pct is None:
        return ""
    raw, own = signal.current / signal.baseline, 1.0 + signal.change_pct / 100.0
    return f", of which the machine itself {in_words(100.0 * (raw / own - 1.0))}" if own > 0 else ""


def _sureness(verdict: Verdict, signal: Signal) -> Iterator[str]:
    """Say how many processes a figure rests on and what it could have missed."""
    if signal.decision == "not_gated":
        yield "shown, not gated"
        return
    if verdict.pairs is not None:
        yield figures.plural(verdict.pairs, "pair")
    elif verdict.baseline_processes:
        yield f"{verdict.baseline_processes} and {verdict.current_processes} processes"
    if signal.smallest_detectable_pct is not None:
        yield f"could have seen {figures.percent(signal.smallest_detectable_pct)}"
    if verdict.false_alarm_rate is not None:
        yield f"false alarms ≤ {figures.percent(100 * verdict.false_alarm_rate)}"
    if verdict.miss_rate is not None:
        yield f"misses ≤ {figures.percent(100 * verdict.miss_rate)}"


def _where(verdict: Verdict) -> list[str]:
    """Return the functions that certainly changed, else the likeliest; and the costliest others."""
    # The attribution is sorted by the size of the change: its first row is what a headline names.
    changed = [cost for cost in verdict.attribution if certain(verdict, cost)][:_CERTAIN]
    changed = changed or list(verdict.attribution[:1])
    steady = sorted(
        (cost for cost in verdict.attribution if cost not in changed),
        key=lambda cost: (certain(verdict, cost), -cost.baseline_us, cost.name),
    )[:_STEADY]
    rows: list[tuple[str, ...]] = []
    for cost in [*changed, *steady]:
        name, before, after, change, _ = cost_cells(cost)
        label = "where it went (µs/token)" if not rows else ""
        said = ", ".join(_told_of(verdict, cost))
        rows.append((label, visible(name), before, "→", after, change, said))
    return columns(rows, right=(2, 4, 5), indent=2, gap=2)


def _phases(verdict: Verdict) -> list[str]:
    """Say whether prefill or decode changed, where the two are told apart."""
    rows: list[tuple[str, ...]] = []
    for phase in verdict.phases:
        label = "phase (ms)" if not rows else ""
        # Certain means that both ends are on one side of zero.
        ends = sorted((abs(phase.ci_low_pct), abs(phase.ci_high_pct)))
        interval = " … ".join(f"{end:.1f}" for end in ends)
        said = f"{in_words(phase.change_pct)} ({interval})" if phase.certain else "no change seen"
        before, after = (
            figures.significant(value) for value in (phase.baseline_ms, phase.current_ms)
        )
        what = "first token" if phase.name == "prefill" else "each further one"
        rows.append((label, f"{phase.name}, {what}", before, "→", after, said))
    return columns(rows, right=(2, 4), indent=2, gap=2)


def _explained(verdict: Verdict) -> list[str]:
    """Name the fewest frames behind most of the change, where it takes more than one."""
    if len(verdict.explained_by) < 2:
        return []
    names = ", ".join(visible(name) for name in verdict.explained_by)
    return [f"  {100 * MOST:.0f} % of it explained by  {names}"]


def _told_of(verdict: Verdict, cost: CostChange) -> Iterator[str]:
    """Say how sure a function's change is, what it explains, and what its share did."""
    explains = cost_cells(cost)[4]
    if certain(verdict, cost):
        if cost.explains is not None:
            yield f"explains {explains}"
    elif cost.explains is not None and cost.explains >= MOST_OF_IT:
        yield f"most likely, would explain {explains}"
    else:
        yield "no change seen"
    for hotspot in verdict.hotspots:
        if hotspot.share.name == cost.name:
            share = hotspot.share
            yield f"share {100 * share.baseline_share:.1f} → {100 * share.current_share:.1f} %"


def _shares(verdict: Verdict) -> list[str]:
    """Return the shares that failed, and those that moved at an unchanged cost."""
    lines = []
    for hotspot in verdict.hotspots:
        share = hotspot.share
        moved = (
            f"{visible(share.name)} {figures.share(share.baseline_share)} → "
            f"{figures.share(share.current_share)} ({share.shift_pp:+.1f} pp, "
            f"{hotspot.threshold_pp:g} allowed)"
        )
        if hotspot.decision == "regressed":
            lines.append(f"  share of the samples  {moved}")
        elif hotspot.finding == "share_moved":
            lines.append(f"  share moved, cost did not  {moved}")
    return lines


def _reasons(verdict: Verdict) -> list[str]:
    """Return every reason by its code, where the figures above do not say it already."""
    reasons = verdict.reasons
    if verdict.verdict == "regressed" and verdict.signals:
        reasons = tuple(reason for reason in reasons if reason.code in _BESIDE)
    rows = [(reason.code, visible(reason.message, _LONG)) for reason in reasons]
    lines = columns(rows[:_REASONS], indent=2, gap=2)
    if len(rows) > _REASONS:
        lines.append(f"  and {figures.plural(len(rows) - _REASONS, 'more reason')}")
    return lines


def _evidence(
    verdict: Verdict,
    evidence: Evidence | None,
    baseline: Evidence | None,
    paths: Sequence[str],
) -> Iterator[str]:
    yield from (visible(path) for path in paths)
    yield f"receipt {visible(verdict.grade)}"
    if baseline is not None and baseline.commit is not None:
        yield f"base {visible(baseline.commit.revision)[:7]}"
    if evidence is not None:
        yield from (f"head {visible(note)}" for note in revision(evidence))
