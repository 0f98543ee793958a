"""Prepare a measurement: this project alone, or base and head of a comparison."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import __version__
from pytest_flamegate.core.errors import ReceiptError, ToolError, UsageError
from pytest_flamegate.core.files import real_path
from pytest_flamegate.core.git import Commit, code_digest, query, read_changes, read_commit
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.gate.comparability import machine_id
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.models.discover import read_model_facts
from pytest_flamegate.models.files import read_stamps
from pytest_flamegate.observe import build
from pytest_flamegate.observe.machine import read_identity
from pytest_flamegate.observe.worktree import Checkout, plan_base
from pytest_flamegate.profile.profilers.base import Profiler
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.compose import Subject
from pytest_flamegate.receipt.types import Side
from pytest_flamegate.run import base_side
from pytest_flamegate.run.calibration import find_known_rates
from pytest_flamegate.run.instruments import Instruments, counted_metrics
from pytest_flamegate.run.processes import plan_pair_counts
from pytest_flamegate.run.publish import RunStore
from pytest_flamegate.run.stages import Prepared, PreparedSide, Task

INJECTABLE = frozenset({"embedded", "python"})
"""Engines whose functions can be made to do more work."""


def injection_error(workload: Workload) -> UsageError:
    """Return the error of a workload whose functions cannot be made to do more work."""
    return UsageError(
        "E_BAD_INJECTION",
        "Work can be injected into the embedded engine and into workloads with a Python target "
        f"only, and {workload.name!r} is neither.",
        "Deselect it, or drop the option.",
    )


class Workbench:
    """The tools of preparing, each made once: settings, machine, instruments, checkouts, store."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self.settings, self.progress = settings, progress
        self.checkouts = base_side.Checkouts(settings.base)
        self.instruments = Instruments(settings.profiler, settings.root, settings.instructions)
        self.machine = read_identity()
        self.store = RunStore(ArtifactStore(settings.directory), machine_id(self.machine))

    @cached_property
    def is_declared_elsewhere(self) -> bool:
        """Whether ``--config`` names a file outside of the project's repository.

        Such a file declares the work of both sides, whatever the repository declares.
        """
        if self.settings.config is None:
            return False
        top = query(self.settings.root, "rev-parse", "--show-toplevel")
        file = real_path(self.settings.config)
        return top is not None and not file.is_relative_to(real_path(Path(top)))

    def prepare(self, task: Task) -> Prepared:
        """Build the workload, find its model and its baseline, and plan how it runs."""
        if injection := self.settings.inject:
            if task.workload.engine not in INJECTABLE or task.call is not None:
                raise injection_error(task.workload)
            task = replace(task, workload=replace(task.workload, injection=injection))
        prepared = self._prepare_alone(task) if task.rev is None else self._prepare_pair(task)
        warnings = self.instruments.warnings(task.workload)
        return replace(prepared, notes=(*task.notes, *prepared.notes, *warnings))

    def _prepare_alone(self, task: Task) -> Prepared:
        workload, call = task.workload, task.call
        chosen = engine(workload.engine)
        if call is None:
            chosen.validate(workload)
        self.instruments.profiler(workload)  # an error comes before the build
        built = self._build(workload)
        try:
            baseline = self.store.baseline(workload.name)
        except ReceiptError:
            if not self.settings.update:
                raise
            baseline = None  # this run replaces it
        workload = build.settle_workload(workload, baseline.evidence.workload if baseline else None)
        model = chosen.model(workload)
        plan: Plan = Served({}, call) if call is not None else chosen.plan(workload, model)
        program = build.inspect_program(plan, workload, built)
        side = self._side(workload, plan, model, program, read_commit(workload.directory))
        return Prepared(
            sides=(side,),
            budget_s=self.settings.budget_of(workload.engine),
            show_bricks=self.settings.bricks is not None,
            baseline=baseline,
        )

    def _prepare_pair(self, task: Task) -> Prepared:
        workload, rev = task.workload, task.rev or "HEAD"
        if task.call is not None:
            workload = base_side.make_importable(workload, task.call)
        elif self.is_declared_elsewhere:
            workload = replace(workload, directory=self.settings.root)
        workload = build.settle_workload(workload)
        self.progress.update(f"checking out {rev}")
        checkout = self.checkouts.checkout(workload.directory, rev)
        base_side.require_other_code(workload, checkout)
        notes = list(checkout.notes)
        budget_s = self.settings.budget_of(workload.engine, compare=True)
        return Prepared(
            sides=self._sides(workload, checkout, notes),
            budget_s=budget_s,
            show_bricks=self.settings.bricks is not None,
            pair_counts=plan_pair_counts(budget_s),
            size_alone=True,
            known=find_known_rates(
                self.store.artifacts, self.store.machine_id, workload, budget_s, notes.append
            ),
            changes=None
            if workload.injection
            else read_changes(self.settings.root, checkout.commit),
            notes=tuple(Reason("I_NOTE", note) for note in notes),
        )

    def _sides(
        self, workload: Workload, checkout: Checkout, notes: list[str]
    ) -> tuple[PreparedSide, PreparedSide]:
        """Build both sides and plan how each runs. Injected work is the head's alone."""
        chosen = engine(workload.engine)
        chosen.validate(workload)
        base_side.require_own_code(workload, checkout)
        declared = workload
        if not self.is_declared_elsewhere:
            declared = base_side.declare_base(workload, checkout, notes)
        unchanged = replace(declared, injection=None)
        built = self._build(workload)
        model = chosen.model(workload)
        head_plan = chosen.plan(workload, model)
        head_program = build.inspect_program(head_plan, workload, built)
        if unchanged.build:
            self.progress.update(f"building {checkout.commit[:12]}")
        base_built = self.checkouts.build(unchanged, checkout, head_program)
        base_plan, based = plan_base(chosen.plan(unchanged, model), unchanged, checkout)
        base_model = model
        if model is not None and checkout.move_path(model).exists():
            base_model = checkout.move_path(model)
        try:
            found = build.inspect_program(base_plan, based, base_built)
        except ToolError as error:
            raise base_side.base_error(based, checkout.commit, error) from None
        # Its paths are written as the project's.
        base_program = found and found.with_build_paths(checkout.root, checkout.project)
        if workload.injection is None:  # else the injected work is the change
            notes += filter(None, [base_side.find_shared_program(base_plan, based, checkout)])
        if isinstance(head_plan, Served):
            # A build may install the base's package: imports are bound to the working tree.
            trees = {"project": str(checkout.root), "checkout": str(checkout.project)}
            head_plan = replace(head_plan, load={**head_plan.load, **trees})
        base_plan, head_plan = base_side.use_own_environments(base_plan, head_plan, based, workload)
        base_commit = Commit(
            checkout.commit, "HEAD", 0, code_digest(checkout.root, checkout.commit)
        )
        commit = read_commit(workload.directory)
        # Nothing is digested before both sides are planned.
        base = self._side(
            unchanged,
            base_plan,
            base_model,
            base_program,
            base_commit,
            role="base",
            workload=based,
            moved=(checkout.root, checkout.project),
            root=checkout.sides.relocate(self.settings.root) or checkout.root,
        )
        return base, self._side(workload, head_plan, model, head_program, commit, role="head")

    def _side(
        self,
        declared: Workload,
        plan: Plan,
        model: Path | None,
        program: build.InspectedProgram | None,
        commit: Commit | None,
        *,
        role: Side | None = None,
        workload: Workload | None = None,
        moved: tuple[Path, Path] | None = None,
        root: Path | None = None,
    ) -> PreparedSide:
        """Describe a side: choose its profiler, and count its instructions if asked to.

        ``workload`` is how it runs, if that is not as it is declared, and ``root`` takes the place
        of the project, which the paths in its profile are relative to.
        """
        workload = workload or declared
        profiler = self.instruments.profiler(declared, root, comparing=role is not None)
        count = self.instruments.count(plan, workload)
        stamps = read_stamps(model)
        subject = _describe(declared, workload, plan, model, self.machine, commit, role)
        subject = replace(subject, counted=counted_metrics(count), program=program)
        return PreparedSide(role, subject, workload, plan, profiler, count, moved, stamps)

    def _build(self, workload: Workload) -> build.Build | None:
        if workload.build:
            self.progress.update("building")
        return build.build_workload(workload)


def prepare_side(
    workload: Workload,
    machine: Mapping[str, str],
    profiler: Profiler | None,
    *,
    role: Side | None = None,
) -> PreparedSide:
    """Return one side of this project, built already. Nothing is counted, nothing compared."""
    chosen = engine(workload.engine)
    model = chosen.model(workload)
    plan = chosen.plan(workload, model)
    stamps, commit = read_stamps(model), read_commit(workload.directory)
    subject = _describe(workload, workload, plan, model, machine, commit, role)
    return PreparedSide(role, subject, workload, plan, profiler, stamps=stamps)


def _describe(
    declared: Workload,
    workload: Workload,
    plan: Plan,
    model: Path | None,
    machine: Mapping[str, str],
    commit: Commit | None,
    role: Side | None,
) -> Subject:
    """Digest the model of a side, and describe the side for the receipt."""
    is_call = isinstance(plan, Served) and plan.call is not None
    return Subject(
        workload=declared,
        model=read_model_facts(model, workload),
        machine=machine,
        commit=commit,
        flamegate_version=__version__,
        prompt_tokens=None if is_call else engine(declared.engine).prompt_tokens(declared),
        side=role,
    )
