"""A sequence of tokens as one digest, for everyone who compares two, and as the text it is."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def token_digest(tokens: Iterable[str]) -> str:
    """Return the SHA-256 of the tokens, each as UTF-8 with its length in bytes before it.

    The length (as in a netstring: ``2:52,``) keeps apart what a separator would not: a
    token of text may hold any character. Raises ``ToolError`` ``E_NO_TOKENS`` for none.
    """
    coded = [token.encode("utf-8", "backslashreplace") for token in tokens]
    if not coded:
        raise ToolError(
            "E_NO_TOKENS",
            "There are no tokens to take a digest of.",
            "Run the engine by itself; two empty outputs are not equal outputs.",
        )
    return hashlib.sha256(b"".join(b"%d:%b," % (len(data), data) for data in coded)).hexdigest()


def first_difference(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the index of the first token that differs; the shorter length if one goes on."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def generated(tokens: Sequence[str], token_source: str) -> str:
    """Return the text that ``tokens`` are; those that are bytes stand there as their values.

    Rounds of a benchmark are no text.
    """
    if token_source == "called:round":
        return ""
    if token_source.endswith(":byte") and all(
        each.isdecimal() and each.isascii() and int(each) < 256 for each in tokens
    ):
        return bytes(map(int, tokens)).decode("utf-8", "replace")
    return "".join(tokens)
