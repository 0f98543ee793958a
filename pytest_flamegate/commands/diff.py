"""``flamegate diff BEFORE AFTER``: what changed between two profiles, and where."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common, diff_figures
from pytest_flamegate.errors import UndecidedError

if TYPE_CHECKING:
    import argparse

    from pytest_flamegate.differing import Seen
    from pytest_flamegate.profile.difference import Difference

_PICTURE = "diff.svg"


def add(subparsers: common.Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "diff",
        help="compare two profiles: which function costs a token more or less",
        description="Compares two profiles by what each function costs a token (share of the "
        "samples x CPU time of a token). Each side is the directory of a run or a baseline, a "
        "receipt or evidence, folded stacks, or a speedscope file. A profile without evidence "
        "beside it has no cost: then shares are compared, and the answer says so. Profiles that "
        "were not taken alike (profiler, rate, event, call graph, Python, what they cover) are "
        "refused.",
        epilog="exit codes: 0 compared, whatever was found (nothing is gated); 2 usage; "
        "3 a file is malformed; 4 not comparable, or no samples; 5 cannot be read or written",
    )
    parser.add_argument("before", type=Path, metavar="BEFORE")
    parser.add_argument("after", type=Path, metavar="AFTER")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="OUT",
        help="draw it: OUT.svg, or diff.svg in the directory OUT; beside it an interactive page "
        "and the folded stacks",
    )
    parser.add_argument(
        "--anyway", action="store_true", help="compare what was not taken alike, loudly marked"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Compare; 0 whatever the difference is."""
    from pytest_flamegate.differing import compared, other_work
    from pytest_flamegate.report.difference_text import difference_document, difference_text

    if diff_figures.wanted(parsed.before, parsed.after):
        return diff_figures.run(parsed)
    base, head = _seen(parsed.before), _seen(parsed.after)
    found, note = compared(base, head), other_work(base, head)
    if found.mismatches and not parsed.anyway:
        raise UndecidedError(
            "E_PROFILES_DIFFER",
            "The two profiles were not taken alike: "
            f"{'; '.join(str(each) for each in found.mismatches)}.",
            "Take both in the same way, or say --anyway to see more than the program's change.",
        )
    written = _write(found, parsed) if parsed.output is not None else []
    if parsed.format == "json":
        told = {
            **difference_document(found),
            "notes": [note] if note else [],
            "written": [str(path) for path in written],
        }
        common.say(json.dumps(told, indent=2, allow_nan=False))
    else:
        common.say(difference_text(found, colour=sys.stdout.isatty()))
        if note:
            common.say(f"  other work  {note}")
        for path in written:
            common.say(str(path))
    return 0


def _seen(path: Path) -> Seen:
    from pytest_flamegate.differing import Seen
    from pytest_flamegate.opening import open_profile
    from pytest_flamegate.profile.normalise import prefixes

    opened = open_profile(path, prefixes(Path.cwd()))
    if opened.evidence is None:
        return Seen(str(path), opened.profile)
    return Seen.of(str(path), opened.profile, opened.evidence)


def _write(found: Difference, parsed: argparse.Namespace) -> list[Path]:
    """Write the picture, the page and both folded stacks; return where."""
    from pytest_flamegate.profile import fold
    from pytest_flamegate.receipt import store
    from pytest_flamegate.report import difference_svg, flamegraph_html

    picture = parsed.output
    if picture.suffix != ".svg":
        picture = picture / _PICTURE
    # In a directory of its own the picture's name says nothing, and is left out of theirs.
    own = parsed.output is not picture
    sides = {
        picture.with_name(f"{role}.folded" if own else f"{picture.stem}.{role}.folded"): side
        for role, side in (("base", found.base), ("head", found.head))
    }
    title = f"{parsed.before} → {parsed.after}"
    page = picture.with_suffix(".html")
    html = flamegraph_html(
        found.head.profile,
        title=title,
        subtitle="",
        cpu_s_per_token=found.head.cpu_s_per_token,
        difference=found,
    )
    store.write_atomic(picture, difference_svg(found, title=title, subtitle="").encode())
    store.write_atomic(page, html.encode())
    for path, side in sides.items():
        store.write_atomic(path, fold(side.profile).encode())
    return [picture, page, *sides]
