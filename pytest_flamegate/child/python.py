"""A Python function that yields tokens: ``target = "module:function"``."""

from __future__ import annotations

import importlib
import os
import sys
from itertools import chain, count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_flamegate.engines.python import Generate as Generate_python
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.python import KERNEL_TRACE, TRACERS
from pytest_flamegate.engines.tokens import tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType


def load_engine(load: dict[str, Any]) -> Generate_python:
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
    target: Generate_python = found
    if "inject" not in load:
        return target
    used = [module for name, module in sys.modules.items() if name not in own]
    return _slowed(target, load, [*used, sys.modules[module_name]])


def _traced(load: dict[str, Any]) -> Generate_python:
    """Return the target, which traces itself or is traced: in a run that is for this alone."""
    # NESTED

    by, directory = load.pop("kernel_trace")
    os.environ[KERNEL_TRACE] = directory  # read by the target, as early as it likes
    target = load_engine(load)
    return traced_by_torch(target, directory) if by == TRACERS[0] else target


def _slowed(
    target: Generate_python, load: dict[str, Any], modules: list[ModuleType]
) -> Generate_python:
    from pytest_flamegate.child.inject import slow

    frame, extra_pct = load["inject"]
    slowed = slow(frame, extra_pct, modules)

    def generate(prompt: str, max_tokens: int) -> Iterable[Any]:
        tokens = target(prompt, max_tokens)
        if max_tokens < load["max_tokens"]:  # warming up, where not everything is called
            return tokens
        # Chained in C, for a profile without one more Python frame above every other.
        return chain(tokens, slowed.checked())

    return generate


if TYPE_CHECKING:
    Generate = Callable[[str, int], Iterable[Any]]


def traced_by_torch(target: Generate, directory: str) -> Generate:
    """Return ``target`` with a trace of each of its calls written into ``directory``.

    Raises ``ToolError`` ``E_NO_TORCH`` where torch cannot be imported.
    """
    try:
        from torch import profiler  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ToolError(
            "E_NO_TORCH",
            f'kernel_trace = "torch" needs torch, which cannot be imported: {error}.',
            'Install torch beside the target, or say kernel_trace = "target" and let it write a '
            "trace itself.",
        ) from None
    numbers = count()

    def generate(prompt: str, max_tokens: int) -> Iterable[Any]:
        with profiler.profile(activities=profiler.supported_activities()) as seen:
            tokens = list(tokens_of(target(prompt, max_tokens)))
        seen.export_chrome_trace(f"{directory}/torch-{next(numbers)}.json.gz")
        return tokens

    return generate
