"""The base side of a comparison: a revision that is checked out, built and run like the project."""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_flamegate.child.relocation import UNDER_TEST, TreePair
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import NoBaselineError, ToolError, UsageError
from pytest_flamegate.core.files import is_file, real_path
from pytest_flamegate.engines import declare
from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.observe.build import Build, InspectedProgram, build_workload, inspect_program
from pytest_flamegate.observe.worktree import Checkout, make_base_workload, open_checkout


@dataclass
class Checkouts:
    """Revisions that were checked out: each once, and built once by each command."""

    _open: dict[tuple[Path, str], Checkout] = field(default_factory=dict)
    _built: dict[tuple[Path, tuple[str, ...]], Build | None] = field(default_factory=dict)

    def checkout(self, directory: Path, rev: str) -> Checkout:
        """Return ``rev`` of the repository around ``directory``, checked out."""
        key = (directory.absolute(), rev)
        if key not in self._open:
            self._open[key] = open_checkout(directory, rev)
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
        if key not in self._built:
            try:
                built = build_workload(based, always=True)
            except ToolError as error:
                if based.source.endswith(".toml") and not is_declared(based):
                    raise NoBaselineError(
                        "I_NEW_WORKLOAD",
                        f"NOTHING WAS COMPARED: the workload is new, and {checkout.commit[:12]} "
                        f"does not build it. {error.problem}",
                        "The next comparison will have it.",
                    ) from None
                raise ToolError(
                    "E_BASE_BUILD_FAILED",
                    f"The base {checkout.commit[:12]} does not build, which says nothing about "
                    f"the change. {error.problem}",
                    "Compare with a revision that builds here, or correct the workload's build.",
                ) from None
            if head is not None:
                head.require_unchanged()
            self._built[key] = built
        return self._built[key]

    def close(self) -> None:
        """Remove all of them."""
        with ExitStack() as stack:
            for checkout in self._open.values():
                stack.callback(checkout.close)


def is_declared(based: Workload) -> bool:
    """Whether the base declares a workload of this name, or cannot tell: its file is malformed."""
    own = based.directory / based.source
    try:
        file = own if is_file(own) else declare.find_file(based.directory)
        entries = () if file is None else declare.read_declarations(file).entries
    except UsageError:
        return True
    # An error in a template is an entry with the family's name.
    return not {each.name for each in entries}.isdisjoint({based.name, based.family})


def make_importable(workload: Workload, call: Callable[[str, int], Iterable[Any]]) -> Workload:
    """Return the workload with which another process can import ``call`` from a test module.

    Raises ``UsageError`` ``E_CALL_AT_REVISION`` if it has no name to import it by.
    """
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


def require_own_code(workload: Workload, checkout: Checkout) -> None:
    """Raise for the embedded engine of an installed package: it is the same on both sides."""
    if workload.engine != "embedded" or workload.injection is not None:
        return
    if not TreePair(checkout.project, checkout.root).relocate(UNDER_TEST):
        raise UsageError(
            "E_NOTHING_DIFFERS",
            f"Workload {workload.name!r} runs the engine that comes with flamegate, which is the "
            "same at every revision of this repository.",
            "Declare a workload that runs this repository's code, or deselect this one.",
        )


def find_shared_program(plan: Plan, workload: Workload, checkout: Checkout) -> str | None:
    """Return a note if the base runs the very program of the head, else None.

    Raises:
        UsageError: ``E_SHARED_PROGRAM`` if both sides build it in one place outside of the
            repository. A program in a directory of the ``PATH`` was not made by the build.
    """
    if isinstance(plan, Served):
        return None
    files = (Path(workload.directory, part) for part in plan.argv)
    root = real_path(checkout.root)
    if any(is_file(file) and real_path(file).is_relative_to(root) for file in files):
        return None
    program = Path(plan.argv[0])
    is_path = os.sep in plan.argv[0] and str(program.parent) not in os.get_exec_path()
    if workload.build and is_path:
        raise UsageError(
            "E_SHARED_PROGRAM",
            f"Both sides build and run {program}, which lies outside the repository: one side's "
            "program would be measured as the other's.",
            "Let the build write inside the project (CARGO_TARGET_DIR may lead it elsewhere), and "
            "name the program by its relative path.",
        )
    return (
        f"Both sides run {plan.argv[0]!r}, and none of its arguments is a file of the "
        "repository: only the files that it reads from its directory can differ."
    )


def inspect_base_program(
    plan: Plan, workload: Workload, built: Build | None, checkout: Checkout
) -> InspectedProgram | None:
    """Inspect the base's program; its paths are written as the project's."""
    try:
        found = inspect_program(plan, workload, built)
    except ToolError as error:
        problem = f"At {checkout.commit[:12]}: {error.problem}"
        raise ToolError(error.code, problem, error.remedy) from None
    return found and found.with_build_paths(checkout.root, checkout.project)


def use_own_environments(
    base: Plan, head: Plan, based: Workload, workload: Workload
) -> tuple[Plan, Plan]:
    """Run each side in the ``.venv`` that its build made; a fresh checkout has no other."""
    if not workload.build or not isinstance(base, Served) or not isinstance(head, Served):
        return base, head
    pythons = [each.directory.absolute() / ".venv/bin/python" for each in (based, workload)]
    if not pythons[0].exists():
        return base, head
    base = replace(base, python=str(pythons[0]))
    return base, replace(head, python=str(pythons[1])) if pythons[1].exists() else head


def bind_to_project(plan: Plan, checkout: Checkout) -> Plan:
    """Bind the head's imports to the working tree: a build may install the base's package."""
    if not isinstance(plan, Served):
        return plan
    trees = {"project": str(checkout.root), "checkout": str(checkout.project)}
    return replace(plan, load={**plan.load, **trees})


def mark_own_model(plan: Plan) -> Plan:
    """Report that the two sides load different models: then their code may be the same."""
    if not isinstance(plan, Served) or "model" not in plan.load:
        return plan
    return replace(plan, load={**plan.load, "own_model": True})
