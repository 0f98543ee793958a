"""Find a Python function by the name that a profile shows."""

from __future__ import annotations

import ast
import difflib
import gc
import importlib
import inspect
import sys
import sysconfig
import time
from collections import deque
from dataclasses import dataclass, field, fields
from itertools import islice, repeat
from math import inf
from threading import get_ident
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from pytest_flamegate.config.workload import injected_share
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_NEAR = 5
_CUTOFF = 0.5
_PACKAGES = ("/site-packages/", "/dist-packages/")


def find(frame: str, modules: Iterable[ModuleType]) -> tuple[FunctionType, ...]:
    """Return every function object that ``frame`` means: one function, perhaps made many times.

    ``frame`` is a bare name, ``Class.method`` or ``module.qualname``, looked for among the
    functions that stand in ``modules``; or ``module:qualname``, whose module is imported.
    The project's own functions go before those of installed packages. Raises ``UsageError``
    ``E_UNKNOWN_FRAME``, ``E_AMBIGUOUS_FRAME`` (both name what could be meant).
    """
    known = _standing_in(modules)
    module_name, colon, qualname = frame.rpartition(":")
    if colon:
        imported = _standing_in([_imported(module_name, frame)])
        found = [each for each in imported if _qualname(each) == qualname]
        known = [*imported, *known]
    else:
        found = [each for each in known if f".{_dotted(each)}".endswith(f".{frame}")]
    found = [each for each in found if _is_project(each)] or found
    names = sorted({label(each) for each in found})
    if not names:
        raise _unknown(frame, known)
    if len(names) > 1:
        raise UsageError(
            "E_AMBIGUOUS_FRAME",
            f"{len(names)} functions are called {frame!r}: {', '.join(names)}.",
            "Name one of them as it is written here.",
        )
    return tuple(found)


def label(function: FunctionType) -> str:
    """Return ``module:qualname``, which ``find`` understands."""
    return f"{_module(function)}:{_qualname(function)}"


def _standing_in(modules: Iterable[ModuleType]) -> list[FunctionType]:
    """Return all functions whose source stands in ``modules``, wherever they are referred to.

    Asking the garbage collector finds those behind decorators, in classes, properties,
    closures and tables alike.
    """
    scopes = {id(vars(module)) for module in modules if isinstance(module, ModuleType)}
    return [
        each
        for each in gc.get_objects()
        if type(each) is FunctionType and id(each.__globals__) in scopes
    ]


def _imported(module_name: str, frame: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except (ImportError, TypeError, ValueError) as error:
        raise UsageError(
            "E_UNKNOWN_FRAME",
            f"The module of {frame!r} cannot be imported: {error}.",
            "Write module:qualname, for example mypackage.ops:softmax.",
        ) from None


def _module(function: FunctionType) -> str:
    return str(function.__globals__.get("__name__", "?"))


def _qualname(function: FunctionType) -> str:
    """Return the name in the code, as profiles show it: decorators change ``__qualname__``."""
    return function.__code__.co_qualname.replace(".<locals>", "")


def _dotted(function: FunctionType) -> str:
    return f"{_module(function)}.{_qualname(function)}"


def _is_project(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    library = file.startswith((sysconfig.get_path("stdlib") + "/", "<frozen"))
    return not library and not any(part in file for part in _PACKAGES)


def _unknown(frame: str, known: Sequence[FunctionType]) -> UsageError:
    near = _near(frame, known)
    return UsageError(
        "E_UNKNOWN_FRAME",
        f"No Python function {frame!r} is loaded by the workload"
        + (f"; near it are {', '.join(near)}." if near else "."),
        "Give a name as the profile shows it; where it is imported only during the call, say "
        "module:qualname. C functions, and functions made during the call, cannot be slowed.",
    )


def _near(frame: str, known: Sequence[FunctionType]) -> list[str]:
    """Return the functions that are called much the same, the project's own first."""
    wanted = frame.rpartition(":")[2]
    near: list[str] = []
    for project in (True, False):
        labels: dict[str, set[str]] = {}
        for each in known:
            if _is_project(each) is project:
                for name in (each.__code__.co_name, _qualname(each), _dotted(each)):
                    labels.setdefault(name, set()).add(label(each))
        for name in difflib.get_close_matches(wanted, labels, n=_NEAR, cutoff=_CUTOFF):
            near += sorted(labels[name])
    return list(dict.fromkeys(near))[:_NEAR]


_ASYNCHRONOUS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_BEGIN = """
began = now()
# A reading of the CPU clock is dear: it is taken where a long call is to be expected,
# else often enough to tell which long calls only waited.
if account.last_ns > long_ns or began - account.read_at_ns > STALE_NS:
    account.cpu_ns = cpu()
    account.read_at_ns = began = now()
    account.owed_ns -= reading_ns
"""
_SETTLE = """
ended = now()
account.last_ns = took = ended - began
owed = account.owed_ns - overhead_ns
if took > long_ns:
    cpu_ns = cpu()
    away = ended - account.read_at_ns - (cpu_ns - account.cpu_ns)
    if away > 0:
        took = took - away if took > away else 0
    account.cpu_ns = cpu_ns
    account.read_at_ns = ended
    owed -= reading_ns
due = (took - base_ns) * share
account.due_ns += due
account.calls += 1
owed += due
if owed > PAYABLE_NS:
    left = owed - reading_ns
    until = cpu() + left
    while left > 0:
        for step in steps:
            pass
        left = until - cpu()
    owed = left
account.owed_ns = owed
account.inside = False
"""
_PLAIN = """
account = accounts[ident()]
if account.inside:
    account.owed_ns -= nested_ns
    return work(...)
account.inside = True
BEGIN
try:
    return work(...)
finally:
    SETTLE
"""
_GENERATOR = """
accounts[ident()].owed_ns -= made_ns
generator = work(...)
sent = raised = None
while True:
    account = accounts[ident()]
    outermost = not account.inside
    if outermost:
        account.inside = True
        BEGIN
    else:
        account.owed_ns -= nested_ns
    try:
        if raised is None:
            value = generator.send(sent)
        else:
            value = generator.throw(raised)
    except StopIteration as end:
        return end.value
    finally:
        sent = raised = None
        if outermost:
            SETTLE
    try:
        sent = yield value
    except BaseException as error:
        raised = error
"""
_BLOCKS = {"BEGIN": _BEGIN, "SETTLE": _SETTLE}
MACHINE = {
    "now": time.perf_counter_ns,
    "cpu": time.thread_time_ns,
    "ident": get_ident,
    "steps": range(500),
    "STALE_NS": 1_000_000,
    "PAYABLE_NS": 50_000.0,
    "StopIteration": StopIteration,
    "BaseException": BaseException,
}


def is_generator(function: FunctionType) -> bool:
    """Whether calling it makes a generator."""
    return bool(function.__code__.co_flags & inspect.CO_GENERATOR)


def is_asynchronous(function: FunctionType) -> bool:
    """Whether calling it makes something that is awaited."""
    return bool(function.__code__.co_flags & _ASYNCHRONOUS)


def replacement(function: FunctionType, **constants: Any) -> CodeType:
    """Return the code that calls a copy of ``function`` and charges it by ``constants``."""
    original = function.__code__
    # Every argument is handed on, so the copy needs no defaults.
    work = FunctionType(
        original, function.__globals__, function.__name__, None, function.__closure__
    )
    template = _GENERATOR if is_generator(function) else _PLAIN
    return _compiled(template, original, {**MACHINE, **constants, "work": work})


def empty_like(function: FunctionType, yields: int) -> FunctionType:
    """Return a function with the same parameters that does nothing, or yields so many times."""
    original = function.__code__.replace(co_freevars=())
    return FunctionType(_compiled("yield\n" * yields or "pass", original, {}), {})


def _compiled(template: str, original: CodeType, constants: Mapping[str, Any]) -> CodeType:
    outer = ast.parse("def outer():\n    def function(): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    function = outer.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.args = _parameters(original)
    function.body = [*_bindings(constants), *_filled(template, original)]
    # Code may be exchanged only for code with as many free variables.
    if free := [_marked(str(number)) for number in range(len(original.co_freevars))]:
        outer.args.args = [ast.arg(name) for name in free]
        function.body.insert(0, ast.Nonlocal(free))
    for node in ast.walk(outer):
        if "lineno" in node._attributes:
            place = {"lineno": original.co_firstlineno, "col_offset": 0}
            vars(node).update(place, end_lineno=place["lineno"], end_col_offset=0)
    code = compile(ast.Module([outer], []), original.co_filename, "exec", dont_inherit=True)
    for _ in ("outer", "function"):
        code = next(each for each in code.co_consts if isinstance(each, CodeType))
    objects = {_marked(name): value for name, value in constants.items()}
    return code.replace(
        co_name=original.co_name,
        co_qualname=original.co_qualname,
        co_consts=tuple(
            objects.get(each, each) if isinstance(each, str) else each for each in code.co_consts
        ),
    )


def _marked(name: str) -> str:
    """Return a name that no source can hold, so that it is none of the original's parameters."""
    return f"~{name}"


def _bindings(constants: Iterable[str]) -> list[ast.stmt]:
    """Bind each constant to its own name: the object is put in the word's place later."""
    return [
        ast.Assign([ast.Name(_marked(name), ast.Store())], ast.Constant(_marked(name)))
        for name in constants
    ]


def _filled(template: str, original: CodeType) -> list[ast.stmt]:
    tree = _Filler(original).visit(ast.parse(template))
    assert isinstance(tree, ast.Module)
    return tree.body


class _Filler(ast.NodeTransformer):
    """Puts blocks and arguments in their places, and marks every name."""

    def __init__(self, original: CodeType) -> None:
        self._original = original

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id in _BLOCKS:
            return _filled(_BLOCKS[node.value.id], self._original)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == _marked("work"):
            node.args, node.keywords = _handed_on(self._original)
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        node.id = _marked(node.id)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        node.name = node.name and _marked(node.name)
        return self.generic_visit(node)


@dataclass(frozen=True, slots=True)
class _Names:
    """The parameters of some code, by kind."""

    positional: tuple[str, ...]
    named: tuple[str, ...]
    rest: str | None
    named_rest: str | None

    @classmethod
    def of(cls, code: CodeType) -> _Names:
        names = iter(code.co_varnames)
        positional = tuple(islice(names, code.co_argcount))
        named = tuple(islice(names, code.co_kwonlyargcount))
        rest = next(names) if code.co_flags & inspect.CO_VARARGS else None
        return cls(
            positional, named, rest, next(names) if code.co_flags & inspect.CO_VARKEYWORDS else None
        )


def _parameters(code: CodeType) -> ast.arguments:
    names = _Names.of(code)
    positional = [ast.arg(name) for name in names.positional]
    return ast.arguments(
        posonlyargs=positional[: code.co_posonlyargcount],
        args=positional[code.co_posonlyargcount :],
        vararg=ast.arg(names.rest) if names.rest else None,
        kwonlyargs=[ast.arg(name) for name in names.named],
        kw_defaults=[None] * len(names.named),
        kwarg=ast.arg(names.named_rest) if names.named_rest else None,
        defaults=[],
    )


def _handed_on(code: CodeType) -> tuple[list[ast.expr], list[ast.keyword]]:
    names = _Names.of(code)

    def read(name: str) -> ast.Name:
        return ast.Name(name, ast.Load())

    positional: list[ast.expr] = [read(name) for name in names.positional]
    if names.rest:
        positional.append(ast.Starred(read(names.rest), ast.Load()))
    named = [ast.keyword(name, read(name)) for name in names.named]
    if names.named_rest:
        named.append(ast.keyword(None, read(names.named_rest)))
    return positional, named


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


_TOLERANCE = 0.05
_SLACK_NS = 100_000.0


@dataclass(slots=True)
class Slowed:
    """A function that has been slowed, and whether it really was."""

    frame: str
    extra_pct: float
    accounts: Accounts
    _calls: int = field(default=0, init=False)

    def checked(self) -> Iterator[Any]:
        """Yield nothing: chained behind a sequence's tokens it checks when they are done."""
        self.check()
        yield from ()

    def check(self) -> None:
        """Refuse if the calls since the last check did not get the extra work asked for.

        ``UsageError``: E_FRAME_NOT_CALLED, E_INJECTION_TOO_SMALL (the calls are so short
        that the replacement alone costs more than what was asked for).
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
                f"{due_ns / calls:.0f} ns, is less than what injecting costs, "
                f"{(due_ns - owed_ns) / calls:.0f} ns.",
                "Ask for more, or slow the function that calls it.",
            )


def slow(frame: str, extra_pct: float, modules: Iterable[ModuleType]) -> Slowed:
    """Make the Python function ``frame`` take ``extra_pct`` percent more CPU time in this process.

    The extra follows what each outermost call, or each resumption of a generator, took with
    all that it called; results and exceptions stay as they are. What is owed is paid once
    it is 50 µs. Short calls are clocked by the wall, which is cheap; from the length on at
    which it is worth it, at most 1 ms, the CPU clock tells what a thread lost to others.
    What this costs, some 0.5 µs a call, is part of the extra. It is known from empty calls
    only, so that a call's extra may be too large by about 1 µs.

    Frames are found by ``functions.find``. Raises ``UsageError``: E_UNKNOWN_FRAME,
    E_AMBIGUOUS_FRAME, E_CANNOT_SLOW (a coroutine), E_BAD_INJECTION (not a percentage above 0).
    """
    share = injected_share(extra_pct)
    found = find(frame, modules)
    if any(is_asynchronous(each) for each in found):
        raise UsageError(
            "E_CANNOT_SLOW",
            f"{label(found[0])} is asynchronous, and its time cannot be told from that of others.",
            "Name a plain function or a generator that it calls.",
        )
    accounts = Accounts()
    terms = calibrated(found[0], share)
    # Each call now takes two frames: what could recurse so far must be able to now.
    sys.setrecursionlimit(2 * sys.getrecursionlimit())
    for each in found:
        charge(each, accounts, terms)
    return Slowed(frame, extra_pct, accounts)
