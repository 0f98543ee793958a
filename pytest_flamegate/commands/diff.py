"""``flamegate diff BEFORE AFTER``: compare two profiles, or two imported results."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_flamegate.commands import common
from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.core.files import is_file, read_bounded
from pytest_flamegate.core.json_parser import RECEIPT_LIMITS, parse_json
from pytest_flamegate.profile.difference import ProfileDifference
from pytest_flamegate.profile.frames import fold_profile, path_prefixes
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.documents import decode_evidence
from pytest_flamegate.receipt.imports import imported
from pytest_flamegate.report.difference import difference_document, difference_text
from pytest_flamegate.report.difference_svg import difference_svg
from pytest_flamegate.report.flame import Drawn
from pytest_flamegate.report.flame_html import flamegraph_html
from pytest_flamegate.report.terminal import comparison_document, comparison_text
from pytest_flamegate.run.compare import compare_opened, find_other_work, title_profile
from pytest_flamegate.run.open import open_profile

_EVIDENCE = "evidence.json"
_RUN_FILES = frozenset({"receipt.json", _EVIDENCE})
_PICTURE = "diff.svg"


def run(parsed: argparse.Namespace) -> int:
    """Compare; 0 whatever the difference is."""
    paths = (parsed.before, parsed.after)
    if any(find_results(path) or _is_imported(path) for path in paths):
        return _compare_results(parsed)
    base, head = (
        title_profile(open_profile(path, path_prefixes(Path.cwd())), str(path)) for path in paths
    )
    found, note = compare_opened(base, head), find_other_work(base, head)
    if found.mismatches and not parsed.anyway:
        raise UndecidedError(
            "E_PROFILES_DIFFER",
            "The two profiles were taken differently: "
            f"{'; '.join(str(each) for each in found.mismatches)}.",
        )
    written = [] if parsed.output is None else _write(found, parsed)
    if parsed.format == "json":
        document = {
            **difference_document(found),
            "notes": [note] if note else [],
            "written": [str(path) for path in written],
        }
        common.print_text(json.dumps(document, indent=2, allow_nan=False))
        return 0
    notes = [f"  other work  {note}"] if note else []
    lines = [difference_text(found, colour=sys.stdout.isatty()), *notes, *map(str, written)]
    common.print_text("\n".join(lines))
    return 0


def _write(found: ProfileDifference, parsed: argparse.Namespace) -> list[Path]:
    """Write the picture, the page and both folded stacks; return their paths."""
    is_picture = parsed.output.suffix == ".svg"
    picture = parsed.output if is_picture else parsed.output / _PICTURE
    # In a directory of their own the stacks need no name before theirs.
    prefix = f"{picture.stem}." if is_picture else ""
    title = f"{parsed.before} → {parsed.after}"
    cost_s = found.head.cpu_s_per_token
    drawn = Drawn(title, found.head.profile, cost_s, found, opens_compared=True)
    html = flamegraph_html(drawn, subtitle="")
    files = {
        picture: difference_svg(found, title=title, subtitle=""),
        picture.with_suffix(".html"): html,
        picture.with_name(f"{prefix}base.folded"): fold_profile(found.base.profile),
        picture.with_name(f"{prefix}head.folded"): fold_profile(found.head.profile),
    }
    for path, text in files.items():
        store.write_atomic(path, text.encode())
    return list(files)


# Results of other tools


def find_results(path: Path) -> list[Path]:
    """Return the imported results in a directory; none for anything else."""
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
        return []
    return [each for each in sorted(path.glob("*.json")) if _is_imported(each)]


def _is_imported(path: Path) -> bool:
    if not is_file(path) or path.suffix != ".json" or path.name in _RUN_FILES:
        return False
    try:
        with path.open("rb") as stream:
            return imported.is_imported(parse_json(stream.read(RECEIPT_LIMITS.max_bytes + 1)))
    except (ReceiptError, OSError):
        # An unreadable file is reported when it is opened as a profile.
        return False


def _compare_results(parsed: argparse.Namespace) -> int:
    """Compare figures; 0 whatever the difference is."""
    if parsed.output is not None:
        raise UsageError(
            "E_NO_PICTURE",
            "An imported result has figures and no profile, so nothing can be drawn.",
        )
    compared = imported.compare_results(_read_metrics(parsed.before), _read_metrics(parsed.after))
    if parsed.format == "json":
        common.print_text(json.dumps(comparison_document(compared), indent=2, allow_nan=False))
    else:
        common.print_text(comparison_text(compared))
    if compared.differing and not parsed.anyway:
        first, more = compared.differing[0], len(compared.differing) - 1
        others = f" The same holds for {more} more." if more else ""
        raise UndecidedError(
            first.code,
            first.message + others,
            "Take both with one tool, or use --anyway to see the other figures alone.",
        )
    if not compared.pairs:
        raise UndecidedError(
            "E_NOTHING_IN_COMMON", "The two have no figure of the same name, formula and statistic."
        )
    return 0


def _read_metrics(path: Path) -> Sequence[imported.ImportedMetric]:
    results = find_results(path)
    if len(results) > 1:
        raise UsageError(
            "E_AMBIGUOUS_RESULT",
            f"{str(path)!a} holds {len(results)} results: "
            f"{', '.join(each.name for each in results)}.",
            f"Give one of them, such as {results[0]}.",
        )
    path = results[0] if results else path
    if _is_imported(path):
        return imported.decode_imported(read_bounded(path, RECEIPT_LIMITS.max_bytes))[0].metrics
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
        evidence = path / _EVIDENCE
    elif path.name in _RUN_FILES:
        evidence = path.with_name(_EVIDENCE)
    else:
        raise UsageError(
            "E_NO_FIGURES", f"{str(path)!a} is neither an imported result nor a run with evidence."
        )
    data = read_bounded(evidence)
    return imported.convert_metrics(decode_evidence(data).metrics)
