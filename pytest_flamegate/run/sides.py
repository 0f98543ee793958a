"""The two sides of a comparison: the project at a revision, and as it stands here."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.child.sides import UNDER_TEST, Sides
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.core.git import Commit, code_digest, read_commit
from pytest_flamegate.core.paths import is_file, real_path
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Served
from pytest_flamegate.models.facts import read_model_facts
from pytest_flamegate.models.files import read_stamps
from pytest_flamegate.observe.build import Look, build, look_at
from pytest_flamegate.observe.worktree import Checkout, at_base, open_checkout, workload_at_base

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Plan
    from pytest_flamegate.models.files import FileStamp
    from pytest_flamegate.observe.build import Build


@dataclass
class Bases:
    """Revisions that were checked out: each once, and built once by each command."""

    _open: dict[tuple[Path, str], Checkout] = field(default_factory=dict)
    _built: dict[tuple[Path, tuple[str, ...]], Build | None] = field(default_factory=dict)

    def checkout(self, directory: Path, rev: str) -> Checkout:
        """Return ``rev`` of the repository around ``directory``, checked out."""
        key = (directory.absolute(), rev)
        if key not in self._open:
            known = [each for (where, _), each in self._open.items() if where == key[0]]
            found = open_checkout(directory, rev)
            same = next((each for each in known if each.commit == found.commit), None)
            if same is not None:
                found.close()
            self._open[key] = same or found
        return self._open[key]

    def build(
        self, workload: Workload, checkout: Checkout, head: Look | None = None
    ) -> Build | None:
        """Build ``workload`` at the base, whatever ``FLAMEGATE_SKIP_BUILD`` says of this side.

        ``ToolError`` ``E_BASE_BUILD_FAILED``: what is wrong there is no fault of the change;
        ``E_PROGRAM_CHANGED`` where it replaced ``head``, the other side's program.
        """
        based = workload_at_base(workload, checkout)
        key = (based.directory, based.build)
        if key in self._built:
            return self._built[key]
        try:
            made = build(based, always=True)
        except ToolError as error:
            raise ToolError(
                "E_BASE_BUILD_FAILED",
                f"The base {checkout.commit[:12]} does not build, which says nothing of the "
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


@dataclass(frozen=True, slots=True)
class Prepared:
    """One side, ready to run. ``told`` is the workload as it is written down.

    ``moved`` are the tree that its code lies in and the project's own, where the two differ;
    ``stamps`` the model's files as they were before anything ran.
    """

    side: Literal["base", "head"]
    told: Workload
    workload: Workload
    plan: Plan
    model: Mapping[str, str | int]
    commit: Commit | None
    moved: tuple[Path, Path] | None = None
    stamps: tuple[FileStamp, ...] = ()
    look: Look | None = None


def prepare(workload: Workload, checkout: Checkout, bases: Bases) -> tuple[Prepared, Prepared]:
    """Build both sides of ``workload`` and return base and head.

    Injected work is head's alone: it is what the comparison is to find.
    """
    chosen = engine(workload.engine)
    chosen.validate(workload)
    _refuse_nothing(workload, checkout)
    unchanged = replace(workload, injection=None)
    built = build(workload)
    model = chosen.model(workload)
    head_plan = chosen.plan(workload, model)
    head_look = look_at(head_plan, workload, built)
    base_built = bases.build(unchanged, checkout, head_look)
    plan, based = at_base(chosen.plan(unchanged, model), unchanged, checkout)
    own = _environment(based) if unchanged.build else None
    base_model = model
    if model is not None and checkout.path(model).exists():
        base_model = checkout.path(model)
    base = Prepared(
        side="base",
        told=unchanged,
        workload=based,
        plan=_in(plan, own),
        stamps=read_stamps(base_model),
        model=read_model_facts(base_model, based),
        commit=Commit(checkout.commit, "HEAD", 0, code_digest(checkout.root, checkout.commit)),
        moved=(checkout.root, checkout.project),
        look=_look_at_base(plan, based, base_built, checkout),
    )
    head = Prepared(
        side="head",
        told=workload,
        workload=workload,
        plan=_in(_at_head(head_plan, checkout), own and _environment(workload)),
        stamps=read_stamps(model),
        model=read_model_facts(model, workload),
        commit=read_commit(workload.directory),
        look=head_look,
    )
    _refuse_one_place(base)
    return _models_told(base, head)


def _models_told(base: Prepared, head: Prepared) -> tuple[Prepared, Prepared]:
    """Tell both children where the two sides load different models: that is a difference.

    The same bytes in two places are none, and then the code has to come from each side.
    """
    differ = base.model.get("sha256") != head.model.get("sha256")
    return _model_told(base, differ), _model_told(head, differ)


def _model_told(side: Prepared, differ: bool) -> Prepared:
    if not differ or not isinstance(side.plan, Served) or "model" not in side.plan.load:
        return side
    return replace(side, plan=replace(side.plan, load={**side.plan.load, "own_model": True}))


def _refuse_one_place(base: Prepared) -> None:
    """Refuse a program that both sides build into one place outside the repository.

    What is installed (its directory is on the ``PATH``) is no product of the build.
    """
    if isinstance(base.plan, Served) or not base.told.build or shared_program(base) is None:
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


def _environment(workload: Workload) -> Path | None:
    """Return the Python of the environment that the build made, None where it made none.

    A fresh checkout has none before, so what stands there was built.
    """
    python = workload.directory / ".venv" / "bin" / "python"
    return python.absolute() if python.exists() else None


def _in(plan: Plan, python: Path | None) -> Plan:
    """Run a Python workload in the environment of its own side."""
    if python is None or not isinstance(plan, Served):
        return plan
    return replace(plan, python=str(python))


def _look_at_base(
    plan: Plan, based: Workload, built: Build | None, checkout: Checkout
) -> Look | None:
    try:
        found = look_at(plan, based, built)
    except ToolError as error:
        what = f"At {checkout.commit[:12]}: {error.problem}"
        raise ToolError(error.code, what, error.remedy) from None
    return found and found.told(checkout.root, checkout.project)


def shared_program(base: Prepared) -> str | None:
    """Return what to say where the two sides run the very same program; None where they do not."""
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


def _at_head(plan: Plan, checkout: Checkout) -> Plan:
    """Bind the head's imports to the working tree.

    A base whose build installs itself would else be imported on this side too.
    """
    if not isinstance(plan, Served):
        return plan
    trees = {"project": str(checkout.root), "checkout": str(checkout.project)}
    return replace(plan, load={**plan.load, **trees})


def importable(workload: Workload, call: Callable[..., Any] | None) -> Workload:
    """Return the workload of a declared engine that is the same as ``call``, a test's callable.

    ``UsageError`` ``E_CALL_AT_REVISION`` where it has no name under which another
    process could import it.
    """
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
    # Where pytest found the module (a directory of tests) another process has to be told.
    paths = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    return replace(workload, env={**workload.env, "PYTHONPATH": os.pathsep.join(paths)})


def _refuse_nothing(workload: Workload, checkout: Checkout) -> None:
    """Refuse the embedded engine where it is an installed package: both sides are the same."""
    if workload.engine != "embedded" or workload.injection is not None:
        return
    if not Sides(checkout.project, checkout.root).holds(UNDER_TEST):
        raise UsageError(
            "E_NOTHING_DIFFERS",
            f"Workload {workload.name!r} runs the engine that comes with flamegate, which is the "
            "same at every revision of this repository.",
            "Declare a workload that runs this repository's code, or deselect this one.",
        )
