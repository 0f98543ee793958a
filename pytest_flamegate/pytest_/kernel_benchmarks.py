"""A test's benchmark as a workload of its own, and the work of one call."""

import inspect
import operator
import os
import re
from types import MappingProxyType
from typing import Any

import pytest

from pytest_flamegate.config.workload import BENCHMARK_ENGINE, Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines.python import WORK
from pytest_flamegate.pytest_.fixture import MarkerOptions, name_of_test
from pytest_flamegate.pytest_.items import Gating

_HEAVY = {"hypothesispytest": "hypothesis", "anyio": "anyio"}
"""Plugins that take long to import in every process, and the prefix of their names."""


def benchmark_of(item: pytest.Function, gating: Gating) -> Workload:
    """Return the workload that the benchmark of ``item`` is.

    ``UsageError``: ``E_BAD_THRESHOLD``, and ``E_BAD_WORK`` if the work of one call is no whole
    number, or not known by the test's arguments.
    """
    marker = MarkerOptions.from_item(item)
    settings = gating.settings
    options: dict[str, Any] = {name: _work(name, getattr(marker, name), item) for name in WORK}
    options["arguments"] = pytest_arguments(item) or None
    return Workload(
        name=name_of_test(item.nodeid),
        engine=BENCHMARK_ENGINE,
        prompt="",
        max_tokens=1,
        source=item.nodeid,
        directory=settings.root,
        target=item.nodeid,
        thresholds=marker.thresholds(item, settings.thresholds),
        options=MappingProxyType({k: each for k, each in options.items() if each is not None}),
    )


def pytest_arguments(item: pytest.Item) -> tuple[str, ...]:
    """Return how pytest has to be called elsewhere, so that ``item`` is the same test there.

    Options of one run (selection, reports, workers) are left out, and so are the
    options that the project's own conftest files declare.
    """
    config = item.config
    option = config.option
    found: list[str] = []
    if option.inifilename and config.inipath is not None:
        # From the root on, where the process runs; at another revision that is another file.
        found += ["-c", os.path.relpath(config.inipath, config.rootpath)]
    for plugin in option.plugins or ():
        found += ["-p", plugin]
    for override in option.override_ini or ():
        if not override.startswith(("addopts", "flamegate")):
            found += ["-o", override]
    if option.importmode != "prepend":
        found.append(f"--import-mode={option.importmode}")
    for plugin, begins in _HEAVY.items():
        if config.pluginmanager.has_plugin(plugin) and not _uses(item, begins):
            found += ["-p", f"no:{plugin}"]
    return tuple(found)


def _uses(item: pytest.Item, begins: str) -> bool:
    """Whether the test asks for something whose name begins so, or a key of the configuration."""
    names = (*getattr(item, "fixturenames", ()), *(marker.name for marker in item.iter_markers()))
    path = item.config.inipath
    text = path.read_text("utf-8", "replace") if path is not None else ""
    key = re.search(rf"^\s*{begins}\w*\s*=", text, re.MULTILINE)
    return key is not None or any(name.startswith(begins) for name in names)


def _work(name: str, given: object, item: pytest.Function) -> int | None:
    """Return the work of one call, None if the marker does not give it."""
    if given is None:
        return None
    callspec = getattr(item, "callspec", None)
    known = {**item.funcargs, **(callspec.params if callspec is not None else {})}
    try:
        value = given
        if callable(given):
            value = given(**{name: known[name] for name in inspect.signature(given).parameters})
    except Exception as error:
        raise _bad_work(item, name, f"not known: {type(error).__name__}: {error}") from None
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1:
        raise _bad_work(item, name, repr(value))
    return number


def _bad_work(item: pytest.Function, name: str, why: str) -> UsageError:
    return UsageError(
        "E_BAD_WORK",
        f"{item.nodeid}: {name} is {why}.",
        f"Say {name}= a whole number from 1 on, or a function of the test's arguments.",
    )
