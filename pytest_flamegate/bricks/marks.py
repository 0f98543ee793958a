"""The marks that an engine puts around its parts: ``brick``, ``start``, ``stop``, ``profiled``.

This is the hot path. While no profiler is on, a mark is one comparison and one shared object: it
reads no clock and allocates nothing. While one is on, a call begins in ``brick()`` and ends with
its block. Everything rare (extra arguments, ends out of order) is a function of ``threads`` or
``clock`` that ``BrickProfiler`` installs here, so that this file imports neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from pytest_flamegate.bricks.record import Category


FOLD_AT = 2048
"""Durations that are held one by one before they are folded into sums."""


class Off:
    """The mark while no profiler is on: it does nothing and lets exceptions pass."""

    __slots__ = ()
    if TYPE_CHECKING:

        def __enter__(self) -> None: ...
        def __exit__(self, *raised: object) -> None: ...

    else:
        # Built-in functions that do nothing here cost half of what empty Python ones do.
        __enter__ = [].clear
        __exit__ = "".format


class Scope:
    """One call of a brick, from ``brick()`` to the end of its block.

    ``child`` is the time of the calls within that have ended, in nanoseconds. ``extra`` is None
    or bytes and operations; if single calls are kept, also the kernel, the call's serial number
    and its parent's.
    """

    __slots__ = ("child", "elements", "extra", "log", "parent", "start")
    child: int
    elements: int
    extra: tuple[Any, ...] | None
    log: Any  # a CallLog of threads.py, which imports this file
    parent: Scope | None
    start: int

    if TYPE_CHECKING:

        def __enter__(self) -> None: ...

    else:
        __enter__ = [].clear

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End the call. ``UsageError`` ``E_BRICK_END`` if it is not open in this thread."""
        end = _clock()
        thread = _locator.current
        if thread.top is not self and not _end_out_of_order(self, thread, error):
            return
        duration = end - self.start
        child = self.child
        log = self.log
        thread.top = parent = self.parent
        if parent is not None:
            parent.child += duration
            name = log.name
            while parent is not None:
                if parent.log.name is name:
                    log = log.find_recursive_log()
                    break
                parent = parent.parent
        log.elements += self.elements
        extra = self.extra
        if extra is not None:
            log.bytes += extra[0]
            log.flops += extra[1]
            if log.buffer is not None:
                log.buffer.append(
                    log.key, extra, end - duration, end, duration - child, self.elements
                )
        # The duration is written last: a snapshot from another thread counts only whole entries.
        if child:
            durations = log.nested
            durations.append(child)
        else:
            durations = log.leaves
        durations.append(duration)
        if len(durations) > FOLD_AT:
            log.fold()


OFF = Off()
# Plain module globals are the fastest to read. `_on` is None while no profiler is on. `_begin`
# begins every call if `_always`, and else those whose category is not `_declared` yet.
_on: Any = None
_locator: Any = None
_begin = cast("Callable[..., Scope | Off]", None)
_end_out_of_order = cast("Callable[[Scope, Any, object], bool]", None)
_always = False
_declared: Mapping[str, Category] = {}
_clock: Callable[[], int] = perf_counter_ns


def brick(
    name: str,
    elements: int = 0,
    layer: int | None = None,
    bytes: int = 0,  # noqa: A002
    flops: int = 0,
    category: Category | None = None,
    kernel: str = "",
) -> Scope | Off:
    """Time the block as one call of the brick ``name``.

    The call begins here and must end in the same thread and task::

        with brick("RmsNorm", elements=x.size, layer=i):
            ...

    Args:
        name: One of the 15 known bricks, an alias of one, or any other name of up to 256
            characters.
        elements: Number of values that the call computes. Pass it and all that follow by keyword.
        layer: Number of the layer, from 0; None outside of layers.
        bytes: Bytes that the call reads.
        flops: Floating-point operations of the call.
        category: ``Norm``, ``Attention``, ``FFN`` or ``Other``, for a name that is not known.
        kernel: The kernel that the call launches, as in ``gemv <<<32,256,1>>> smem=4096B``.

    Raises:
        UsageError: ``E_BRICK_ARGUMENT`` for a value that cannot be recorded, and if the name
            already has another category. When the block ends: ``E_BRICK_END`` unless the engine
            itself raised an exception.
    """
    # Keyword-only parameters would make each call a third slower.
    on = _on
    if on is None:
        return OFF
    extra = None
    is_usual = True
    try:
        if bytes or flops or category is not None or _always or elements < 0:
            is_usual = not (
                _always
                or (category is not None and _declared.get(name) != category)
                or not (elements >= 0 <= bytes and flops >= 0)
            )
            extra = (bytes, flops)
    except Exception:  # comparing an array or a text with 0; `_begin` says which argument it is
        is_usual = False
    if not is_usual:
        return _begin(name, elements, layer, bytes, flops, category, kernel)
    thread = on.current
    try:
        log = thread.logs[name][layer]
    except (KeyError, TypeError):
        log = thread.find_log(name, layer)
    scope = Scope()
    scope.log = log
    scope.elements = elements
    scope.extra = extra
    scope.child = 0
    scope.parent = thread.top
    thread.top = scope
    scope.start = _clock()
    return scope


def start(
    name: str,
    elements: int = 0,
    layer: int | None = None,
    bytes: int = 0,  # noqa: A002
    flops: int = 0,
    category: Category | None = None,
    kernel: str = "",
) -> Scope | None:
    """Begin a call that ``stop`` ends, for loops in which a block does not fit.

    Arguments and errors are those of ``brick``. Returns None while no profiler is on.
    """
    if _on is None:
        return None
    scope = brick(name, elements, layer, bytes, flops, category, kernel)
    return scope if isinstance(scope, Scope) else None


def stop(handle: Scope | None, elements: int = 0) -> None:
    """End the call that ``start`` began; ``elements`` are added to those given there."""
    if handle is None:
        return
    try:
        handle.elements += elements
    except TypeError:
        raise invalid_count_error(handle.log.name) from None
    handle.__exit__(None, None, None)


def invalid_count_error(name: str) -> UsageError:
    """Build the error for elements, bytes or operations that are no count."""
    return UsageError(
        "E_BRICK_ARGUMENT",
        f"The brick {name!r} got a count that is not a whole number from 0 to 2**63 - 1.",
    )


P = ParamSpec("P")
R = TypeVar("R")


@overload
def profiled(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def profiled(
    name: str | None = None,
    /,
    *,
    elements: int = 0,
    layer: int | None = None,
    category: Category | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def profiled(
    function: Callable[..., Any] | str | None = None,
    /,
    *,
    elements: int = 0,
    layer: int | None = None,
    category: Category | None = None,
) -> Any:
    """Time each call of a function or coroutine as a brick.

    The brick has the function's qualified name unless one is given: ``@profiled`` or
    ``@profiled("Tokenize", category="Other")``. A ``partial`` has its function's, and another
    callable object its class's.

    Raises:
        UsageError: ``E_BRICK_ARGUMENT`` for a generator, because other code runs between two of
            its values.
    """
    if callable(function):
        return _wrap(function, _name_of(function), elements, layer, category)

    def decorate(inner: Callable[..., Any]) -> Callable[..., Any]:
        return _wrap(inner, function or _name_of(inner), elements, layer, category)

    return decorate


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", type(function).__qualname__)


def _wrap(
    function: Callable[..., Any],
    name: str,
    elements: int,
    layer: int | None,
    category: Category | None,
) -> Callable[..., Any]:
    # Imported here because an engine that only uses brick() does not need it.
    import inspect

    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            "E_BRICK_ARGUMENT",
            f"{name!r} is a generator, so other code runs between two of its values.",
            "Use brick() inside the generator, around the work for one value.",
        )
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def await_in_brick(*args: Any, **kwargs: Any) -> Any:
            with brick(name, elements, layer, category=category):
                return await function(*args, **kwargs)

        return cast("Callable[..., Any]", await_in_brick)

    @wraps(function)
    def call_in_brick(*args: Any, **kwargs: Any) -> Any:
        if _on is None:
            return function(*args, **kwargs)
        with brick(name, elements, layer, category=category):
            return function(*args, **kwargs)

    return call_in_brick
