"""Slow a Python function by a share of its own CPU time, found by the name in a profile.

Every object of the function gets a code object that forwards its calls to a wrapper, so aliases,
tables, closures and decorators are slowed too: a wrapper set in its module would miss them. The
wrapper adds work to each call of a copy of the original. All these frames carry the function's own
name and file.
"""

from __future__ import annotations

import difflib
import gc
import importlib
import inspect
import sys
import sysconfig
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from threading import get_ident
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pytest_flamegate.core.errors import UsageError

_SUGGESTIONS = 5
_SIMILARITY = 0.5
_PACKAGES = ("/site-packages/", "/dist-packages/")
_ASYNCHRONOUS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_PAYABLE_NS = 50_000.0
_TOLERANCE = 0.05
_SLACK_NS = 100_000.0
_CALLS = 500
_ROUNDS = 9

# Looked up when they are called, so that a test can replace them.
read_cpu_ns = time.thread_time_ns
spin_steps: Iterable[object] = range(500)


def find_function(frame: str, modules: Iterable[ModuleType]) -> tuple[FunctionType, ...]:
    """Return every object of the function ``frame``: a closure may exist many times.

    ``frame`` is a bare name, ``Class.method`` or ``module.qualname``, searched for among the
    functions defined in ``modules``; or ``module:qualname``, whose module is imported.
    The project's own functions have precedence over those of installed packages. Raises
    ``UsageError`` ``E_UNKNOWN_FRAME``, which suggests functions, for no function and for several.
    """
    known = _find_functions(modules)
    module_name, colon, qualname = frame.rpartition(":")
    if colon:
        try:
            imported = _find_functions([importlib.import_module(module_name)])
        except (ImportError, TypeError, ValueError) as error:
            raise UsageError(
                "E_UNKNOWN_FRAME",
                f"The module of {frame!r} cannot be imported: {error}.",
                "Write module:qualname, for example mypackage.ops:softmax.",
            ) from None
        found = [each for each in imported if _qualname(each) == qualname]
        known = [*imported, *known]
    else:
        found = [each for each in known if f".{_dotted(each)}".endswith(f".{frame}")]
    found = [each for each in found if _is_project(each)] or found
    names = sorted({format_function(each) for each in found})
    if len(names) == 1:
        return tuple(found)
    if names:
        problem = f"{len(names)} functions are called {frame!r}: {', '.join(names)}."
    else:
        similar = ", ".join(_find_similar(frame, known))
        problem = f"No Python function {frame!r} is loaded by the workload" + (
            f"; similar: {similar}." if similar else "."
        )
    raise UsageError("E_UNKNOWN_FRAME", problem)


def format_function(function: FunctionType) -> str:
    """Return ``module:qualname``, which ``find_function`` accepts."""
    return f"{function.__globals__.get('__name__', '?')}:{_qualname(function)}"


def _find_functions(modules: Iterable[ModuleType]) -> list[FunctionType]:
    """Return all functions defined in ``modules``.

    The garbage collector also knows those behind decorators, in classes, properties, closures
    and tables.
    """
    scopes = {id(vars(module)) for module in modules if isinstance(module, ModuleType)}
    return [
        each
        for each in gc.get_objects()
        if type(each) is FunctionType and id(each.__globals__) in scopes
    ]


def _qualname(function: FunctionType) -> str:
    """Return the name in the code, as profiles show it: decorators change ``__qualname__``."""
    return function.__code__.co_qualname.replace(".<locals>", "")


def _dotted(function: FunctionType) -> str:
    return format_function(function).replace(":", ".")


def _is_project(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    library = file.startswith((sysconfig.get_path("stdlib") + "/", "<frozen"))
    return not library and not any(part in file for part in _PACKAGES)


def _find_similar(frame: str, known: Sequence[FunctionType]) -> list[str]:
    """Return functions with a similar name."""
    labels: dict[str, set[str]] = defaultdict(set)
    for each in known:
        for name in (each.__code__.co_name, _qualname(each), _dotted(each)):
            labels[name].add(format_function(each))
    wanted = frame.rpartition(":")[2]
    close = difflib.get_close_matches(wanted, labels, n=_SUGGESTIONS, cutoff=_SIMILARITY)
    similar = (function for name in close for function in sorted(labels[name]))
    return list(dict.fromkeys(similar))[:_SUGGESTIONS]


@dataclass(slots=True)
class CallClock:
    """One thread's calls, and the extra work due for them and not yet done, in ns of CPU."""

    is_inside: bool = False
    calls: int = 0
    due_ns: float = 0.0
    owed_ns: float = 0.0


CallClocks = defaultdict[int, CallClock]
"""The clock of each thread, by its identity."""
Clocked = Callable[..., Any]
"""Calls its first argument with the others, and does the extra work."""


def add_work(function: FunctionType, clocks: CallClocks, share: float, overhead_ns: float) -> None:
    """Make every call of ``function``, or resumption of a generator, do extra work from now on.

    That is a ``share`` of its CPU time less the cost of the wrapper, ``overhead_ns``.
    """
    original = function.__code__
    signature = inspect.signature(function)
    work = FunctionType(
        original,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    work.__kwdefaults__ = function.__kwdefaults__
    work.__qualname__ = function.__qualname__
    clocked = _copy_name(_make_clocked(clocks, share, overhead_ns), original)
    if original.co_flags & inspect.CO_GENERATOR:
        forward, constants = _forward, {"the wrapper": _wrap_generator(work, clocked)}
        _copy_name(constants["the wrapper"], original)
    else:
        forward, constants = _forward_clocked, {"the wrapper": clocked, "the work": work}
    # Code may be replaced only by code with as many free variables; this one reads none of them.
    with warnings.catch_warnings():
        # From CPython 3.13 on: a generator is about to become a function that returns one.
        warnings.simplefilter("ignore", DeprecationWarning)
        code = forward.__code__
        function.__code__ = code.replace(
            co_consts=tuple(
                constants.get(each, each) if isinstance(each, str) else each
                for each in code.co_consts
            ),
            co_freevars=original.co_freevars,
            **_identity(original),
        )
    function.__signature__ = signature  # type: ignore[attr-defined]


def _forward(*args: Any, **kwargs: Any) -> Any:
    wrapper: Any = "the wrapper"  # replaced in a copy of this code
    return wrapper(*args, **kwargs)


def _forward_clocked(*args: Any, **kwargs: Any) -> Any:
    # A partial object would call from C, and CPython 3.12 allows no deep recursion there.
    clocked: Any = "the wrapper"
    work: Any = "the work"
    return clocked(work, *args, **kwargs)


def _identity(code: CodeType) -> dict[str, Any]:
    names = ("co_name", "co_qualname", "co_filename", "co_firstlineno")
    return {name: getattr(code, name) for name in names}


def _copy_name(function: Any, code: CodeType) -> Any:
    function.__code__ = function.__code__.replace(**_identity(code))
    return function


def _make_clocked(clocks: CallClocks, share: float, overhead_ns: float) -> Clocked:
    def clocked(work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        clock = clocks[get_ident()]
        if clock.is_inside:
            # Without the clock the wrapper costs about a fifth.
            clock.owed_ns -= overhead_ns / 5
            return work(*args, **kwargs)
        clock.is_inside = True
        began_ns = read_cpu_ns()
        try:
            return work(*args, **kwargs)
        finally:
            now_ns = read_cpu_ns()
            due_ns = (now_ns - began_ns) * share
            clock.due_ns += due_ns
            clock.calls += 1
            clock.owed_ns += due_ns - overhead_ns
            if clock.owed_ns > _PAYABLE_NS:
                until_ns = now_ns + clock.owed_ns
                while now_ns < until_ns:
                    for _ in spin_steps:
                        pass
                    now_ns = read_cpu_ns()
                clock.owed_ns = until_ns - now_ns
            clock.is_inside = False

    return clocked


def _wrap_generator(work: FunctionType, clocked: Clocked) -> Callable[..., Any]:
    """Return a function that makes generators each of whose resumptions does extra work."""

    class SlowedGenerator(Generator[Any, Any, Any]):
        def __init__(self, generator: Generator[Any, Any, Any]) -> None:
            self.generator = generator

        def __next__(self) -> Any:
            return clocked(self.generator.__next__)

        def send(self, value: Any) -> Any:
            return clocked(self.generator.send, value)

        def throw(self, *error: Any) -> Any:
            return clocked(self.generator.throw, *error)

    for method in (SlowedGenerator.__next__, SlowedGenerator.send, SlowedGenerator.throw):
        _copy_name(method, work.__code__)

    def make(*args: Any, **kwargs: Any) -> Any:
        return SlowedGenerator(work(*args, **kwargs))

    return make


def measure_overhead(*, generator: bool) -> float:
    """Return the wrapper's cost, in ns of CPU for a call, or for a resumption of a generator."""

    def run(_: object) -> None:
        pass

    def generate(_: object) -> Iterator[None]:
        yield from repeat(None, _CALLS)

    def time_calls(function: Callable[..., Any]) -> float:
        began_ns = time.thread_time_ns()
        if generator:
            deque(function(None), maxlen=0)
        else:
            for _ in repeat(None, _CALLS):
                function(None)
        return (time.thread_time_ns() - began_ns) / _CALLS

    bare: Any = generate if generator else run
    slowed = FunctionType(bare.__code__, globals(), closure=bare.__closure__)
    add_work(slowed, CallClocks(CallClock), 0.0, 0.0)
    bare_ns, slowed_ns = (min(time_calls(each) for _ in range(_ROUNDS)) for each in (bare, slowed))
    return max(slowed_ns - bare_ns, 0.0)


@dataclass(slots=True)
class Slowed:
    """A function that is slowed, and the check whether its calls really were."""

    frame: str
    extra_pct: float
    clocks: CallClocks
    _calls: int = field(default=0, init=False)

    def checked(self) -> Iterator[Any]:
        """Yield nothing: chained after a sequence's tokens it checks when they are done.

        Raises ``UsageError`` ``E_CANNOT_SLOW`` if the calls since the last check did not get their
        extra work: there was none, or calls are so short that the wrapper alone costs more.
        """
        clocks = list(self.clocks.values())
        calls = sum(clock.calls for clock in clocks)
        if calls == self._calls:
            raise UsageError(
                "E_CANNOT_SLOW",
                f"{self.frame!r} was not called while a whole sequence was generated, so no work "
                "was injected.",
            )
        self._calls = calls
        due_ns = sum(clock.due_ns for clock in clocks)
        owed_ns = sum(clock.owed_ns for clock in clocks)
        if -owed_ns > _TOLERANCE * due_ns + _SLACK_NS:
            raise UsageError(
                "E_CANNOT_SLOW",
                f"A call of {self.frame!r} is so short that +{self.extra_pct:g}% of it, "
                f"{due_ns / calls:.0f} ns, is less than the cost of injecting, "
                f"{(due_ns - owed_ns) / calls:.0f} ns.",
            )
        yield from ()


def slow(frame: str, extra_pct: float, modules: Iterable[ModuleType]) -> Slowed:
    """Make the Python function ``frame`` take ``extra_pct`` percent more CPU time in this process.

    The extra work follows each outermost call, or each resumption of a generator, and is a share of
    its CPU time with all functions that it calls; results and exceptions stay as they are. It is
    done once 50 µs are due. The cost of the wrapper, about 2 µs a call, is part of the extra work.
    It is measured on empty calls, so a call may get about 1 µs too much. Raises ``UsageError``:
    those of ``find_function``, and ``E_CANNOT_SLOW`` for a coroutine.
    """
    functions = find_function(frame, modules)
    if any(each.__code__.co_flags & _ASYNCHRONOUS for each in functions):
        raise UsageError(
            "E_CANNOT_SLOW",
            f"{format_function(functions[0])} is asynchronous: its time cannot be separated from "
            "that of other tasks.",
        )
    clocks = CallClocks(CallClock)
    is_generator = bool(functions[0].__code__.co_flags & inspect.CO_GENERATOR)
    overhead_ns = measure_overhead(generator=is_generator)
    # Each call now takes four calls: it must still be able to recurse as deeply.
    sys.setrecursionlimit(4 * sys.getrecursionlimit())
    for each in functions:
        add_work(each, clocks, extra_pct / 100.0, overhead_ns)
    return Slowed(frame, extra_pct, clocks)
