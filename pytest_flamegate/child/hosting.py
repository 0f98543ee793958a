"""Runs inside the observed process: pytest on one test, whose benchmark is called on command.

pytest collects, sets up and calls the test as always, so that fixtures, parameters and conftest
files work as usual. When the test calls ``benchmark(f)`` the call never returns: ``f`` is called on
command until the observer is gone, and then the test is torn down.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pytest_flamegate.child.wire import ReaderGoneError
from pytest_flamegate.config.options import HOSTED
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError

if TYPE_CHECKING:
    from pytest_flamegate.child.serve import Serving


ROUND_S = 0.0005
"""The least duration of a round: sending its end takes 2 µs."""
SEQUENCE_S = 0.005
MAX_ROUNDS = 10
_MAX_CALLS = 1 << 20
_LONGEST_WAIT_S = 0.25
"""How long a round may wait for a CPU on a busy machine."""
_FOREIGN_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")
_XDIST_PREFIX = "PYTEST_XDIST_"
_LIST_TESTS = "Check its name and parameters; pytest --collect-only lists them."


class Rounds(partial[Iterator[int]]):
    """The engine of a benchmark: a sequence is a number of rounds, a round a number of calls."""

    facts: Mapping[str, str]


def kernel_rounds(
    call: Callable[..., Any],
    args: Any,
    kwargs: Any,
    calls: int,
    _prompt: str,
    rounds: int,
) -> Iterator[int]:
    """Call ``call(*args, **kwargs)`` ``calls`` times for each round, and yield its number.

    The name is a frame of profiles and of stored baselines.
    """
    for number in range(rounds):
        for _ in repeat(None, calls):
            call(*args, **kwargs)
        yield number


class Hosted:
    """A plugin of pytest that serves the benchmark of a test, or records why it cannot."""

    __name__ = HOSTED

    def __init__(self, spec: Mapping[str, Any], serving: Serving) -> None:
        self._spec = spec
        self._serving = serving
        self._item: pytest.Item | None = None
        self._errors: list[str] = []
        self._failure: BaseException | None = None
        self._served = False

    def serve(self, call: Callable[..., Any], args: Any, kwargs: Any, *, setup: bool) -> NoReturn:
        """Serve the benchmark; never returns."""
        try:
            rounds = self._make_rounds(call, args, kwargs, setup=setup)
            self._served = True
            self._serving(rounds)
        except (ReaderGoneError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the outcomes of pytest, and SystemExit, are no Exception
            self._failure = error
            raise
        raise ReaderGoneError

    def require_served(self) -> None:
        """Raise the error that kept the benchmark from being served, or ended it."""
        name = self._spec["target"]
        if isinstance(self._failure, FlamegateError):
            raise self._failure
        if self._failure is not None:
            raise ToolError(
                "E_BENCHMARK_FAILED",
                f"The function that {name} benchmarks raised {_describe(self._failure)}.",
            ) from self._failure
        if self._served:
            return
        if self._errors:
            raise ToolError(
                "E_BENCHMARK_FAILED",
                f"{name} does not reach its benchmark in a process of its own: {self._errors[0]}.",
            )
        if self._item is None:
            raise ToolError("E_TARGET_NOT_FOUND", f"There is no test {name}.", _LIST_TESTS)
        raise UsageError(
            "E_NO_BENCHMARK", f"{name} takes the fixture benchmark and never calls it."
        )

    def pytest_configure(self, config: pytest.Config) -> None:
        """Register the markers of plugins that are not loaded."""
        for name in ("anyio", "hypothesis"):
            config.addinivalue_line("markers", f"{name}: of a plugin that is not loaded here")

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Record that the test exists."""
        self._item = item

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record why a file cannot be collected."""
        if report.failed:
            lines = str(report.longrepr).strip().splitlines()
            self._errors.append(lines[-1].removeprefix("E").strip() if lines else "no reason given")
        elif report.skipped and isinstance(report.longrepr, tuple):
            self._errors.append(f"it is skipped: {report.longrepr[2]}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record why the test did not reach its benchmark."""
        error = call.excinfo.value if call.excinfo is not None else None
        if isinstance(error, pytest.skip.Exception):
            self._errors.append(f"it is skipped: {error.msg or 'no reason given'}")
        elif error is not None and not isinstance(error, ReaderGoneError):
            self._errors.append(_describe(error))
        return (yield)

    def _make_rounds(
        self, call: Callable[..., Any], args: Any, kwargs: Any, *, setup: bool
    ) -> Rounds:
        returned = call(*args, **kwargs)
        if inspect.isawaitable(returned):
            if inspect.iscoroutine(returned):
                returned.close()
            raise UsageError(
                "E_BENCHMARK_ASYNC",
                f"The function that {self._spec['target']} benchmarks is asynchronous: its call "
                "only returns an awaitable.",
            )
        if "calls" in self._spec:
            assert self._item is not None
            calls = self._spec["calls"]
            facts = {"test_sha256": hashlib.sha256(self._item.path.read_bytes()).hexdigest()}
        else:
            calls, rounds = calibrate_rounds(call, args, kwargs)
            facts = {"calls": str(calls), "rounds": str(rounds)}
            if setup:
                facts["setup"] = "measured with each call"
        made = Rounds(kernel_rounds, call, args, kwargs, calls)
        made.facts = facts
        return made


def calibrate_rounds(call: Callable[..., Any], args: Any, kwargs: Any) -> tuple[int, int]:
    """Return the calls of a round, and the rounds of a sequence of about 5 ms."""

    def time_round() -> float:
        began = time.perf_counter()
        for _ in kernel_rounds(call, args, kwargs, calls, "", 1):
            pass
        return time.perf_counter() - began

    calls = 1
    while True:
        took_s = time_round()
        if ROUND_S <= took_s < _LONGEST_WAIT_S:
            took_s = min(took_s, time_round())  # it may have waited for the CPU
        if took_s >= ROUND_S or calls >= _MAX_CALLS:
            break
        calls *= 2
    return calls, max(1, min(MAX_ROUNDS, round(SEQUENCE_S / max(took_s, 1e-9))))


def host(spec: dict[str, Any], serving: Serving) -> None:
    """Run pytest on the test ``spec["target"]``; hand its benchmark to ``serving``.

    Raises ``UsageError`` ``E_NO_BENCHMARK``, ``E_BENCHMARK_ASYNC``, and ``ToolError``
    ``E_TARGET_NOT_FOUND``, ``E_BENCHMARK_FAILED``.
    """
    _discard_output()
    if spec["on_path"]:
        sys.path.insert(0, spec["directory"])
    hosted = Hosted(spec, serving)
    _replace_fixture(hosted)
    # Rewriting of assertions would import a plugin's package from the wrong side.
    own = ("-q", "--tb=short", "--assert=plain", "-p", "no:cacheprovider", "-o", "addopts=")
    root = f"--rootdir={spec['directory']}"
    pytest.main([spec["target"], *own, root, *spec["arguments"]], plugins=[hosted])
    hosted.require_served()


def _discard_output() -> None:
    """Discard output: a call that prints does so thousands of times. Drop foreign options too."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    for name in [
        each for each in os.environ if each in _FOREIGN_VARIABLES or each.startswith(_XDIST_PREFIX)
    ]:
        del os.environ[name]


def _replace_fixture(hosted: Hosted) -> None:
    """Serve the first call of any benchmark fixture of this process."""

    def called(_: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        hosted.serve(function, args, kwargs, setup=False)

    def pedantic(
        _: Any,
        target: Callable[..., Any],
        args: Any = (),
        kwargs: Any = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        **_how_often: Any,
    ) -> None:
        given = args, kwargs or {}
        if setup is None and teardown is None:
            hosted.serve(target, *given, setup=False)

        def prepared() -> Any:
            now = (setup() if setup is not None else None) or given
            returned = target(*now[0], **now[1])
            if teardown is not None:
                teardown(*now[0], **now[1])
            return returned

        hosted.serve(prepared, (), {}, setup=True)

    fixture: Any = BenchmarkFixture
    fixture.__call__, fixture.pedantic = called, pedantic


def _describe(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
