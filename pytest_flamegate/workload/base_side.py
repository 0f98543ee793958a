"""The base side of a comparison: the same workload, in the checkout of another revision."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError, UsageError
from pytest_flamegate.workload.engines.base import Endpoint, Plan, Served, Streamed
from pytest_flamegate.workload.sides import Sides

if TYPE_CHECKING:
    from pytest_flamegate.workload.checkout import Checkout
    from pytest_flamegate.workload.spec import Workload


def workload_at_base(workload: Workload, checkout: Checkout) -> Workload:
    """Return ``workload`` as it is built and run in the checkout.

    Its directory, its build and the paths of its environment are the checkout's. A model
    or tokenizer is if the revision has it; an untracked one is shared by both sides.
    ``ToolError`` ``E_NOT_AT_REVISION`` where the workload's directory did not exist yet.
    """
    sides = Sides(checkout.project, checkout.root)
    directory = checkout.path(workload.directory)
    if not directory.is_dir():
        raise ToolError(
            "E_NOT_AT_REVISION",
            f"The directory {workload.directory.absolute()} of workload {workload.name!r} "
            f"does not exist at {checkout.commit[:12]}.",
            "Compare with a revision that has it; what git ignores or does not track "
            "is at no revision.",
        )
    return replace(
        workload,
        directory=directory,
        build=tuple(_if_there(part, sides) for part in workload.build),
        model=_if_there(workload.model, sides) if workload.model else workload.model,
        tokenizer=_if_there(workload.tokenizer, sides) if workload.tokenizer else None,
        env=MappingProxyType({name: _each(value, sides) for name, value in workload.env.items()}),
    )


def at_base(plan: Plan, workload: Workload, checkout: Checkout) -> tuple[Plan, Workload]:
    """Return the base side's plan and workload; call it when the base is built.

    Raises what ``workload_at_base`` does, ``UsageError`` ``E_CALL_AT_REVISION`` for a
    callable of this very process, ``E_URL_AT_REVISION`` for a server that runs already, and
    ``ToolError`` ``E_BASE_NOT_BUILT`` where the plan
    runs a program of the project that the checkout does not have.
    """
    based = workload_at_base(workload, checkout)
    sides = Sides(checkout.project, checkout.root)
    if isinstance(plan, Endpoint) and plan.url is not None:
        raise UsageError(
            "E_URL_AT_REVISION",
            f"{workload.node_name} measures a server that runs already ({plan.url}), which is of "
            "no revision.",
            'Have it started for each side: serve = ["program", "--port", "{port}"].',
        )
    if isinstance(plan, Streamed | Endpoint):
        argv = tuple(_argument(part, workload, sides) for part in plan.argv)
        return replace(plan, argv=argv), based
    return _served(plan, workload, sides), based


def _served(plan: Served, workload: Workload, sides: Sides) -> Served:
    if plan.call is not None:
        raise UsageError(
            "E_CALL_AT_REVISION",
            f"{workload.node_name} measures a callable of the running test, which cannot be "
            "had at another revision.",
            'Declare it as a workload: engine = "python", target = "module:function".',
        )
    load = {
        key: _if_there(value, sides) if isinstance(value, str) else value
        for key, value in plan.load.items()
    }
    if "directory" in load:
        load["directory"] = _moved(load["directory"], sides)
    load |= {"project": str(sides.project), "checkout": str(sides.checkout)}
    return replace(plan, load=load)


def _argument(part: str, workload: Workload, sides: Sides) -> str:
    """Return an argument of the command on this side; ``--name=PATH`` is a path as well."""
    name, separator, value = part.partition("=")
    if separator and Path(value).is_absolute():
        return f"{name}={_argument(value, workload, sides)}"
    there = _if_there(part, sides)
    if there == part and _holds(sides, part) and _is_program(Path(part)):
        raise ToolError(
            "E_BASE_NOT_BUILT",
            f"Workload {workload.name!r} runs {part}, which the revision (checked out at "
            f"{sides.checkout}) does not have: the working tree would be compared with itself.",
            "Give the workload a build that makes it, or name the program by a path "
            "that git tracks.",
        )
    return there


def _holds(sides: Sides, value: str) -> bool:
    return Path(value).is_absolute() and sides.holds(Path(value))


def _is_program(path: Path) -> bool:
    """Whether ``path`` is a binary or a script; the permission says too much on some disks."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except (OSError, ValueError):
        return False
    return start == b"\x7fELF" or start.startswith(b"#!")


def _if_there(value: str, sides: Sides) -> str:
    """Return the counterpart of an absolute path of the project, if the checkout has it."""
    moved = _moved(value, sides)
    return moved if os.path.exists(moved) else value  # noqa: PTH110 - it may be no path at all


def _each(value: str, sides: Sides) -> str:
    """Move every whole component that is a path of the project, built already or not."""
    return os.pathsep.join(_moved(part, sides) for part in value.split(os.pathsep))


def _moved(value: str, sides: Sides) -> str:
    moved = sides.moved(Path(value)) if Path(value).is_absolute() else None
    return value if moved is None else str(moved)
