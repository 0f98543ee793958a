"""One gated run: prepare, measure, compose, seal, judge, publish."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.thresholds import DEFAULT_SHARE_PP, Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, UsageError, system_errors
from pytest_flamegate.core.files import is_file
from pytest_flamegate.core.locks import machine_lock
from pytest_flamegate.core.progress import Progress, clock_time, terminable
from pytest_flamegate.engines.declare import InvalidWorkload
from pytest_flamegate.gate.judge import GatedRun, GatePolicy, judge
from pytest_flamegate.gate.paired_rate import PairedBase
from pytest_flamegate.gate.rule import ProcessKind, Reason
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.observe.scratch import sweep_scratch
from pytest_flamegate.observe.worktree import Checkout, require_commit
from pytest_flamegate.receipt import Grade
from pytest_flamegate.report.text import visible
from pytest_flamegate.run import schedule
from pytest_flamegate.run.measure import INTERIM_ANALYSES, measure
from pytest_flamegate.run.pictures import draw
from pytest_flamegate.run.prepare import Workbench
from pytest_flamegate.run.publish import (
    Hints,
    Outcome,
    outcome_of_error,
    publish,
    publish_error,
    verdict_of_error,
)
from pytest_flamegate.run.seal import ComposedRun, compose, seal
from pytest_flamegate.run.stages import Call, Measured, Task


@dataclass
class Session:
    """Gates workloads one after another under one set of settings."""

    settings: Settings
    progress: Progress = field(default_factory=Progress)
    as_command: bool = False
    """Whether hints are commands of ``flamegate run`` instead of ``pytest``."""
    trees: tuple[Checkout, Checkout] | None = None
    """Checkouts of base and head, to measure in; else the head is the working tree."""
    hints: Hints = field(init=False)
    bench: Workbench = field(init=False)
    _measured: list[tuple[ComposedRun, Outcome]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bench = Workbench(self.settings, self.progress, self.trees)
        self.hints = Hints(self.settings, self.as_command)

    def close(self) -> None:
        """Remove the revisions that were checked out."""
        self.bench.checkouts.close()

    def preamble(self, workloads: Iterable[Workload]) -> str:
        """Return the line that names the profilers and the machine."""
        return self.bench.instruments.preamble(workloads, self.bench.machine)

    def require_possible(self, workloads: Sequence[Workload]) -> None:
        """Raise the first error if none of the workloads can be measured as the options ask.

        That is known before anything is announced: no profiler works (``ToolError``), or there is
        no repository or no such revision to compare with (``UsageError``).
        """
        for check in (self._require_base, self.bench.instruments.choose_profiler):
            errors = []
            for workload in workloads:
                try:
                    with system_errors():
                        check(workload)
                except FlamegateError as error:
                    errors.append(error)
            if errors and len(errors) == len(workloads):
                raise errors[0]

    def _require_base(self, workload: Workload) -> None:
        settings = self.settings
        # A commit that pytest's start has found is there, even if a test moves its name.
        if settings.against is not None and settings.base is None and self.trees is None:
            is_elsewhere = self.bench.is_declared_elsewhere
            directory = settings.root if is_elsewhere else workload.directory
            require_commit(directory, settings.against)

    def announce(self, workloads: Sequence[Workload]) -> None:
        """Announce how many workloads will be measured, and for how long."""
        settings = self.settings
        is_pair = settings.against is not None
        budgets = [settings.budget_of(each, compare=is_pair) for each in workloads]
        number = f"{len(budgets)} workload{'s' * (len(budgets) != 1)}"
        # Four pairs and three profiles are always measured, however long they take.
        about = f"{'up to about' if is_pair else 'about'} {clock_time(sum(budgets))}"
        each = f", {budgets[0]:g} s each" if len(budgets) > 1 and len(set(budgets)) == 1 else ""
        more = ", plus builds" if is_pair else ""
        if pairs_s := sum(map(self._doubt_s, workloads)):
            more = (
                f"; up to about {clock_time(sum(budgets) + pairs_s)} if a doubtful result is "
                "measured again, in pairs with its baseline's commit"
            )
        busy = " (longer while this machine is busy, as it is now)" * bool(schedule.describe_load())
        self.progress.announce(f"{number}, {about}{each}{more}{busy}")

    def announce_embedded(self, place: Path) -> None:
        """Announce that the embedded workloads are measured because ``place`` declares none.

        It is the workload file, or the directory that has no such file: perhaps the wrong one.
        """
        name = visible(place.name if is_file(place) else str(place), 1000)
        self.progress.announce(
            f"{name} declares no workload, so those of the embedded model are measured "
            "(flamegate init writes a file for an engine of yours)"
        )

    def _doubt_s(self, workload: Workload) -> float:
        """Return how long pairs take at most if the stored baseline leaves a doubt, else 0."""
        if self.settings.against is not None or self.settings.update:
            return 0.0
        store = self.bench.store
        stored = store.artifacts.baseline_directory(store.machine_id, workload.name)
        return self.settings.budget_of(workload, compare=True) if stored.exists() else 0.0

    def gate(self, workload: Workload, call: Call | None = None) -> Outcome:
        """Measure, judge and publish one workload; an error is an outcome too.

        A workload that was measured before in this session is judged again, not measured. Its
        thresholds are those of the test; ``call`` is measured instead of its engine if it is given.
        Only KeyboardInterrupt passes through; SIGTERM is made one.
        """
        task = Task(workload, call, self.settings.against)
        store = self.bench.store
        try:
            with system_errors():
                machine_id = store.machine_id if self.settings.update else None
                store.artifacts.require_writable(machine_id)
        except FlamegateError as error:
            # An earlier result stays: this run has no place to write to.
            return self._with_failure(outcome_of_error(task.workload, error, store))
        try:
            with terminable(), system_errors():
                sweep_scratch()
                outcome = self._gate(task)
        except FlamegateError as error:
            outcome = outcome_of_error(task.workload, error, store)
            # A mistyped option is no result: an earlier one stays. The directory itself may be
            # the reason of any other error; the verdict is still shown, and fails.
            if not (isinstance(error, UsageError) and outcome.directory.exists()):
                with suppress(FlamegateError), system_errors():
                    outcome = publish_error(outcome, store)
        return self._with_failure(outcome)

    def reject(self, declared: InvalidWorkload) -> Outcome:
        """Return the outcome of a declaration with an error; nothing is written."""
        workload = Workload(declared.name, "", "", 1, "", self.settings.root)
        verdict = verdict_of_error(declared.error, workload)
        outcome = Outcome(
            workload, verdict, self.settings.directory, is_written=False, error=declared.error
        )
        return self._with_failure(outcome)

    def _gate(self, task: Task) -> Outcome:
        workload, settings, store = task.workload, self.settings, self.bench.store
        before = None if task.call is not None else self._find_measured(task)
        if before is None:
            self.bench.instruments.profiler(workload)  # an error is found before any waiting
            with machine_lock(self.progress.announce):
                self.progress.begin(workload.name)
                try:
                    run, verdict = self._measure(task)
                    self.progress.end()
                finally:
                    self.progress.stop()
        elif isinstance(before, Outcome):
            return before
        else:
            run, verdict = before
        pictures = draw(
            run,
            verdict,
            settings,
            again=self.hints.again(workload.node_name, against=verdict.against),
            directory=store.artifacts.latest_directory(workload.name),
        )
        outcome = publish(run, verdict, pictures, store, accept=settings.update)
        outcome = replace(outcome, workload=workload)
        if task.call is None:
            self._measured.append((run, outcome))
        return outcome

    def _measure(self, task: Task) -> tuple[ComposedRun, Verdict]:
        """Measure and judge; in pairs too if a stored baseline alone gives only a suspicion."""
        run, verdict = self._measure_once(task)
        commit = self._suspected_commit(task, run, verdict)
        if commit is None:
            is_final = task.rev is not None or self.settings.update
            if is_final or not verdict.is_suspicious or not _has_code_of_baseline(run):
                return run, verdict
            run = replace(run, notes=(*run.notes, _SAME_CODE))
            return run, self._judge(run, task)
        most = clock_time(self._doubt_s(task.workload))
        self.progress.announce(
            f"{task.workload.name}: {headline(verdict).rstrip('.')}; so the baseline's commit "
            f"{commit[:12]} is measured in pairs with it, up to about {most} more"
        )
        sentence = headline(verdict)
        if verdict.differences:
            sentence = f"not comparable: {verdict.differences[0].message}"  # without the advice
        suspicion = Reason(
            "I_STORED_BASELINE",
            f"By its stored baseline alone it is {sentence.rstrip('.')}. So the baseline's commit "
            f"{commit[:12]} was built and measured in pairs with this run; that is the verdict.",
        )
        try:
            with system_errors():
                return self._measure_once(replace(task, rev=commit, notes=(suspicion,)))
        except FlamegateError as error:
            message = (
                f"Its commit {commit[:12]} could not be measured in pairs with this run: "
                f"{error.code}: {error.problem} {error.remedy}"
            )
            clean = run.head.redactor.redact_text(message, "verdict")
            run = replace(run, notes=(*run.notes, Reason("I_NOT_COMPARED", clean)))
            return run, self._judge(run, task)

    def _suspected_commit(self, task: Task, run: ComposedRun, verdict: Verdict) -> str | None:
        is_final = task.rev is not None or self.settings.update
        return None if is_final else suspected_commit(run, verdict)

    def _measure_once(self, task: Task) -> tuple[ComposedRun, Verdict]:
        prepared = self.bench.prepare(task)

        def until(measured: Measured) -> tuple[ProcessKind, ...]:
            run = compose(measured)
            return wanted_processes(
                self._judge(run, task),
                task.workload.thresholds,
                strict=self.settings.share_drift == "strict",
                has_lines=run.lines is not None and not run.lines.is_empty,
            )

        run = seal(compose(measure(prepared, until, self.progress)))
        return run, self._judge(run, task)

    def _find_measured(self, task: Task) -> Outcome | tuple[ComposedRun, Verdict] | None:
        """Return the outcome of the same workload in this session; None if it is to be measured.

        If only the thresholds differ, its run is judged again and returned with that verdict,
        unless that leaves it undecided or to be decided in pairs.
        """
        thresholds = task.workload.thresholds
        for run, outcome in self._measured:
            earlier = outcome.workload
            if replace(earlier, thresholds=thresholds) != task.workload:
                continue
            if earlier.thresholds == thresholds:
                return outcome
            has_bricks = earlier.thresholds.bricks.keys() == thresholds.bricks.keys()
            has_calls = bool(earlier.thresholds.counts) == bool(thresholds.counts)
            if has_bricks and has_calls:
                verdict = self._judge(run, task)
                suspected = self._suspected_commit(task, run, verdict) is not None
                if verdict.verdict != "inconclusive" and not suspected:
                    return run, verdict
        return None

    def _judge(self, run: ComposedRun, task: Task) -> Verdict:
        settings, thresholds = self.settings, task.workload.thresholds
        policy = GatePolicy(
            thresholds,
            settings.share_drift,
            INTERIM_ANALYSES,
            ci=settings.ci,
            update=settings.update,
            accept="" if settings.inject else self.hints.accept_stored(task.workload.name),
        )
        return judge_run(run, policy, settings.least_grade)

    def _with_failure(self, outcome: Outcome) -> Outcome:
        """Return ``outcome`` with the answer to whether a test on it fails."""
        fails = outcome.verdict.fails_test(ci=self.settings.ci, strict=self.settings.strict)
        return replace(outcome, fails=fails and outcome.accepted is None)


def judge_run(run: ComposedRun, policy: GatePolicy, least_grade: str = "") -> Verdict:
    """Judge a run by its base or its baseline; once sealed, with its grade and its errors.

    A side of a comparison that has a receipt has to reach ``least_grade``, if that is given.
    """
    prepared = run.prepared
    gated = GatedRun(
        run.head.evidence,
        run.head.grade,
        (*run.errors, *(run.find_low_grades(Grade.parse(least_grade)) if least_grade else ())),
        run.notes,
        lines=run.lines,
        calls=run.calls,
        instructions=run.instructions,
    )
    if run.base is None:
        return judge(gated, prepared.baseline, policy)
    base = PairedBase(run.base.evidence, prepared.pair_counts, rates=prepared.known)
    return judge(gated, base, policy)


def wanted_processes(
    verdict: Verdict, thresholds: Thresholds, *, strict: bool = False, has_lines: bool = False
) -> tuple[ProcessKind, ...]:
    """Return the kinds of processes of which more could settle the verdict or explain it.

    Profiles of an unchanged whole go on only for functions whose drift is limited by a threshold
    that the project declares, or if every drift fails (``strict``). Those of a regression go on
    until a slower line is certain too, if the profiles have lines.
    """
    if verdict.pairs is None:
        return verdict.wanted_processes
    names_line = any((line.cost.explains or 0.0) > 0.0 for line in verdict.lines)
    wants_line = has_lines and verdict.verdict == "regressed" and not names_line
    unnamed = wants_line or not verdict.explained_by
    is_coarse = any(
        spot.coarse
        and (strict or spot.name in thresholds.hotspots_pp or spot.threshold_pp != DEFAULT_SHARE_PP)
        for spot in verdict.hotspots
    )
    kinds: set[ProcessKind] = {*verdict.more_processes} - {"timed"}
    wants_profiles = unnamed if verdict.kind.is_change else is_coarse
    if wants_profiles:
        kinds.add("profiled")
    return tuple(kinds)


_SAME_CODE = Reason(
    "I_NOT_COMPARED",
    "The code is that of the baseline's commit, so there are no pairs to measure: what differs is "
    "the machine, or what is installed on it.",
)


def suspected_commit(run: ComposedRun, verdict: Verdict) -> str | None:
    """Return the baseline's commit if pairs with it would say more than its stored figures.

    That is so if the verdict is unfavourable or only the machine's state differs. The code
    must be a commit that can be built again, and another one than is measured here.
    """
    subject = run.prepared.head.subject
    baseline, here = run.prepared.baseline, subject.commit
    commit = baseline.evidence.commit if baseline is not None else None
    if not verdict.is_suspicious or commit is None or commit.uncommitted or here is None:
        return None
    return None if _has_code_of_baseline(run) else commit.revision


def _has_code_of_baseline(run: ComposedRun) -> bool:
    """Whether the measured code is that of the stored baseline, without injected work."""
    subject, baseline = run.prepared.head.subject, run.prepared.baseline
    commit = baseline.evidence.commit if baseline is not None else None
    is_same = commit is not None and subject.commit is not None and subject.commit.same_code(commit)
    return is_same and subject.workload.injection is None
