"""Counts the calls of every function, in the observed process, by ``sys.monitoring``.

Two processes with the same code and the same hash seed have equal counts. Imported when the
observer commands such a run. Needs CPython 3.12.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import BuiltinFunctionType, CodeType, MethodDescriptorType
from typing import Annotated, Any

from pytest_flamegate.child import Run
from pytest_flamegate.core import limit
from pytest_flamegate.core.errors import ToolError

HAS_MONITORING = hasattr(sys, "monitoring")
SEQUENCES = 3
"""The first one fills caches. The others have equal counts, but for functions left out."""
_C_FUNCTIONS = (BuiltinFunctionType, MethodDescriptorType)
_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: a class statement made it; its ``__init__`` is counted when it starts."""

_Function = int | str
"""The id of a Python function's code, or the name of a function in C; 0 is unknown."""
_Edge = tuple[_Function, _Function]
_Edges = Mapping[_Edge, int]


@dataclass(frozen=True, slots=True)
class EdgeCalls:
    """The calls of one function by another in one sequence.

    ``prefill`` calls came before the first token, ``decode`` calls between it and the last one. A
    function in C has no file, an unknown caller no name. ``varies``: not in every sequence so many.
    """

    caller: str
    caller_file: str
    callee: str
    callee_file: str
    prefill: Annotated[int, limit(ge=0)]
    decode: Annotated[int, limit(ge=0)]
    varies: bool


@dataclass(frozen=True, slots=True)
class CountedCalls:
    """The calls of one sequence of ``tokens`` tokens; 0 tokens if none could be counted."""

    tokens: int = 0
    calls: tuple[EdgeCalls, ...] = ()


def record_calls(
    run: Run,
    sequences: int,
    _engine: object,
    on_sequence: Callable[[], None],
    on_token: Callable[[Any], None],
) -> str:
    """Generate ``sequences`` sequences and count their calls; return the record as JSON.

    It is empty before CPython 3.12, and if other tools (debuggers) use all of the interpreter's
    numbers for tools.
    """
    monitoring: Any = getattr(sys, "monitoring", None)
    tool = next((n for n in range(6) if monitoring and monitoring.get_tool(n) is None), None)
    if tool is None:
        run(sequences, on_sequence, on_token)
        return json.dumps(asdict(CountedCalls()))
    counter, events = _CallCounter(on_sequence, on_token), monitoring.events
    monitoring.use_tool_id(tool, "flamegate")
    # When a collection runs, and with it finalisers, depends on what was allocated before.
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        monitoring.register_callback(tool, events.PY_START, counter.count_start)
        monitoring.register_callback(tool, events.CALL, counter.count_call)
        monitoring.set_events(tool, events.PY_START | events.CALL)
        run(sequences, counter.begin_sequence, counter.take_token)
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
        if was_enabled:
            gc.enable()
    return json.dumps(asdict(counter.record()))


class _CallCounter:
    """Counts calls by caller and callee. The interpreter counts no call that a callback makes."""

    def __init__(self, on_sequence: Callable[[], None], on_token: Callable[[Any], None]) -> None:
        self._calls: defaultdict[_Edge, int] = defaultdict(int)
        self._codes: dict[int, CodeType] = {}
        self._tokens = 0
        self._sequences: list[list[_Edges]] = []
        """All calls so far when each began, at its first token and at its last one."""
        self._on_sequence = on_sequence
        self._on_token = on_token

    def count_start(self, code: CodeType, _offset: int) -> None:
        """Count a call of a Python function."""
        callee = id(code)  # the hash of a code object takes as long as its bytecode
        if callee not in self._codes:
            self._codes[callee] = code
        caller = sys._getframe(1).f_back
        # No thread can take over between reading a count and writing it: nothing is called.
        edge = (0 if caller is None else id(caller.f_code)), callee
        self._calls[edge] += 1

    def count_call(self, code: CodeType, _offset: int, function: Any, _first: object) -> None:
        """Count a call of a function in C; one of a Python function is counted when it starts."""
        is_type = isinstance(function, type) and not function.__flags__ & _HEAP_TYPE
        if type(function) not in _C_FUNCTIONS and not is_type:
            return
        if id(code) not in self._codes:
            self._codes[id(code)] = code
        owner = getattr(function, "__objclass__", function)
        if owner.__module__ is None:  # a method that is bound to an object
            owner = type(owner.__self__)
        edge = id(code), f"{owner.__module__}.{function.__qualname__}".removeprefix("builtins.")
        self._calls[edge] += 1

    def begin_sequence(self) -> None:
        """Begin the next sequence."""
        self._on_sequence()
        self._tokens = 0
        self._sequences.append([dict(self._calls)])

    def take_token(self, token: Any) -> None:
        """Take a token: the calls that follow the last one belong to no token."""
        self._on_token(token)
        self._tokens += 1
        snapshots = self._sequences[-1]
        del snapshots[2:]
        snapshots.append(dict(self._calls))

    def record(self) -> CountedCalls:
        """Return the calls of the last sequence, compared with the one before.

        Raises ``ToolError`` ``E_NO_TOKENS`` if one of them has no token.
        """
        own = {each for each, code in self._codes.items() if code.co_filename == __file__}
        *_, second, last = self._sequences
        if min(len(second), len(last)) == 1:
            problem = "The engine yielded nothing while its calls were counted."
            raise ToolError("E_NO_TOKENS", problem)
        calls: list[EdgeCalls] = []
        for edge in last[-1]:
            prefill, decode = _count_phases(last, edge)
            varies = (prefill, decode) != _count_phases(second, edge)
            if own.isdisjoint(edge) and (varies or prefill or decode):
                caller, callee = map(self._name, edge)
                calls.append(EdgeCalls(*caller, *callee, prefill, decode, varies))
        return CountedCalls(self._tokens, tuple(calls))

    def _name(self, function: _Function) -> tuple[str, str]:
        """Return the name and the file of a function."""
        if isinstance(function, str):
            return function, ""
        code = self._codes.get(function)
        return ("", "") if code is None else (code.co_qualname, code.co_filename)


def _count_phases(snapshots: Sequence[_Edges], edge: _Edge) -> tuple[int, int]:
    before, first, last = (snapshots[at].get(edge, 0) for at in (0, 1, -1))
    return first - before, last - first
