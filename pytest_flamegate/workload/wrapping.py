"""Code that stands in for a function's own: it calls the original, clocks it, and spins.

It is compiled from the templates below with the original's parameters, name, file and
line. A profile cannot tell the two apart, and neither can ``inspect``.
"""

from __future__ import annotations

import ast
import inspect
import time
from dataclasses import dataclass
from itertools import islice
from threading import get_ident
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
