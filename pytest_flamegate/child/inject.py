"""Slow a Python function by a share of its own CPU time, found by the name in a profile.

Every object of the function gets a code object that forwards its calls to a wrapper, so aliases,
tables, closures and decorators are slowed too. The wrapper charges each call with extra work and
calls a copy of the original. All these frames carry the function's own name and file.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from math import inf
from threading import get_ident
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from pytest_flamegate.child.functions import find_function, format_function
from pytest_flamegate.config.workload import injected_share
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    Meter = tuple[Callable[["Account"], int], Callable[["Account", int], None]]


_ASYNCHRONOUS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_STALE_NS = 1_000_000
_PAYABLE_NS = 50_000.0

# Looked up when they are called, so that a test can replace the clocks.
read_wall_ns = time.perf_counter_ns
read_cpu_ns = time.thread_time_ns
spin_steps: Iterable[object] = range(500)


@dataclass(slots=True)
class Account:
    """The time that one thread's calls took and the extra work that they still owe, in ns of CPU.

    ``cpu_ns`` is the thread's CPU clock as it was at ``read_at_ns`` of the wall clock;
    ``last_ns`` is the time that the last call took.
    """

    is_inside: bool = False
    calls: int = 0
    due_ns: float = 0.0
    owed_ns: float = 0.0
    last_ns: int = 0
    cpu_ns: int = 0
    read_at_ns: int = 0


class Accounts(dict[int, Account]):
    """The account of each thread, by its identity."""

    def __missing__(self, thread: int) -> Account:
        """Open an account."""
        self[thread] = account = Account()
        return account


_MAX_UNCLOCKED_NS = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call owes: ``share`` of its time less ``base_ns``, less the cost of charging it.

    ``base_ns`` is the time of an empty call as the clocks see it. The cost of charging: a call
    ``overhead_ns``, a call within a call ``nested_ns``, the making of a generator ``made_ns``, a
    reading of the CPU clock together with the wall clock ``reading_ns``. Calls longer than
    ``long_ns`` are clocked by the CPU clock.
    """

    share: float
    base_ns: float = 0.0
    overhead_ns: float = 0.0
    nested_ns: float = 0.0
    made_ns: float = 0.0
    reading_ns: float = 0.0
    long_ns: float = _MAX_UNCLOCKED_NS


def charge(function: FunctionType, accounts: Accounts, terms: Terms) -> None:
    """Make every call of ``function`` pay by ``terms`` from now on."""
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
    wrap = _wrap_generator if is_generator(function) else _wrap_call
    wrapper = wrap(work, _make_meter(terms, original), accounts, terms)
    _adopt_name(wrapper, original)
    code = _forward.__code__
    # Code may be replaced only by code with as many free variables; this one reads none of them.
    function.__code__ = code.replace(
        co_consts=tuple(wrapper if each == "the wrapper" else each for each in code.co_consts),
        co_freevars=original.co_freevars,
        **_identity(original),
    )
    function.__signature__ = signature  # type: ignore[attr-defined]


def _forward(*args: Any, **kwargs: Any) -> Any:
    wrapper: Any = "the wrapper"  # replaced in a copy of this code
    return wrapper(*args, **kwargs)


def _identity(code: CodeType) -> dict[str, Any]:
    return {
        "co_name": code.co_name,
        "co_qualname": code.co_qualname,
        "co_filename": code.co_filename,
        "co_firstlineno": code.co_firstlineno,
    }


def _adopt_name(function: Any, code: CodeType) -> None:
    function.__code__ = function.__code__.replace(**_identity(code))


def _make_meter(terms: Terms, code: CodeType) -> Meter:
    """Return two functions that begin and end the clocking of a call.

    The latter does the extra work that is due; it has the name of ``code``.
    """
    share, base_ns, overhead_ns = terms.share, terms.base_ns, terms.overhead_ns
    reading_ns, long_ns = terms.reading_ns, terms.long_ns

    def begin(account: Account) -> int:
        began_ns = read_wall_ns()
        # Reading the CPU clock is expensive: it is read if a long call is to be expected, else
        # often enough to know which long calls only waited.
        if account.last_ns > long_ns or began_ns - account.read_at_ns > _STALE_NS:
            account.cpu_ns = read_cpu_ns()
            account.read_at_ns = began_ns = read_wall_ns()
            account.owed_ns -= reading_ns
        return began_ns

    def end(account: Account, began_ns: int) -> None:
        ended_ns = read_wall_ns()
        account.last_ns = took_ns = ended_ns - began_ns
        owed_ns = account.owed_ns - overhead_ns
        if took_ns > long_ns:
            cpu_ns = read_cpu_ns()
            waited_ns = ended_ns - account.read_at_ns - (cpu_ns - account.cpu_ns)
            if waited_ns > 0:
                took_ns = max(0, took_ns - waited_ns)
            account.cpu_ns = cpu_ns
            account.read_at_ns = ended_ns
            owed_ns -= reading_ns
        due_ns = (took_ns - base_ns) * share
        account.due_ns += due_ns
        account.calls += 1
        owed_ns += due_ns
        if owed_ns > _PAYABLE_NS:
            left_ns = owed_ns - reading_ns
            until_ns = read_cpu_ns() + left_ns
            while left_ns > 0:
                for _ in spin_steps:
                    pass
                left_ns = until_ns - read_cpu_ns()
            owed_ns = left_ns
        account.owed_ns = owed_ns
        account.is_inside = False

    _adopt_name(end, code)
    return begin, end


def _wrap_call(
    work: FunctionType, meter: Meter, accounts: Accounts, terms: Terms
) -> Callable[..., Any]:
    (begin, end), nested_ns = meter, terms.nested_ns

    def call(*args: Any, **kwargs: Any) -> Any:
        account = accounts[get_ident()]
        if account.is_inside:
            account.owed_ns -= nested_ns
            return work(*args, **kwargs)
        account.is_inside = True
        began_ns = begin(account)
        try:
            return work(*args, **kwargs)
        finally:
            end(account, began_ns)

    return call


def _wrap_generator(
    work: FunctionType, meter: Meter, accounts: Accounts, terms: Terms
) -> Callable[..., Any]:
    """Return a generator function that charges each resumption."""
    (begin, end), nested_ns, made_ns = meter, terms.nested_ns, terms.made_ns

    def make(*args: Any, **kwargs: Any) -> Any:
        accounts[get_ident()].owed_ns -= made_ns
        return resume(work(*args, **kwargs))

    def resume(generator: Generator[Any, Any, Any]) -> Any:
        sent: Any = None
        error: BaseException | None = None
        while True:
            account = accounts[get_ident()]
            is_outermost = not account.is_inside
            began_ns = 0
            if is_outermost:
                account.is_inside = True
                began_ns = begin(account)
            else:
                account.owed_ns -= nested_ns
            try:
                value = generator.send(sent) if error is None else generator.throw(error)
            except StopIteration as stop:
                return stop.value
            finally:
                sent = error = None
                if is_outermost:
                    end(account, began_ns)
            try:
                sent = yield value
            except BaseException as thrown:
                error = thrown

    _adopt_name(resume, work.__code__)
    return make


def is_generator(function: FunctionType) -> bool:
    """Whether calling it makes a generator."""
    return bool(function.__code__.co_flags & inspect.CO_GENERATOR)


_CALLS = 500
_ROUNDS = 9
_READINGS_SHARE = 0.25


def measure_terms(share: float, *, generator: bool) -> Terms:
    """Measure the cost of charging on empty functions, or on generators that yield nothing else."""
    few, many = (1, 9) if generator else (0, 0)
    one, more = _EmptyFunction(few), _EmptyFunction(many)
    reading_ns = inf
    for _ in range(_ROUNDS):
        one.measure()
        more.measure()
        began_ns = time.thread_time_ns()
        for _ in repeat(None, _CALLS):
            time.thread_time_ns()
            time.perf_counter_ns()
        reading_ns = min(reading_ns, (time.thread_time_ns() - began_ns) / _CALLS)
    overhead_ns, nested_ns, made_ns = one.overhead_ns, one.nested_ns, 0.0
    if generator:
        overhead_ns = (more.overhead_ns - one.overhead_ns) / (many - few)
        nested_ns = (more.nested_ns - one.nested_ns) / (many - few)
        made_ns = one.overhead_ns - (few + 1) * overhead_ns
    return Terms(
        share,
        base_ns=more.base_ns,
        overhead_ns=max(overhead_ns, 0.0),
        nested_ns=max(nested_ns, 0.0),
        made_ns=max(made_ns, 0.0),
        reading_ns=reading_ns,
        long_ns=min(2 * reading_ns / (_READINGS_SHARE * share), _MAX_UNCLOCKED_NS),
    )


class _EmptyFunction:
    """An empty function as it is, and one that is charged: the least cost of each so far, in ns."""

    def __init__(self, yields: int) -> None:
        self._bare, self._charged = _make_empty(yields), _make_empty(yields)
        self._calls = deque[None](maxlen=0).extend if yields else None
        self._accounts = Accounts()
        charge(self._charged, self._accounts, Terms(1.0, overhead_ns=inf))
        self.base_ns = self.overhead_ns = self.nested_ns = inf

    def measure(self) -> None:
        self._accounts.clear()
        account = self._accounts[get_ident()]
        bare_ns = self._time(self._bare)
        self.overhead_ns = min(self.overhead_ns, self._time(self._charged) - bare_ns)
        self.base_ns = min(self.base_ns, account.due_ns / account.calls)
        account.is_inside = True
        self.nested_ns = min(self.nested_ns, self._time(self._charged) - bare_ns)

    def _time(self, function: FunctionType) -> float:
        """Return the CPU time of a call, or of a whole run of a generator."""
        began_ns = time.thread_time_ns()
        if self._calls is not None:
            for _ in repeat(None, _CALLS):
                self._calls(function(None))
        else:
            for _ in repeat(None, _CALLS):
                function(None)
        return (time.thread_time_ns() - began_ns) / _CALLS


def _make_empty(yields: int) -> FunctionType:
    def run(_: object) -> None:
        pass

    def generate(_: object) -> Iterator[None]:
        yield from repeat(None, yields)

    function: Any = generate if yields else run
    return function  # type: ignore[no-any-return]


_TOLERANCE = 0.05
_SLACK_NS = 100_000.0


@dataclass(slots=True)
class Slowed:
    """A function that is slowed, and the check whether its calls really were."""

    frame: str
    extra_pct: float
    accounts: Accounts
    _calls: int = field(default=0, init=False)

    def checked(self) -> Iterator[Any]:
        """Yield nothing: chained after a sequence's tokens it checks when they are done."""
        self.check()
        yield from ()

    def check(self) -> None:
        """Raise an error if the calls since the last check did not get their extra work.

        Raises:
            UsageError: ``E_FRAME_NOT_CALLED``, ``E_INJECTION_TOO_SMALL`` (the calls are so short
                that the wrapper alone costs more than the extra work).
        """
        accounts = list(self.accounts.values())
        calls = sum(account.calls for account in accounts)
        if calls == self._calls:
            raise UsageError(
                "E_FRAME_NOT_CALLED",
                f"{self.frame!r} was not called while a whole sequence was generated, so no work "
                "was injected.",
                "Name a function that this process calls for every sequence.",
            )
        self._calls = calls
        due_ns = sum(account.due_ns for account in accounts)
        owed_ns = sum(account.owed_ns for account in accounts)
        if -owed_ns > _TOLERANCE * due_ns + _SLACK_NS:
            raise UsageError(
                "E_INJECTION_TOO_SMALL",
                f"A call of {self.frame!r} is so short that +{self.extra_pct:g}% of it, "
                f"{due_ns / calls:.0f} ns, is less than the cost of injecting, "
                f"{(due_ns - owed_ns) / calls:.0f} ns.",
                "Ask for more, or slow the function that calls it.",
            )


def slow(frame: str, extra_pct: float, modules: Iterable[ModuleType]) -> Slowed:
    """Make the Python function ``frame`` take ``extra_pct`` percent more CPU time in this process.

    The extra work follows the time of each outermost call, or each resumption of a generator,
    with all functions that it calls; results and exceptions stay as they are. It is done once
    50 µs are due. Short calls are clocked by the wall clock, which is cheap; longer ones, from at
    most 1 ms on, also by the CPU clock, so that time in which a thread waited does not count.
    The cost of the wrapper, about 1 µs a call, is part of the extra work. It is measured on empty
    calls, so a call may get about 1 µs too much.

    Raises:
        UsageError: ``E_UNKNOWN_FRAME``, ``E_AMBIGUOUS_FRAME``, ``E_CANNOT_SLOW`` (a coroutine),
            ``E_BAD_INJECTION`` (not a percentage above 0).
    """
    share = injected_share(extra_pct)
    functions = find_function(frame, modules)
    if any(each.__code__.co_flags & _ASYNCHRONOUS for each in functions):
        raise UsageError(
            "E_CANNOT_SLOW",
            f"{format_function(functions[0])} is asynchronous: its time cannot be separated from "
            "that of other tasks.",
            "Name a plain function or a generator that it calls.",
        )
    accounts = Accounts()
    terms = measure_terms(share, generator=is_generator(functions[0]))
    # Each call now takes three frames: it must still be able to recurse as deeply.
    sys.setrecursionlimit(3 * sys.getrecursionlimit())
    for each in functions:
        charge(each, accounts, terms)
    return Slowed(frame, extra_pct, accounts)
