"""Write a run, accept it as the baseline if asked to, and record it."""

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_flamegate.config.options import shorten_options
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import ARTIFACTS, errors
from pytest_flamegate.core.clocks import utc_now
from pytest_flamegate.core.files import relative
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.observe.redact import Redactor
from pytest_flamegate.receipt import baseline as run_files
from pytest_flamegate.receipt import verify_receipt
from pytest_flamegate.receipt.artifacts import ArtifactStore, RunLine, StoredPath
from pytest_flamegate.receipt.baseline import Baseline
from pytest_flamegate.receipt.metrics import value_of
from pytest_flamegate.receipt.types import Evidence, Receipt, VerdictName
from pytest_flamegate.run.pictures import Pictures
from pytest_flamegate.run.seal import ComposedRun, require_no_secret

_SAID_AT_ONCE = ("F_NOT_DETERMINISTIC", "F_WHOLE_PROCESS")
"""Reasons against a run as a baseline that lie in the workload: a further run has them, too."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Commands to copy. They repeat the options that say where to look and how to measure.

    ``as_command`` makes them ``flamegate run`` instead of ``pytest``. ``checked_against`` is the
    base of a required check: other commands would take the policy from the head. ``judged_by`` is
    the command of a check that judged stored runs.
    """

    settings: Settings
    as_command: bool = False
    checked_against: str | None = None
    judged_by: str | None = None

    def again(self, *nodes: str, against: str | None = None) -> str:
        """Return the command that measures ``nodes`` again, or everything.

        ``against`` is the commit that it was compared with: a branch moves, a commit does not.
        """
        if self.judged_by is not None:
            return self.judged_by
        if self.checked_against is not None:
            return f"flamegate check --base {self.checked_against[:12]}"
        injection = self.settings.inject
        return self._command(
            nodes,
            against=against[:12] if against else self.settings.against,
            inject=f"{injection.frame}:+{injection.extra_pct:g}%" if injection else None,
        )

    def accept(self, *nodes: str) -> str:
        """Return the command that measures ``nodes`` and accepts them as the baseline.

        Of a required check it is the one that accepts the slowdown as it was measured.
        """
        if self.checked_against is not None:
            return self.waive(*nodes)
        update = f"--{'' if self.as_command else 'flamegate-'}update"
        in_ci = f" {update}-in-ci" if self.settings.ci else ""
        return f"{self._command(nodes)} {update}{in_ci}"

    def accept_stored(self, *names: str) -> str:
        """Return the command that makes the latest runs of ``names`` the baseline."""
        words = ["flamegate", "baseline", "accept", *dict.fromkeys(names), *self._place()]
        return shlex.join(words)

    def waive(self, *nodes: str) -> str:
        """Return the command that accepts the slowdown of ``nodes`` as it was measured."""
        names = shlex.join([*map(_command_name, nodes), *self._place()])
        return f"flamegate accept {names} --reason TEXT --until DATE"

    def accept_latest(self, name: str, verdict: Verdict, evidence: Evidence | None) -> str | None:
        """Return the command that accepts the stored run of ``name``; None if none does.

        A run in pairs is no baseline, but its slowdown can be waived. Of injected work neither is
        true.
        """
        if evidence is None or not verdict.kind.is_valid or evidence.workload.get("injection"):
            return None
        if evidence.side is None:
            return self.accept_stored(name)
        is_slower = verdict.verdict == "regressed" and verdict.against is not None
        return self.waive(name) if is_slower else None

    def accepts(self, verdict: Verdict) -> bool:
        """Whether a run with this verdict can become the baseline, or be waived in a check.

        An injected run cannot: without its injection something else would be measured.
        """
        if self.settings.inject is not None:
            return False
        if self.checked_against is not None:
            return verdict.verdict == "regressed"
        return verdict.kind.is_valid and self.settings.against is None

    def adapt(self, text: str) -> str:
        """Return advice, which names the options of pytest, with those that are taken here."""
        return shorten_options(text) if self.as_command else text

    def _place(self) -> list[str]:
        """Return the option that names the directory of the artifacts; none for the default."""
        directory = relative(self.settings.directory, self.settings.root)
        return [f"--dir={directory}"] if directory != ARTIFACTS else []

    def _command(self, nodes: tuple[str, ...], **changing: str | None) -> str:
        settings = self.settings
        own_directory = settings.directory != settings.root / ARTIFACTS
        given = {
            "config": settings.config and relative(settings.config, settings.root),
            "dir": relative(settings.directory, settings.root) if own_directory else None,
            **changing,
            "profiler": settings.profiler if settings.profiler != "auto" else None,
            "budget": f"{settings.budget_s:g}" if settings.budget_s else None,
        }
        options = {name: value for name, value in given.items() if value}
        if self.as_command:
            words = ["flamegate", "run", *map(_command_name, nodes)]
            return shlex.join([*words, *(f"--{name}={value}" for name, value in options.items())])
        words = ["pytest", *nodes, "--flamegate"]
        words += [f"--flamegate-{name}={value}" for name, value in options.items()]
        return shlex.join(words)


def _command_name(node: str) -> str:
    """Return a workload as ``flamegate run`` takes it; embedded ones keep their prefix."""
    return node if node.startswith("embedded::") else node.rpartition("::")[2]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one workload.

    ``directory`` holds the files of the run: see "Files" in docs/reference.md. If ``is_written`` is
    false it wrote none, and those that are there are of an earlier run.
    ``fails`` says whether a test on it fails. ``baseline`` is the evidence of the other side:
    the base's, or the accepted baseline's.
    ``accepted`` is the directory of the baseline that this run became. ``error`` is set if
    something failed, ``warnings`` are one sentence each.
    """

    workload: Workload
    verdict: Verdict
    directory: Path
    fails: bool = False
    receipt: Receipt | None = None
    evidence: Evidence | None = None
    baseline: Evidence | None = None
    accepted: Path | None = None
    error: errors.FlamegateError | None = None
    warnings: tuple[str, ...] = ()
    pictures: Pictures = field(default_factory=Pictures)
    is_written: bool = True

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: an error's own, else the verdict's."""
        return self.error.exit_code if self.error is not None else self.verdict.exit_code


@dataclass(frozen=True, slots=True)
class RunStore:
    """Runs and baselines of the machine class ``machine_id`` in one artifact directory."""

    artifacts: ArtifactStore
    machine_id: str

    def baseline(self, workload: str) -> Baseline | None:
        """Read the accepted baseline; ReceiptError ``E_BASELINE_CORRUPT`` if it is not honest."""
        baseline = self.artifacts.read_baseline(self.machine_id, workload)
        if baseline is None:
            return None
        path = baseline.directory / run_files.RECEIPT
        receipt = baseline.files.get(run_files.RECEIPT)
        was_profiled = baseline.evidence.receipt_sha256 or baseline.evidence.profile is not None
        if receipt is None and not was_profiled:
            return baseline
        verification = verify_receipt(
            path if receipt is None else receipt,
            evidence=baseline.files.get(run_files.EVIDENCE),
            profile_folded=baseline.files.get(run_files.FOLDED),
        )
        if not verification.ok:
            first = verification.refusals[0]
            raise errors.ReceiptError(
                "E_BASELINE_CORRUPT",
                f"The baseline {path} is not honest: {first.code}: {first.message}",
            )
        return baseline

    def accept(self, workload: str, files: Mapping[str, bytes]) -> StoredPath:
        """Make a run the baseline.

        The files of the other side stay behind. A baseline that cannot be used is set aside,
        and never removed.
        """
        is_spoilt = False
        try:
            self.baseline(workload)
        except errors.ReceiptError:
            is_spoilt = True
        accepted = {name: data for name, data in files.items() if name in run_files.BASELINE_FILES}
        return self.artifacts.accept_baseline(
            self.machine_id, workload, accepted, set_aside=is_spoilt
        )

    def record(
        self, workload: str, verdict: Verdict, evidence: Evidence | None, *, accepted: bool = False
    ) -> None:
        """Append the run to the history."""
        seen: dict[str, Any] = {}
        if evidence is not None:
            seen = {
                "commit": evidence.commit.revision if evidence.commit else None,
                "tokens_per_second": value_of(evidence.metrics, "tokens_per_second"),
                "quiet_s_per_token": value_of(evidence.metrics, "quiet_s_per_token"),
                "nonce": evidence.nonce,
            }
        line = RunLine(
            workload=workload,
            verdict=verdict.verdict,
            reasons=tuple(reason.code for reason in verdict.reasons),
            accepted=accepted,
            created=evidence.created if evidence else utc_now(),
            machine=self.machine_id,
            **seen,
        )
        self.artifacts.append_run(line)


def publish(
    run: ComposedRun, verdict: Verdict, pictures: Pictures, store: RunStore, *, accept: bool
) -> Outcome:
    """Write a run's files, accept it if asked to, and record it; each all or nothing.

    Raises:
        ToolError: ``E_SECRET``, ``E_CANNOT_WRITE``: nothing was written. If the run cannot be
            accepted the outcome holds the error; if it cannot be recorded, a warning.
    """
    prepared = run.prepared
    workload = prepared.workload
    files = {
        **run.head.files,
        **pictures.files,
        run_files.VERDICT: encode_json(verdict_document(verdict)),
    }
    is_honest = verdict.verdict != "dishonest"
    if not is_honest:
        # A claim that does not hold is not left as if it did.
        files.pop(run_files.RECEIPT, None)
    require_no_secret(files, run.head.redactor)
    directory = store.artifacts.publish_run(workload.name, files)
    accepted, error = None, None
    notes = [each for each in run.notes if not each.code.startswith("I_")] + [*verdict.warnings]
    if verdict.kind.passes and workload.thresholds.hotspots_pp != Thresholds().hotspots_pp:
        # Who declares a limit must not take a pass for a proof that it holds.
        notes += [each for each in verdict.reasons if each.code == "I_SHARES_COARSE"]
    if verdict.kind.tone == "unsure":
        # The announced pairs were not measured, and the headline has another reason.
        notes += [each for each in verdict.reasons if each.code == "I_NOT_COMPARED"]
    warnings = [*pictures.warnings, *run.head.redactor.warnings]
    warnings += dict.fromkeys(each.line for each in notes)
    if verdict.verdict == "no_baseline" and not accept and run.head.verification:
        unfit = run.head.verification.unfit
        warnings += [f"{each.code}: {each.message}" for each in unfit if each.code in _SAID_AT_ONCE]
    if accept and verdict.kind.is_valid:
        try:
            with errors.system_errors():
                placed = store.accept(workload.name, files)
            accepted = placed.path
            warnings += placed.warnings
            warnings += run.head.verification.doubts if run.head.verification else ()
        except errors.FlamegateError as failed:
            error, verdict = failed, verdict_of_error(failed, workload)
            files[run_files.VERDICT] = encode_json(verdict_document(verdict))
            with suppress(errors.FlamegateError, OSError):  # the first error is the one to tell
                store.artifacts.publish_run(workload.name, files)
    try:
        with errors.system_errors():
            evidence = run.head.evidence
            store.record(workload.name, verdict, evidence, accepted=accepted is not None)
    except errors.FlamegateError as failed:
        warnings.append(f"The history does not have this run. {failed}")
    other = run.base or prepared.baseline
    return Outcome(
        workload=workload,
        verdict=verdict,
        directory=directory,
        receipt=run.head.receipt if is_honest else None,
        evidence=run.head.evidence,
        baseline=other.evidence if other else None,
        accepted=accepted,
        error=error,
        warnings=tuple(warnings),
        pictures=pictures,
    )


def publish_error(outcome: Outcome, store: RunStore) -> Outcome:
    """Write and record why a workload has no result; raises if that cannot be written."""
    files = {run_files.VERDICT: encode_json(verdict_document(outcome.verdict))}
    store.artifacts.publish_run(outcome.workload.name, files)
    store.record(outcome.workload.name, outcome.verdict, None)
    return replace(outcome, is_written=True)


def outcome_of_error(workload: Workload, error: errors.FlamegateError, store: RunStore) -> Outcome:
    """Return the outcome of a workload that could not be measured; nothing is written."""
    verdict = verdict_of_error(error, workload)
    directory = store.artifacts.latest_directory(workload.name)
    return Outcome(workload, verdict, directory, is_written=False, error=error)


def verdict_of_error(error: errors.FlamegateError, workload: Workload) -> Verdict:
    """Return the verdict of a run that failed, without the secrets that a program may print."""
    redactor = Redactor.from_environments(os.environ, workload.env)
    name: VerdictName = "error"
    if isinstance(error, errors.NoBaselineError):
        name = "no_baseline"
    elif isinstance(error, errors.UndecidedError):
        name = "not_comparable" if error.code == "E_WORKLOAD_DIFFERS" else "inconclusive"
    message = redactor.redact_text(f"{error.problem} {error.remedy}", "verdict")
    return Verdict(name, (Reason(error.code, message),), grade="SELF_REPORTED")
