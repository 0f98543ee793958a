"""Prepare a measurement: this project alone, or base and head of a comparison."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.child.sides import UNDER_TEST, Sides
from pytest_flamegate.core import __version__
from pytest_flamegate.core.errors import ReceiptError, ToolError, UsageError
from pytest_flamegate.core.files import is_file, real_path
from pytest_flamegate.core.git import Commit, code_digest, read_commit
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Served
from pytest_flamegate.gate import Reason, machine_id
from pytest_flamegate.models.facts import read_model_facts
from pytest_flamegate.models.files import read_stamps
from pytest_flamegate.observe.build import build_workload, inspect_program, settle_workload
from pytest_flamegate.observe.machine import read_identity
from pytest_flamegate.observe.worktree import Checkout, make_base_workload, open_checkout, plan_base
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.compose import Subject
from pytest_flamegate.run.calibration import known_rates, load, load_ledger, plan_for
from pytest_flamegate.run.decode import NOT_IN_PAIRS
from pytest_flamegate.run.instruments import Instruments, counted_metrics
from pytest_flamegate.run.measure import PAIRS_SHARE, planned_pair_counts
from pytest_flamegate.run.publish import RunStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from pytest_flamegate.config.settings import Settings
    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Plan
    from pytest_flamegate.gate import ReportedRates
    from pytest_flamegate.observe.build import Build, InspectedProgram
    from pytest_flamegate.profile.profilers.base import Profiler
    from pytest_flamegate.profile.profilers.instructions import InstructionCount
    from pytest_flamegate.receipt.baseline import Baseline


if TYPE_CHECKING:
    Call = Callable[[str, int], Iterable[Any]]

Role = Literal["base", "head"]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be measured.

    Attributes:
        workload: As it is declared.
        call: Is measured instead of the workload's engine if it is given.
        rev: The revision to compare with in pairs; None to measure the project alone.
        notes: Why it is measured like this, for the reader of the verdict.
    """

    workload: Workload
    call: Call | None = None
    rev: str | None = None
    notes: tuple[Reason, ...] = ()


INJECTABLE = frozenset({"embedded", "python"})
"""Engines whose functions can be made to do more work."""


@dataclass(frozen=True, slots=True)
class PreparedSide:
    """One side, ready to run. ``role`` is None if there is only one.

    ``subject`` is what the receipt says of it, ``workload`` how it runs: in a comparison the
    base runs in a checkout. ``moved`` are then the directory of the checkout and the
    project's own. ``count`` are its instructions, if they were counted.
    """

    role: Role | None
    subject: Subject
    workload: Workload
    plan: Plan
    profiler: Profiler | None
    count: InstructionCount | None = None
    moved: tuple[Path, Path] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is going to be measured: ``sides`` is one, or base and head.

    ``pair_counts`` are the numbers of pairs at which a comparison is judged, and ``known``
    what a calibration says about its error rates. ``baseline`` is what one side alone is
    judged by.
    """

    sides: tuple[PreparedSide, ...]
    budget_s: float
    show_bricks: bool = False
    baseline: Baseline | None = None
    pair_counts: tuple[int, ...] = ()
    known: ReportedRates | None = None
    notes: tuple[Reason, ...] = ()

    @property
    def head(self) -> PreparedSide:
        """The side that is judged."""
        return self.sides[-1]


@dataclass
class Checkouts:
    """Revisions that were checked out: each once, and built once by each command."""

    _open: dict[tuple[Path, str], Checkout] = field(default_factory=dict)
    _built: dict[tuple[Path, tuple[str, ...]], Build | None] = field(default_factory=dict)

    def checkout(self, directory: Path, rev: str) -> Checkout:
        """Return ``rev`` of the repository around ``directory``, checked out."""
        key = (directory.absolute(), rev)
        if key not in self._open:
            known = [each for (place, _), each in self._open.items() if place == key[0]]
            found = open_checkout(directory, rev)
            same = next((each for each in known if each.commit == found.commit), None)
            if same is not None:
                found.close()
            self._open[key] = same or found
        return self._open[key]

    def build(
        self, workload: Workload, checkout: Checkout, head: InspectedProgram | None = None
    ) -> Build | None:
        """Build ``workload`` in the checkout, even if ``FLAMEGATE_SKIP_BUILD`` is set.

        Raises:
            ToolError: ``E_BASE_BUILD_FAILED``, which is no fault of the change;
                ``E_PROGRAM_CHANGED`` if the build replaced ``head``, the other side's program.
        """
        based = make_base_workload(workload, checkout)
        key = (based.directory, based.build)
        if key in self._built:
            return self._built[key]
        try:
            made = build_workload(based, always=True)
        except ToolError as error:
            raise ToolError(
                "E_BASE_BUILD_FAILED",
                f"The base {checkout.commit[:12]} does not build, which says nothing about the "
                f"change. {error.problem}",
                "Compare with a revision that builds here, or correct the workload's build.",
            ) from None
        if head is not None:
            head.require_unchanged()
        self._built[key] = made
        return made

    def close(self) -> None:
        """Remove all of them."""
        with ExitStack() as stack:
            for checkout in {id(each): each for each in self._open.values()}.values():
                stack.callback(checkout.close)
        self._open.clear()
        self._built.clear()


@dataclass
class Workbench:
    """What preparing needs and is made once: settings, machine, instruments, checkouts, store."""

    settings: Settings
    progress: Progress = field(default_factory=Progress)
    checkouts: Checkouts = field(default_factory=Checkouts)

    @cached_property
    def instruments(self) -> Instruments:
        """The profilers and the counter of instructions."""
        return Instruments(
            self.settings.profiler, self.settings.root, counts=self.settings.instructions
        )

    @cached_property
    def machine(self) -> Mapping[str, str]:
        """The identity of this machine."""
        return read_identity()

    @cached_property
    def store(self) -> RunStore:
        """The runs and baselines of this class of machine."""
        return RunStore(ArtifactStore(self.settings.directory), machine_id(self.machine))

    def prepare(self, task: Task) -> Prepared:
        """Build the workload, find its model and its baseline, and plan how it runs.

        Raises:
            FlamegateError: Whatever keeps it from being measured.
        """
        task = self._with_injection(task)
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
        baseline = self._baseline(workload.name)
        workload = settle_workload(workload, baseline.evidence.workload if baseline else None)
        model = chosen.model(workload)
        plan: Plan = Served({}, call) if call is not None else chosen.plan(workload, model)
        look, commit = inspect_program(plan, workload, built), read_commit(workload.directory)
        draft = _Draft(None, workload, workload, plan, model, look, commit)
        return Prepared(
            sides=(self._side(draft),),
            budget_s=self.settings.budget_of(workload.engine),
            show_bricks=self.settings.bricks is not None,
            baseline=baseline,
        )

    def _prepare_pair(self, task: Task) -> Prepared:
        workload, rev = settle_workload(importable(task)), task.rev or "HEAD"
        self.progress.update(f"checking out {rev}")
        checkout = self.checkouts.checkout(workload.directory, rev)
        base, head = self._drafts(workload, checkout)
        budget_s = self.settings.budget_of(workload.engine, compare=True)
        pair_counts = planned_pair_counts(budget_s)
        notes = [*checkout.notes, *filter(None, [shared_program(base)])]
        if workload.decode_profile:
            notes.append(NOT_IN_PAIRS)
        return Prepared(
            sides=_with_own_models(self._side(base), self._side(head)),
            budget_s=budget_s,
            show_bricks=self.settings.bricks is not None,
            pair_counts=pair_counts,
            known=self._known(workload, notes),
            notes=tuple(Reason("I_NOTE", note) for note in notes),
        )

    def _drafts(self, workload: Workload, checkout: Checkout) -> tuple[_Draft, _Draft]:
        """Build both sides and plan how each runs. Injected work is the head's alone."""
        chosen = engine(workload.engine)
        chosen.validate(workload)
        _require_own_code(workload, checkout)
        unchanged = replace(workload, injection=None)
        built = self._build(workload)
        model = chosen.model(workload)
        head_plan = chosen.plan(workload, model)
        head_look = inspect_program(head_plan, workload, built)
        if workload.build:
            self.progress.update(f"building {checkout.commit[:12]}")
        base_built = self.checkouts.build(unchanged, checkout, head_look)
        base_plan, based = plan_base(chosen.plan(unchanged, model), unchanged, checkout)
        base_model = model
        if model is not None and checkout.move_path(model).exists():
            base_model = checkout.move_path(model)
        base_look = _look_at_base(base_plan, based, base_built, checkout)
        base_python = _built_python(based) if workload.build else None
        head_python = _built_python(workload) if base_python else None
        base = _Draft(
            "base",
            unchanged,
            based,
            _with_python(base_plan, base_python),
            base_model,
            base_look,
            Commit(checkout.commit, "HEAD", 0, code_digest(checkout.root, checkout.commit)),
            (checkout.root, checkout.project),
        )
        head = _Draft(
            "head",
            workload,
            workload,
            _with_python(_bound_to_project(head_plan, checkout), head_python),
            model,
            head_look,
            read_commit(workload.directory),
        )
        _require_own_program(base)
        return base, head

    def _side(self, draft: _Draft) -> PreparedSide:
        """Complete a side: choose its profiler, and count its instructions if asked to."""
        checkout = draft.moved and draft.moved[0]
        profiler = self.instruments.profiler(
            draft.declared, checkout, comparing=draft.role is not None
        )
        count = self.instruments.count(draft.plan, draft.workload)
        return _complete(draft, self.machine, profiler, count)

    def _with_injection(self, task: Task) -> Task:
        if self.settings.inject is None:
            return task
        workload = task.workload
        if workload.engine not in INJECTABLE or task.call is not None:
            raise UsageError(
                "E_BAD_INJECTION",
                "Work can be injected into the embedded engine and into workloads with a Python "
                f"target only, and {workload.name!r} is neither.",
                "Deselect it, or drop the option.",
            )
        return replace(task, workload=replace(workload, injection=self.settings.inject))

    def _build(self, workload: Workload) -> Build | None:
        if workload.build:
            self.progress.update("building")
        return build_workload(workload)

    def _baseline(self, name: str) -> Baseline | None:
        """Read and verify what was accepted, unless this run replaces it anyway."""
        try:
            return self.store.baseline(name)
        except ReceiptError:
            if self.settings.update:
                return None
            raise

    def _known(self, workload: Workload, notes: list[str]) -> ReportedRates | None:
        """Return the rule's error rates by a calibration of this machine, None without one."""
        calibration = load(self.store.artifacts, self.store.machine_id, workload, notes.append)
        if calibration is None:
            return None
        lines = load_ledger(self.store.artifacts, notes.append)
        drop_pct = workload.thresholds.tokens_per_second_pct
        budget_s = self.settings.budget_of(workload.engine, compare=True)
        plan = plan_for(budget_s, calibration.pair_s, PAIRS_SHARE)
        return known_rates(calibration, drop_pct, plan, lines)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A side as it is planned, before anything of it is digested. ``declared`` is as written."""

    role: Role | None
    declared: Workload
    workload: Workload
    plan: Plan
    model: Path | None
    look: InspectedProgram | None
    commit: Commit | None
    moved: tuple[Path, Path] | None = None


def prepare_side(
    workload: Workload,
    machine: Mapping[str, str],
    profiler: Profiler | None,
    *,
    role: Role | None = None,
) -> PreparedSide:
    """Return one side of this project, built already. Nothing is counted, nothing compared."""
    chosen = engine(workload.engine)
    model = chosen.model(workload)
    plan = chosen.plan(workload, model)
    commit = read_commit(workload.directory)
    return _complete(_Draft(role, workload, workload, plan, model, None, commit), machine, profiler)


def _complete(
    draft: _Draft,
    machine: Mapping[str, str],
    profiler: Profiler | None,
    count: InstructionCount | None = None,
) -> PreparedSide:
    """Digest the model of a side, and write down what the receipt says of it."""
    declared, plan = draft.declared, draft.plan
    is_call = isinstance(plan, Served) and plan.call is not None
    subject = Subject(
        workload=declared,
        stamps=read_stamps(draft.model),
        model=read_model_facts(draft.model, draft.workload),
        machine=machine,
        commit=draft.commit,
        flamegate_version=__version__,
        prompt_tokens=None if is_call else engine(declared.engine).prompt_tokens(declared),
        side=draft.role,
        counted=counted_metrics(count),
        look=draft.look,
    )
    return PreparedSide(draft.role, subject, draft.workload, plan, profiler, count, draft.moved)


def _with_own_models(base: PreparedSide, head: PreparedSide) -> tuple[PreparedSide, PreparedSide]:
    """Tell both children if the two sides load different models: that is a difference.

    The same bytes in two places are none, and then the code has to come from each side.
    """
    differ = base.subject.model.get("sha256") != head.subject.model.get("sha256")
    return _with_own_model(base, differ), _with_own_model(head, differ)


def _with_own_model(side: PreparedSide, differ: bool) -> PreparedSide:
    if not differ or not isinstance(side.plan, Served) or "model" not in side.plan.load:
        return side
    return replace(side, plan=replace(side.plan, load={**side.plan.load, "own_model": True}))


def _require_own_program(base: _Draft) -> None:
    """Raise if both sides build one program in one place outside of the repository.

    A program that is installed (its directory is on the ``PATH``) was not made by the build.
    """
    if isinstance(base.plan, Served) or not base.declared.build or shared_program(base) is None:
        return
    program = Path(base.plan.argv[0])
    if os.sep in base.plan.argv[0] and str(program.parent) not in os.get_exec_path():
        raise UsageError(
            "E_SHARED_PROGRAM",
            f"Both sides build and run {program}, which lies outside the repository: one side's "
            "program would be measured as the other's.",
            "Let the build write inside the project (CARGO_TARGET_DIR may lead it elsewhere), and "
            "name the program by its relative path.",
        )


def _built_python(workload: Workload) -> Path | None:
    """Return the Python of the environment that the build made; None if it made none.

    A fresh checkout has none, so one that is there was built.
    """
    python = workload.directory / ".venv" / "bin" / "python"
    return python.absolute() if python.exists() else None


def _with_python(plan: Plan, python: Path | None) -> Plan:
    """Run a Python workload in the environment of its own side."""
    if python is None or not isinstance(plan, Served):
        return plan
    return replace(plan, python=str(python))


def _look_at_base(
    plan: Plan, based: Workload, built: Build | None, checkout: Checkout
) -> InspectedProgram | None:
    try:
        found = inspect_program(plan, based, built)
    except ToolError as error:
        problem = f"At {checkout.commit[:12]}: {error.problem}"
        raise ToolError(error.code, problem, error.remedy) from None
    return found and found.with_build_paths(checkout.root, checkout.project)


def shared_program(base: _Draft) -> str | None:
    """Return a note if the two sides run the very same program, else None."""
    if isinstance(base.plan, Served) or base.moved is None:
        return None
    checkout = base.moved[0]
    files = (Path(base.workload.directory, part) for part in base.plan.argv)
    if any(is_file(file) and real_path(file).is_relative_to(real_path(checkout)) for file in files):
        return None
    return (
        f"Both sides run {base.plan.argv[0]!r}, and none of its arguments is a file of the "
        "repository: only what it reads from its directory can differ."
    )


def _bound_to_project(plan: Plan, checkout: Checkout) -> Plan:
    """Bind the head's imports to the working tree.

    Otherwise a base whose build installs itself would be imported on this side too.
    """
    if not isinstance(plan, Served):
        return plan
    trees = {"project": str(checkout.root), "checkout": str(checkout.project)}
    return replace(plan, load={**plan.load, **trees})


def importable(task: Task) -> Workload:
    """Return the workload with which another process can measure the same, a test's callable too.

    Raises:
        UsageError: ``E_CALL_AT_REVISION`` if it has no name under which another process could
            import it.
    """
    workload, call = task.workload, task.call
    if call is None:
        return workload
    name = getattr(call, "__qualname__", "<unnamed>")
    module = sys.modules.get(getattr(call, "__module__", ""))
    file = getattr(module, "__file__", None)
    if "<" in name or hasattr(call, "__self__") or module is None or file is None:
        raise UsageError(
            "E_CALL_AT_REVISION",
            f"{workload.node_name} measures {name}, which no other process can import, and so "
            "not at another revision either.",
            'Measure a function of a module, or declare it: engine = "python", '
            'target = "module:function".',
        )
    levels = module.__name__.count(".") + Path(file).name.startswith("__init__.")
    directory = Path(file).absolute().parents[levels]
    if directory == workload.directory.absolute():
        return workload
    # pytest may have found the module in a directory that another process does not search.
    paths = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    return replace(workload, env={**workload.env, "PYTHONPATH": os.pathsep.join(paths)})


def _require_own_code(workload: Workload, checkout: Checkout) -> None:
    """Raise for the embedded engine of an installed package: it is the same on both sides."""
    if workload.engine != "embedded" or workload.injection is not None:
        return
    if not Sides(checkout.project, checkout.root).holds(UNDER_TEST):
        raise UsageError(
            "E_NOTHING_DIFFERS",
            f"Workload {workload.name!r} runs the engine that comes with flamegate, which is the "
            "same at every revision of this repository.",
            "Declare a workload that runs this repository's code, or deselect this one.",
        )
