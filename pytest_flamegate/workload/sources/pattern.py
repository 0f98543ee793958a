"""A regular expression of the user's, with named groups such as ``tokens_per_second``."""

from __future__ import annotations

import json
import re
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.errors import UsageError
from pytest_flamegate.workload.sources import pattern_search
from pytest_flamegate.workload.sources.base import FIGURES, bad_source, figure, told

if TYPE_CHECKING:
    from pytest_flamegate.workload.sources.base import Heard, Told

LONGEST = 1000
SEARCH_S = 10.0
"""What a search may take; an expression that backtracks without end takes years."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The last match in the messages, then in the output; each group is the figure it is named."""

    pattern: str
    name: str = "pattern"
    markers: tuple[bytes, ...] = ()

    def read(self, heard: Heard) -> Told | None:
        """Return the figures of the last match; none for a group that took no part in it."""
        for text in (heard.stderr, heard.stdout):
            groups = self._last(text) if text else None
            if groups:
                return told(
                    self.name,
                    {name: figure(self.name, name, value) for name, value in groups.items()},
                )
        return None

    def _last(self, text: str) -> dict[str, str]:
        """Search in a process of its own: nothing else can end a search that backtracks."""
        # A child in an environment of its own imports the engines, and has no psutil.
        from pytest_flamegate.workload import process

        found = process.run(
            [sys.executable, "-I", "-S", pattern_search.__file__, self.pattern, _printable(text)],
            timeout_s=SEARCH_S,
        )
        if found.timed_out or found.returncode != 0:
            raise bad_source(
                self.name,
                f"cannot be searched with {self.pattern[:80]!r} in {SEARCH_S:g} s",
                "Write a pattern without a repetition inside a repetition.",
            )
        groups: dict[str, str] = json.loads(found.stdout)
        return groups


def check(pattern: str, where: str) -> None:
    """Raise ``UsageError`` ``E_BAD_PATTERN`` for an expression that can yield no figure."""
    why = _fault(pattern)
    if why is not None:
        raise UsageError(
            "E_BAD_PATTERN",
            f"{where} has a pattern that {why}.",
            "Write a regular expression with a named group for each figure, such as "
            r"pattern = '(?P<tokens_per_second>[\d.]+) tok/s'; "
            f"the names: {', '.join(FIGURES)}.",
        )


def _fault(pattern: str) -> str | None:
    if len(pattern) > LONGEST:
        return f"is longer than {LONGEST} characters"
    if "\0" in pattern:
        return "holds a NUL character"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            groups = set(re.compile(pattern, re.MULTILINE).groupindex)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression: {error}"
    if not groups:
        return "has no named group"
    if unknown := sorted(groups - set(FIGURES)):
        return f"has a group {unknown[0][:40]!r}, which is no figure"
    return None


def _printable(text: str) -> str:
    """Return ``text`` as an argument can hold it."""
    return text.replace("\0", "�")
