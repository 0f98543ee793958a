"""What slowing charges a call of a function, and what the charging costs by itself."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, fields
from itertools import repeat
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING

from pytest_flamegate.workload.wrapping import empty_like, is_generator, replacement

if TYPE_CHECKING:
    from types import FunctionType

_CALLS = 500
_ROUNDS = 9
_YIELDS = (1, 9)
_READINGS_SHARE = 0.25
_LONGEST_NS = 1_000_000.0


@dataclass(slots=True)
class Account:
    """What one thread's calls took and what they still owe, in nanoseconds of CPU time.

    ``cpu_ns`` is the thread's CPU clock as it was at ``read_at_ns`` of the wall clock;
    ``last_ns`` is what the last call took.
    """

    inside: bool = False
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


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call owes: ``share`` of its time less ``base_ns``, less what charging it cost.

    ``base_ns`` is what the clocks see of an empty call. What charging costs: a call
    ``overhead_ns``, a call within a call ``nested_ns``, a generator made ``made_ns``, a
    reading of the CPU clock with another of the wall's ``reading_ns``.
    """

    share: float
    base_ns: float = 0.0
    overhead_ns: float = 0.0
    nested_ns: float = 0.0
    made_ns: float = 0.0
    reading_ns: float = 0.0
    long_ns: float = _LONGEST_NS
    """From which length on a call is clocked by the CPU clock."""


def charge(function: FunctionType, accounts: Accounts, terms: Terms) -> None:
    """Have every call of ``function`` pay by ``terms`` from now on."""
    constants = {each.name: getattr(terms, each.name) for each in fields(terms)}
    function.__code__ = replacement(function, accounts=accounts, **constants)


def calibrated(function: FunctionType, share: float) -> Terms:
    """Measure the terms on empty functions with the parameters of ``function``."""
    few, many = _YIELDS if is_generator(function) else (0, 0)
    one, more = _Empty(function, few), _Empty(function, many)
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
    if many:
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
        long_ns=min(2 * reading_ns / (_READINGS_SHARE * share), _LONGEST_NS),
    )


class _Empty:
    """An empty function as it is, and one that is charged: the cheapest of each so far."""

    def __init__(self, function: FunctionType, yields: int) -> None:
        self._bare = empty_like(function, yields)
        self._charged = empty_like(function, yields)
        self._accounts = Accounts()
        charge(self._charged, self._accounts, Terms(1.0, overhead_ns=inf))
        self.base_ns = self.overhead_ns = self.nested_ns = inf

    def measure(self) -> None:
        self._accounts.clear()
        account = self._accounts[get_ident()]
        bare_ns = _call_ns(self._bare)
        self.overhead_ns = min(self.overhead_ns, _call_ns(self._charged) - bare_ns)
        self.base_ns = min(self.base_ns, account.due_ns / account.calls)
        account.inside = True
        self.nested_ns = min(self.nested_ns, _call_ns(self._charged) - bare_ns)


def _call_ns(function: FunctionType) -> float:
    """Return what a call of an empty function costs, or a whole run of an empty generator."""
    code = function.__code__
    positional = (None,) * code.co_argcount
    end = code.co_argcount + code.co_kwonlyargcount
    named = dict.fromkeys(code.co_varnames[code.co_argcount : end])
    exhaust = deque[None](maxlen=0).extend
    began_ns = time.thread_time_ns()
    if is_generator(function):
        for _ in repeat(None, _CALLS):
            exhaust(function(*positional, **named))
    elif named:
        for _ in repeat(None, _CALLS):
            function(*positional, **named)
    else:
        for _ in repeat(None, _CALLS):
            function(*positional)
    return (time.thread_time_ns() - began_ns) / _CALLS
