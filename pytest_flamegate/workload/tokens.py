"""What an engine hands on as its tokens: what can be taken for one, and what is refused."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flamegate.errors import ToolError


def tokens_of(returned: Any) -> Iterable[Any]:
    """Return ``returned``, what a call of the engine gave, where its items can be tokens.

    Raises ``ToolError`` ``E_NOT_TOKENS`` for a whole text, whose letters are no tokens, for
    what is awaited, and for what holds no items.
    """
    if hasattr(returned, "__iter__") and not isinstance(returned, (str, bytes, bytearray, dict)):
        return returned  # type: ignore[no-any-return]
    if hasattr(returned, "__aiter__") or hasattr(returned, "__await__"):
        todo = "Run the event loop inside of the function, and yield each token from there."
    else:
        todo = "Have it yield each token as soon as it is made: its id, or its text."
    raise _refused("E_NOT_TOKENS", f"The engine returned {_kind(returned)} and no tokens.", todo)


def plain_token(token: Any) -> int | str | bytes:
    """Return the id or the text that ``token`` is; numbers of numpy and torch become integers.

    Raises ``ToolError`` ``E_BAD_TOKEN`` for what has neither: its text could be another one
    in each process, as an address is.
    """
    if isinstance(token, (int, str, bytes)) and not isinstance(token, bool):
        return token
    # An array of one id has an item, where it is of one dimension and has no index.
    item = getattr(token, "item", None)
    try:
        number = item() if callable(item) else token
        return index(None if isinstance(number, bool) else number)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        raise _refused(
            "E_BAD_TOKEN",
            f"The engine yielded {_kind(token)} for a token.",
            "Yield each token as its id (int) or its text (str), one at a time.",
        ) from None


def _kind(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__!a}"


def _refused(code: str, what: str, todo: str) -> ToolError:
    # Imported late: a process that is measured loads no more than it needs.
    from pytest_flamegate.errors import ToolError

    return ToolError(code, what, todo)
