"""The arguments of the marker ``flamegate``, the value of the fixture, and kernel benchmarks.

All of them name a workload and its thresholds on behalf of one test.
"""

from __future__ import annotations

import inspect
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NoReturn

import pytest

from pytest_flamegate.config.options import MARKER, is_kernel_benchmark, is_marked, takes_fixture
from pytest_flamegate.config.thresholds import Thresholds, parse_thresholds
from pytest_flamegate.config.workload import BENCHMARK_ENGINE, Workload, name_of_test
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.text import suggest
from pytest_flamegate.engines.declare import NAME
from pytest_flamegate.engines.python import WORK
from pytest_flamegate.pytest_.items import Gating, node_id
from pytest_flamegate.receipt.types import Receipt

Work = int | Callable[..., int] | None
KERNEL_ARGUMENTS = ("throughput", *WORK)
"""Arguments for tests that use the fixture ``benchmark``."""


@dataclass(frozen=True)
class MarkerOptions:
    """The arguments of ``@pytest.mark.flamegate(...)``.

    Attributes:
        throughput: The allowed drop of a benchmark's calls per second.
        elements: The number of elements that one call of a benchmark works on, or a function of
            the test's arguments that returns it. ``bytes`` and ``flops`` likewise.
    """

    workload: str | None = None
    tokens_per_second: str | None = None
    hotspots: Mapping[str, str] | None = None
    bricks: Mapping[str, str | list[str]] | None = None
    counts: Mapping[str, str] | None = None
    throughput: str | None = None
    elements: Work = None
    bytes: Work = None
    flops: Work = None

    @classmethod
    def from_item(cls, item: pytest.Item) -> MarkerOptions:
        """Read the markers of ``item``; for each argument the closest marker wins.

        Raises ``pytest.UsageError`` ``E_MARKER`` for an unknown argument.
        """
        given: dict[str, Any] = {}
        for mark in item.iter_markers(MARKER):
            if mark.args:
                raise _marker_error(
                    item,
                    f"flamegate takes no positional argument ({mark.args[0]!r}). "
                    f"Name it: {', '.join(f'{name}=…' for name in ARGUMENTS)}.",
                )
            for name, value in mark.kwargs.items():
                if name not in ARGUMENTS:
                    raise _marker_error(
                        item, f"flamegate has no argument {name!r}. Known: {', '.join(ARGUMENTS)}."
                    )
                given.setdefault(name, value)
        return cls(**given)

    def thresholds(self, item: pytest.Item, below: Thresholds) -> Thresholds:
        """Return its thresholds over those ``below``; UsageError ``E_BAD_THRESHOLD``."""
        rate = "tokens_per_second" if self.throughput is None else "throughput"
        given = {**vars(self), "tokens_per_second": getattr(self, rate)}
        try:
            return parse_thresholds(given, f"{item.nodeid} ", below)
        except UsageError as error:
            problem = error.problem.replace(" tokens_per_second is", f" {rate} is")
            raise UsageError(error.code, problem, error.remedy) from None


ARGUMENTS = tuple(each.name for each in fields(MarkerOptions))


def check_marker(item: pytest.Item) -> None:
    """Raise ``pytest.UsageError`` ``E_MARKER`` for a wrong marker, or one that gates nothing."""
    if not is_marked(item):
        return
    options = MarkerOptions.from_item(item)
    others = [name for name in KERNEL_ARGUMENTS if getattr(options, name) is not None]
    if is_kernel_benchmark(item):
        if options.tokens_per_second is not None:
            raise _marker_error(
                item,
                'a benchmark generates no tokens. Use throughput="5%" for its calls per second.',
            )
    elif others:
        raise _marker_error(
            item,
            f"{others[0]} belongs to a benchmark, and the test gates none. "
            "Use the fixture benchmark, and neither a workload nor flamegate.",
        )
    # Items of other kinds, such as workloads of a file, are gated without either.
    elif isinstance(item, pytest.Function) and not takes_fixture(item) and options.workload is None:
        raise _marker_error(
            item,
            "the marker names no workload and the test does not use the fixture, so nothing would "
            'be gated. Add workload="NAME", or use the fixture flamegate or benchmark.',
        )


def _marker_error(item: pytest.Item, message: str) -> Exception:
    return pytest.UsageError(f"{item.nodeid}: E_MARKER: {message}")


class Gate:
    """Measures and gates on behalf of one test."""

    def __init__(self, gating: Gating, item: pytest.Item) -> None:
        self._gating = gating
        self._item = item
        self._options = MarkerOptions.from_item(item)
        self._named: set[str] = set()

    def run(self, workload: str | None = None) -> Receipt | None:
        """Measure and gate a declared workload; return its receipt.

        ``workload`` is its name; without one the marker's. The three embedded ones need
        no declaration. The test fails here on a verdict that fails. The receipt is None
        if profiling is off: no kernel was seen.
        """
        __tracebackhide__ = True
        name = workload or self._options.workload
        found = self._find(name)
        return self._gating.gate(self._item, self._with_thresholds(found)).receipt

    def measure(
        self,
        call: Callable[[str, int], Iterable[Any]],
        *,
        prompt: str,
        max_tokens: int,
        name: str | None = None,
    ) -> Receipt | None:
        """Measure and gate ``call(prompt, max_tokens)``, which yields tokens; return its receipt.

        It runs in forked copies of this process, so that everything it loaded is there and
        its effects stay there. ``name`` is the workload's name, by default made of
        the test's. The test fails with ``E_BAD_CALL`` if another test has measured under this
        name; with pytest-xdist, another test of the same worker.
        """
        __tracebackhide__ = True
        is_count = isinstance(max_tokens, int) and not isinstance(max_tokens, bool)
        if not (callable(call) and isinstance(prompt, str) and is_count and max_tokens >= 1):
            _fail(
                "E_BAD_CALL",
                "measure() takes a callable, a prompt as text and max_tokens from 1 on.",
            )
        workload = Workload(
            name=self._name(name),
            engine="python",
            prompt=prompt,
            max_tokens=max_tokens,
            source=node_id(self._item),
            directory=self._gating.settings.root,
            target=f"{getattr(call, '__module__', '')}:{getattr(call, '__qualname__', 'call')}",
            thresholds=self._gating.settings.thresholds,
        )
        found = self._with_thresholds(workload)
        return self._gating.gate(self._item, found, call).receipt

    def _name(self, given: str | None) -> str:
        """Return the workload's name: two measurements of one name would share a baseline."""
        node = node_id(self._item)
        name = name_of_test(node) if given is None else given
        if not isinstance(name, str) or not NAME.fullmatch(name):
            _fail("E_BAD_NAME", f"The workload name {name!r} cannot be a directory.")
        if name in self._named:
            _fail(
                "E_BAD_CALL",
                f"measure() was called twice in one test for the same workload, {name!r}.",
            )
        if (other := self._gating.measured.setdefault(name, node)) != node:
            _fail(
                "E_BAD_CALL",
                f"measure() was called for the workload {name!r}, which {other} measures: two "
                "tests would share one baseline.",
            )
        self._named.add(name)
        return name

    def _find(self, name: str | None) -> Workload:
        known = self._gating.selection.workloads
        if name is None:
            _fail(
                "E_UNKNOWN_WORKLOAD",
                "run() was given no workload, and the test's marker names none.",
                f"Name one of: {', '.join(sorted(known))}.",
            )
        if not isinstance(name, str) or name not in known:
            for invalid in self._gating.selection.declarations.invalid:
                if invalid.name == name:
                    pytest.fail(f"error: {invalid.error}", pytrace=False)
            _fail(
                "E_UNKNOWN_WORKLOAD",
                f"There is no workload {name!r}.",
                suggest(str(name), sorted(known)),
            )
        return known[name]

    def _with_thresholds(self, workload: Workload) -> Workload:
        try:
            found = self._options.thresholds(self._item, workload.thresholds)
        except UsageError as error:
            raise pytest.fail.Exception(f"error: {error}", pytrace=False) from None
        return replace(workload, thresholds=found)


def _fail(code: str, problem: str, remedy: str = "") -> NoReturn:
    pytest.fail(f"error: {UsageError(code, problem, remedy)}", pytrace=False)


# Kernel benchmarks

_HEAVY = {"hypothesispytest": "hypothesis", "anyio": "anyio"}
"""Plugins that take long to import in every process, and the prefix of their names."""


def benchmark_of(item: pytest.Function, gating: Gating) -> Workload:
    """Return the workload that the benchmark of ``item`` is.

    ``UsageError``: ``E_BAD_THRESHOLD``, and ``E_MARKER`` if the work of one call is no whole
    number, or not known by the test's arguments.
    """
    given = MarkerOptions.from_item(item)
    settings, node = gating.settings, node_id(item)
    options: dict[str, Any] = {name: _work(name, getattr(given, name), item) for name in WORK}
    options["arguments"] = pytest_arguments(item) or None
    return Workload(
        name=name_of_test(node),
        engine=BENCHMARK_ENGINE,
        prompt="",
        max_tokens=1,
        source=node,
        directory=settings.root,
        target=node,
        thresholds=given.thresholds(item, settings.thresholds),
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
    names = (*getattr(item, "fixturenames", ()), *(mark.name for mark in item.iter_markers()))
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
    return UsageError("E_MARKER", f"{item.nodeid}: {name} is {why}.")
