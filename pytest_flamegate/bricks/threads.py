"""The clocks of threads and asyncio tasks: each times its bricks for itself."""

from __future__ import annotations

import operator
import sys
import threading
from array import array
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_flamegate.bricks import record
from pytest_flamegate.bricks.marks import FOLD_AT, Scope
from pytest_flamegate.bricks.totals import CallSums
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable, Iterator, Mapping
    from threading import RLock

    from pytest_flamegate.bricks.record import Phase
    from pytest_flamegate.bricks.totals import CallBuffer, CallKey


BrickKey: TypeAlias = "tuple[str, int | None, Phase]"
Owner: TypeAlias = "threading.Thread | Task[Any]"


class CallLog:
    """The calls of one brick in one thread, layer and phase; the latest are not summed yet.

    ``leaves`` holds durations of calls with nothing within them; ``nested`` holds, for each
    other call, the time within it and its duration. Only the own thread appends and folds. Other
    threads read under ``lock``, which folding holds.
    """

    def __init__(
        self,
        thread: ThreadClock,
        name: str,
        layer: int | None,
        phase: Phase,
        *,
        is_recursive: bool = False,
    ) -> None:
        self.thread = thread
        self.name = name
        self.key: CallKey = (name, layer, phase, thread.index)
        self.lock = thread.lock
        self.buffer = thread.buffer
        self.elements = self.bytes = self.flops = 0
        self.leaves: list[int] = []
        self.nested: list[int] = []
        self._sums = CallSums()
        self._is_recursive = is_recursive
        self._recursive: CallLog | None = None

    def find_recursive_log(self) -> CallLog:
        """Return the log of this brick's calls within itself, which its total leaves out."""
        if self._recursive is None:
            name, layer, phase, _ = self.key
            self._recursive = CallLog(self.thread, name, layer, phase, is_recursive=True)
        return self._recursive

    def add(self, scope: Scope, end_ns: int, duration_ns: int, child_ns: int) -> None:
        """Add one call with its counts, as ``Scope.__exit__`` does."""
        self.elements += scope.elements
        if scope.extra is not None:
            self.bytes += scope.extra[0]
            self.flops += scope.extra[1]
            if self.buffer is not None:
                start_ns, self_ns = end_ns - duration_ns, duration_ns - child_ns
                self.buffer.append(self.key, scope.extra, start_ns, end_ns, self_ns, scope.elements)
        log = self.nested if child_ns else self.leaves
        log.extend((child_ns, duration_ns) if child_ns else (duration_ns,))
        if len(log) > FOLD_AT:
            self.fold()

    def fold(self) -> None:
        """Move the durations into the sums."""
        with self.lock:
            leaves, nested = self._copy_durations()
            self.leaves.clear()
            self.nested.clear()
            self._sums.add_log(leaves, nested, is_recursive=self._is_recursive)

    def compute_sums(self) -> CallSums:
        """Return the sums of all calls so far, recursive ones included; hold ``lock``."""
        sums = CallSums()
        sums.merge(self._sums)
        sums.add_log(*self._copy_durations(), is_recursive=self._is_recursive)
        sums.elements += self.elements
        sums.bytes += self.bytes
        sums.flops += self.flops
        if self._recursive is not None:
            sums.merge(self._recursive.compute_sums())
        return sums

    def _copy_durations(self) -> tuple[array[int], array[int]]:
        nested = array("q", self.nested)
        # The own thread may be between the two appends of a pair.
        return array("q", self.leaves), nested[: len(nested) // 2 * 2]


class ThreadClock:
    """The open calls of one thread or task, and the logs that its calls are added to.

    ``top`` is the innermost open call and ``logs`` those of the current phase, by name and layer.
    ``unended`` counts calls that were still open when one around them ended. ``is_closed`` is
    True once the sums were taken for the last time.
    """

    def __init__(
        self, name: str, index: int, phase: Phase, lock: RLock, buffer: CallBuffer | None
    ) -> None:
        self.name = name
        self.index = index
        self.top: Scope | None = None
        self.unended = 0
        self.is_closed = False
        self.lock = lock
        self.buffer = buffer
        self._phases: dict[Phase, dict[str, dict[int | None, CallLog]]] = {}
        self.enter_phase(phase)

    def enter_phase(self, phase: Phase) -> None:
        """Add the calls that begin from now on to ``phase``."""
        self._phase = phase
        self.logs = self._phases.setdefault(phase, {})

    def find_log(self, name: str, layer: int | None) -> CallLog:
        """Return the log of a brick, by any of its names; create it for its first call.

        ``UsageError`` ``E_BRICK_ARGUMENT`` for an invalid name or layer.
        """
        if not record.is_valid_name(name):
            raise UsageError(
                "E_BRICK_ARGUMENT",
                f"{str(name)[: record.MAX_NAME_CHARACTERS]!a} is not a valid name of a brick.",
                f"Pass a text of 1 to {record.MAX_NAME_CHARACTERS} characters.",
            )
        try:
            number = None if layer is None else operator.index(layer)
        except TypeError:
            number = -1
        if number is not None and not 0 <= number <= record.MAX_COUNT:
            raise UsageError(
                "E_BRICK_ARGUMENT",
                f"The brick {name!r} has the layer {layer!r}, which is not a whole number from 0.",
            )
        # One string object per name, so that the hot path can compare names with `is`.
        known = sys.intern(str(record.resolve_alias(name)))
        with self.lock:
            logs = self.logs.setdefault(known, {})
            if number not in logs:
                logs[number] = CallLog(self, known, number, self._phase)
            self.logs[name] = logs
            return logs[number]

    def iter_open(self) -> Iterator[Scope]:
        """Yield the open calls, the innermost first."""
        scope = self.top
        while scope is not None:
            yield scope
            scope = scope.parent

    def has_open(self, scope: Scope) -> bool:
        """Whether the call is open in this thread."""
        return any(call is scope for call in self.iter_open())

    def compute_sums(self) -> Iterator[tuple[BrickKey, CallSums]]:
        """Yield the sums of each brick, layer and phase; hold ``lock``."""
        for phase, names in self._phases.items():
            for name, logs in names.items():
                if record.resolve_alias(name) == name:
                    for layer, log in logs.items():
                        yield (name, layer, phase), log.compute_sums()


def begin_scope(
    scope: Scope,
    thread: ThreadClock,
    log: CallLog,
    clock: Callable[[], int],
    elements: int,
    extra: tuple[Any, ...] | None,
) -> Scope:
    """Begin a call, as ``brick`` does, and return it."""
    scope.log = log
    scope.elements = elements
    scope.extra = extra
    scope.child = 0
    scope.parent = thread.top
    thread.top = scope
    scope.start = clock()
    return scope


# The parent of calls that were open when one around them ended.
_ABANDONED = Scope()


def end_out_of_order(scope: Scope, thread: ThreadClock, error: object) -> bool:
    """Close a call that is not the innermost open one; return whether to record it.

    The open calls within it never ended: they are counted as unended, and the time of those that
    ended within them goes to ``scope``. Raises ``UsageError`` ``E_BRICK_END`` if the call is not
    open in ``thread``, unless the engine itself raised ``error``.
    """
    abandoned: list[Scope] = []
    call = thread.top
    while call is not None and call is not scope:
        abandoned.append(call)
        call = call.parent
    if call is None:
        if scope.log.thread.is_closed or error is not None:
            return False
        raise _end_error(scope, thread)
    for inner in abandoned:
        scope.child += inner.child
        inner.child = 0
        inner.parent = _ABANDONED
    thread.unended += len(abandoned)
    thread.top = scope
    return True


def _end_error(scope: Scope, thread: ThreadClock) -> UsageError:
    name, began_in = scope.log.name, scope.log.thread
    problem = "was ended twice"
    remedy = "Call brick() or start() for each call, and end it once."
    if scope.parent is _ABANDONED:
        problem = "ended after the one around it"
        remedy = (
            "End bricks in reverse order; do not leave a generator while a brick in it is open."
        )
    elif began_in is not thread and began_in.has_open(scope):
        problem = f"began in {began_in.name!r} and ended in {thread.name!r}"
        remedy = "End a brick in the thread and task in which it began."
    return UsageError("E_BRICK_END", f"The brick {name!r} {problem}.", remedy)


class ThreadLocator(threading.local):
    """Finds the clock of the current thread; ``make`` creates it when it is first asked for."""

    current: ThreadClock

    def __init__(self, make: Callable[[Owner, str], ThreadClock]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> ThreadClock:
        # Called once in each thread, while it has no `current` yet.
        if name != "current":
            raise AttributeError(name)
        thread = threading.current_thread()
        self.current = self._make(thread, thread.name)
        return self.current


class TaskLocator:
    """Finds the clock of the current asyncio task, or of the thread if no task runs.

    ``clocks`` are those of running threads and tasks that ``make`` created.
    """

    def __init__(
        self,
        threads: ThreadLocator,
        clocks: Mapping[Owner, ThreadClock],
        make: Callable[[Owner, str], ThreadClock],
    ) -> None:
        self._running_loop: Callable[[], AbstractEventLoop | None] | None = None
        self._threads = threads
        self._make = make
        self._clocks = clocks

    @property
    def current(self) -> ThreadClock:
        """The clock of the task or thread that asks."""
        if self._running_loop is None:
            # Not in __init__: that may run within the engine's own import of asyncio.
            from asyncio import current_task, events

            self._current_task = current_task
            self._running_loop = events._get_running_loop
        loop = self._running_loop()
        task = None if loop is None else self._current_task(loop)
        if task is None:
            return self._threads.current
        try:
            return self._clocks[task]
        except KeyError:
            name = f"{threading.current_thread().name}/{task.get_name()}"
            return self._make(task, name)


Locator: TypeAlias = ThreadLocator | TaskLocator


def has_ended(owner: Owner) -> bool:
    """Whether a thread or task has run to its end."""
    return not owner.is_alive() if isinstance(owner, threading.Thread) else owner.done()
