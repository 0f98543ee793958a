"""Prepare a measurement: this project alone, or base and head of a comparison."""

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from pytest_flamegate.config.options import EMBEDDED
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import __version__
from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.core.files import real_path
from pytest_flamegate.core.git import Commit, code_digest, find_top, read_changes, read_commit
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.gate.analyses import plan_pair_counts
from pytest_flamegate.gate.comparability import machine_id
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.models.discover import read_model_facts
from pytest_flamegate.models.files import read_stamps
from pytest_flamegate.observe import build
from pytest_flamegate.observe.machine import read_identity
from pytest_flamegate.observe.worktree import Checkout, move_workload
from pytest_flamegate.profile.profilers.base import Profiler
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.compose import Subject
from pytest_flamegate.receipt.types import Side
from pytest_flamegate.run import checkouts
from pytest_flamegate.run.calibration import find_known_rates
from pytest_flamegate.run.instruments import Instruments, counted_metrics
from pytest_flamegate.run.publish import RunStore
from pytest_flamegate.run.stages import Call, Prepared, PreparedSide, Task

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


@dataclass(frozen=True, slots=True)
class _BuiltSide:
    """A side that is built: how it is ``declared``, and the ``workload`` as it runs.

    ``checkout`` is None if it runs in the project itself.
    """

    declared: Workload
    workload: Workload
    plan: Plan
    model: Path | None
    program: build.InspectedProgram | None = None
    checkout: Checkout | None = None


class Workbench:
    """The tools of preparing, each made once: settings, machine, instruments, checkouts, store.

    ``trees`` are checkouts of base and head. Without them the head is the working tree.
    """

    def __init__(
        self,
        settings: Settings,
        progress: Progress,
        trees: tuple[Checkout, Checkout] | None = None,
    ) -> None:
        self.settings, self.progress, self.trees = settings, progress, trees
        self.checkouts = checkouts.Checkouts(settings.base)
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
        top = find_top(self.settings.root)
        file = real_path(self.settings.config)
        return top is not None and not file.is_relative_to(real_path(top))

    def _is_of_policy(self, workload: Workload) -> bool:
        """Whether a file outside of the repository declares it, and no test does."""
        is_declared = "::" not in workload.source and workload.source != EMBEDDED
        return is_declared and self.is_declared_elsewhere

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
        workload = task.workload
        if task.call is None:
            engine(workload.engine).validate(workload)
        self.instruments.profiler(workload)  # an error comes before the build
        built = self._build_here(workload)
        try:
            baseline = self.store.baseline(workload.name)
        except ReceiptError:
            if not self.settings.update:
                raise
            baseline = None  # this run replaces it
        workload = build.settle_workload(workload, baseline.evidence.workload if baseline else None)
        side = _plan_here(workload, task.call)
        side = replace(side, program=build.inspect_program(side.plan, workload, built))
        return Prepared(
            sides=(self._side(side, read_commit(workload.directory)),),
            budget_s=self.settings.budget_of(workload),
            show_bricks=self.settings.bricks is not None,
            baseline=baseline,
        )

    def _prepare_pair(self, task: Task) -> Prepared:
        workload, rev = task.workload, task.rev or "HEAD"
        if task.call is not None:
            workload = checkouts.make_importable(workload, task.call)
        elif self.is_declared_elsewhere:
            workload = replace(workload, directory=self.settings.root)
        workload = build.settle_workload(workload)
        self.progress.update(f"checking out {rev}")
        trees = self.trees or (self.checkouts.checkout(workload.directory, rev),)
        checkout = trees[0]
        checkouts.require_other_code(workload, checkout)
        notes = list(dict.fromkeys(note for each in trees for note in each.notes))
        if self.trees and workload.build and os.environ.get(build.SKIP) == "1":
            notes.append(f"{build.SKIP}=1 has no effect here: both sides are built from git.")
        budget_s, reasons = self.settings.budget_of(workload, compare=True), list[Reason]()
        return Prepared(
            sides=self._sides(workload, trees, notes, reasons),
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
            notes=(*reasons, *(Reason("I_NOTE", note) for note in notes)),
        )

    def _sides(
        self,
        workload: Workload,
        trees: tuple[Checkout, ...],
        notes: list[str],
        reasons: list[Reason],
    ) -> tuple[PreparedSide, PreparedSide]:
        """Build both sides and plan how each runs. Injected work is the head's alone.

        ``trees`` are the base's checkout, and the head's if it has one. Then all that is done to
        both is done in an order drawn at random.
        """
        engine(workload.engine).validate(workload)
        checkouts.require_own_code(workload, trees[0])
        declared, roles = workload, list[Side](["head", "base"])
        if not self.is_declared_elsewhere:
            declared = checkouts.declare_base(workload, trees[0], notes)
        if len(trees) > 1:
            random.SystemRandom().shuffle(roles)
            trees = checkouts.share_model(workload, trees)
        given = dict[Side, tuple[Workload, Checkout | None]]()
        given["base"] = replace(declared, injection=None), trees[0]
        given["head"] = workload, trees[1] if len(trees) > 1 else None
        sides = dict[Side, _BuiltSide]()
        for role in roles:
            try:
                sides[role] = self._build_side(role, *given[role], *sides.values())
            except UndecidedError:
                if not sides:
                    self._build_side("head", *given["head"])  # its error is worth more
                raise
        base, head = sides["base"], sides["head"]
        if workload.injection is None:  # else the injected work is the change
            shared = checkouts.find_shared_program(base.plan, base.workload, trees[0])
            reasons += filter(None, [shared])
        plan = head.plan
        if isinstance(plan, Served) and head.checkout is None:
            # A build may install the base's package: imports are bound to the working tree.
            load = {"projects": [str(trees[0].root)], "checkout": str(trees[0].project)}
            plan = replace(plan, load={**plan.load, **load})
        plans = checkouts.use_own_environments(base.plan, plan, base.workload, head.workload)
        sides = {"base": replace(base, plan=plans[0]), "head": replace(head, plan=plans[1])}
        commit, digest = trees[0].commit, code_digest(trees[0].root, trees[0].commit)
        commits = {
            "base": Commit(commit, "HEAD", 0, digest),
            "head": read_commit(workload.directory),
        }
        # Nothing is digested before both sides are planned.
        found = {role: self._side(sides[role], commits[role], role) for role in roles}
        return found["base"], found["head"]

    def _side(
        self, built: _BuiltSide, commit: Commit | None, role: Side | None = None
    ) -> PreparedSide:
        """Describe a side: choose its profiler, and count its instructions if asked to."""
        moved = root = None
        if (checkout := built.checkout) is not None:
            moved = checkout.root, checkout.project
            root = checkout.sides.relocate(self.settings.root) or checkout.root
        workload, plan = built.workload, built.plan
        profiler = self.instruments.profiler(workload, root, comparing=role is not None)
        count = self.instruments.count(plan, workload)
        stamps = read_stamps(built.model)
        subject = _describe(built, self.machine, commit, role)
        subject = replace(subject, counted=counted_metrics(count))
        is_elsewhere = self._is_of_policy(workload)
        return PreparedSide(
            role, subject, workload, plan, profiler, count, moved, stamps, is_elsewhere
        )

    def _build_here(self, workload: Workload) -> build.Build | None:
        if workload.build:
            self.progress.update("building")
        return build.build_workload(workload)

    def _build_side(
        self, role: Side, workload: Workload, checkout: Checkout | None, *others: _BuiltSide
    ) -> _BuiltSide:
        """Build a side and plan how it runs; an error of the base's build names its commit.

        Raises ``ToolError`` ``E_ENGINE_CHANGED`` if it replaced the program of one of ``others``.
        """
        if checkout is None:
            built = self._build_here(workload)
            side = _plan_here(workload)
            return replace(side, program=build.inspect_program(side.plan, workload, built))
        if workload.build:
            self.progress.update(f"building {checkout.commit[:12]}")
        moved, is_elsewhere = move_workload(workload, checkout), self._is_of_policy(workload)
        explained = partial(
            checkouts.explain_error, role, moved, checkout.commit, has_workload=is_elsewhere
        )
        with explained():
            built = self.checkouts.build(workload, checkout)
        for other in others:
            if other.program is not None:
                other.program.require_unchanged()
        model, plan = checkouts.plan_in_checkout(workload, moved, checkout)
        with explained():
            found = build.inspect_program(plan, moved, built)
        # Its paths are written as the project's.
        program = found and found.with_build_paths(checkout.root, checkout.project)
        return _BuiltSide(workload, moved, plan, model, program, checkout)


def prepare_side(
    workload: Workload,
    machine: Mapping[str, str],
    profiler: Profiler | None,
    *,
    role: Side | None = None,
) -> PreparedSide:
    """Return one side of this project, built already. Nothing is counted, nothing compared."""
    built = _plan_here(workload)
    stamps, commit = read_stamps(built.model), read_commit(workload.directory)
    subject = _describe(built, machine, commit, role)
    return PreparedSide(role, subject, workload, built.plan, profiler, stamps=stamps)


def _plan_here(workload: Workload, call: Call | None = None) -> _BuiltSide:
    """Plan how a side runs in the project itself; its program is not inspected yet."""
    chosen = engine(workload.engine)
    model = chosen.model(workload)
    plan = Served({}, call) if call is not None else chosen.plan(workload, model)
    return _BuiltSide(workload, workload, plan, model)


def _describe(
    built: _BuiltSide, machine: Mapping[str, str], commit: Commit | None, role: Side | None
) -> Subject:
    """Digest the model of a side, and describe the side for the receipt."""
    declared, workload, plan, model = built.declared, built.workload, built.plan, built.model
    is_call = isinstance(plan, Served) and plan.call is not None
    is_own = model is not None and real_path(model).is_relative_to(real_path(workload.directory))
    return Subject(
        workload=declared,
        # A model that git ignores lies in the project, whichever tree the side runs in.
        model=read_model_facts(model, workload if is_own else declared),
        machine=machine,
        commit=commit,
        flamegate_version=__version__,
        prompt_tokens=None if is_call else engine(declared.engine).prompt_tokens(declared),
        side=role,
        program=built.program,
    )
