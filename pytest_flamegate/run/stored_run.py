"""Judge finished comparisons again, from their files: nothing is measured, no verdict decides.

A run directory holds receipt, evidence and profile of the head, and those of the base beside
them. They may come from another job or another machine, so everything is checked here.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, ReceiptError, UsageError
from pytest_flamegate.core.files import is_file
from pytest_flamegate.core.git import resolve
from pytest_flamegate.core.json import parse_timestamp
from pytest_flamegate.gate.analyses import plan_pair_counts
from pytest_flamegate.gate.attempts import Attempt, attempt_of
from pytest_flamegate.gate.document import read_verdict
from pytest_flamegate.gate.judge import GatedRun, GatePolicy, judge
from pytest_flamegate.gate.lines import LineChange
from pytest_flamegate.gate.paired_rate import PairedBase
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.observe.observation import Role
from pytest_flamegate.profile.source_lines import is_project_path
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt import baseline as run_files
from pytest_flamegate.receipt.baseline import ATTESTATION, StoredRun
from pytest_flamegate.receipt.compose import recipe
from pytest_flamegate.receipt.documents import decode_evidence, decode_receipt
from pytest_flamegate.receipt.rerun import compare_recipes
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report.evidence import revision_note
from pytest_flamegate.report.text import visible
from pytest_flamegate.run.publish import Outcome, verdict_of_error

_MAX_MESSAGE, _MAX_FIGURE = 500, 1e9
"""Limits of what the measuring job reports: characters of a message, and any line or figure."""
_JUDGED = (run_files.RECEIPT, run_files.EVIDENCE, run_files.FOLDED)
_APART_S = 300.0
"""A pair starts together, or one side after the other."""


def judge_stored_run(
    directory: Path,
    workload: Workload,
    settings: Settings,
    commits: tuple[str, str],
    requirements: Mapping[str, Any],
    earlier: Mapping[Path, Sequence[Path]] | None = None,
) -> Outcome:
    """Return the outcome of a finished run, judged again; an error is an outcome too.

    ``workload`` is the declaration that it must have measured, ``commits`` are the base and the
    head that it must have compared. ``requirements`` are arguments of ``verify_receipt`` for both
    receipts, which have to reach OBSERVED if no grade is among them. ``earlier`` are the
    attempts before this one, in order, with their runs of the workload, of any age.
    """
    policy = GatePolicy(workload.thresholds, settings.share_drift, ci=True)
    plan = plan_pair_counts(settings.budget_of(workload, compare=True))
    try:
        run = StoredRun(directory)
        head, verified, errors = _read_side(run, requirements)
        base, base_verified, base_errors = _read_side(run.base, requirements)
        _require_pair(base, head, workload, commits)
        notes, lines = _read_report(run)
        gated = GatedRun(
            head,
            min(verified.grade, base_verified.grade).name,
            errors=(*base_errors, *errors),
            notes=notes,
            reported_lines=lines,
        )
        attempts: tuple[Attempt, ...] = ()
        if earlier:
            own = {**requirements, "max_age_s": None}
            known = _Attempts(workload, settings, commits, own)
            for place, runs in earlier.items():
                known.add(place, runs)
            attempts = known.list_before(base, head)
        verdict = judge(gated, PairedBase(base, plan, earlier=attempts), policy)
        return Outcome(
            workload,
            verdict,
            directory,
            verdict.exit_code != 0,
            decode_receipt(verified.files[run_files.RECEIPT]),
            head,
            base,
            warnings=tuple(each.line for each in verdict.warnings),
        )
    except FlamegateError as error:
        verdict = verdict_of_error(error, workload)
        return Outcome(workload, verdict, directory, fails=True, error=error)


@dataclass(slots=True)
class _Attempts:
    """Earlier attempts at a comparison, in order; copies of one are left out.

    One that cannot be judged has a ``problem``. One with another base, and one whose evidence does
    not allow an answer, add nothing.
    """

    workload: Workload
    settings: Settings
    commits: tuple[str, str]
    requirements: Mapping[str, Any]
    sides: dict[str, tuple[Evidence, Evidence]] = field(default_factory=dict)
    judged: list[tuple[str, Attempt]] = field(default_factory=list)
    """With the nonce of the head; it is empty if there is a problem."""

    def add(self, place: Path, runs: Sequence[Path]) -> None:
        """Judge the runs of one attempt. Of several, one that regressed comes first."""
        found = [each for run in runs for each in self._judge(run)]
        self.judged += sorted(found, key=lambda each: each[1].decision != "regressed")
        if not runs:
            self._report(place, f"it has no finished run of {self.workload.name!r}.")

    def list_before(self, base: Evidence, head: Evidence) -> tuple[Attempt, ...]:
        """Return the attempts before that of these sides, which may be a copy of the last one."""
        known = self.sides.get(head.nonce)
        if known is not None:
            if known == (base, head) and self.judged[-1][0] == head.nonce:
                self.judged.pop()
            else:
                self._report(Path(), "this run has its nonce, and is no copy of the last attempt.")
        return tuple(attempt for _, attempt in self.judged)

    def _judge(self, run: Path) -> Iterator[tuple[str, Attempt]]:
        try:
            commit = decode_evidence(_read(StoredRun(run).base, run_files.EVIDENCE)).commit
        except FlamegateError as error:
            self._report(run, error.problem)
            return
        base_commit = self.commits[0] if commit is None else commit.revision
        commits = base_commit, self.commits[1]
        found = judge_stored_run(run, self.workload, self.settings, commits, self.requirements)
        base, head = found.baseline, found.evidence
        if found.error is not None:
            self._report(run, found.error.problem)
        elif resolve(self.settings.root, base_commit) is None:
            self._report(run, f"its base {base_commit[:12]} is no commit of the repository.")
        elif base is None or head is None or not found.verdict.kind.is_valid:
            self._report(run, found.verdict.reasons[0].message)
        elif base_commit == self.commits[0]:
            known = self.sides.setdefault(head.nonce, (base, head))
            if known != (base, head):
                self._report(run, "its nonce is that of another attempt, and its evidence is not.")
            elif known[1] is head:
                yield head.nonce, attempt_of(found.verdict, base, head)

    def _report(self, place: Path, problem: str) -> None:
        text = f"{str(place)!a}: {problem}"
        self.judged.append(("", Attempt("", "error", problem=text)))


def _read_report(run: StoredRun) -> tuple[tuple[Reason, ...], tuple[LineChange, ...]]:
    """Return what the job that measured found and cannot be judged again from its files.

    That is the size of the change alone (``I_SIZE_ALONE``), and the changed lines, because samples
    by line are not stored for each process. None of it decides anything. Nothing is returned if
    the file is no verdict.
    """
    try:
        _, verdict = read_verdict(_read(run, run_files.VERDICT))
    except ReceiptError:
        return (), ()
    notes = tuple(
        Reason(each.code, f"The job that measured reports: {visible(each.message, _MAX_MESSAGE)}")
        for each in verdict.reasons
        if each.code == "I_SIZE_ALONE"
    )
    return notes[:1], tuple(filter(_is_plausible, verdict.lines))


def missing_run_error(name: str, directories: Sequence[Path], ended: Sequence[Path]) -> UsageError:
    """Return the error of a required workload without a run; ``ended`` have a verdict alone."""
    if ended:
        return UsageError(
            "E_NO_RUN",
            f"The run of the required workload {name!r} ended without a measurement; the job "
            f"that measured reports: {_read_error(ended[0]) or 'nothing that can be read'}",
            "Mend what it reports, and run that job again.",
        )
    return UsageError(
        "E_NO_RUN",
        f"There is no run of the required workload {name!r} in {', '.join(map(str, directories))}.",
        "Give the files that flamegate check wrote to .flamegate/latest where it measured.",
    )


def _read_error(directory: Path) -> str:
    """Return what a run that has a verdict alone reports; empty if that is unreadable."""
    try:
        _, verdict = read_verdict(_read(StoredRun(directory), run_files.VERDICT))
    except ReceiptError:
        return ""
    texts = (f"{each.code}: {visible(each.message, _MAX_MESSAGE)}" for each in verdict.reasons)
    return "" if verdict.kind.is_valid else next(texts, "")


def _is_plausible(line: LineChange) -> bool:
    """Return whether a foreign line names a place in the project, and figures that fit a table."""
    cost, place = line.cost, line.place
    figures = (cost.baseline_us, cost.current_us, cost.change_us, cost.ci_low_us, cost.ci_high_us)
    return (
        is_project_path(place.file)
        and 0 < place.first <= place.last < _MAX_FIGURE
        and all(abs(each) < _MAX_FIGURE for each in (*figures, cost.explains or 0.0))
    )


def list_digests(outcomes: Sequence[Outcome]) -> bytes:
    """Return the files that outcomes rest on, as ``sha256sum`` lists them: ``WORKLOAD/FILE``.

    They are receipt, evidence and profile of both sides, if there are such.
    """
    runs = (StoredRun(each.directory) for each in outcomes if each.evidence is not None)
    return "".join(
        f"{hashlib.sha256(side.read(name)).hexdigest()}  {side.directory.name}/{side.side}{name}\n"
        for run in runs
        for side in (run, run.base)
        for name in _JUDGED
        if side.has(name)
    ).encode()


def _read(run: StoredRun, name: str) -> bytes:
    path = run.path(name)
    if path.is_symlink() or not is_file(path):
        place = f"The run in {str(run.directory)!a}"
        raise ReceiptError("E_RUN_INCOMPLETE", f"{place} has no file {run.side}{name}.")
    return run.read(name)


def _read_side(
    run: StoredRun, requirements: Mapping[str, Any]
) -> tuple[Evidence, Verification, tuple[Reason, ...]]:
    """Return the evidence of a side, the answer about its receipt, and why it is rejected."""
    receipt, evidence, folded = (_read(run, name) for name in _JUDGED)
    grade = requirements.get("require_grade") or Grade.OBSERVED
    found = verify_receipt(
        receipt,
        evidence=evidence,
        profile_folded=folded,
        attestation=run.path(ATTESTATION) if run.has(ATTESTATION) else None,
        **{**requirements, "require_grade": grade},
    )
    name = f"{run.side}{run_files.RECEIPT}"
    errors = tuple(Reason(each.code, f"{name}: {each.message}") for each in found.refusals)
    # Malformed evidence is decoded once more, for the error about it.
    return found.evidence or decode_evidence(evidence), found, errors


def _list_gaps(base: Evidence, head: Evidence) -> list[float]:
    """Return the seconds between the starts of the runs that were measured together.

    Beyond what they lasted: a program of one side may start when that of the other has ended.
    """
    gaps = []
    for role in get_args(Role):
        sides = ([run for run in side.runs if run.role == role] for side in (base, head))
        for one, other in zip(*sides, strict=False):
            starts = [parse_timestamp(run.started_at).timestamp() for run in (one, other)]
            gaps.append(max(starts) - min(starts) - max(one.lasted_s, other.lasted_s))
    return gaps


def _require_pair(
    base: Evidence, head: Evidence, workload: Workload, commits: tuple[str, str]
) -> None:
    """Raise unless both sides are of the expected commits, workload, machine and time."""
    for name, side, commit in zip(("base", "head"), (base, head), commits, strict=True):
        seen = side.commit
        is_clean = seen is not None and seen.revision == commit and not seen.uncommitted
        if side.side != name or not is_clean:
            raise ReceiptError(
                "E_OTHER_COMMIT",
                f"The {name} of the run is of {revision_note(seen) or 'no commit'}, and "
                f"{commit[:12]} is checked.",
            )
        # A base may lack the build that the head introduces.
        ignored = {"source", "timeout_s", "build" if side is base else ""}
        compared = compare_recipes(side.workload, recipe(workload), side.redacted)
        if differing := [key for key, *_ in compared if key not in ignored]:
            raise ReceiptError(
                "E_OTHER_WORKLOAD",
                f"The {name} of the run was measured otherwise than the base's policy declares "
                f"{workload.name!r}: {', '.join(differing)}.",
            )
    if base.machine != head.machine or max(_list_gaps(base, head), default=0.0) > _APART_S:
        raise ReceiptError(
            "E_NOT_TOGETHER",
            "The two sides of the run were not measured together: on another machine, or more "
            f"than {_APART_S / 60:.0f} minutes apart.",
        )
