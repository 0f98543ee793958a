"""Rules over origin: receipt and evidence belong together and describe one run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_flamegate.core.text import quote
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.rules.subject import Submission


CHECKS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)
SHORTFALLS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)

_SCOPES = {
    "embedded": "sequence",
    "python": "sequence",
    "openai": "sequence",
    "benchmark": "sequence",
    "command": "process",
}
_COVERED = {"sequence": ("sequence",), "process": ("process", "decode")}
_RECIPES = {
    "command": ("command",),
    "python": ("target",),
    "benchmark": ("target",),
    "openai": ("serve", "url"),
}
"""The keys of a recipe of which an engine needs one to run again."""
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@CHECKS.rule("E_RECEIPT_CHANGED", "The evidence has the SHA-256 of the receipt.")
def _check_digest(case: Submission) -> Iterator[str]:
    if case.evidence.receipt_sha256 != case.receipt_sha256:
        yield (
            f"The evidence belongs to the receipt {case.evidence.receipt_sha256[:12]}; this one "
            f"is {case.receipt_sha256[:12]}."
        )


@CHECKS.rule(
    "E_ORIGIN_MISMATCH",
    "Receipt and evidence name the same engine, tool, Python, system and environment.",
    needs={"environment"},
)
def _check_environment(case: Submission) -> Iterator[str]:
    evidence, machine = case.evidence, case.evidence.machine
    system = f"{machine['os']}-{machine['arch']}" if {"os", "arch"} <= machine.keys() else None
    recorded: dict[str, object] = {
        **evidence.effective_environment,
        "FLAMEGATE_ENGINE": evidence.workload.get("engine"),
        "FLAMEGATE_VERSION": evidence.flamegate_version,
        "OS": system,
        "PYTHON_VERSION": machine.get("python"),
    }
    for name, value in case.claim.environment.items():
        known = recorded.get(name)
        if known is not None and known != value:
            yield f"{quote(name)} is {quote(value)} in the receipt, {quote(known)} in the evidence."


@CHECKS.rule(
    "E_ORIGIN_MISMATCH",
    "Receipt and evidence name the same model.",
    needs={"model"},
)
def _check_model(case: Submission) -> Iterator[str]:
    evidence, claimed = case.evidence, case.claim.model
    named = evidence.model.get("sha256")
    if named is not None and named != evidence.model_sha256:
        yield f"The evidence names two models: {quote(named)} and {quote(evidence.model_sha256)}."
    for name, recorded in {**evidence.model, "sha256": evidence.model_sha256}.items():
        if claimed.get(name) is not None and claimed[name] != recorded:
            yield (
                f"model.{name[:40]} is {quote(claimed[name])} in the receipt, {quote(recorded)} in "
                "the evidence."
            )


@CHECKS.rule("E_ORIGIN_MISMATCH", "Clocks and profile cover the phase that the engine runs in.")
def _check_scope(case: Submission) -> Iterator[str]:
    # A served engine relabelled as a program would get a less strict kernel policy.
    scope = case.evidence.clock_scope
    engine = case.evidence.workload.get("engine")
    expected = _SCOPES.get(engine) if isinstance(engine, str) else None
    if expected is not None and scope != expected:
        yield f"The clocks of the engine {quote(engine)} cover the {expected}, not the {scope}."
    profile = case.evidence.profile
    if profile is not None and profile.covers not in _COVERED[scope]:
        yield f"The profile covers the {profile.covers}, but the clocks cover the {scope}."


@CHECKS.rule("E_ORIGIN_MISMATCH", "A commit is named by its full hash.")
def _check_commit(case: Submission) -> Iterator[str]:
    # The name of a branch is other code tomorrow.
    commit = case.evidence.commit
    if commit is None:
        return
    if _HASH.fullmatch(commit.revision) is None:
        yield f"The commit {quote(commit.revision)} is not a full hash."
    if commit.tree and _HASH.fullmatch(commit.tree) is None:
        yield f"The digest of the commit's code is {quote(commit.tree)}, which is not a hash."


@SHORTFALLS.rule(
    "W_RECIPE_INCOMPLETE",
    "The evidence states what was run.",
    remedy="Measure again. A replay needs the command or the target in the recipe.",
)
def _check_recipe(case: Submission) -> Iterator[str]:
    recipe = case.evidence.workload
    keys = _RECIPES.get(str(recipe.get("engine")), ())
    if keys and not any(_is_runnable(recipe.get(name)) for name in keys):
        yield f"The recipe of the engine {quote(recipe['engine'])} has no {' or '.join(keys)}."


def _is_runnable(value: object) -> bool:
    return isinstance(value, (str, list, tuple)) and bool(value)


@SHORTFALLS.rule(
    "W_MODEL_NOT_HASHED",
    "The evidence has the SHA-256 of the model file.",
    remedy="Declare the model file of the workload.",
    protects=None,
)
def _check_model_hash(case: Submission) -> Iterator[str]:
    # A server or a callable may have no file to hash.
    if case.evidence.model_sha256 is None:
        yield "No model file was hashed, so another model may have run."
