"""A Python function that yields tokens: ``target = "module:function"``."""

from __future__ import annotations

import importlib
import os
import sys
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_flamegate.errors import ToolError, UsageError
from pytest_flamegate.workload.discover import find_model
from pytest_flamegate.workload.engines.base import Plan, Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from types import ModuleType

    from pytest_flamegate.workload.engines.base import Kinds
    from pytest_flamegate.workload.spec import Workload

    Generate = Callable[[str, int], Iterable[Any]]

TRACERS = ("torch", "target")
"""Who writes down which kernels run: torch.profiler around the target, or the target itself."""
KERNEL_TRACE = "FLAMEGATE_KERNEL_TRACE"
"""Names the directory for the traces, in the one run that is traced."""
FACTORY = "pytest_flamegate.workload.engines.python:load_engine"


class Python:
    """Imports the target in a fresh child process and calls it with prompt and max_tokens."""

    name = "python"
    keys = frozenset({"target", "model"})
    options: Mapping[str, Kinds] = MappingProxyType({"kernel_trace": (str,)})

    def sees_python(self, workload: Workload) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def validate(self, workload: Workload) -> None:
        """Refuse a missing or misspelt target."""
        module, separator, function = (workload.target or "").partition(":")
        if not (module and separator and function):
            raise UsageError(
                "E_NO_TARGET",
                f"Workload {workload.name!r} has the engine python and no usable target "
                f"({workload.target!r}).",
                'Say target = "module:function"; it is called with prompt and max_tokens '
                "and yields tokens.",
            )
        traced = workload.options.get("kernel_trace", TRACERS[0])
        if traced not in TRACERS:
            raise UsageError(
                "E_BAD_VALUE",
                f"Workload {workload.name!r} has the kernel_trace {traced!a}.",
                f"Use one of: {', '.join(TRACERS)}.",
            )

    def model(self, workload: Workload) -> Path | None:
        """Return the declared model file, if any: it is recorded, and the target loads it."""
        if workload.model is None:
            return None
        return find_model(workload.model, workload.directory)

    def plan(self, workload: Workload, model: Path | None) -> Plan:  # noqa: ARG002
        """Serve the target in a child process."""
        directory = str(workload.directory.resolve())
        load: dict[str, Any] = {
            "factory": FACTORY,
            "target": workload.target,
            "directory": directory,
        }
        if workload.injection is not None:
            load["inject"] = [workload.injection.frame, workload.injection.extra_pct]
        return Served(load)

    def prompt_tokens(self, workload: Workload) -> int | None:  # noqa: ARG002
        """Return None: only the engine's own tokenizer knows."""
        return None


def load_engine(load: dict[str, Any]) -> Generate:
    """Import the target (in the child) and return it.

    ``load["inject"]`` is a function that is slowed and its extra percent; ``slow`` says
    what is refused. The standard library that this child itself uses is left out.
    """
    if "kernel_trace" in load:
        return _traced({**load})
    own = set(sys.modules)
    sys.path.insert(0, load["directory"])
    module_name, _, function_name = load["target"].partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in function_name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ToolError(
            "E_TARGET_NOT_FOUND",
            f"The target {load['target']!r} cannot be imported: {error}.",
            f"It is looked for in {load['directory']} and the installed packages.",
        ) from None
    if not callable(found):
        raise ToolError(
            "E_TARGET_NOT_FOUND",
            f"The target {load['target']!r} is no function.",
            "Name a function that takes prompt and max_tokens and yields tokens.",
        )
    target: Generate = found
    if "inject" not in load:
        return target
    used = [module for name, module in sys.modules.items() if name not in own]
    return _slowed(target, load, [*used, sys.modules[module_name]])


def _traced(load: dict[str, Any]) -> Generate:
    """Return the target, which traces itself or is traced: in a run that is for this alone."""
    from pytest_flamegate.workload.torch_call import traced_by_torch

    by, directory = load.pop("kernel_trace")
    os.environ[KERNEL_TRACE] = directory  # read by the target, as early as it likes
    target = load_engine(load)
    return traced_by_torch(target, directory) if by == TRACERS[0] else target


def _slowed(target: Generate, load: dict[str, Any], modules: list[ModuleType]) -> Generate:
    from pytest_flamegate.workload.slowing import slow

    frame, extra_pct = load["inject"]
    slowed = slow(frame, extra_pct, modules)

    def generate(prompt: str, max_tokens: int) -> Iterable[Any]:
        tokens = target(prompt, max_tokens)
        if max_tokens < load["max_tokens"]:  # warming up, where not everything is called
            return tokens
        # Chained in C, for a profile without one more Python frame above every other.
        return chain(tokens, slowed.checked())

    return generate
