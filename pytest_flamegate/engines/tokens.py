"""What an engine hands on as its tokens: what can be taken for one, and what is refused."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby
from operator import index
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pytest_flamegate.core.errors import ToolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


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
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
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


@dataclass(slots=True)
class Sameness:
    """Holds every sequence against the first one.

    ``first`` and ``last`` are the tokens of the first and of the latest sequence;
    ``differs_at`` is the index of the first token in which any differed, None where none
    did, and ``differs_to`` what that one had there, None where it had ended.
    """

    first: tuple[str, ...] | None = None
    last: tuple[str, ...] = ()
    differs_at: int | None = None
    differs_to: str | None = None

    def saw(self, tokens: tuple[str, ...]) -> None:
        """Take the tokens of one more sequence."""
        self.last = tokens
        if self.first is None:
            self.first = tokens
        elif self.differs_at is None and tokens != self.first:
            self.differs_at = first_difference(self.first, tokens)
            self.differs_to = next(iter(tokens[self.differs_at :]), None)


MOST_BYTES = 16 << 20
"""What is longer is no answer."""
INSTALL = "pip install 'pytest-flamegate[tokenizer]'"

At = TypeVar("At")


class Tokenized(Generic[At]):
    """Tokens of a Hugging Face ``tokenizer.json``, of the whole output when that has ended.

    Where one token ends and the next begins is known only of the whole text; each token has
    the time at which its first byte was seen. Line ends at the very end of the output are the
    program's, not the answer's. What the tokenizer skips belongs to the token after it, so
    that the tokens together are the text.
    """

    def __init__(self, path: Path) -> None:
        self._tokenizer = load(path)
        self._path = path
        self._held = bytearray()
        self._ends: list[int] = []
        self._times: list[At] = []

    @property
    def begun(self) -> bool:
        """Whether anything but white space was seen."""
        return bool(self._held.strip())

    @property
    def overflows(self) -> bool:
        """Whether the output has grown past all bounds."""
        return len(self._held) > MOST_BYTES

    def feed(self, data: bytes, at: At) -> list[tuple[str, At]]:
        """Hold ``data``, seen ``at``; return nothing."""
        if data:
            self._held += data
            self._ends.append(len(self._held))
            self._times.append(at)
        return []

    def finish(self) -> list[tuple[str, At]]:
        """Return all tokens. ``ToolError`` ``E_BAD_TOKENIZER`` where it cannot read the text."""
        return [
            (text, self._times[bisect_right(self._ends, begins)])
            for text, begins in cut(self._tokenizer, bytes(self._held).rstrip(b"\r\n"), self._path)
        ]


def cut(tokenizer: Any, data: bytes, path: Path) -> list[tuple[str, int]]:
    """Return the text of each token of ``data`` and the index of its first byte.

    A character that is several tokens is the text of the first of them.
    """
    # An undecodable byte becomes one character, so that bytes and characters can be matched.
    escaped = data.decode("utf-8", "surrogateescape")
    text = "".join("�" if "\udc80" <= each <= "\udcff" else each for each in escaped)
    starts = [
        0,
        *accumulate(
            1 if "\udc80" <= each <= "\udcff" else len(each.encode("utf-8")) for each in escaped
        ),
    ]
    try:
        encoded = tokenizer.encode(text, add_special_tokens=False)
    except Exception as error:  # the library raises no other
        raise _broken(path, error) from None
    found: list[tuple[str, int]] = []
    written = 0
    pairs = list(zip(encoded.offsets, encoded.tokens, strict=True))
    for (start, end), group in groupby(pairs, key=lambda pair: pair[0]):
        names = [name for _, name in group]
        for begins in _begins(names, starts[start], starts[end]):
            found.append((text[written : max(end, written)], begins))
            written = max(end, written)
    if found and written < len(text):
        found[-1] = (found[-1][0] + text[written:], found[-1][1])
    return found


def _begins(names: Sequence[str], start: int, end: int) -> list[int]:
    """Return where each of the tokens begins that share the bytes from ``start`` to ``end``.

    A byte-level token has one character for each byte, one of a byte fallback is ``<0x0A>``.
    """
    if len(names) == 1:
        return [start]
    widths = [1 if len(name) == 6 and name.startswith("<0x") else len(name) for name in names]
    if sum(widths) != end - start:
        return [start] * len(names)
    return [start, *(start + width for width in accumulate(widths[:-1]))]


def load(path: Path) -> Any:
    """Return the tokenizer that the file describes.

    ``UsageError`` ``E_NO_TOKENIZER`` where there is no such file; ``ToolError``
    ``E_NO_TOKENIZERS`` without the library, ``E_BAD_TOKENIZER`` where it cannot read the file.
    """
    try:
        known = path.stat()
    except (OSError, ValueError):
        known = None
    if known is None or not path.is_file():
        raise UsageError(
            "E_NO_TOKENIZER",
            f"There is no tokenizer file {str(path)!r}.",
            'Say tokenizer = "path/to/tokenizer.json", the file that belongs to the model.',
        )
    return _load(path, known.st_ino, known.st_mtime_ns, known.st_size)


@lru_cache(maxsize=4)
def _load(path: Path, *_state: int) -> Any:
    """Read the file once for as long as it stays as it is: a large one takes a second."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ToolError(
            "E_NO_TOKENIZERS",
            "Tokens are counted with the library tokenizers, which is not installed.",
            f"Install it with {INSTALL}, or count by another token_unit.",
        ) from None
    try:
        tokenizer = Tokenizer.from_file(str(path))
        # A file may say that texts are cut or padded to a length; an answer is as long as it is.
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except Exception as error:  # the library raises no other
        raise _broken(path, error) from None
    return tokenizer


def _broken(path: Path, error: Exception) -> ToolError:
    return ToolError(
        "E_BAD_TOKENIZER",
        f"The tokenizer {str(path)!r} cannot be used: {str(error)[:200]}.",
        "Give the tokenizer.json of the model, whole and as it was downloaded.",
    )


def tokens_of(returned: Any) -> Iterable[Any]:
    """Return ``returned``, what a call of the engine gave, where its items can be tokens.

    Raises ``ToolError`` ``E_NOT_TOKENS`` for a whole text, whose letters are no tokens, for
    what is awaited, and for what holds no items.
    """
    if hasattr(returned, "__iter__") and not isinstance(returned, (str, bytes, bytearray, dict)):
        return returned  # type: ignore[no-any-return]
    if hasattr(returned, "__aiter__") or hasattr(returned, "__await__"):
        remedy = "Run the event loop inside of the function, and yield each token from there."
    else:
        remedy = "Have it yield each token as soon as it is made: its id, or its text."
    raise _refused("E_NOT_TOKENS", f"The engine returned {_kind(returned)} and no tokens.", remedy)


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


def _refused(code: str, what: str, remedy: str) -> ToolError:
    # Imported late: a process that is measured loads no more than it needs.
    from pytest_flamegate.core.errors import ToolError

    return ToolError(code, what, remedy)
