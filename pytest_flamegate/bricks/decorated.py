"""``@profiled``: each call of a function is a call of a brick."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from pytest_flamegate.bricks import marks
from pytest_flamegate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.bricks.names import Category

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
            with marks.brick(name, elements, layer, category=category):
                return await function(*args, **kwargs)

        return cast("Callable[..., Any]", awaited)

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if marks._on is None:
            return function(*args, **kwargs)
        with marks.brick(name, elements, layer, category=category):
            return function(*args, **kwargs)

    return called
