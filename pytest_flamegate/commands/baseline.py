"""``flamegate baseline list|show|accept|prune``: the runs that later runs are compared with."""

import argparse
from pathlib import Path

from pytest_flamegate.commands import common
from pytest_flamegate.config.options import shorten_options
from pytest_flamegate.core.errors import (
    FlamegateError,
    ReceiptError,
    UndecidedError,
    UsageError,
    worst_code,
)
from pytest_flamegate.core.files import read_bounded, relative
from pytest_flamegate.engines.gguf import embedded_workloads
from pytest_flamegate.gate.comparability import machine_id
from pytest_flamegate.receipt import baseline
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.metrics import value_of
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.receipt.verify import verify_receipt
from pytest_flamegate.report.text import visible
from pytest_flamegate.run.present import accepted_lines
from pytest_flamegate.run.publish import RunStore

_HOTTEST = "\n## Where the time goes\n"


def list_all(parsed: argparse.Namespace) -> int:
    """List every baseline, an unreadable one with its error; return the worst error's exit code."""
    found = _artifacts(parsed).list_baselines()
    if not found:
        common.print_text(
            "no baselines; accept the first with: pytest --flamegate --flamegate-update"
        )
    codes = []
    for machine, workload, directory in found:
        described, code = _describe(directory)
        codes.append(code)
        common.print_text(f"{_visible(workload):<24} {_visible(machine):<28} {described}")
    return worst_code(codes)


def show(parsed: argparse.Namespace) -> int:
    """Show each machine's baseline of one workload: rate, place and hottest functions."""
    name = common.get_workload_name(parsed.workload)
    found = [entry for entry in _artifacts(parsed).list_baselines() if entry[1] == name]
    if not found:
        raise UndecidedError("E_NO_BASELINE", f"There is no baseline of {name!r}.")
    codes = []
    for machine, workload, directory in found:
        described, code = _describe(directory)
        codes.append(code)
        named = f"{_visible(workload)} on {_visible(machine)}"
        common.print_text(f"{named}: {described}\n{_visible(directory)}")
        page = directory / baseline.PAGE
        if page.is_file():
            # The page is of the time before the run was accepted, and says so.
            text = read_bounded(page).decode("utf-8", "replace").partition(_HOTTEST)[2]
            rows = [each for each in text.partition("\n## ")[0].split("\n") if each[:1] == "|"]
            common.print_text("\n".join([*rows, f"all of it: {_visible(page)}"]))
    return worst_code(codes)


def accept(parsed: argparse.Namespace) -> int:
    """Accept the latest runs, each only if its receipt still verifies.

    If workloads are named, all of their runs are accepted or none. Else a run that cannot be a
    baseline is reported, and the others are accepted; the exit code is that of the worst error.
    """
    parsed.update = True  # so that it is an error under CI
    parsed.against = ""  # nothing is measured, so a revision in pytest's file does not matter
    settings = common.read_settings(parsed)
    artifacts = ArtifactStore(settings.directory)
    latest = sorted(
        path.parent.name for path in artifacts.root.glob(f"latest/*/{baseline.RECEIPT}")
    )
    wanted = list(map(common.get_workload_name, parsed.workloads)) or latest
    if not wanted:
        raise UndecidedError("E_NO_RUN", "There is no latest run to accept.")
    if unknown := [name for name in wanted if name not in latest]:
        raise UsageError(
            "E_NO_RUN",
            f"There is no latest run of {unknown[0]!r} with a receipt.",
            f"There are: {', '.join(latest) or 'none'}.",
        )
    # All are verified before the first one is accepted.
    runs, codes = {}, []
    for name in wanted:
        try:
            runs[name] = _read_acceptable(name, artifacts.latest_directory(name))
        except FlamegateError as error:
            if parsed.workloads or len(wanted) == 1:
                raise
            codes.append(error.exit_code)
            common.print_text(shorten_options(f"not accepted: {_visible(error)}"))
    accepted = []
    try:
        for name, (files, evidence, doubts) in runs.items():
            stored = RunStore(artifacts, machine_id(evidence.machine)).accept(name, files)
            accepted.append(relative(stored.path, settings.root))
            for warning in (*stored.warnings, *doubts):
                common.print_text(f"{_visible(name)}: {warning}")
    finally:
        if accepted:
            common.print_text("\n".join(accepted_lines(accepted)))
    return worst_code(codes)


def _read_acceptable(
    name: str, directory: Path
) -> tuple[dict[str, bytes], Evidence, tuple[str, ...]]:
    """Return the files of a latest run, read once, its evidence and doubts about it.

    Raises ``E_NOT_ACCEPTED`` if it is dishonest, had work injected or ran in pairs.
    """
    run = baseline.StoredRun(directory)
    files = {each: run.read(each) for each in baseline.BASELINE_FILES if run.has(each)}
    verification = verify_receipt(
        files[baseline.RECEIPT],
        evidence=files.get(baseline.EVIDENCE),
        profile_folded=files.get(baseline.FOLDED),
    )
    evidence = verification.evidence
    if not verification.ok or evidence is None:
        first = next(iter(verification.refusals), None)
        reason = f"{first.code}: {first.message}" if first else "its evidence is missing."
        raise ReceiptError(
            "E_NOT_ACCEPTED", f"The latest run of {name!r} is not honest: {reason}", "Run it again."
        )
    injection = evidence.workload.get("injection")
    if injection is not None or evidence.side is not None:
        paired = ("was measured in pairs with another revision", "against")
        how, option = (
            paired if injection is None else (f"had work injected ({injection})", "inject")
        )
        raise UndecidedError(
            "E_NOT_ACCEPTED",
            f"The latest run of {name!r} {how}, so it cannot be a baseline.",
            f"Run it again without --flamegate-{option}.",
        )
    return files, evidence, verification.doubts


def prune(parsed: argparse.Namespace) -> int:
    """Remove, or only list, the baselines of workloads that are no longer declared."""
    settings = common.read_settings(parsed)
    artifacts = _artifacts(parsed)
    _, declared = common.read_declarations(settings)
    known = {each.name for each in (*declared, *embedded_workloads(settings.root))}
    stale = []
    for _, workload, directory in artifacts.list_baselines():
        # The variants of a template with an error are not known: its family stands for them.
        if not known.isdisjoint({workload, workload.partition("[")[0]}):
            continue
        try:
            is_of_a_test = _made_by_a_test(directory)
        except FlamegateError as error:
            kept = f"kept, because it cannot be read: {_visible(error.problem)}"
            common.print_text(f"{kept} Remove {_visible(directory)} if nobody needs it.")
            continue
        if not is_of_a_test:
            stale.append((workload, directory))
    for workload, directory in stale:
        if parsed.yes:
            artifacts.remove_baseline(directory)
        entry = f"{_visible(workload)}: {_visible(directory)}"
        common.print_text(f"{'removed' if parsed.yes else 'would remove'} {entry}")
    if not stale:
        common.print_text("nothing to prune: every baseline belongs to a declared workload")
    elif not parsed.yes:
        common.print_text("use --yes to remove them")
    return 0


def _visible(name: object) -> str:
    """Return a name that any contributor may have committed, escaped and on one line."""
    return visible(str(name), 1000)


def _artifacts(parsed: argparse.Namespace) -> ArtifactStore:
    return ArtifactStore(common.read_settings(parsed).directory)


def _made_by_a_test(directory: Path) -> bool:
    """Whether a test measured it with ``flamegate.measure``, which needs no declaration."""
    return "::" in str(baseline.read_baseline(directory).evidence.workload.get("source"))


def _describe(directory: Path) -> tuple[str, int]:
    """Return a baseline's figures, or the error that makes it unusable, and the exit code."""
    try:
        evidence = baseline.read_baseline(directory).evidence
    except FlamegateError as error:
        return f"unusable: {error.code}: {error.problem}", error.exit_code
    quiet_s = value_of(evidence.metrics, "quiet_s_per_token")
    rate = 1.0 / quiet_s if quiet_s else value_of(evidence.metrics, "tokens_per_second") or 0.0
    commit = evidence.commit.revision[:7] if evidence.commit else "no commit"
    return f"{rate:10.1f} tokens/s  {evidence.created}  {commit}", 0
