"""What stands in a terminal or a log: the line before the runs, the table after, an answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core import text as core_text
from pytest_flamegate.gate.costs import MOST
from pytest_flamegate.gate.headline import MOST_OF_IT, headline
from pytest_flamegate.gate.signals import TOKENS_PER_SECOND, describe_rate_change
from pytest_flamegate.gate.ungated import WALL_TOKENS_PER_SECOND
from pytest_flamegate.receipt.rules.replay import describe_rates
from pytest_flamegate.report import text
from pytest_flamegate.report.families import family_lines, speed_cells
from pytest_flamegate.report.sections import (
    NONE,
    amounts,
    by_self_share,
    cost_cells,
    kernel_line,
    own_lines,
    revision,
)
from pytest_flamegate.report.text import cells, clip, clip_front, columns, paint, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text

    from pytest_flamegate.core.errors import FlamegateError
    from pytest_flamegate.core.text import Notice, Refusal
    from pytest_flamegate.gate.costs import CostChange
    from pytest_flamegate.gate.signals import Signal
    from pytest_flamegate.gate.verdict import Verdict
    from pytest_flamegate.receipt import Verification
    from pytest_flamegate.receipt.imports.comparison import ImportComparison
    from pytest_flamegate.receipt.imports.imported import Imported, ImportedMetric
    from pytest_flamegate.receipt.types import Evidence, Receipt
    from pytest_flamegate.receipt.verify import Verification as Verification_verification
    from pytest_flamegate.report.bricks import BricksShown


PREFIX = "brick:"
"""What the signal of a brick is called, before its name."""
_PER_CALL = "us/call"
_MOST = 6


def brick_lines(verdict: Verdict) -> list[str]:
    """Return a line for each brick that cost too much; nothing where none did."""
    found = [
        each
        for each in verdict.signals
        if each.name.startswith(PREFIX) and each.decision == "regressed"
    ]
    rows: list[tuple[str, ...]] = []
    for signal in found[:_MOST]:
        label = "bricks" if not rows else ""
        name = visible(signal.name.removeprefix(PREFIX))
        rows.append((label, name, *_costs(signal), _said(signal) + _where(verdict, signal)))
    lines = columns(rows, right=(2, 4), indent=2, gap=2)
    if len(found) > _MOST:
        lines.append(f"  and {text.plural(len(found) - _MOST, 'more brick')} in verdict.json")
    return lines


def _where(verdict: Verdict, signal: Signal) -> str:
    """Name the layer that most of the growth is in, where one is told."""
    for change in verdict.bricks:
        if change.grown is not None and signal in change.signals and signal.baseline is not None:
            before, now = map(
                core_text.significant, (change.grown.baseline_us, change.grown.current_us)
            )
            return f", most of it in layer {change.grown.layer} ({before} → {now})"
    return ""


def _costs(signal: Signal) -> tuple[str, str, str]:
    now = NONE if signal.current is None else core_text.significant(signal.current)
    unit = signal.unit.replace("us/", "µs/")
    if signal.baseline is None:
        return "", "", f"{now} {unit}"
    return core_text.significant(signal.baseline), "→", f"{now} {unit}"


def _said(signal: Signal) -> str:
    """Say the change with its interval, and what it was held to."""
    if signal.change_pct is None:
        return ""
    low, high = signal.ci_low_pct, signal.ci_high_pct
    between = "" if low is None or high is None else f" ({low:+.1f} … {high:+.1f})"
    change = f"{signal.change_pct:+.1f} %{between}"
    if signal.unit == _PER_CALL:
        return f"{change} against its budget"
    return change if signal.threshold_pct is None else f"{change}, {signal.threshold_pct:g} allowed"


_WIDTH = 44
_WORDS = {True: "better", False: "worse", None: "same"}


def imported_text(results: Sequence[Imported]) -> str:
    """Return a table of the figures of every result, with their formulas."""
    rows = [("result", "figure", "", "statistic", "of", "formula")]
    for result in results:
        rows += [
            (
                visible(result.result),
                each.name,
                _value(each),
                each.statistic,
                "" if each.samples is None else text.count(each.samples),
                each.formula,
            )
            for each in result.metrics
        ]
    first = results[0]
    told = " ".join(part for part in (first.tool, first.tool_version) if part)
    lines = [
        f"{text.plural(len(results), 'result')} of {clip(visible(told), 60)}, SELF_REPORTED: "
        "nobody here saw it measured",
        *columns(rows, right=(2, 4)),
    ]
    left_out = [each for result in results for each in result.left_out]
    lines += [f"left out: {visible(each.field)}, {each.reason}" for each in left_out[:5]]
    if len(left_out) > 5:
        lines.append(f"left out: {text.count(len(left_out) - 5)} more")
    return "\n".join(lines)


def compared_text(compared: ImportComparison) -> str:
    """Return the figures that could be compared, then those that could not, by name."""
    rows = [("figure", "statistic", "before", "after", "change", "", "formula")]
    rows += [
        (
            pair.after.name,
            pair.after.statistic,
            _value(pair.before),
            _value(pair.after),
            f"{pair.change_pct:+,.1f} %",
            _WORDS[pair.better],
            pair.after.formula,
        )
        for pair in compared.pairs
    ]
    lines = columns(rows, right=(2, 3, 4)) if compared.pairs else ["nothing could be compared"]
    lines += [f"{each.code}: {each.message}" for each in compared.differing]
    if compared.alone:
        lines.append(f"not on both sides: {clip(', '.join(compared.alone), 300)}")
    return "\n".join(lines)


def compared_document(compared: ImportComparison) -> dict[str, object]:
    """Return the same as plain data."""
    return {
        "compared": [
            {
                "name": pair.after.name,
                "statistic": pair.after.statistic,
                "formula": pair.after.formula,
                "unit": pair.after.unit,
                "direction": pair.after.direction,
                "before": pair.before.value,
                "after": pair.after.value,
                "change_pct": pair.change_pct,
                "better": pair.better,
            }
            for pair in compared.pairs
        ],
        "refused": [{"code": each.code, "message": each.message} for each in compared.differing],
        "alone": list(compared.alone),
    }


def _value(metric: ImportedMetric) -> str:
    spread = "" if metric.stddev is None else f" ± {core_text.significant(metric.stddev)}"
    return clip(f"{core_text.significant(metric.value, 4)}{spread} {metric.unit}", _WIDTH)


_TOKENS = {"E_REPLAY_TOKENS": "differ", "W_REPLAY_NOT_DETERMINISTIC": "not compared"}


def replay_line(found: Verification) -> str | None:
    """Return ``replayed here: 8 processes, digest equal, …``; None where nothing was run."""
    replayed = found.replayed
    if replayed is None:
        return None
    tokens = _tokens(found)
    digest = "digest " + ("differs" if tokens == "differ" else tokens)
    return (
        f"replayed here: {replayed.processes} processes, {digest}, {describe_rates(replayed.rate)}"
    )


def replay_document(found: Verification) -> dict[str, object] | None:
    """Return the same as plain data; rates are tokens per second, null where not compared."""
    replayed = found.replayed
    if replayed is None:
        return None
    rate = replayed.rate
    return {
        "processes": replayed.processes,
        "tokens": _tokens(found),
        "rate": rate.answer,
        "claimed_tokens_per_second": rate.claimed,
        "tokens_per_second": rate.here,
        "low": rate.low,
        "high": rate.high,
        "wall_tokens_per_second": rate.wall,
    }


def _tokens(found: Verification) -> str:
    codes = [each.code for each in (*found.refusals, *found.warnings)]
    return next((word for code, word in _TOKENS.items() if code in codes), "equal")


GREEN, RED, YELLOW = "green", "red", "yellow"
_COLOURS = {
    "pass": GREEN,
    "improved": GREEN,
    "regressed": RED,
    "dishonest": RED,
    "error": RED,
}
_SAID_BELOW = frozenset({"inconclusive", "not_comparable"})
_HEAD = ("workload", "tokens/s", "quiet clock", "verdict", "hottest frames (share of CPU)")
_HOTTEST = 3
_UNSEEN = frozenset({"SELF_REPORTED", "CONSISTENT"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one workload; without a receipt and evidence it never came to be measured.

    ``family`` and ``variant`` are those of the workload, None where it has none; ``bricks``
    are None where none were clocked.
    """

    workload: str
    verdict: Verdict
    receipt: Receipt | None = None
    evidence: Evidence | None = None
    warnings: tuple[str, ...] = ()
    family: str | None = None
    variant: str | None = None
    bricks: BricksShown | None = None


def colour_of(verdict: Verdict) -> str:
    """Return the colour of a verdict's word: ``green``, ``red`` or ``yellow``."""
    return _COLOURS.get(verdict.verdict, YELLOW)


def preamble(
    *,
    profiler: str,
    note: str | None,
    cpu: str,
    cores: int | None,
    noise_pct: float | None,
) -> str:
    """Return the line that stands before the runs.

    ``profiler`` is its name and version and ``note`` why it is not a better one;
    ``noise_pct`` is the machine's spread in percent where it is known.
    """
    used = f"{visible(profiler)} ({visible(note)})" if note else visible(profiler)
    machine = visible(cpu.strip()) or "unknown CPU"
    if cores is not None:
        machine += f", {text.plural(cores, 'core')}"
    noise = [f"noise {text.percent(noise_pct)}"] if noise_pct is not None else []
    return " · ".join([f"flamegate: {used}", machine, *noise])


def summary(
    outcomes: Sequence[Outcome],
    *,
    width: int = 100,
    directory: str = ".flamegate/latest",
    accept: str | None = None,
    colour: bool = False,
) -> list[str]:
    """Return the lines of the table of all workloads, and of what to do next.

    ``width`` is the terminal's, in columns; ``directory`` is where the flame graphs
    lie; ``accept`` is the command that makes these runs the baseline, None where there
    is nothing to accept.
    """
    if not outcomes:
        return ["no workload was measured"]
    rows = [_HEAD, *(_row(each, width) for each in outcomes)]
    # The last column takes what the others leave.
    room = width - 3 - max(map(cells, columns([row[:4] for row in rows])))
    lines = columns(
        [(*row[:4], _hottest(row[4], max(room, 20))) for row in rows],
        right=(1, 2),
        colour=colour,
    )
    lines += [
        f"{visible(each.workload)}: {visible(headline(each.verdict), 1000)}"
        for each in outcomes
        if each.verdict.verdict in _SAID_BELOW
    ]
    lines += [
        f"{visible(each.workload)}: {visible(warning, 1000)}"
        for each in outcomes
        for warning in each.warnings
    ]
    lines += [
        f"{visible(each.workload)}: {told}"
        for each in outcomes
        if each.evidence is not None
        for told in own_lines(each.evidence, each.receipt)
    ]
    lines += [
        f"{visible(each.workload)}: {told}"
        for each in outcomes
        if each.evidence is not None and (told := kernel_line(each.evidence)) is not None
    ]
    lines += family_lines(outcomes, width)
    claimed = [each for each in outcomes if each.receipt is not None]
    if claimed:
        lines += wrap([_grades(claimed), f"flame graphs in {visible(directory)}"], width)
    if accept is not None:
        lines.append(f"accept these as the baseline:  {visible(accept, 1000)}")
    return [line.rstrip() for line in lines]


def _row(outcome: Outcome, width: int) -> tuple[str, str, str, Text | str, str]:
    from rich.text import Text

    evidence = outcome.evidence
    rate, quiet, hottest = *speed_cells(outcome.receipt, evidence), ""
    if evidence is not None and evidence.profile is not None:
        frames = by_self_share(evidence.profile.hotspots)[:_HOTTEST]
        hottest = "\n".join(
            f"{visible(each.name)} {text.share(each.self_share)}"
            for each in frames
            if each.self_samples
        )
    word = outcome.verdict.verdict.replace("_", " ")
    shown = Text.styled(word, f"bold {colour_of(outcome.verdict)}")
    name = clip_front(visible(outcome.workload), max(width // 3, 12))
    return name, rate, quiet, shown, hottest


def _hottest(frames: str, room: int) -> str:
    """Return as many whole frames as fit into ``room`` columns; the first one clipped."""
    names = frames.split("\n")
    shown = clip(names[0], room)
    for name in names[1:]:
        if cells(shown) + 2 + cells(name) > room:
            break
        shown += f"  {name}"
    return shown


def _grades(outcomes: Sequence[Outcome]) -> str:
    counted = Counter(each.verdict.grade for each in outcomes)
    told = ", ".join(
        visible(name) if len(counted) == 1 else f"{visible(name)} ({number})"
        for name, number in counted.items()
    )
    by_whom = (
        "some are only the word of whoever wrote them"
        if set(counted) & _UNSEEN
        else "the machine's owner could still have forged them"
    )
    return f"receipts {told} ({by_whom})"


def verification_text(
    found: Verification_verification,
    *,
    path: str | None = None,
    required: str | None = None,
    colour: bool = False,
    error: FlamegateError | None = None,
) -> str:
    """Return the answer on one receipt as plain text, without a line break at its end.

    ``path`` names the receipt where there are several; ``required`` is the grade that
    was asked for, ``error`` why its workload could not be run again. An honest receipt
    whose replay does not hold is neither accepted nor refused.
    """
    undecided = error is not None or (found.replayed is not None and not found.obtained_again)
    answer = "refused" if not found.ok else "not replayed" if undecided else "accepted"
    if colour and not (found.ok and undecided):
        answer = paint(answer, GREEN if found.ok else RED)
    wanted = f", wanted {visible(required).upper()}" if required else ""
    named = f"{visible(path, 1000)}: " if path is not None else ""
    told: list[Refusal | Notice] = [*found.refusals, *found.warnings]
    replayed = replay_line(found)
    replay = [replayed] if replayed is not None else []
    if error is not None:
        failed = (error.code, visible(f"{error.problem} {error.remedy}", 20_000))
        replay = ["not replayed:", *columns([failed], indent=2)]
    honest = f"honest: yes, {found.grade.name}" if found.honest else "honest: no"
    fit = "yes" if found.fit else "no" if found.honest else "not asked, for it is not honest"
    return "\n".join(
        [
            f"{named}{answer} (grade {found.grade.name}{wanted})   policy {visible(found.policy)}",
            *replay,
            honest,
            *_findings(told),
            f"fit to gate on: {fit}",
            *_findings(found.unfit),
            *([f"signed by {visible(found.signed_by)}"] if found.signed_by else []),
            visible(found.ceiling, 1000),
        ]
    )


def _findings(told: Sequence[Refusal | Notice]) -> list[str]:
    """Return a line for each finding: its code, what happened, what to do."""
    rows = [
        (
            each.code,
            " ".join(filter(None, (visible(each.message, 1000), visible(each.remedy, 1000)))),
        )
        for each in told
    ]
    return columns(rows, indent=2)


_CLOCKS = {
    TOKENS_PER_SECOND: "(quiet clock)",
    WALL_TOKENS_PER_SECOND: "(wall clock)",
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
        "W_ENVIRONMENT",
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
    lines += _where_failure(verdict)
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
        change = "" if signal.change_pct is None else describe_rate_change(signal.change_pct)
        shown = " → ".join(amounts(signal)) + _machines_part(signal)
        yield f"{signal.unit} {label}", shown, change, ", ".join(_sureness(verdict, signal))


def _machines_part(signal: Signal) -> str:
    """Say what of the raw figures is the machine's own change of speed, taken out of the change."""
    told = any(reason.code == "I_MACHINE_SPEED" for reason in signal.reasons)
    if not told or not signal.baseline or not signal.current or signal.change_pct is None:
        return ""
    raw, own = signal.current / signal.baseline, 1.0 + signal.change_pct / 100.0
    return (
        f", of which the machine itself {describe_rate_change(100.0 * (raw / own - 1.0))}"
        if own > 0
        else ""
    )


def _sureness(verdict: Verdict, signal: Signal) -> Iterator[str]:
    """Say how many processes a figure rests on and what it could have missed."""
    if signal.decision == "not_gated":
        yield "shown, not gated"
        return
    if verdict.pairs is not None:
        yield text.plural(verdict.pairs, "pair")
    elif verdict.baseline_processes:
        yield f"{verdict.baseline_processes} and {verdict.current_processes} processes"
    if signal.smallest_detectable_pct is not None:
        yield f"could have seen {text.percent(signal.smallest_detectable_pct)}"
    if verdict.false_alarm_rate is not None:
        yield f"false alarms ≤ {text.percent(100 * verdict.false_alarm_rate)}"
    if verdict.miss_rate is not None:
        yield f"misses ≤ {text.percent(100 * verdict.miss_rate)}"


def _where_failure(verdict: Verdict) -> list[str]:
    """Return the functions that certainly changed, else the likeliest; and the costliest others."""
    # The attribution is sorted by the size of the change: its first row is what a headline names.
    changed = [cost for cost in verdict.attribution if cost.is_certain][:_CERTAIN]
    changed = changed or list(verdict.attribution[:1])
    steady = sorted(
        (cost for cost in verdict.attribution if cost not in changed),
        key=lambda cost: (cost.is_certain, -cost.baseline_us, cost.name),
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
        said = (
            f"{describe_rate_change(phase.change_pct)} ({interval})"
            if phase.certain
            else "no change seen"
        )
        before, after = (
            core_text.significant(value) for value in (phase.baseline_ms, phase.current_ms)
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
    if cost.is_certain:
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
            f"{visible(share.name)} {text.share(share.baseline_share)} → "
            f"{text.share(share.current_share)} ({share.shift_pp:+.1f} pp, "
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
        lines.append(f"  and {text.plural(len(rows) - _REASONS, 'more reason')}")
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
