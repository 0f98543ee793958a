"""The sides of a comparison that are checked out, built and run like the project.

The base always is. ``flamegate check`` checks the head out too, as a tree of the same kind.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_flamegate.child.relocation import UNDER_TEST, TreePair
from pytest_flamegate.config.options import EMBEDDED
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import git
from pytest_flamegate.core.errors import (
    FlamegateError,
    NoBaselineError,
    ToolError,
    UndecidedError,
    UsageError,
)
from pytest_flamegate.core.files import is_file, real_path
from pytest_flamegate.core.text import format_value
from pytest_flamegate.engines import declare, engine
from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.gate.comparability import OWN_WORKLOAD_FIELDS
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.observe.build import Build, build_workload, without_build_variables
from pytest_flamegate.observe.worktree import Checkout, move_plan, move_workload, open_checkout
from pytest_flamegate.receipt.compose import recipe
from pytest_flamegate.receipt.rerun import NOT_RUN, compare_recipes
from pytest_flamegate.receipt.types import Side

_MISSING = frozenset({"E_TARGET_NOT_FOUND", "E_BUILD_FAILED", "E_CANNOT_START"})
"""Errors of a base that does not have the workload."""


@dataclass
class Checkouts:
    """Revisions that were checked out: each once.

    ``resolved`` is the commit that the revision named before any code of the project ran, if that
    is known: a test may move a branch or a tag. ``_built`` is the last build in each checkout: it
    may have replaced what an earlier one made.
    """

    resolved: str | None = None
    _open: dict[tuple[Path, str], Checkout] = field(default_factory=dict)
    _built: dict[Path, tuple[object, Build | None]] = field(default_factory=dict)

    def checkout(self, directory: Path, rev: str) -> Checkout:
        """Return ``rev`` of the repository around ``directory``, checked out."""
        key = (directory.absolute(), rev)
        if key not in self._open:
            known = git.resolve(directory, self.resolved) if self.resolved else None
            has_moved = known is not None and known != git.resolve(directory, rev)
            self._open[key] = open_checkout(directory, (has_moved and known) or rev)
        return self._open[key]

    def build(self, workload: Workload, checkout: Checkout) -> Build | None:
        """Build ``workload`` in the checkout, even if ``FLAMEGATE_SKIP_BUILD`` is set."""
        moved = move_workload(workload, checkout)
        key = (moved.directory, moved.build, *sorted(moved.env.items()))
        last, built = self._built.pop(checkout.root, (None, None))
        if key != last:
            built = build_workload(moved, always=True)
        self._built[checkout.root] = key, built
        return built

    def close(self) -> None:
        """Remove all checkouts, even if one cannot be removed."""
        with ExitStack() as stack:
            for checkout in self._open.values():
                stack.callback(checkout.close)


def find_declaration(based: Workload) -> Workload | None:
    """Return the workload of this name as the base declares it; None if it does not.

    A benchmark or a callable of a test has no declaration: the base's test file is the base's own.

    Raises:
        UsageError: The base's declaration has an error.
    """
    if "::" in based.source or based.source == EMBEDDED:
        return None
    own = based.directory / based.source
    is_usual = based.source in (declare.FILE_NAME, declare.PROJECT_NAME)
    file = own if is_file(own) and not is_usual else declare.find_file(based.directory)
    for each in () if file is None else declare.read_declarations(file).entries:
        if isinstance(each, declare.InvalidWorkload):
            # An error in a template is an entry with the family's name.
            if each.name in (based.name, based.family):
                raise each.error
        elif each.name == based.name:
            return each
    return None


def declare_base(workload: Workload, checkout: Checkout, notes: list[str]) -> Workload:
    """Return the head's workload, built and started as the base declares it.

    A key that differs is added to ``notes``. A workload that the base does not declare is built
    and started as the head declares it.

    Raises:
        UndecidedError: ``E_WORKLOAD_DIFFERS`` if the base declares other work: another prompt,
            number of tokens, seed, model or environment; the code of an error in its file.
    """
    try:
        own = find_declaration(replace(workload, directory=checkout.move_path(workload.directory)))
    except UsageError as error:
        raise _broken_base_error(checkout.commit, error) from None
    if own is None:
        return workload
    words = {
        key: f"{key} is {format_value(old)} at {checkout.commit[:12]} and {format_value(new)} now"
        for key, old, new in compare_recipes(_recipe(own), _recipe(workload))
        if key not in NOT_RUN
    }
    if other := [sentence for key, sentence in words.items() if key not in OWN_WORKLOAD_FIELDS]:
        raise UndecidedError(
            "E_WORKLOAD_DIFFERS",
            f"The base declares other work: {'; '.join(other)}.",
            "Compare with a revision that declares the same, or give the new work a new name. "
            f"Only {', '.join(OWN_WORKLOAD_FIELDS)} may differ.",
        )
    notes += [f"Each side is started as it declares: {each}." for each in words.values()]
    options = {
        **{key: each for key, each in workload.options.items() if key not in OWN_WORKLOAD_FIELDS},
        **{key: each for key, each in own.options.items() if key in OWN_WORKLOAD_FIELDS},
    }
    # The program may have been built by hand before the head declared how.
    program = own.command[0] if own.command else ""
    lacks_program = os.sep in program and not is_file(own.directory / program)
    return replace(
        workload,
        build=workload.build if lacks_program and not own.build else own.build,
        command=own.command,
        target=own.target,
        options=MappingProxyType(options),
    )


def _recipe(workload: Workload) -> dict[str, object]:
    env = without_build_variables(workload.env) if workload.build else workload.env
    return recipe(replace(workload, env=env))


def base_error(
    based: Workload, commit: str, error: FlamegateError, *, has_workload: bool = False
) -> UndecidedError:
    """Return the error of a base that does not build or run: it is no verdict on the head.

    ``has_workload`` says that the base has the workload although it may not declare it.
    """
    if error.code in _MISSING and not has_workload and find_declaration(based) is None:
        return NoBaselineError(
            "I_NEW_WORKLOAD",
            f"NOTHING WAS COMPARED: the workload is new. At {commit[:12]}: {error.problem}",
        )
    return _broken_base_error(commit, explain_ignored(based, commit, error))


def explain_ignored(workload: Workload, commit: str, error: FlamegateError) -> FlamegateError:
    """Return the error of a side in a checkout, with advice if a file of its command is missing."""
    # A program that a build should have made has advice of its own.
    for word in workload.command[bool(workload.build) :]:
        is_file_name = Path(word).suffix or os.sep in word
        if is_file_name and word in error.problem and not (workload.directory / word).exists():
            remedy = (
                f"{word} is not in the checkout of {commit[:12]}: does git ignore it? Declare the "
                "build that makes it, give a model by the key model and {model}, and other files "
                "by their absolute path."
            )
            return ToolError(error.code, error.problem, remedy)
    if error.code == "E_ENGINE_RAISED":
        remedy = (
            f"{error.remedy} It ran in a checkout of {commit[:12]}, which has no submodules and no "
            "files that git ignores."
        )
        return ToolError(error.code, error.problem, remedy)
    return error


def _broken_base_error(commit: str, error: FlamegateError) -> UndecidedError:
    problem = f"The base {commit[:12]} does not run, which says nothing about the change."
    return UndecidedError(error.code, f"{problem} {error.problem}", error.remedy)


@contextmanager
def explain_error(
    role: Side | None, workload: Workload, commit: str, *, has_workload: bool = False
) -> Iterator[None]:
    """Explain an error of a side in a checkout: one of the base is no verdict on the head.

    A workload that the base does not have is new, unless ``has_workload`` says that it has it: a
    file outside of the repository declares the work of both sides.
    """
    try:
        yield
    except FlamegateError as error:
        if role == "base":
            raise base_error(workload, commit, error, has_workload=has_workload) from None
        raise explain_ignored(workload, commit, error) from None


def plan_in_checkout(
    workload: Workload, moved: Workload, checkout: Checkout
) -> tuple[Path | None, Plan]:
    """Find the model of a side, and plan how it runs in a checkout that is built already.

    The project's model and tokenizer are used, or their counterparts; those that only the
    checkout has were made by its build. ``moved`` is the workload as it runs there.
    """
    chosen = engine(workload.engine)
    try:
        found = chosen.model(workload)
        plan = chosen.plan(workload, found)
    except FlamegateError:
        with suppress(FlamegateError):
            found = chosen.model(moved)
            return found, move_plan(chosen.plan(moved, found), workload, checkout)
        raise
    model = found and Path(checkout.move_existing(str(found)))
    return model, move_plan(plan, workload, checkout)


def share_model(workload: Workload, checkouts: tuple[Checkout, ...]) -> tuple[Checkout, ...]:
    """Return the checkouts of both sides before their builds, sharing the project's model.

    It is shared unless both have their own of that name, so that its place is alike for both.
    """
    with suppress(FlamegateError):  # a build may make it
        model = engine(workload.engine).model(workload)
        if model and not all(each.move_path(model).exists() for each in checkouts):
            return tuple(replace(each, shared=frozenset({str(model)})) for each in checkouts)
    return checkouts


def make_importable(workload: Workload, call: Callable[[str, int], Iterable[Any]]) -> Workload:
    """Return the workload with which another process can import ``call`` from a test module.

    Raises ``UsageError`` ``E_CALL_AT_REVISION`` if it has no name to import it by.
    """
    name = getattr(call, "__qualname__", "<unnamed>")
    module = sys.modules.get(getattr(call, "__module__", ""))
    file = getattr(module, "__file__", None)
    is_named = module is not None and all(map(str.isidentifier, module.__name__.split(".")))
    if "<" in name or hasattr(call, "__self__") or not is_named or module is None or file is None:
        raise UsageError(
            "E_CALL_AT_REVISION",
            f"{workload.node_name} measures {name}, which no other process can import, and so "
            "not at another revision either.",
        )
    levels = module.__name__.count(".") + Path(file).name.startswith("__init__.")
    directory = Path(file).absolute().parents[levels]
    if directory == workload.directory.absolute():
        return workload
    # pytest may have found the module in a directory that another process does not search.
    paths = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    return replace(workload, env={**workload.env, "PYTHONPATH": os.pathsep.join(paths)})


def require_other_code(workload: Workload, checkout: Checkout) -> None:
    """Raise ``UsageError`` ``E_SAME_CODE`` if the head is the base's commit without a change."""
    head = git.read_commit(workload.directory)
    if workload.injection or not head or head.uncommitted or head.revision != checkout.commit:
        return
    raise same_commit_error(
        f"The base {checkout.commit[:12]} is the commit that is checked out, and no file differs "
        "from it: the code would be compared with itself."
    )


def same_commit_error(problem: str) -> UsageError:
    """Build the error of a commit that would be compared with itself."""
    return UsageError(
        "E_SAME_CODE",
        problem,
        "Compare with the commit before (--flamegate-against=HEAD~1, flamegate check "
        '--base=HEAD~1), or with the one that a branch began at: "$(git merge-base origin/main '
        'HEAD)".',
    )


def require_own_code(workload: Workload, checkout: Checkout) -> None:
    """Raise for the embedded workloads of an installed package, which nothing declares."""
    if workload.source != EMBEDDED or workload.injection is not None:
        return
    if not TreePair(checkout.project, checkout.root).relocate(UNDER_TEST):
        raise UsageError(
            "E_SAME_CODE",
            f"Workload {workload.name!r} runs the engine that comes with flamegate, which is the "
            "same at every revision of this repository.",
            "Declare a workload that runs the repository's code, or deselect this one.",
        )


def find_shared_program(plan: Plan, workload: Workload, checkout: Checkout) -> Reason | None:
    """Return a note if the base runs the very program of the head, else None.

    Raises:
        UsageError: ``E_SAME_CODE`` if both sides build it in one place outside of the
            repository. A program in a directory of the ``PATH`` was not made by the build.
    """
    if isinstance(plan, Served):
        words = f"NO CODE WAS COMPARED: the engine {workload.engine} runs none of the repository."
        return None if "target" in plan.load else Reason("W_SAME_PROGRAM", words)
    files = (Path(workload.directory, part) for part in plan.argv)
    root = real_path(checkout.root)
    if any(is_file(file) and real_path(file).is_relative_to(root) for file in files):
        return None
    program = Path(plan.argv[0])
    is_path = os.sep in plan.argv[0] and str(program.parent) not in os.get_exec_path()
    if workload.build and is_path:
        raise UsageError(
            "E_SAME_CODE",
            f"Both sides build and run {program}, which lies outside the repository: one side's "
            "program would be measured as the other's.",
            "Let the build write inside the project (CARGO_TARGET_DIR may lead it elsewhere), and "
            "name the program by its relative path. One that the build does not make, as an "
            "interpreter, is found in the PATH if it is named alone (python3).",
        )
    return Reason(
        "I_NOTE",
        f"Both sides run {plan.argv[0]!r}, and none of its arguments is a file of the "
        "repository: only the files that it reads from its directory can differ.",
    )


def use_own_environments(
    base: Plan, head: Plan, based: Workload, workload: Workload
) -> tuple[Plan, Plan]:
    """Run each side in the ``.venv`` that its build made; a fresh checkout has no other."""
    if not based.build or not isinstance(base, Served) or not isinstance(head, Served):
        return base, head
    pythons = [each.directory.absolute() / ".venv/bin/python" for each in (based, workload)]
    if not pythons[0].exists():
        return base, head
    base = replace(base, python=str(pythons[0]))
    return base, replace(head, python=str(pythons[1])) if pythons[1].exists() else head
