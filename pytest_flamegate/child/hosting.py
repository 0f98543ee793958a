"""Runs inside the observed process: pytest on one test, whose benchmark is called on command.

pytest collects, sets up and calls the test as always, so that fixtures, parameters and conftest
files mean what they mean elsewhere. Where the test calls ``benchmark(f)`` it never gets an
answer: ``f`` is called on command until the observer is gone, and then the test is torn down.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pytest_flamegate.config.marker import HOSTED
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from typing import NoReturn

    from pytest_flamegate.child.serve import Serving


ROUND_S = 0.0005
"""How long a round takes at least: telling it costs 2 µs."""
SEQUENCE_S = 0.005
MOST_ROUNDS = 10
_MOST_CALLS = 1 << 20
_FOREIGN = ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")
_XDIST = "PYTEST_XDIST_"


class _OverError(BaseException):
    """The observer is gone. pytest takes it for the end of the test, and tears down."""


class Rounds:
    """What stands for an engine: each sequence is so many rounds of so many calls."""

    def __init__(self, call: Callable[..., Any], args: Any, kwargs: Any, calls: int) -> None:
        self._what = call, args, kwargs
        self._calls = calls
        self.facts: dict[str, str] = {}

    def __call__(self, prompt: str, max_tokens: int) -> Iterator[int]:  # noqa: ARG002
        """Yield the number of each round when it is done."""
        return kernel_rounds(*self._what, self._calls, max_tokens)


def kernel_rounds(
    call: Callable[..., Any], args: Any, kwargs: Any, calls: int, rounds: int
) -> Iterator[int]:
    """Call ``call(*args, **kwargs)`` so many times for each round, and yield its number."""
    for number in range(rounds):
        for _ in repeat(None, calls):
            call(*args, **kwargs)
        yield number


class Hosted:
    """pytest's plugin: what became of the test, and how its benchmark is served."""

    __name__ = HOSTED

    def __init__(self, spec: Mapping[str, Any], serving: Serving) -> None:
        self._spec = spec
        self._serving = serving
        self._item: pytest.Item | None = None
        self._told: list[str] = []
        self._skipped = ""
        self._failure: BaseException | None = None
        self._served = False

    def serve(self, call: Callable[..., Any], args: Any, kwargs: Any, *, setup: bool) -> NoReturn:
        """Serve the benchmark; never returns."""
        try:
            made = self._made(call, args, kwargs, setup=setup)
            self._served = True
            self._serving(made)
        except BrokenPipeError:
            pass
        except Exception as error:
            self._failure = error
            raise
        raise _OverError

    def require_served(self) -> None:
        """Raise what kept the benchmark from being served, or ended it."""
        name = self._spec["target"]
        if isinstance(self._failure, FlamegateError):
            raise self._failure
        if self._failure is not None:
            raise ToolError(
                "E_BENCHMARK_RAISED",
                f"What {name} benchmarks raised {_words(self._failure)}.",
                "Run the test by itself: what is called again and again must not wear out.",
            ) from self._failure
        if self._served:
            return
        if self._skipped:
            raise UsageError(
                "E_BENCHMARK_SKIPPED",
                f"{name} is skipped in a process of its own: {self._skipped}.",
                "Have it decide the same in every process.",
            )
        if self._told:
            raise ToolError(
                "E_BENCHMARK_FAILED",
                f"{name} fails in a process of its own: {self._told[0]}.",
                "Run that test alone; what it needs must not come from another test.",
            )
        if self._item is None:
            raise ToolError(
                "E_BENCHMARK_NOT_FOUND",
                f"There is no test {name}.",
                "Check its name and its parameters; pytest --collect-only lists them.",
            )
        raise UsageError(
            "E_NO_BENCHMARK",
            f"{name} takes the fixture benchmark and never calls it.",
            "Call benchmark(function, ...) in it.",
        )

    def pytest_configure(self, config: pytest.Config) -> None:
        """Know the markers of plugins that were left out."""
        for name in ("anyio", "hypothesis"):
            config.addinivalue_line("markers", f"{name}: of a plugin that is not loaded here")

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Know that there is such a test."""
        self._item = item

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the last words of a file that cannot be collected."""
        if report.failed:
            lines = str(report.longrepr).strip().splitlines()
            self._told.append(lines[-1].removeprefix("E").strip() if lines else "no reason given")
        elif report.skipped and isinstance(report.longrepr, tuple):
            self._skipped = report.longrepr[2]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep why the test did not come to its benchmark."""
        error = call.excinfo.value if call.excinfo is not None else None
        if isinstance(error, pytest.skip.Exception):
            self._skipped = error.msg or "no reason given"
        elif error is not None and not isinstance(error, _OverError):
            self._told.append(_words(error))
        return (yield)

    def _made(self, call: Callable[..., Any], args: Any, kwargs: Any, *, setup: bool) -> Rounds:
        returned = call(*args, **kwargs)
        if inspect.isawaitable(returned):
            if inspect.iscoroutine(returned):
                returned.close()
            raise UsageError(
                "E_BENCHMARK_ASYNC",
                f"What {self._spec['target']} benchmarks is asynchronous: its call only makes "
                "what would have to be awaited.",
                "Benchmark a function that runs it to its end.",
            )
        if "calls" not in self._spec:
            calls, rounds = calibrated(call, args, kwargs)
            made = Rounds(call, args, kwargs, calls)
            made.facts = {"calls": str(calls), "rounds": str(rounds)}
            if setup:
                made.facts["setup"] = "measured with each call"
            return made
        made = Rounds(call, args, kwargs, self._spec["calls"])
        if self._item is not None:
            made.facts = {"test_sha256": hashlib.sha256(self._item.path.read_bytes()).hexdigest()}
        return made


def calibrated(call: Callable[..., Any], args: Any, kwargs: Any) -> tuple[int, int]:
    """Return how many calls make a round, and how many rounds a sequence of about 5 ms."""
    calls = 1
    while True:
        began = time.perf_counter()
        for _ in kernel_rounds(call, args, kwargs, calls, 1):
            pass
        took_s = time.perf_counter() - began
        if took_s >= ROUND_S or calls >= _MOST_CALLS:
            break
        calls *= 2
    return calls, max(1, min(MOST_ROUNDS, round(SEQUENCE_S / max(took_s, 1e-9))))


def host(spec: dict[str, Any], serving: Serving) -> None:
    """Run pytest on the test ``spec["target"]``; hand its benchmark to ``serving``.

    Raises ``UsageError`` ``E_NO_BENCHMARK``, ``E_BENCHMARK_SKIPPED``, ``E_BENCHMARK_ASYNC``, and
    ``ToolError`` ``E_BENCHMARK_NOT_FOUND``, ``E_BENCHMARK_FAILED``, ``E_BENCHMARK_RAISED``.
    """
    _quiet()
    if spec["on_path"]:
        sys.path.insert(0, spec["directory"])
    hosted = Hosted(spec, serving)
    _replace_fixture(hosted)
    # What pytest rewrites it finds by itself, and a plugin's package on the wrong side.
    own = ("-q", "--tb=short", "--assert=plain", "-p", "no:cacheprovider", "-o", "addopts=")
    root = f"--rootdir={spec['directory']}"
    pytest.main([spec["target"], *own, root, *spec["arguments"]], plugins=[hosted])
    hosted.require_served()


def _quiet() -> None:
    """Let nothing that is printed be kept: a call that prints does so many thousand times."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    for name in [each for each in os.environ if each in _FOREIGN or each.startswith(_XDIST)]:
        del os.environ[name]


def _replace_fixture(hosted: Hosted) -> None:
    """Answer for every benchmark fixture of this process."""

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


def _words(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


__all__ = ["Hosted", "Rounds", "calibrated", "host", "kernel_rounds"]
