"""What ran, on what, and how it was seen: short notes for pictures, pages and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report import figures
from pytest_flamegate.report.text import visible

if TYPE_CHECKING:
    from pytest_flamegate.profile.model import Profile
    from pytest_flamegate.receipt.types import Evidence, Receipt
    from pytest_flamegate.workload.program import Program


def profile_notes(profile: Profile) -> list[str]:
    """Return short notes: profiler, event, rate, samples, completeness, what was lost.

    What was counted has no rate, and nothing of it can be lost; of a profile that another
    tool recorded, without a process, there is only what its file told.
    """
    if not profile.pids:
        return _imported_notes(profile)
    sampled = profile.unit != "instructions"
    notes = [
        f"{profile.profiler} {profile.profiler_version}".strip(),
        f"{profile.event} at {figures.count(profile.rate_hz)} Hz"
        if sampled
        else f"{profile.event} counted",
        f"call graph {profile.call_graph}",
        f"{figures.plural(profile.samples, profile.unit.removesuffix('s'))} from "
        f"{figures.plural(len(profile.pids), 'process', 'processes')}",
        f"{figures.share(profile.completeness)} of stacks complete",
    ]
    if sampled:
        notes += [f"{figures.count(profile.lost)} lost", figures.plural(profile.errors, "error")]
    return notes + [f"degraded: {reason}" for reason in profile.degraded]


def _imported_notes(profile: Profile) -> list[str]:
    notes = (
        [] if profile.profiler == "unknown" else [f"{profile.profiler} {profile.profiler_version}"]
    )
    if profile.rate_hz:
        notes.append(f"{figures.count(profile.rate_hz)} Hz")
    notes.append(f"{figures.count(profile.samples)} {profile.unit}")
    return notes + [visible(reason, 200) for reason in profile.degraded]


def what_ran(evidence: Evidence) -> list[str]:
    """Return short notes on the workload: engine, model, prompt, tokens."""
    recipe, model = evidence.workload, evidence.model
    notes = [f"{recipe['engine']} engine"] if recipe.get("engine") else []
    if model.get("path"):
        notes.append(str(model["path"]).rsplit("/", 1)[-1])
    if recipe.get("prompt"):
        notes.append(f"prompt “{visible(str(recipe['prompt']), 60)}”")
    if isinstance(tokens := recipe.get("max_tokens"), int):
        notes.append(figures.plural(tokens, "token"))
    return notes


def hardware(evidence: Evidence) -> list[str]:
    """Return short notes on the machine: CPU and cores."""
    notes = [evidence.machine.get("cpu_model", "unknown CPU")]
    if cores := evidence.machine.get("cpu_cores"):
        notes.append(f"{cores} core" if cores == "1" else f"{cores} cores")
    return notes


def revision(evidence: Evidence) -> list[str]:
    """Return the short commit and how many files differ from it; nothing outside a repository."""
    commit = evidence.commit
    if commit is None:
        return []
    more = figures.plural(commit.uncommitted, "uncommitted file")
    return [f"{commit.revision[:7]} + {more}" if commit.uncommitted else commit.revision[:7]]


def program_notes(program: Program) -> list[str]:
    """Return short notes on the program that ran: which file, and how it was built."""
    notes = [program.path, f"sha256 {program.sha256}", f"{figures.count(program.size_bytes)} bytes"]
    if (runs_it := program.interpreter) is not None:
        notes.append(f"run by {runs_it.path}, sha256 {runs_it.sha256[:12]}")
    if (build := program.build) is not None:
        notes.append("built for this run" if build.ran else "build skipped")
        notes += [f"{name}={value}" for name, value in build.environment.items()]
    return notes


def picture_subtitle(evidence: Evidence, receipt: Receipt | None) -> str:
    """Return the line under a picture's title: what ran, how fast, on what, at which commit."""
    notes = what_ran(evidence)
    if receipt is not None:
        notes.append(f"{figures.significant(receipt.tokens_per_second)} tokens/s")
    return " · ".join([*notes, ", ".join(hardware(evidence)), *revision(evidence)])
