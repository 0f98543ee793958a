"""``flamegate diff`` where a side is an imported result: figures instead of profiles."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.paths import is_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_flamegate.receipt.imports import ImportedMetric

_EVIDENCE = "evidence.json"
_RUNS = frozenset({"receipt.json", _EVIDENCE})


def wanted(before: Path, after: Path) -> bool:
    """Whether one of the two is an imported result, or a directory of such."""
    return any(results_in(path) or _is_imported(path) for path in (before, after))


def run(parsed: argparse.Namespace) -> int:
    """Compare figures; 0 whatever the difference, 4 where a name stands for two figures."""
    from pytest_flamegate.receipt.imports.comparing import compare
    from pytest_flamegate.report.imported import compared_document, compared_text

    if parsed.output is not None:
        raise UsageError(
            "E_NO_PICTURE",
            "An imported result has figures and no profile, so nothing can be drawn.",
            "Leave out --output.",
        )
    compared = compare(_figures(parsed.before), _figures(parsed.after))
    if parsed.format == "json":
        common.say(json.dumps(compared_document(compared), indent=2, allow_nan=False))
    else:
        common.say(compared_text(compared))
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
    from pytest_flamegate.receipt.imports import is_imported
    from pytest_flamegate.receipt.strict_json import RECEIPT_MAX_BYTES, loads

    if not is_file(path) or path.suffix != ".json" or path.name in _RUNS:
        return False
    try:
        with path.open("rb") as stream:
            return is_imported(loads(stream.read(RECEIPT_MAX_BYTES + 1)))
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
    from pytest_flamegate.receipt.build import decode_evidence
    from pytest_flamegate.receipt.disk import read_bounded
    from pytest_flamegate.receipt.imports import decode_imported
    from pytest_flamegate.receipt.imports.comparing import seen_figures
    from pytest_flamegate.receipt.strict_json import EVIDENCE_MAX_BYTES, RECEIPT_MAX_BYTES

    path = _result(path)
    if _is_imported(path):
        return decode_imported(read_bounded(path, RECEIPT_MAX_BYTES))[0].metrics
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
    return seen_figures(decode_evidence(read_bounded(evidence, EVIDENCE_MAX_BYTES)).metrics)
