"""Judge a run: from the evidence of one or two sides to a complete verdict.

Against a stored baseline and against a base that was measured in pairs, the path is the same; only
the change of tokens per second is estimated in another way, and with it the error rates.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_flamegate.config.thresholds import MIN_PROCESSES, SAMPLE_FLOOR, STACK_FLOOR, Thresholds
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.bricks import judge_bricks
from pytest_flamegate.gate.call_limits import judge_calls
from pytest_flamegate.gate.comparability import (
    compare,
    condition_differences,
    difference_reasons,
    find_copy,
)
from pytest_flamegate.gate.costs import CostChange, explaining_functions
from pytest_flamegate.gate.hotspots import ShareDrift, judge_shares, leave_shares_open
from pytest_flamegate.gate.lines import LineChange, LineSamples, line_changes
from pytest_flamegate.gate.measurement import (
    MORE_TIME,
    Measurement,
    read_measurement,
)
from pytest_flamegate.gate.paired_rate import JudgedRate, PairedBase, judge_paired_rate
from pytest_flamegate.gate.rule import (
    ErrorRates,
    FieldDifference,
    Reason,
    Signal,
    nominal_rates,
)
from pytest_flamegate.gate.throughput import (
    BATCH_DRIFT_SD_WITHOUT_REFERENCE,
    judge_throughput,
    uncompared_rate,
)
from pytest_flamegate.gate.ungated import (
    explain_costs,
    find_notes,
    instruction_signals,
    wall_signals,
)
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.profile.calls import CallCounts, NativeWork, find_call_changes
from pytest_flamegate.receipt.baseline import Baseline
from pytest_flamegate.receipt.types import Evidence, VerdictName

_INTERPRETER = "_PyEval_EvalFrame"
"""How the name of CPython's function begins that runs Python's functions."""


@dataclass(frozen=True, slots=True)
class GatedRun:
    """The run to judge.

    ``grade`` is its receipt's. ``errors`` are those of the verification, of both sides in a
    comparison; any of them makes the verdict `dishonest`. ``notes`` come after all other reasons.
    ``lines`` are the samples of both sides by line, if the change between them is known;
    ``reported_lines`` are what another job found in them. ``calls`` are the calls of functions on
    both sides and ``instructions`` the work of native ones, if they were counted.
    """

    evidence: Evidence
    grade: str
    errors: tuple[Reason, ...] = ()
    notes: tuple[Reason, ...] = ()
    lines: LineSamples | None = None
    reported_lines: tuple[LineChange, ...] = ()
    calls: tuple[CallCounts, CallCounts] | None = None
    instructions: tuple[Mapping[str, NativeWork], Mapping[str, NativeWork]] | None = None

    def lacks_samples(self, base: Evidence) -> bool:
        """Whether a profile of either side has too few samples to judge any share.

        Samples are counted in the profiles, also in those of another job. A side without any
        sample has no profile: that is a note of the run, which has no receipt then.
        """
        profiles = [side.profile for side in (base, self.evidence) if side.profile is not None]
        counts = [sum(process.samples for process in each.processes) for each in profiles]
        noted = any(note.code in ("E_NO_SAMPLES", "E_FEW_SAMPLES") for note in self.notes)
        return noted or min(counts, default=SAMPLE_FLOOR) < SAMPLE_FLOOR

    def find_unfit_profile(self, base: Evidence) -> str | None:
        """Return the code that says why no share can be judged, None if shares can be.

        ``E_STACKS_CUT``: most stacks of a side do not begin in the workload. They are cut, or the
        head got so much faster that little of its time is left there.
        """
        if self.lacks_samples(base):
            return "E_FEW_SAMPLES"
        profiles = [side.profile for side in (base, self.evidence) if side.profile is not None]
        stacks = [each.completeness for each in profiles if each.call_graph != "none"]
        return "E_STACKS_CUT" if min(stacks, default=STACK_FLOOR) < STACK_FLOOR else None


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """The allowed changes, and how to judge them.

    ``analyses`` is how often a run may be judged at most against a stored baseline, with more
    processes each time; the error rates are spent over them. ``ci`` and ``update`` (the run is to
    be accepted) change advice only, as does ``accept``, the command that accepts the run as it is.
    """

    thresholds: Thresholds
    share_drift: ShareDrift = "cost"
    analyses: int = 1
    ci: bool = False
    update: bool = False
    accept: str = ""


MOST_CALLS = 200
"""Changes of calls that are stored at most: a rewrite changes the calls of everything."""
SHARE_ANALYSES = 2
"""In pairs shares are judged when the profiles' part of the budget is spent, and at its end."""


def judge(run: GatedRun, baseline: Baseline | PairedBase | None, policy: GatePolicy) -> Verdict:
    """Judge a run against a baseline; without one the verdict is `no_baseline`.

    Whatever is wrong with the evidence is a verdict, never an exception.
    """
    verdict = _judge(run, baseline, policy)
    base = baseline.evidence if baseline is not None else None
    notes = (*find_notes(base, run.evidence), *run.notes)
    # If no costs could be compared, nothing is known that lines could explain.
    reported = run.reported_lines if verdict.attribution else ()
    return replace(verdict, reasons=(*verdict.reasons, *notes), reported_lines=reported)


def _judge(run: GatedRun, baseline: Baseline | PairedBase | None, policy: GatePolicy) -> Verdict:
    errors = _dishonesty(run, baseline)
    if errors:
        return Verdict("dishonest", errors, grade=run.grade)
    paired = isinstance(baseline, PairedBase)
    rates = ErrorRates(analyses=SHARE_ANALYSES if paired else policy.analyses)
    try:
        if baseline is None:
            new = read_measurement(run.evidence)
            reasons = _no_baseline_reasons(len(new.timed), run.evidence, policy)
            return _uncompared("no_baseline", run, policy, rates, reasons, current=new)
        differing = _compare(baseline, run)
        if differing:
            reasons = difference_reasons(differing, paired=paired)
            found = _uncompared("not_comparable", run, policy, rates, reasons, differing)
            return replace(found, against=_base_revision(baseline))
        old, new = read_measurement(baseline.evidence), read_measurement(run.evidence)
        if isinstance(baseline, Baseline):
            state = tuple(condition_differences(old, new))
            if state:
                reasons = difference_reasons(state, paired=False)
                return _uncompared(
                    "not_comparable", run, policy, rates, reasons, state, old=old, current=new
                )
            signal, decided = judge_throughput(
                old, new, policy.thresholds.tokens_per_second_pct, rates
            )
            known = nominal_rates(rates)
            rate = JudgedRate(signal, decided, known, BATCH_DRIFT_SD_WITHOUT_REFERENCE)
        else:
            rate = judge_paired_rate(baseline, run.evidence, old, new, policy.thresholds)
        counts = instruction_signals(baseline.evidence, run.evidence)
    except UndecidedError as error:
        return Verdict("inconclusive", (Reason.from_error(error),), grade=run.grade)
    unfit = run.find_unfit_profile(baseline.evidence)
    if unfit is not None:
        shares = leave_shares_open(policy.thresholds, policy.share_drift, unfit)
    else:
        shares = judge_shares(
            old, new, policy.thresholds, rate.verdict, rates, policy.share_drift, rate.cpu
        )
    bricks = judge_bricks(
        baseline.evidence, run.evidence, policy.thresholds, rates, drift_sd=rate.batch_drift_sd
    )
    changes_us = {cost.name: cost.change_us for cost in shares.costs}
    call_changes = () if run.calls is None else find_call_changes(*run.calls, changes_us)
    calls = judge_calls(policy.thresholds.counts, run.calls, call_changes, paired=paired)
    shared = (each.signal for each in shares.hotspots)
    signals = (rate.signal, *shared, *bricks.signals, *calls.signals)
    is_certain = rate.verdict is not None and rate.verdict.is_certain
    lines = run.lines if is_certain and shares.costs else None
    changed_lines = () if lines is None else line_changes(lines, old, new, rates, rate.cpu)
    general = (*shares.reasons, *bricks.reasons, *calls.reasons)
    if lines is not None and lines.is_empty:
        general = (*general, _explain_no_lines(shares.costs))
    elif lines is not None and not changed_lines:
        message = "With so few samples no line's cost certainly changed."
        general = (*general, Reason("I_LINES_OPEN", message))
    causes = explain_costs(shares.costs, run.instructions)
    name = _combine_decisions(signals, general)
    more_processes = {kind for signal in signals for kind in signal.more_processes}
    return Verdict(
        verdict=name,
        reasons=(*_order_reasons(name, signals, general), *_reasons_of(counts), *causes),
        grade=run.grade,
        signals=(rate.signal, *wall_signals(old, new, run.evidence), *counts, *signals[1:]),
        smallest_detectable_pct=rate.signal.smallest_detectable_pct,
        false_alarm_rate=rate.reported.false_alarm,
        miss_rate=rate.reported.miss,
        error_rate_basis=rate.reported.basis,
        hotspots=shares.hotspots,
        attribution=shares.costs,
        explained_by=explaining_functions(shares.costs),
        lines=changed_lines,
        calls=call_changes[:MOST_CALLS] if is_certain or calls.signals else (),
        phases=rate.phases,
        pairs=rate.pairs,
        pair_method=rate.pair_method,
        analyses=rate.analyses,
        against=_base_revision(baseline),
        more_processes=tuple(
            sorted(more_processes.union(shares.more_processes, bricks.more_processes))
        ),
        baseline_processes=len(old.timed),
        current_processes=len(new.timed),
        cpu_pressure_pct=new.cpu_pressure_pct if rate.others_pct is None else rate.others_pct,
        bricks=bricks.changes,
    )


# --- may the run be judged? ----------------------------------------------------------------


def _dishonesty(run: GatedRun, baseline: Baseline | PairedBase | None) -> tuple[Reason, ...]:
    """Return why the run must not be judged at all; nothing if it may be."""
    if run.errors or baseline is None:
        return run.errors
    base, head = baseline.evidence, run.evidence
    if (copied := find_copy(base, head)) is not None:
        return (copied,)
    if isinstance(baseline, Baseline) or (base.side, head.side) == ("base", "head"):
        return ()
    measured = (
        f"The evidence given as the base was measured as {base.side or 'no side'}, and that given "
        f"as the head as {head.side or 'no side'}."
    )
    return (Reason.advise("E_SIDES_SWAPPED", measured),)


def _compare(baseline: Baseline | PairedBase, run: GatedRun) -> tuple[FieldDifference, ...]:
    paired = isinstance(baseline, PairedBase)
    differences = compare(baseline.evidence, run.evidence, paired=paired)
    # One side may have no profile then, and no share is compared.
    if run.lacks_samples(baseline.evidence):
        differences = tuple(each for each in differences if each.code != "E_PROFILER_DIFFERS")
    created = (baseline.evidence.created, run.evidence.created)
    # Both are written alike, in UTC to the millisecond: their order is that of the text.
    if isinstance(baseline, Baseline) and created[0] > created[1]:
        newer = FieldDifference("time of measuring", *created, "E_BASELINE_NEWER")
        return newer, *differences
    return differences


# --- without a comparison ------------------------------------------------------------------


def _base_revision(baseline: Baseline | PairedBase | None) -> str | None:
    """Return the commit that the pairs compare with, None if it is not known or there are none."""
    commit = baseline.evidence.commit if isinstance(baseline, PairedBase) else None
    return commit.revision if commit is not None else None


def _uncompared(
    name: Literal["no_baseline", "not_comparable"],
    run: GatedRun,
    policy: GatePolicy,
    rates: ErrorRates,
    reasons: Sequence[Reason],
    differences: tuple[FieldDifference, ...] = (),
    *,
    old: Measurement | None = None,
    current: Measurement | None = None,
) -> Verdict:
    """Return the verdict on a run that is compared with nothing.

    Budgets for one call of a brick need no other side: a call over its budget is a regression.
    """
    bricks = judge_bricks(None, run.evidence, policy.thresholds, rates)
    over = [signal for signal in bricks.signals if signal.decision == "regressed"]
    rest = [signal for signal in bricks.signals if signal.decision != "regressed"]
    signals: tuple[Signal, ...] = bricks.signals
    if current is not None:
        wall = wall_signals(old, current, run.evidence)
        signals = (uncompared_rate(old, current, name), *wall, *signals)
    return Verdict(
        verdict="regressed" if over else name,
        reasons=(*_reasons_of(over), *reasons, *_reasons_of(rest), *bricks.reasons),
        grade=run.grade,
        signals=signals,
        differences=differences,
        baseline_processes=len(old.timed) if old is not None else 0,
        current_processes=len(current.timed) if current is not None else 0,
        cpu_pressure_pct=current.cpu_pressure_pct if current is not None else None,
        bricks=bricks.changes,
    )


def _no_baseline_reasons(
    processes: int, evidence: Evidence, policy: GatePolicy
) -> tuple[Reason, ...]:
    remedy = "Accept this run with --flamegate-update."
    if policy.accept and evidence.profile is not None:  # only a profiled run has a receipt
        remedy = f"Accept this run: {policy.accept}"
    if policy.ci:
        remedy = "Compare with a revision instead: --flamegate-against=origin/main."
    if policy.update:
        remedy = "This run becomes the first."
    missing = f"No baseline is accepted for this workload on this machine. {remedy}"
    few = f"A baseline needs {MIN_PROCESSES} timed processes; this run has {processes}. {MORE_TIME}"
    reasons = Reason("E_NO_BASELINE", missing), Reason("E_FEW_PROCESSES", few)
    return reasons if processes < MIN_PROCESSES else reasons[:1]


# --- all decisions together ----------------------------------------------------------------


def _explain_no_lines(costs: Sequence[CostChange]) -> Reason:
    message = "The profiles name no line of this project, so no line explains the change."
    if not any(each.name.startswith(_INTERPRETER) for each in costs):
        return Reason.advise("I_NO_LINES", message)
    advice = (
        " They show the Python interpreter from inside; py-spy shows its functions and lines: "
        '--flamegate-profiler=py-spy, or frames = "python" for a server.'
    )
    return Reason("I_NO_LINES", message + advice)


def _combine_decisions(signals: Sequence[Signal], reasons: Sequence[Reason]) -> VerdictName:
    """Combine the decisions: certain harm outweighs an open question, and that a gain."""
    decisions = {signal.decision for signal in signals}
    if "regressed" in decisions:
        return "regressed"
    if "inconclusive" in decisions or any(reason.leaves_open for reason in reasons):
        return "inconclusive"
    return "improved" if "improved" in decisions else "pass"


def _order_reasons(
    name: VerdictName, signals: Sequence[Signal], general: Sequence[Reason]
) -> tuple[Reason, ...]:
    """Put the reasons that decided first; tokens per second leads among equals."""
    is_open = name == "inconclusive"
    return (
        *_reasons_of(signal for signal in signals if signal.decision == name),
        *(reason for reason in general if reason.leaves_open and is_open),
        *_reasons_of(signal for signal in signals if signal.decision != name),
        *(reason for reason in general if not (reason.leaves_open and is_open)),
    )


def _reasons_of(signals: Iterable[Signal]) -> tuple[Reason, ...]:
    return tuple(reason for signal in signals for reason in signal.reasons)
