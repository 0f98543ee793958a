"""Try every kind of forgery at length, or list them: ``python -m tests.receipt.forgeries``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.receipt.forgeries import DETECTABLE, KINDS, PENDING, UNDETECTABLE
from tests.receipt.forgeries.book import FATES, Kind
from tests.receipt.forgeries.trial import Tally, trial


def main() -> int:
    """Print a table; 1 where a detectable forgery passed, or was refused by another code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variations", type=int, default=100, help="of each kind")
    parser.add_argument("--only", nargs="+", metavar="KIND", help="these kinds alone")
    parser.add_argument("--list", action="store_true", help="write docs/forgeries.md")
    given = parser.parse_args()
    if given.list:
        DOCUMENT.write_text(listed(), "utf-8")
        return 0
    began = time.monotonic()
    kinds = [kind for kind in KINDS if not given.only or kind.name in given.only]
    tallies = []
    print("| kind | group | fate | right code | another code | passed |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    for kind in kinds:
        tallies.append(trial(kind, range(given.variations)))
        print(_row(tallies[-1]), flush=True)
    failed = [tally for tally in tallies if _failed(tally)]
    for tally in failed:
        print(
            f"\n{tally.kind.name}: wanted {sorted(tally.kind.codes)}\n", *tally.seeds[:5], sep="\n"
        )
    print(
        f"\n{sum(sum(tally.outcomes.values()) for tally in tallies):,} forgeries of {len(kinds)} "
        f"kinds in {time.monotonic() - began:,.0f} s; {len(failed)} kinds not as they should be."
    )
    return int(bool(failed))


DOCUMENT = Path(__file__).parents[3] / "docs" / "forgeries.md"
_HEAD = """\
# Forgeries

What a forger may try, and what comes of it. Each kind starts from a receipt, evidence and profile
that flamegate measured; the forger puts right every digest and every figure that one recomputation
puts right, unless the kind is about a broken seal. `tests/receipt/test_forgeries.py` tries a slice
of each kind, and shows for every single rule that without it one of them gets through;
`python -m tests.receipt.forgeries --variations 1000` tries them at length. (This page is written by
`python -m tests.receipt.forgeries --list`.)
"""


def listed() -> str:
    """Return every kind as a page: what is found, what waits for a rule, what passes."""
    does = ("group", "forgery", "what the forger does")
    parts = [
        (DETECTABLE, "kinds that are found", "what comes of it"),
        (PENDING, "kinds that a rule could find, and none does", "the rule"),
        (UNDETECTABLE, "kinds that no verifier of files can find", "what would find it"),
    ]
    told = [
        f"## {len(kinds)} {title}\n\n{_table(kinds, (*does, last))}\n"
        for kinds, title, last in parts
        if kinds
    ]
    return "\n".join([_HEAD, *told])


def _table(kinds: Iterable[Kind], head: tuple[str, ...]) -> str:
    rows = [head, tuple("---" for _ in head)]
    for kind in kinds:
        codes = ", ".join(f"`{code}`" for code in sorted(kind.codes))
        fate = f"{FATES[kind.fate]}{': ' if codes else ''}{codes}"
        rows.append((kind.group, kind.name, kind.does, kind.finds or fate))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(tally: Tally) -> str:
    kind, came = tally.kind, tally.outcomes
    numbers = (came["right"], came["otherwise"], came["passed"])
    return f"| {kind.name} | {kind.group} | {kind.fate} | {' | '.join(map(str, numbers))} |"


def _failed(tally: Tally) -> bool:
    kind, came = tally.kind, tally.outcomes
    if kind.fate == "passes":
        return came["passed"] != sum(came.values())
    return kind.fate != "pending" and bool(came["passed"] or came["otherwise"])


if __name__ == "__main__":
    sys.exit(main())
