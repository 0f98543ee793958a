"""JSON of a file that anybody may have written, read as one document with one meaning."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.profile.text import escape

MAX_NUMBER_CHARACTERS = 64
_SHOWN = 200


def loads(data: bytes, refused: Refused, *, max_bytes: int) -> Any:
    """Return the document that ``data`` holds; ``refused`` makes of a reason what is raised.

    Refused are more than ``max_bytes``, two fields of one name, NaN, infinity, numbers of more
    than 64 characters, and what is no UTF-8. ``1e999`` is infinity, so look at each figure.
    """
    if len(data) > max_bytes:
        raise refused(f"it has more than the {max_bytes:,} bytes allowed")
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_constant,
            parse_int=_integer,
        )
    except RecursionError:
        raise refused("it is nested too deeply") from None
    except ValueError as error:
        raise refused(f"no JSON ({error})") from None


class Refused:
    """Makes the refusals of one kind of file: ``code``, and what the file is called."""

    def __init__(self, code: str, what: str) -> None:
        self.code = code
        self.what = what

    def __call__(self, why: str) -> ReceiptError:
        """Return the refusal for ``why``, a few words."""
        return ReceiptError(
            self.code,
            f"{self.what} is malformed: {escape(why, _SHOWN)}.",
            "Have the tool that wrote it write it again.",
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("two fields of one object have one name")
    return fields


def _integer(text: str) -> int:
    if len(text) > MAX_NUMBER_CHARACTERS:
        raise ValueError(f"a number has more than {MAX_NUMBER_CHARACTERS} characters")
    return int(text)


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
