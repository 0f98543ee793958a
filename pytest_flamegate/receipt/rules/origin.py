"""Cross-checks over GPUs: what is claimed of them, and what was seen of them during the runs."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.core.json_old import read_timestamp
from pytest_flamegate.core.text import quote
from pytest_flamegate.observe.observation import of_one_process
from pytest_flamegate.receipt.compose import active_runs
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.observe.gpu import DevicesSeen
    from pytest_flamegate.receipt.rules.subject import Case


CHECKS: Rulebook[Case] = Rulebook()
SHORTFALLS: Rulebook[Case] = Rulebook()

_ON_A_GPU = "Measure on a machine whose GPU works (nvidia-smi, flamegate doctor), or claim cpu."


@CHECKS.rule(
    "E_NO_DEVICE",
    "Where cuda is claimed, device nodes, the kernel's driver and NVML were there and agreed.",
    remedy=_ON_A_GPU,
    protects=Grade.OBSERVED,
    needs={"backend"},
)
def _no_device(case: Case) -> Iterator[str]:
    # A library by itself is a file: only with node and driver is it a device's.
    seen = _claimed(case)
    if seen is not None:
        for sentence in seen.missing():
            yield f"The backend is cuda. {sentence}"


@CHECKS.rule(
    "E_DEVICE_IDLE",
    "Where cuda is claimed, a timed run was seen to compute on a device.",
    remedy="Let the workload compute on the GPU; a silent fall back to the CPU looks like this.",
    protects=Grade.OBSERVED,
    needs={"backend"},
)
def _device_idle(case: Case) -> Iterator[str]:
    # A GPU that stands in the machine and does nothing is no GPU of this run.
    seen = _claimed(case)
    if seen is None or any(seen.missing()):
        return
    if seen.runs and all(run.idle for run in seen.runs):
        looks = sum(run.looks for run in seen.runs)
        yield f"The backend is cuda, and no timed run computed on a device in {looks:,} looks."


@CHECKS.rule(
    "E_DEVICE_CONTRADICTION",
    "What was seen of GPUs agrees with itself and with the runs.",
    remedy="Measure again; evidence is written by the observer and changed by nobody.",
    protects=Grade.OBSERVED,
)
def _device_contradiction(case: Case) -> Iterator[str]:
    # Whoever writes a device into evidence has many facts to keep together.
    seen = case.evidence.device
    if seen is None:
        return
    yield from seen.contradictions()
    timed = {(run.pid, run.started_ticks) for run in case.timed}
    named = Counter((run.pid, run.started_ticks) for run in seen.runs)
    for (pid, ticks), times in named.items():
        if (pid, ticks) not in timed:
            yield f"Process {pid} was looked at on devices and is none of the timed runs."
        if times > (len(case.timed) if of_one_process(case.evidence.workload) else 1):
            yield f"Process {pid} stands twice among the runs on devices."


@SHORTFALLS.rule(
    "W_DEVICE_NOT_OBSERVED",
    "Where cuda is claimed, every timed run was seen to compute on a device.",
    remedy="Measure where the observer sees the GPU: pip install 'pytest-flamegate[gpu]'.",
    protects=Grade.OBSERVED,
    needs={"backend"},
)
def _device_not_observed(case: Case) -> Iterator[str]:
    # A function may be called gemm_fp16 and run on a CPU.
    if case.claim.backend != "cuda":
        return
    seen = case.evidence.device
    if seen is None:
        yield "The backend is cuda, and the evidence holds nothing that was seen on a device."
    elif (active := active_runs(seen)) < max(1, len(case.timed)):
        told = f": {', '.join(seen.troubles)}" if seen.troubles else ""
        yield (
            f"The backend is cuda, and {active} of {len(case.timed)} timed runs were seen to "
            f"compute on a device{told}."
        )


@SHORTFALLS.rule(
    "W_DEVICE_BUSY",
    "Where cpu is claimed, no timed run was seen to compute on a GPU.",
    remedy="Profile with what sees the GPU's kernels, or keep the workload off the GPU.",
    protects=Grade.OBSERVED,
    needs={"backend"},
)
def _device_busy(case: Case) -> Iterator[str]:
    # A suspicion: a profiler of the CPU cannot name the kernels that a claim of cuda needs,
    # so the observer itself writes cpu here. Nobody saw the whole of what was computed.
    seen = case.evidence.device
    if case.claim.backend == "cpu" and seen is not None and (active := active_runs(seen)):
        yield (
            f"The backend is cpu, and {active} of {len(case.timed)} timed runs were seen to "
            "compute on a GPU."
        )


def _claimed(case: Case) -> DevicesSeen | None:
    return case.evidence.device if case.claim.backend == "cuda" else None


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

CROSSCHECK_ORIGIN_CHECKS: Rulebook[Case] = Rulebook()
CROSSCHECK_ORIGIN_SHORTFALLS: Rulebook[Case] = Rulebook()

_AGAIN = "Measure again; receipt and evidence are written together and changed by nobody."


@CROSSCHECK_ORIGIN_CHECKS.rule(
    "E_RECEIPT_CHANGED",
    "The evidence names this receipt by the SHA-256 of its bytes.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _receipt_changed(case: Case) -> Iterator[str]:
    # The evidence belongs to another receipt, or this one was edited.
    if case.evidence.receipt_sha256 != case.receipt_sha256:
        yield (
            f"The evidence belongs to the receipt {case.evidence.receipt_sha256[:12]}, and this "
            f"one is {case.receipt_sha256[:12]}."
        )


@CROSSCHECK_ORIGIN_CHECKS.rule(
    "E_ENGINE_MISMATCH",
    "Receipt and evidence name the same engine.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"environment"},
)
def _engine_mismatch(case: Case) -> Iterator[str]:
    # The engine decides which kernel policy applies.
    claimed = case.claim.environment.get("FLAMEGATE_ENGINE")
    seen = case.evidence.workload.get("engine")
    if claimed is not None and claimed != seen:
        yield f"The receipt names the engine {quote(claimed)} and the evidence {quote(seen)}."


@CROSSCHECK_ORIGIN_CHECKS.rule(
    "E_CLOCK_SCOPE",
    "Clocks and profile of a program cover its process or decode, a served engine's a sequence.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _clock_scope(case: Case) -> Iterator[str]:
    # An engine that was served may not pass for a program, whose kernel policy asks for less.
    scope = case.evidence.clock_scope
    engine = case.evidence.workload.get("engine")
    meant = _SCOPES.get(engine) if isinstance(engine, str) else None
    if meant is not None and scope != meant:
        yield f"The engine {quote(engine)} is clocked by the {meant}, and this was by the {scope}."
    profile = case.evidence.profile
    if profile is not None and profile.covers not in _COVERED[scope]:
        yield f"The profile covers the {profile.covers}, and the clocks the {scope}."


@CROSSCHECK_ORIGIN_CHECKS.rule(
    "E_MODEL_MISMATCH",
    "Receipt and evidence name the same model.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"model"},
)
def _model_changed(case: Case) -> Iterator[str]:
    # By digest and path, and by all else that both state.
    seen = case.evidence
    named = seen.model.get("sha256")
    if named is not None and named != seen.model_sha256:
        yield f"The evidence names two models, {quote(named)} and {quote(seen.model_sha256)}."
    claimed = case.claim.model.get("sha256")
    if claimed is not None and claimed != seen.model_sha256:
        yield (
            f"The receipt names the model {quote(claimed)} and the evidence "
            f"{quote(seen.model_sha256)}."
        )
    for name, recorded in seen.model.items():
        claimed = case.claim.model.get(name)
        if claimed is not None and claimed != recorded:
            yield (
                f"model.{name[:40]} is {quote(claimed)} in the receipt and {quote(recorded)} in "
                "the evidence."
            )


@CROSSCHECK_ORIGIN_CHECKS.rule(
    "E_ENVIRONMENT_CHANGED",
    "The receipt's environment holds what the process had.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"environment"},
)
def _environment_changed(case: Case) -> Iterator[str]:
    # Compared by the names that both hold.
    effective = case.evidence.effective_environment
    for name, value in case.claim.environment.items():
        if name in effective and effective[name] != value:
            yield (
                f"{quote(name)} is {quote(value)} in the receipt, and the process had "
                f"{quote(effective[name])}."
            )


@CROSSCHECK_ORIGIN_CHECKS.rule(
    "E_MACHINE_CHANGED",
    "Receipt and evidence name the same system, tool and Python.",
    remedy=_AGAIN,
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
            yield f"{name} is {quote(claimed)} in the receipt and {quote(value)} in the evidence."


@CROSSCHECK_ORIGIN_CHECKS.rule(
    "E_COMMIT_MALFORMED",
    "A commit is named by its full hash.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _commit_malformed(case: Case) -> Iterator[str]:
    # A branch's name, or a placeholder, names no code.
    commit = case.evidence.commit
    if commit is not None and _HASH.fullmatch(commit.revision) is None:
        yield f"The commit is {quote(commit.revision)}, which is no hash."
    if commit is not None and commit.tree and _HASH.fullmatch(commit.tree) is None:
        yield f"The digest of the commit's code is {quote(commit.tree)}."


@CROSSCHECK_ORIGIN_CHECKS.rule(
    "E_WRITTEN_APART",
    "Receipt and evidence are of one time.",
    remedy=_AGAIN,
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


@CROSSCHECK_ORIGIN_CHECKS.rule(
    "E_EVIDENCE_EXPIRED",
    "Evidence and runs are no older than the reader allows.",
    remedy="Measure again.",
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


@CROSSCHECK_ORIGIN_SHORTFALLS.rule(
    "W_RECIPE_INCOMPLETE",
    "The evidence says what was run.",
    remedy="Measure again; a replay runs the recipe's command or target.",
    protects=Grade.OBSERVED,
)
def _recipe_incomplete(case: Case) -> Iterator[str]:
    # What nobody can run again was observed by nobody else.
    recipe = case.evidence.workload
    needed = _NEEDED.get(str(recipe.get("engine")), ())
    if needed and not any(_runs_something(recipe.get(name)) for name in needed):
        told = " or ".join(needed)
        yield f"The recipe of the engine {quote(recipe['engine'])} holds no {told}."


def _runs_something(told: object) -> bool:
    # True is neither an address nor a command line.
    return isinstance(told, (str, list, tuple)) and bool(told)


@CROSSCHECK_ORIGIN_SHORTFALLS.rule(
    "W_MODEL_NOT_HASHED",
    "The model file is named by its SHA-256.",
    remedy="Give the workload its model file.",
    protects=None,
)
def _model_not_hashed(case: Case) -> Iterator[str]:
    # A server or a callable may have no file to hash.
    if case.evidence.model_sha256 is None:
        yield "No model file was hashed, so another model may have run."
