"""Open a run's profile, execution graph or table of bricks by any of its names; compare profiles.

A name is the directory of a run, one of its files, or a file of another tool. Two profiles are
compared by the cost of a token if both sides were measured, else by their shares.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.core.files import is_directory
from pytest_flamegate.core.json import decode_plain
from pytest_flamegate.core.json_parser import EVIDENCE_LIMITS, parse_json
from pytest_flamegate.gate.costs import WAITING, CostChange, estimate_cpu_cost
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.graph.graph import ExecutionGraph, build_graph
from pytest_flamegate.graph.table import is_serial, tabulate_runs, tabulate_totals
from pytest_flamegate.graph.traces import is_trace, read_trace
from pytest_flamegate.profile import difference
from pytest_flamegate.profile.difference import ProfileDifference, ProfileSide
from pytest_flamegate.profile.formats import parse_profile, read_file, unpack
from pytest_flamegate.profile.frames import fold_profile, parse_folded
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.receipt import baseline
from pytest_flamegate.receipt.baseline import StoredRun
from pytest_flamegate.receipt.documents import decode_evidence, decode_receipt
from pytest_flamegate.receipt.metrics import cost_of, spread_of
from pytest_flamegate.receipt.types import Evidence, ProfileRecord
from pytest_flamegate.report.bricks import BrickView
from pytest_flamegate.report.evidence import revision_note
from pytest_flamegate.run.seal import ComposedRun, ComposedSide

_OWN_DOCUMENT = re.compile(rb'\s*\{\s*"(?:schema_version|nonce)"')
_MEASURE_BRICKS = "Measure with --flamegate-bricks, and give the directory of that run or a trace."
_ALL = 1 << 30
"""More rows than any table has."""


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    """The part of ``bricks.json`` that is read: the calls of one token, and of which run."""

    calls: tuple[BrickCall, ...]
    nonce: str = ""


@dataclass(frozen=True, slots=True)
class OpenedProfile:
    """A profile, its title, and the evidence of the run in which it was taken.

    ``cpu_s_per_token`` is the CPU time of one token in seconds, of the phase that the
    profile covers; it and ``evidence`` are None if there is no evidence.
    """

    profile: Profile
    title: str
    cpu_s_per_token: float | None
    evidence: Evidence | None


def open_profile(path: Path, roots: Sequence[str] = ()) -> OpenedProfile:
    """Open the profile of a run or of a file.

    ``path`` is a run's directory, its receipt, evidence or folded profile, or any file that
    ``parse_profile`` reads. Evidence beside a folded profile counts only if it names the profile's
    sha256. ``roots`` are directories that are cut off the paths of a foreign profile.

    Raises:
        UsageError: ``E_NO_RUN`` for a directory without a profile.
        ReceiptError: ``E_NO_PROFILE`` for a run that was not profiled;
            ``E_RECEIPT_CHANGED`` if evidence names other bytes than those next to it.
    """
    if is_directory(path):
        opened = open_profile(
            _require_file(path, baseline.FOLDED, "Give the directory of a run, or a profile.")
        )
        return opened if opened.evidence else replace(opened, title=path.resolve().name)
    data = read_file(path)
    run, name = StoredRun.of_file(path)
    if name in (baseline.RECEIPT, baseline.EVIDENCE) or _OWN_DOCUMENT.match(data):
        return _open_document(run, name, data)
    if evidence := _evidence_beside(run, name, data):
        return _profile_of_run(evidence, data, path)
    profile = _imported_profile(path, data) or parse_profile(data, roots)
    if name == baseline.INSTRUCTIONS and StoredRun(run.directory).has(baseline.EVIDENCE):
        # Folded stacks do not name their unit.
        profile = replace(profile, unit="instructions")
    return OpenedProfile(profile, path.stem, None, None)


def _require_file(directory: Path, name: str, remedy: str) -> Path:
    """Return a file of a run; raise ``UsageError`` ``E_NO_RUN`` if the directory has none."""
    if not StoredRun(directory).has(name):
        raise UsageError("E_NO_RUN", f"{str(directory)!a} holds no {name}.", remedy)
    return directory / name


def _open_document(run: StoredRun, name: str, data: bytes) -> OpenedProfile:
    """Open the profile of a receipt or of evidence, whose own bytes are ``data``."""
    if name == baseline.EVIDENCE or b'"receipt_sha256"' in data:
        evidence = decode_evidence(data)
    else:
        decode_receipt(data)
        evidence = run.evidence()
        _require_digest("receipt", evidence.receipt_sha256, data)
    if evidence.profile is None:
        raise ReceiptError("E_NO_PROFILE", f"The run of {str(run.path(name))!a} was not profiled.")
    beside = run.path(baseline.FOLDED)
    return _profile_of_run(evidence, read_file(beside), beside)


def _evidence_beside(run: StoredRun, name: str, data: bytes) -> Evidence | None:
    """Return the evidence beside a folded profile; a file of another name need not have any."""
    if not run.has(baseline.EVIDENCE):
        return None
    evidence = run.evidence()
    recorded = evidence.profile.folded_sha256 if evidence.profile is not None else ""
    return evidence if name == baseline.FOLDED or _sha256(data) == recorded else None


def _imported_profile(path: Path, data: bytes) -> Profile | None:
    """Return an imported profile with all that was known about it; None if it was not imported."""
    run = StoredRun(path.parent)
    if path.name != baseline.FOLDED or not run.has(baseline.DESCRIBED):
        return None
    described = parse_profile(read_file(run.path(baseline.DESCRIBED)))
    if fold_profile(described).encode() != data:
        raise ReceiptError(
            "E_RECEIPT_CHANGED",
            f"{str(path)!a} holds other stacks than {baseline.DESCRIBED} beside it.",
            "Import the profile again.",
        )
    return described


def _profile_of_run(evidence: Evidence, data: bytes, path: Path) -> OpenedProfile:
    record = evidence.profile
    recorded = record.folded_sha256 if record is not None else ""
    _require_digest("profile", recorded, data)
    assert record is not None  # without one no digest would be the same
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ReceiptError("E_PROFILE_FILE", f"{str(path)!a} is not UTF-8.") from None
    profile = recorded_profile(record, text)
    name = str(evidence.workload.get("name") or path.resolve().parent.name)
    return OpenedProfile(profile, name, cost_of(profile.covers, evidence.metrics), evidence)


def recorded_profile(record: ProfileRecord, folded: str) -> Profile:
    """Return the profile as it was pooled; its duration is not recorded, and so 0."""
    stacks = parse_folded(folded)
    known = {each.name for each in fields(record)} & {each.name for each in fields(Profile)}
    return Profile(
        **{name: getattr(record, name) for name in known},
        stacks=stacks,
        complete=round(record.completeness * sum(stacks.values())),
        pids=tuple(process.pid for process in record.processes),
        started_ticks=tuple(process.started_ticks for process in record.processes),
    )


def _require_digest(kind: str, recorded: str, data: bytes) -> None:
    if (found := _sha256(data)) != recorded:
        raise ReceiptError(
            "E_RECEIPT_CHANGED",
            f"The evidence belongs to the {kind} {recorded[:12] or 'of no file'}, and the one "
            f"beside it is {found[:12]}.",
        )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def open_graph(path: Path) -> ExecutionGraph:
    """Open the execution graph of a run or of a trace.

    Raises:
        UsageError: ``E_NO_RUN`` for a directory without recorded bricks.
        ReceiptError: ``E_UNKNOWN_FORMAT`` for JSON of another kind, and whatever is malformed.
        UndecidedError: ``E_NO_CALLS`` for a trace with too many calls.
        ToolError: ``E_CANNOT_READ``.
    """
    if path.name == baseline.EVIDENCE:
        path = path.parent  # it holds the sums; the calls are next to it
    if is_directory(path):
        path = _require_file(path, baseline.BRICKS, _MEASURE_BRICKS)
    data = read_file(path)
    if is_trace(unpack(data)):
        found = read_trace(data, str(path))
        if not found.calls:
            raise UndecidedError(
                "E_NO_CALLS",
                f"{str(path)!a} ({found.source}) has more calls than a graph can show.",
            )
        return build_graph(found.calls)
    document = parse_json(data, EVIDENCE_LIMITS, subject="The file")
    if isinstance(document, dict) and "calls" in document:
        return build_graph(decode_plain(document, RecordedCalls, subject="The file").calls)
    raise ReceiptError(
        "E_UNKNOWN_FORMAT",
        f"{str(path)!a} is JSON and holds no calls of bricks.",
        f"Give a run's {baseline.BRICKS}, or a trace of torch.profiler, Chrome or onnxruntime.",
    )


def open_sums(path: Path) -> tuple[str, BrickView]:
    """Return the name of a run or a trace, and the whole table of its bricks.

    Raises as ``open_graph`` does.
    """
    if not is_directory(path) and path.name not in (baseline.BRICKS, baseline.EVIDENCE):
        found = read_trace(read_file(path), str(path))
        table = tabulate_totals(found.totals, wall_ns=found.wall_ns, top=_ALL)
        outside_ns = table.outside_ns if is_serial(found.lanes) else None
        table = replace(table, lanes=len(found.lanes), outside_ns=outside_ns)
        return path.name, BrickView(table, notes=found.notes)
    directory = path if is_directory(path) else path.parent
    _require_file(directory, baseline.EVIDENCE, _MEASURE_BRICKS)
    evidence = StoredRun(directory).evidence()
    name = str(evidence.workload.get("name", ""))
    return name, BrickView(tabulate_runs(evidence.bricks, top=_ALL))


# Two profiles


def compare_opened(
    base: OpenedProfile,
    head: OpenedProfile,
    *,
    paired: bool = False,
    judged: Sequence[CostChange] = (),
) -> ProfileDifference:
    """Compare by the cost of a token if both have evidence, else by shares; ``E_NO_SAMPLES``.

    ``judged`` are the costs in the verdict on the two: their sums and their certainty count.
    """
    costs: tuple[float | None, float | None] = (None, None)
    error = 0.0
    if base.evidence is not None and head.evidence is not None:
        cost = estimate_cpu_cost(base.evidence, head.evidence, paired=paired)
        if cost is not None:
            # The phase that was sampled may be more than the one that is timed.
            whole = base.cpu_s_per_token or cost.base_s
            costs = whole, whole * cost.head_s / cost.base_s
            error = cost.error
            if sampled := [each for each in judged if each.name != WAITING]:
                before = math.fsum(each.baseline_us for each in sampled)
                after = math.fsum(each.current_us for each in sampled)
                costs = before / 1e6, after / 1e6
            if find_other_work(base, head) is not None:
                # A faster machine and less work look the same: each side by its own clock.
                costs = costs[0], head.cpu_s_per_token
    return difference.compare_profiles(
        ProfileSide(base.title, base.profile, costs[0], 0.0, _spread(base)),
        ProfileSide(head.title, head.profile, costs[1], error, _spread(head)),
        {each.name: each.certainty for each in judged},
    )


def _spread(side: OpenedProfile) -> float:
    record = side.evidence.profile if side.evidence is not None else None
    return spread_of(record.processes) if record is not None else difference.SPREAD


def find_other_work(base: OpenedProfile, head: OpenedProfile) -> str | None:
    """Return a note if the two runs generated different tokens, else None."""
    sides = [side.evidence.tokens for side in (base, head) if side.evidence is not None]
    if len(sides) < 2 or sides[0] == sides[1]:
        return None
    return (
        "the two runs generated different tokens, so a difference may come from their work: costs "
        "are those that each run measured"
    )


def title_profile(opened: OpenedProfile, role: str) -> OpenedProfile:
    """Return a profile titled by role and revision: ``head 4f2c91a + 2 uncommitted files``."""
    if opened.evidence is None:
        return replace(opened, title=role)
    injected = opened.evidence.workload.get("injection")
    more = [f"with {injected} injected"] if injected else []
    return replace(
        opened, title=" ".join(filter(None, [role, revision_note(opened.evidence.commit), *more]))
    )


def compare_run(run: ComposedRun, verdict: Verdict) -> ProfileDifference | None:
    """Compare a run with its base or its baseline; None if there is nothing to compare with."""
    accepted = run.prepared.baseline
    if not verdict.kind.is_compared:
        # The cost of a token on another machine, or by a false claim, is no difference of the code.
        return None
    base = None
    if run.base is not None:
        base = _open_side(run.base)
    elif accepted is not None and accepted.evidence.profile is not None:
        base = open_profile(accepted.directory / baseline.FOLDED)
    return _compare_sides(base, _open_side(run.head), verdict, paired=run.base is not None)


def _open_side(side: ComposedSide) -> OpenedProfile | None:
    if side.profile is None:
        return None
    cost_s = cost_of(side.profile.covers, side.evidence.metrics)
    return OpenedProfile(side.profile, "", cost_s, side.evidence)


def compare_stored_run(directory: Path, verdict: Verdict) -> ProfileDifference | None:
    """Compare a published run with the files of its other side; None if it has none."""
    run = StoredRun(directory)
    if not run.has(baseline.DIFFERENCE):
        return None
    base = open_profile(run.base.path(baseline.EVIDENCE))
    head = open_profile(run.path(baseline.EVIDENCE))
    return _compare_sides(base, head, verdict, paired=verdict.pairs is not None)


def _compare_sides(
    base: OpenedProfile | None, head: OpenedProfile | None, verdict: Verdict, *, paired: bool
) -> ProfileDifference | None:
    if base is None or head is None:
        return None
    roles = ("base", "head") if paired else ("baseline", "now")
    base, head = title_profile(base, roles[0]), title_profile(head, roles[1])
    return compare_opened(base, head, paired=paired, judged=verdict.attribution)
