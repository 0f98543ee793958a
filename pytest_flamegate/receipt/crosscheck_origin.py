"""Cross-checks over where receipt and evidence come from: one engine, model, machine and time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.findings import shown
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.registry import Rulebook
from pytest_flamegate.receipt.timestamps import read_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.case import Case

WRITTEN_WITHIN_S = 24 * 3600

_SCOPES = {
    "embedded": "sequence",
    "python": "sequence",
    "openai": "sequence",
    "benchmark": "sequence",
    "command": "process",
}
_COVERED = {"sequence": ("sequence",), "process": ("process", "decode")}
_NEEDED = {
    "command": ("command",),
    "python": ("target",),
    "benchmark": ("target",),
    "openai": ("serve", "url"),
}
"""What the recipe of an engine says to run, by one of these keys."""

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

CHECKS: Rulebook[Case] = Rulebook()
SHORTFALLS: Rulebook[Case] = Rulebook()

_AGAIN = "Measure again; receipt and evidence are written together and changed by nobody."


@CHECKS.rule(
    "E_RECEIPT_CHANGED",
    "The evidence names this receipt by the SHA-256 of its bytes.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _receipt_changed(case: Case) -> Iterator[str]:
    # The evidence belongs to another receipt, or this one was edited.
    if case.evidence.receipt_sha256 != case.receipt_sha256:
        yield (
            f"The evidence belongs to the receipt {case.evidence.receipt_sha256[:12]}, and this "
            f"one is {case.receipt_sha256[:12]}."
        )


@CHECKS.rule(
    "E_ENGINE_MISMATCH",
    "Receipt and evidence name the same engine.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"environment"},
)
def _engine_mismatch(case: Case) -> Iterator[str]:
    # The engine decides which kernel policy applies.
    claimed = case.claim.environment.get("FLAMEGATE_ENGINE")
    seen = case.evidence.workload.get("engine")
    if claimed is not None and claimed != seen:
        yield f"The receipt names the engine {shown(claimed)} and the evidence {shown(seen)}."


@CHECKS.rule(
    "E_CLOCK_SCOPE",
    "Clocks and profile of a program cover its process or decode, a served engine's a sequence.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _clock_scope(case: Case) -> Iterator[str]:
    # An engine that was served may not pass for a program, whose kernel policy asks for less.
    scope = case.evidence.clock_scope
    engine = case.evidence.workload.get("engine")
    meant = _SCOPES.get(engine) if isinstance(engine, str) else None
    if meant is not None and scope != meant:
        yield f"The engine {shown(engine)} is clocked by the {meant}, and this was by the {scope}."
    profile = case.evidence.profile
    if profile is not None and profile.covers not in _COVERED[scope]:
        yield f"The profile covers the {profile.covers}, and the clocks the {scope}."


@CHECKS.rule(
    "E_MODEL_MISMATCH",
    "Receipt and evidence name the same model.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"model"},
)
def _model_changed(case: Case) -> Iterator[str]:
    # By digest and path, and by all else that both state.
    seen = case.evidence
    named = seen.model.get("sha256")
    if named is not None and named != seen.model_sha256:
        yield f"The evidence names two models, {shown(named)} and {shown(seen.model_sha256)}."
    claimed = case.claim.model.get("sha256")
    if claimed is not None and claimed != seen.model_sha256:
        yield (
            f"The receipt names the model {shown(claimed)} and the evidence "
            f"{shown(seen.model_sha256)}."
        )
    for name, recorded in seen.model.items():
        claimed = case.claim.model.get(name)
        if claimed is not None and claimed != recorded:
            yield (
                f"model.{name[:40]} is {shown(claimed)} in the receipt and {shown(recorded)} in "
                "the evidence."
            )


@CHECKS.rule(
    "E_ENVIRONMENT_CHANGED",
    "The receipt's environment holds what the process had.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"environment"},
)
def _environment_changed(case: Case) -> Iterator[str]:
    # Compared by the names that both hold.
    effective = case.evidence.effective_environment
    for name, value in case.claim.environment.items():
        if name in effective and effective[name] != value:
            yield (
                f"{shown(name)} is {shown(value)} in the receipt, and the process had "
                f"{shown(effective[name])}."
            )


@CHECKS.rule(
    "E_MACHINE_CHANGED",
    "Receipt and evidence name the same system, tool and Python.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"environment"},
)
def _machine_changed(case: Case) -> Iterator[str]:
    # Wherever both state one.
    machine = case.evidence.machine
    system = f"{machine['os']}-{machine['arch']}" if {"os", "arch"} <= machine.keys() else None
    recorded = {
        "OS": system,
        "FLAMEGATE_VERSION": case.evidence.flamegate_version,
        "PYTHON_VERSION": machine.get("python"),
    }
    for name, value in recorded.items():
        claimed = case.claim.environment.get(name)
        if None not in (claimed, value) and claimed != value:
            yield f"{name} is {shown(claimed)} in the receipt and {shown(value)} in the evidence."


@CHECKS.rule(
    "E_COMMIT_MALFORMED",
    "A commit is named by its full hash.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _commit_malformed(case: Case) -> Iterator[str]:
    # A branch's name, or a placeholder, names no code.
    commit = case.evidence.commit
    if commit is not None and _HASH.fullmatch(commit.revision) is None:
        yield f"The commit is {shown(commit.revision)}, which is no hash."
    if commit is not None and commit.tree and _HASH.fullmatch(commit.tree) is None:
        yield f"The digest of the commit's code is {shown(commit.tree)}."


@CHECKS.rule(
    "E_WRITTEN_APART",
    "Receipt and evidence are of one time.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"timestamp"},
)
def _written_apart(case: Case) -> Iterator[str]:
    # Old evidence beside a new receipt.
    created = read_timestamp(case.evidence.created)
    age_s = (case.claim.now - created).total_seconds()
    apart_s = abs(case.claim.age_s - age_s)
    if apart_s > WRITTEN_WITHIN_S:
        yield f"Receipt and evidence were written {apart_s / 3600:,.1f} hours apart."


@CHECKS.rule(
    "E_EVIDENCE_EXPIRED",
    "Evidence and runs are no older than the reader allows.",
    todo="Measure again.",
    protects=None,
)
def _evidence_expired(case: Case) -> Iterator[str]:
    # A receipt may be dated anew within the day that lies between it and its evidence.
    most_s, now = case.claim.max_age_s, case.claim.now
    if most_s is None:
        return
    stamps = {"The evidence was written": [case.evidence.created]}
    stamps["The last run began"] = [run.started_at for run in case.evidence.runs]
    for what, texts in stamps.items():
        ages_s = [(now - read_timestamp(text)).total_seconds() for text in texts]
        if ages_s and not min(ages_s) <= most_s:
            yield (
                f"{what} {min(ages_s) / 3600:,.1f} hours ago, more than the "
                f"{most_s / 3600:,.1f} allowed."
            )


@SHORTFALLS.rule(
    "W_RECIPE_INCOMPLETE",
    "The evidence says what was run.",
    todo="Measure again; a replay runs the recipe's command or target.",
    protects=Grade.OBSERVED,
)
def _recipe_incomplete(case: Case) -> Iterator[str]:
    # What nobody can run again was observed by nobody else.
    recipe = case.evidence.workload
    needed = _NEEDED.get(str(recipe.get("engine")), ())
    if needed and not any(_runs_something(recipe.get(name)) for name in needed):
        told = " or ".join(needed)
        yield f"The recipe of the engine {shown(recipe['engine'])} holds no {told}."


def _runs_something(told: object) -> bool:
    # True is neither an address nor a command line.
    return isinstance(told, (str, list, tuple)) and bool(told)


@SHORTFALLS.rule(
    "W_MODEL_NOT_HASHED",
    "The model file is named by its SHA-256.",
    todo="Give the workload its model file.",
    protects=None,
)
def _model_not_hashed(case: Case) -> Iterator[str]:
    # A server or a callable may have no file to hash.
    if case.evidence.model_sha256 is None:
        yield "No model file was hashed, so another model may have run."
