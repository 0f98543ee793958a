"""One gated run, from spec to verdict: the only place that knows every room."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_flamegate.core import __version__
from pytest_flamegate.core.errors import FlamegateError, ReceiptError, UsageError, system_errors
from pytest_flamegate.core.git import read_commit
from pytest_flamegate.core.json_old import dumps
from pytest_flamegate.core.progress import terminable
from pytest_flamegate.engines import engine, settled
from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.gate import (
    Reason,
    Verdict,
    engine_differences,
    fails_test,
    find_notes,
    headline,
    judge,
    machine_id,
    needs_more,
    refused,
    verdict_document,
)
from pytest_flamegate.gate.comparability import TRANSIENT_CODES
from pytest_flamegate.models.facts import read_model_facts
from pytest_flamegate.models.files import read_stamps
from pytest_flamegate.observe.build import build, look_at
from pytest_flamegate.observe.machine import identity
from pytest_flamegate.profile.folded import fold_profile
from pytest_flamegate.receipt.artifacts import (
    BASE_INSTRUCTIONS,
    RECEIPT,
    VERDICT,
    ArtifactStore,
    Baseline,
)
from pytest_flamegate.receipt.compose import Subject
from pytest_flamegate.run import seal as run_seal
from pytest_flamegate.run.calibration import calibration_known, load, load_ledger
from pytest_flamegate.run.compare import Comparison, Measured, measured
from pytest_flamegate.run.decode import NOT_IN_PAIRS, decoded
from pytest_flamegate.run.difference import NOTHING_BESIDE, Beside, beside_base, beside_baseline
from pytest_flamegate.run.hint import pytest_command
from pytest_flamegate.run.instruments import Instruments, counted_metrics, trace_kernels
from pytest_flamegate.run.lock import machine_lock
from pytest_flamegate.run.measure import Measuring, Progress
from pytest_flamegate.run.outcome import Outcome
from pytest_flamegate.run.publish import Keeper
from pytest_flamegate.run.seal import Sealed, counted_files, pictures, seal
from pytest_flamegate.run.sides import Bases, Prepared, importable, prepare, shared_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_flamegate.config.settings import Settings
    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.core.git import Commit
    from pytest_flamegate.gate import ReportedRates
    from pytest_flamegate.profile.decode import DecodeProfile
    from pytest_flamegate.profile.profilers.instructions import InstructionCount
    from pytest_flamegate.receipt.types import Evidence


def buildable(
    workload: Workload, baseline: Baseline | None, here: Commit | None, verdict: Verdict
) -> str | None:
    """Return the commit to compare with in pairs; None where nothing is suspected or to be had.

    The baseline's code can be built again where it was a commit and nothing but that, and
    comparing says something only where it is not what stands here.
    """
    commit = baseline.evidence.commit if baseline is not None else None
    if not _suspicious(verdict):
        return None
    if commit is None or commit.uncommitted or here is None:
        return None
    same = here.same_code(commit)
    return None if same and workload.injection is None else commit.revision


def _suspicious(verdict: Verdict) -> bool:
    """Whether pairs would say more: also where only the machine was in another state."""
    if verdict.verdict == "not_comparable":
        codes = {difference.code for difference in verdict.comparability.differences}
        return bool(codes) and codes <= TRANSIENT_CODES
    return verdict.verdict in ("regressed", "inconclusive") and bool(verdict.signals)


def suspected(suspicion: Verdict, commit: str) -> Reason:
    """Return why the base was built and measured beside this run."""
    return Reason(
        "I_STORED_BASELINE",
        f"The stored baseline alone said {headline(suspicion)}. So its commit {commit[:12]} was "
        "built and measured in pairs with this run; that is the verdict.",
    )


def not_compared(rev: str, error: FlamegateError) -> Reason:
    """Return why the base could not be measured beside this run."""
    return Reason(
        "I_NOT_COMPARED",
        f"Its commit {rev[:12]} could not be measured beside this run: {error.code}: "
        f"{error.problem} {error.remedy}",
    )


def with_reason(verdict: Verdict, reason: Reason) -> Verdict:
    """Return ``verdict`` with one more reason, after those that decided."""
    return replace(verdict, reasons=(*verdict.reasons, reason))


def noted(verdict: Verdict, notes: Mapping[str, str]) -> tuple[Verdict, tuple[str, ...]]:
    """Return ``verdict`` with what has to be known of how it was observed, and that as warnings.

    ``notes`` are sentences by their code.
    """
    for code, told in notes.items():
        verdict = with_reason(verdict, Reason(code, told))
    return verdict, tuple(f"{code}: {told}" for code, told in notes.items())


if TYPE_CHECKING:
    Call = Callable[[str, int], Iterable[Any]]

LOOKS = 2
_UNACCEPTABLE = frozenset({"dishonest", "error"})


@dataclass
class Session:
    """Gates workloads one after another under one set of settings."""

    settings: Settings
    progress: Progress
    tell: Callable[[str], None] = field(default=lambda _: None)
    """Hears what a person should know before a workload is measured: that it waits."""
    bases: Bases = field(default_factory=Bases)

    @cached_property
    def instruments(self) -> Instruments:
        """What measures."""
        return Instruments(
            self.settings.profiler, self.settings.root, counts=self.settings.instructions
        )

    @cached_property
    def artifacts(self) -> ArtifactStore:
        """The artifact directory."""
        return ArtifactStore(self.settings.directory)

    @cached_property
    def machine(self) -> Mapping[str, str]:
        """The identity of the machine this runs on."""
        return identity()

    @cached_property
    def keeper(self) -> Keeper:
        """What keeps the runs of this machine."""
        return Keeper(self.artifacts, machine_id(self.machine))

    def close(self) -> None:
        """Remove the revisions that were checked out."""
        self.bases.close()

    def preamble(self, workloads: Iterable[Workload]) -> str:
        """Return the line that says what measures, and where."""
        return self.instruments.preamble(workloads, self.machine)

    def gate(self, workload: Workload, call: Call | None = None) -> Outcome:
        """Measure, seal, judge and publish one workload. Never raises for what a run may meet.

        ``call`` is measured instead of the workload's engine where it is given. Only a
        ``KeyboardInterrupt`` (SIGTERM is made one) passes through; every other end is a verdict.
        """
        try:
            with system_errors():
                self.artifacts.require_writable(
                    machine_id(self.machine) if self.settings.update else None
                )
        except FlamegateError as error:
            # An earlier result stays: this run neither began nor has a place to say so.
            return self._refused(workload, error)
        try:
            with terminable(), system_errors(), machine_lock(self.tell):
                injected = self._injected(workload, call)
                if self.settings.against is not None:
                    self.artifacts.remove_latest(workload.name)
                    return self._against(injected, call, self.settings.against)
                return self._gate(injected, call)
        except FlamegateError as error:
            outcome = self._refused(workload, error)
            # The directory may be what failed; the verdict is still shown and fails.
            with suppress(FlamegateError), system_errors():
                self.keeper.refusal(workload.name, outcome.verdict)
            return outcome

    def _gate(self, workload: Workload, call: Call | None) -> Outcome:
        chosen = engine(workload.engine)
        if call is None:
            chosen.validate(workload)
        profiler = self.instruments.profiler(workload)
        self.artifacts.remove_latest(workload.name)
        built = build(workload)
        baseline = self._baseline(workload)
        workload = settled(workload, baseline.evidence.workload if baseline else None)
        model = chosen.model(workload)
        plan: Plan = chosen.plan(workload, model) if call is None else Served({}, call)
        count = self.instruments.counted(plan, workload)
        subject = Subject(
            workload=workload,
            stamps=read_stamps(model),
            model=read_model_facts(model, workload),
            machine=self.machine,
            commit=read_commit(workload.directory),
            flamegate_version=__version__,
            prompt_tokens=chosen.prompt_tokens(workload) if call is None else None,
            counted=counted_metrics(count),
            look=look_at(plan, workload, built),
        )
        measuring = Measuring(
            *(workload, plan, profiler, self.settings.budget_of(workload.engine), self.progress),
            show_bricks=self.settings.bricks is not None,
        )
        measuring.first()
        trace_kernels(measuring.observer)
        sealed = seal(subject, measuring)
        verdict = self._judge(workload, baseline, sealed)
        for _ in range(LOOKS - 1):
            wanted = measuring.affordable(needs_more(verdict))
            if not wanted:
                break
            measuring.more(wanted)
            sealed = seal(subject, measuring)
            verdict = self._judge(workload, baseline, sealed)
        rev = buildable(workload, baseline, subject.commit, verdict)
        if rev is not None and not self.settings.update:
            try:
                return self._against(workload, call, rev, suspicion=verdict)
            except FlamegateError as error:
                verdict = with_reason(verdict, not_compared(rev, error))
        beside = beside_baseline(workload, baseline, sealed, verdict)
        if count is not None:
            beside |= counted_files(workload, sealed, count)
        old = baseline.evidence if baseline else None
        decode, warnings = decoded(measuring, sealed.evidence)
        verdict, more = noted(verdict, measuring.observer.notes)
        return self._publish(workload, sealed, verdict, old, beside, decode, (*warnings, *more))

    def _against(
        self, workload: Workload, call: Call | None, rev: str, suspicion: Verdict | None = None
    ) -> Outcome:
        """Compare with ``rev`` in pairs; ``suspicion`` is what the stored baseline said."""
        workload = settled(importable(workload, call))
        checkout = self.bases.checkout(workload.directory, rev)
        prepared = prepare(workload, checkout, self.bases)
        (base, base_count), (head, head_count) = (self._side(workload, each) for each in prepared)
        comparison = Comparison(
            base,
            head,
            workload.thresholds,
            self.settings.share_drift,
            self.settings.budget_of(workload.engine, compare=True),
            self.progress,
        )
        notes = [*checkout.notes, *filter(None, [shared_program(prepared[0])])]
        if workload.decode_profile:
            notes.append(NOT_IN_PAIRS)
        comparison.known = self._known(workload, comparison.looks, notes)
        old, new, verdict = comparison.run()
        if suspicion is not None:
            verdict = with_reason(verdict, suspected(suspicion, checkout.commit))
        for note in notes:
            verdict = with_reason(verdict, Reason("I_NOTE", note))
        beside = beside_base(workload, old, new, verdict)
        if base_count is not None and head_count is not None:
            beside |= {BASE_INSTRUCTIONS: fold_profile(base_count.profile).encode()}
            beside |= counted_files(workload, new, head_count)
        seen = {c: f"Of the base: {n}" for c, n in base.measuring.observer.notes.items()}
        verdict, told = noted(verdict, seen | head.measuring.observer.notes)
        return self._publish(workload, new, verdict, old.evidence, beside, warnings=told)

    def _known(
        self, workload: Workload, looks: Sequence[int], notes: list[str]
    ) -> ReportedRates | None:
        """Return what a calibration of this machine knows of the rule; ``notes`` gain why not."""
        here = machine_id(self.machine)
        calibration = load(self.artifacts, here, workload, notes.append)
        lines = load_ledger(self.artifacts, notes.append) if calibration else ()
        drop_pct = workload.thresholds.tokens_per_second_pct
        return calibration_known(calibration, drop_pct, looks, lines)

    def _side(
        self, workload: Workload, prepared: Prepared
    ) -> tuple[Measured, InstructionCount | None]:
        """Return one side of a comparison as it is measured, and what was counted of it."""
        profiler = self.instruments.profiler(
            workload, prepared.moved and prepared.moved[0], comparing=True
        )
        count = self.instruments.counted(prepared.plan, prepared.workload)
        side = measured(
            prepared,
            machine=self.machine,
            profiler=profiler,
            budget_s=self.settings.budget_of(workload.engine, compare=True),
            progress=self.progress,
            counted=counted_metrics(count),
            show_bricks=self.settings.bricks is not None,
        )
        return side, count

    def _injected(self, workload: Workload, call: Call | None) -> Workload:
        if self.settings.inject is None:
            return workload
        if workload.engine not in ("embedded", "python") or call is not None:
            raise UsageError(
                "E_BAD_INJECTION",
                "Work can be injected into the embedded engine and into workloads with a Python "
                f"target only, and {workload.name!r} is neither.",
                "Deselect it, or drop the option.",
            )
        return replace(workload, injection=self.settings.inject)

    def _judge(self, workload: Workload, baseline: Baseline | None, sealed: Sealed) -> Verdict:
        if sealed.verification is not None and not sealed.verification.ok:
            reasons = [Reason(r.code, r.message) for r in sealed.verification.refusals]
            return refused("dishonest", reasons, grade=sealed.grade)
        return judge(
            baseline.evidence if baseline else None,
            sealed.evidence,
            workload.thresholds,
            grade=sealed.grade,
            share_drift=self.settings.share_drift,
            looks=LOOKS,
            batches=baseline.batches if baseline else (),
        )

    def _baseline(self, workload: Workload) -> Baseline | None:
        """Read and verify what was accepted, unless this run replaces it anyway."""
        try:
            return self.keeper.baseline(workload.name)
        except ReceiptError:
            if self.settings.update:
                return None
            raise

    def _publish(
        self,
        workload: Workload,
        sealed: Sealed,
        verdict: Verdict,
        baseline: Evidence | None,
        beside: Beside = NOTHING_BESIDE,
        decode: DecodeProfile | None = None,
        warnings: tuple[str, ...] = (),
    ) -> Outcome:
        known = [
            Reason(each.code, each.message)
            for each in (engine_differences(baseline, sealed.evidence) if baseline else ())
        ]
        known += find_notes(baseline, sealed.evidence)
        for missed in (*known, *self.instruments.warnings(workload)):
            verdict = with_reason(verdict, missed)
            if missed.code.startswith("W_"):
                warnings = (*warnings, f"{missed.code}: {missed.message}")
        verdict = run_seal.of_verdict(verdict, sealed.redactor)
        accept = self.settings.update and verdict.verdict not in _UNACCEPTABLE
        again = pytest_command(self.settings, workload.node_name)
        changed = beside.difference
        files = {
            **sealed.files,
            **pictures(workload, sealed, verdict, again=again, decode=decode, difference=changed),
            **beside.files,
            VERDICT: dumps(verdict_document(verdict)),
        }
        if verdict.verdict == "dishonest":
            # A claim that does not hold is not left lying about as if it did.
            files.pop(RECEIPT, None)
        run_seal.require_none(files, sealed.redactor)
        kept = self.keeper.keep(workload.name, files, verdict, sealed.evidence, accept=accept)
        receipt = sealed.receipt if verdict.verdict != "dishonest" else None
        if kept.error is not None:
            verdict = run_seal.verdict_on(kept.error, workload)
        return Outcome(
            workload=workload,
            verdict=verdict,
            directory=kept.directory,
            receipt=receipt,
            evidence=sealed.evidence,
            baseline=baseline,
            accepted=kept.accepted,
            fails=self._fails(verdict) and kept.accepted is None,
            error=kept.error,
            warnings=(*warnings, *sealed.redactor.warnings, *kept.warnings),
        )

    def _refused(self, workload: Workload, error: FlamegateError) -> Outcome:
        verdict = run_seal.verdict_on(error, workload)
        directory = self.artifacts.latest_directory(workload.name)
        return Outcome(workload, verdict, directory, fails=self._fails(verdict), error=error)

    def _fails(self, verdict: Verdict) -> bool:
        return fails_test(verdict, ci=self.settings.ci, strict=self.settings.strict)
