"""The marks that an engine puts around its parts. This is the hot path; the unusual is apart.

While no profiler is on, a mark is one comparison and a shared object: no clock, nothing
allocated. While one is on, a call begins in ``brick()`` itself and ends with the block.
"""

from __future__ import annotations

from functools import wraps
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, overload

from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_flamegate.bricks.record import Category
    from pytest_flamegate.bricks.threads import Cell, LaneClock


FOLD_AT = 2048
"""So many durations are held before they are folded into totals."""


class Here(Protocol):
    """Finds the lane of the thread or task that asks."""

    @property
    def lane(self) -> LaneClock: ...  # noqa: D102


class Off:
    """What a mark is while no profiler is on: it does nothing and lets exceptions pass."""

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

    ``child`` is the time of the ended calls directly within, in nanoseconds; ``told`` holds bytes
    and operations, and where calls are kept, kernel, serial number and the parent's.
    """

    __slots__ = ("cell", "child", "elements", "parent", "start", "told")
    cell: Cell
    child: int
    elements: int
    parent: Scope | None
    start: int
    told: tuple[Any, ...] | None

    if TYPE_CHECKING:

        def __enter__(self) -> None: ...

    else:
        __enter__ = [].clear

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End the call: on the top of its own lane, or ``unusual.end`` says what it is."""
        end = _clock()
        lane = _here.lane
        if lane.top is not self and not _unusual(self, lane, error):
            return
        took = end - self.start
        child = self.child
        cell = self.cell
        lane.top = parent = self.parent
        if parent is not None:
            parent.child += took
            name = cell.name
            while parent is not None:
                if parent.cell.name is name:
                    cell = cell.within()
                    break
                parent = parent.parent
        cell.elements += self.elements
        told = self.told
        if told is not None:
            cell.bytes += told[0]
            cell.flops += told[1]
            if cell.kept is not None:
                cell.kept.keep(cell.key, told, end - took, end, took - child, self.elements)
        # A snapshot from another thread takes what is whole: the duration comes last.
        if child:
            log = cell.nested
            log.append(child)
        else:
            log = cell.leaves
        log.append(took)
        if len(log) > FOLD_AT:
            cell.fold()


OFF = Off()
# Plain globals are what is fastest to read. `_on` is None while no profiler is on; `_begin`
# begins every call where `_always`, and first calls with a category that is not `_declared`.
_on: Here | None = None
_here = cast("Here", None)
_begin = cast("Callable[..., Scope | Off]", None)
_unusual = cast("Callable[[Scope, LaneClock, object], bool]", None)
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
    """Clock what runs in this block as one call of ``name``; write all but the name by keyword.

    The call begins here and must end in the same thread and task. ``UsageError``:
    ``E_BRICK_NAME``, ``E_BRICK_LAYER``, ``E_BRICK_COUNT`` (a negative count, or none at all),
    ``E_BRICK_CATEGORY`` (unknown, or another than the name already has); on leaving,
    ``E_BRICK_ORDER``, ``E_BRICK_ENDED`` and ``E_BRICK_LANE``, where nothing else was raised.
    """
    # Keyword-only parameters would cost each call a third more.
    on = _on
    if on is None:
        return OFF
    told = None
    usual = True
    try:
        if bytes or flops or category is not None or _always or elements < 0:
            usual = not (
                _always
                or (category is not None and _declared.get(name) != category)
                or not (elements >= 0 <= bytes and flops >= 0)
            )
            told = (bytes, flops)
    except Exception:  # whatever comparing what is no number raises
        usual = False
    if not usual:
        return _begin(name, elements, layer, bytes, flops, category, kernel)
    lane = on.lane
    try:
        cell = lane.cells[name][layer]
    except (KeyError, TypeError):
        cell = lane.cell(name, layer)
    scope = Scope()
    scope.cell = cell
    scope.elements = elements
    scope.told = told
    scope.child = 0
    scope.parent = lane.top
    lane.top = scope
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
    """Begin a call that ``stop`` ends, for loops where a block does not fit: see ``brick``.

    None while no profiler is on.
    """
    if _on is None:
        return None
    scope = brick(name, elements, layer, bytes, flops, category, kernel)
    return scope if isinstance(scope, Scope) else None


def stop(handle: Scope | None, elements: int = 0) -> None:
    """End what ``start`` began, with ``elements`` more than were told there."""
    if handle is None:
        return
    try:
        handle.elements += elements
    except TypeError:
        # Loaded by whoever turned the marks on.
        from pytest_flamegate.bricks.threads import uncounted

        raise uncounted(handle.cell.name) from None
    handle.__exit__(None, None, None)


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
    """Clock each call of a function or coroutine as a brick, by its qualified name or ``name``.

    ``UsageError`` ``E_BRICK_GENERATOR`` for a generator: between two of its values others run.
    """
    if callable(function):
        return _wrapped(function, function.__qualname__, elements, layer, category)

    def wrap(inner: Callable[..., Any]) -> Callable[..., Any]:
        return _wrapped(inner, function or inner.__qualname__, elements, layer, category)

    return wrap


def _wrapped(
    function: Callable[..., Any],
    name: str,
    elements: int,
    layer: int | None,
    category: Category | None,
) -> Callable[..., Any]:
    # Loaded here, for a mark alone needs none of it.
    import inspect

    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            "E_BRICK_GENERATOR",
            f"{name!r} is a generator, and others run between two of its values.",
            "Mark with brick() what it does for one value.",
        )
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with brick(name, elements, layer, category=category):
                return await function(*args, **kwargs)

        return cast("Callable[..., Any]", awaited)

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if _on is None:
            return function(*args, **kwargs)
        with brick(name, elements, layer, category=category):
            return function(*args, **kwargs)

    return called
