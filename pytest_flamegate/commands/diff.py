"""``flamegate diff BEFORE AFTER``: what changed between two profiles, and where."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.core.files import is_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_flamegate.profile.difference import ProfileDifference
    from pytest_flamegate.receipt.imports.imported import ImportedMetric
    from pytest_flamegate.run.open import OpenedProfile


_EVIDENCE = "evidence.json"
_RUNS = frozenset({"receipt.json", _EVIDENCE})


def wanted(before: Path, after: Path) -> bool:
    """Whether one of the two is an imported result, or a directory of such."""
    return any(results_in(path) or _is_imported(path) for path in (before, after))


def run_diff_figures(parsed: argparse.Namespace) -> int:
    """Compare figures; 0 whatever the difference, 4 where a name stands for two figures."""
    from pytest_flamegate.receipt.imports.comparison import compare_results
    from pytest_flamegate.report.terminal import compared_document, compared_text

    if parsed.output is not None:
        raise UsageError(
            "E_NO_PICTURE",
            "An imported result has figures and no profile, so nothing can be drawn.",
            "Leave out --output.",
        )
    compared = compare_results(_figures(parsed.before), _figures(parsed.after))
    if parsed.format == "json":
        common.print_text(json.dumps(compared_document(compared), indent=2, allow_nan=False))
    else:
        common.print_text(compared_text(compared))
    if compared.differing and not parsed.anyway:
        first, more = compared.differing[0], len(compared.differing) - 1
        others = f" So it is with {more} more." if more else ""
        raise UndecidedError(
            first.code,
            first.message + others,
            "Take both with one tool, or say --anyway to see the other figures alone.",
        )
    if not compared.pairs:
        raise UndecidedError(
            "E_NOTHING_IN_COMMON",
            "The two have no figure of the same name, formula and statistic.",
            "Take both with one tool.",
        )
    return 0


def _is_imported(path: Path) -> bool:
    from pytest_flamegate.core.json import RECEIPT_LIMITS, parse_json
    from pytest_flamegate.receipt.imports.imported import is_imported

    if not is_file(path) or path.suffix != ".json" or path.name in _RUNS:
        return False
    try:
        with path.open("rb") as stream:
            return is_imported(parse_json(stream.read(RECEIPT_LIMITS.max_bytes + 1)))
    except (ReceiptError, OSError):
        # What cannot be read is refused by who opens it as a profile.
        return False


def results_in(path: Path) -> list[Path]:
    """Return the imported results that stand in a directory; none for anything else."""
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
        return []
    return [each for each in sorted(path.glob("*.json")) if _is_imported(each)]


def _result(path: Path) -> Path:
    """Return the one result of a directory of imported ones; any other path as it is."""
    found = results_in(path)
    if len(found) > 1:
        raise UsageError(
            "E_AMBIGUOUS_RESULT",
            f"{str(path)!a} holds {len(found)} results: {', '.join(each.name for each in found)}.",
            f"Give one of them, such as {found[0]}.",
        )
    return found[0] if found else path


def _figures(path: Path) -> Sequence[ImportedMetric]:
    from pytest_flamegate.core.files import read_bounded
    from pytest_flamegate.core.json import EVIDENCE_LIMITS, RECEIPT_LIMITS
    from pytest_flamegate.receipt.documents import decode_evidence
    from pytest_flamegate.receipt.imports.comparison import convert_metrics
    from pytest_flamegate.receipt.imports.imported import decode_imported

    path = _result(path)
    if _is_imported(path):
        return decode_imported(read_bounded(path, RECEIPT_LIMITS.max_bytes))[0].metrics
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
        evidence = path / _EVIDENCE
    elif path.name in _RUNS:
        evidence = path.with_name(_EVIDENCE)
    else:
        raise UsageError(
            "E_NO_FIGURES",
            f"{str(path)!a} is neither an imported result nor a run with evidence.",
            "Give the file that flamegate import wrote, or the directory of a run.",
        )
    return convert_metrics(
        decode_evidence(read_bounded(evidence, EVIDENCE_LIMITS.max_bytes)).metrics
    )


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
    from pytest_flamegate.report.difference import difference_document, difference_text
    from pytest_flamegate.run.difference import compare_opened, other_work

    if wanted(parsed.before, parsed.after):
        return run_diff_figures(parsed)
    base, head = _open(parsed.before), _open(parsed.after)
    found, note = compare_opened(base, head), other_work(base, head)
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
        common.print_text(json.dumps(told, indent=2, allow_nan=False))
    else:
        common.print_text(difference_text(found, colour=sys.stdout.isatty()))
        if note:
            common.print_text(f"  other work  {note}")
        for path in written:
            common.print_text(str(path))
    return 0


def _open(path: Path) -> OpenedProfile:
    from pytest_flamegate.profile.frames import path_prefixes
    from pytest_flamegate.run.difference import named
    from pytest_flamegate.run.open import open_profile

    return named(open_profile(path, path_prefixes(Path.cwd())), str(path))


def _write(found: ProfileDifference, parsed: argparse.Namespace) -> list[Path]:
    """Write the picture, the page and both folded stacks; return where."""
    from pytest_flamegate.profile.folded import fold_profile
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
        store.write_atomic(path, fold_profile(side.profile).encode())
    return [picture, page, *sides]
