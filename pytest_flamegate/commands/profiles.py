"""``flamegate import``, ``export``, ``bricks`` and ``diff``: profiles and figures of any tool."""

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_flamegate.commands import common
from pytest_flamegate.core.clocks import utc_now
from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.core.files import is_directory, is_file, read_bounded, require_confined
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.core.json_parser import RECEIPT_LIMITS, parse_json
from pytest_flamegate.engines.declare import NAME
from pytest_flamegate.gate.document import read_verdict
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import ExecutionGraph, to_document
from pytest_flamegate.graph.text import draw_dot, draw_tree
from pytest_flamegate.profile.difference import ProfileDifference
from pytest_flamegate.profile.formats import export_profile, parse_profile, read_file, unpack
from pytest_flamegate.profile.frames import fold_profile, path_prefixes
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.receipt import baseline, store
from pytest_flamegate.receipt.baseline import StoredRun
from pytest_flamegate.receipt.imports import imported
from pytest_flamegate.receipt.imports.imported import ImportSource, encode_imported
from pytest_flamegate.receipt.imports.reading import detect_import_format
from pytest_flamegate.report import text as figures
from pytest_flamegate.report.bricks import graph_text
from pytest_flamegate.report.difference import difference_document, difference_text
from pytest_flamegate.report.difference_svg import difference_svg
from pytest_flamegate.report.flame import Drawn
from pytest_flamegate.report.flame_svg import flamegraph
from pytest_flamegate.report.page import flamegraph_html
from pytest_flamegate.report.terminal import (
    brick_lines,
    comparison_document,
    comparison_text,
    imported_text,
)
from pytest_flamegate.report.text import clip, columns, visible
from pytest_flamegate.run.open import (
    compare_opened,
    compare_stored_run,
    find_other_work,
    open_graph,
    open_profile,
    open_sums,
    title_profile,
)

_MAX_FUNCTIONS = 10
_SHAPES: Mapping[str | None, Callable[[ExecutionGraph], str]] = {
    "tree": draw_tree,
    "dot": draw_dot,
    "json": lambda graph: encode_json(to_document(graph)).decode().removesuffix("\n"),
    None: lambda graph: graph_text(graph, find_critical_path(graph)),
}
_EXTENSIONS = (
    *(".gz", ".json", ".speedscope", ".folded", ".collapsed", ".txt", ".raw"),
    *(".jsonl", ".csv", ".md"),
)


def run_import(parsed: argparse.Namespace) -> int:
    """Import a profile, or write each result of a file as a document.

    Without ``--output`` all files are written or none.
    """
    packed, name = read_file(parsed.file), _choose_name(parsed)
    data = unpack(packed)
    results_format = detect_import_format(data)
    if results_format is None:
        return _import_profile(data, name, parsed)
    results = results_format.read(data)
    digest = hashlib.sha256(packed).hexdigest()
    file = parsed.file.name.encode("utf-8", "backslashreplace").decode()
    source = ImportSource(file, results_format.name, digest, utc_now())
    files = {f"{each.result}.json": encode_imported(each, source) for each in results}
    directory = _write(files, name, parsed)
    common.print_text(f"{imported_text(results)}\n{directory}")
    return 0


def run_export(parsed: argparse.Namespace) -> int:
    """Export the profile."""
    opened = open_profile(parsed.path, path_prefixes(Path.cwd()))
    data = export_profile(opened.profile, parsed.format, opened.title)
    return _print_or_write(data, parsed.output)


def run_bricks(parsed: argparse.Namespace) -> int:
    """Show the graph, or the sums."""
    if parsed.shape == "table":
        name, view = open_sums(parsed.path)
        text = "\n".join(brick_lines(name, view, width=common.terminal_width())[1:])
    else:
        text = _SHAPES[parsed.shape](open_graph(parsed.path))
    return _print_or_write(f"{text}\n".encode(), parsed.output)


def _print_or_write(data: bytes, output: Path | None) -> int:
    if output is None:
        common.print_bytes(data)
    else:
        store.write_atomic(output, data)
        common.print_text(str(output))
    return 0


def _import_profile(data: bytes, name: str, parsed: argparse.Namespace) -> int:
    profile = parse_profile(data, path_prefixes(Path.cwd()))
    origin = f"imported from {parsed.file.name}"
    picture = flamegraph(Drawn(name, profile), subtitle=origin)
    page = flamegraph_html(Drawn(name, profile), subtitle=origin)
    files = {
        baseline.FOLDED: export_profile(profile, "folded", name),
        baseline.DESCRIBED: export_profile(profile, "speedscope", name),
        baseline.PICTURE: picture.encode(),
        baseline.INTERACTIVE: page.encode(),
    }
    directory = _write(files, name, parsed)
    common.print_text("\n".join([*_describe_profile(profile), str(directory)]))
    return 0


def _choose_name(parsed: argparse.Namespace) -> str:
    """Return ``--name``, else the file's name without the extensions of known formats."""
    name: str = parsed.name or parsed.file.name
    while not parsed.name and name.lstrip(".").endswith(_EXTENSIONS):
        name = os.path.splitext(name)[0]  # noqa: PTH122
    if not NAME.fullmatch(name):
        raise UsageError(
            "E_BAD_NAME",
            f"{name!a} cannot be the name of an import.",
            "Use --name NAME: letters, digits, dots, dashes and underscores.",
        )
    return name


def _write(files: Mapping[str, bytes], name: str, parsed: argparse.Namespace) -> Path:
    """Write the files and return their directory; a measured run is never overwritten."""
    if parsed.output is None:
        root = common.read_settings(parsed).directory
        published = require_confined(root, store.child_path(root / "imported", name))
        store.ensure_gitignore(root)
        store.publish(published, files)
        return published
    directory: Path = parsed.output
    for measured in _RUN_FILES:
        if os.path.lexists(directory / measured):
            raise UsageError(
                "E_NOT_OVERWRITTEN", f"{str(directory)!a} holds a measured run ({measured})."
            )
    for file, data in files.items():
        store.write_atomic(directory / file, data)
    return directory


def _describe_profile(profile: Profile) -> list[str]:
    """Return a line for each of the hottest functions, and the notes of the profile."""
    spots = [spot for spot in rank_hotspots(profile) if spot.self_samples]
    rows = [
        (figures.share(spot.self_share), clip(visible(spot.name), 60), visible(spot.module))
        for spot in spots[:_MAX_FUNCTIONS]
    ]
    total = f"{figures.count(profile.samples)} {profile.unit}"
    if profile.unit == "nanoseconds":
        total = figures.seconds(profile.samples / 1e9)
    head = f"{total} in {figures.plural(len(spots), 'function')}, hottest first by self share:"
    notes = [f"note: {visible(note, 300)}" for note in profile.degraded]
    return [head, *columns(rows, right=(0,), indent=2), *notes]


_RUN_FILES = (baseline.RECEIPT, baseline.EVIDENCE)


def run_diff(parsed: argparse.Namespace) -> int:
    """Compare; 0 whatever the difference is."""
    directory = parsed.before if parsed.after is None else None
    if directory is not None:
        parsed.before, parsed.after = _find_sides(directory)
    paths = (parsed.before, parsed.after)
    if any(map(find_results, paths)):
        return _compare_results(parsed)
    base, head = (
        title_profile(open_profile(path, path_prefixes(Path.cwd())), str(path)) for path in paths
    )
    note = find_other_work(base, head)
    found = (directory and _read_difference(directory)) or compare_opened(base, head)
    if found.mismatches and not parsed.anyway:
        raise UndecidedError(
            "E_PROFILES_DIFFER",
            "The two profiles were taken differently: "
            f"{'; '.join(str(each) for each in found.mismatches)}.",
        )
    written = [] if parsed.output is None else _write_difference(found, parsed)
    if parsed.format == "json":
        document = {
            **difference_document(found),
            "notes": [note] if note else [],
            "written": [str(path) for path in written],
        }
        common.print_document(document)
        return 0
    notes = [f"  other work  {note}"] if note else []
    lines = [difference_text(found, colour=sys.stdout.isatty()), *notes, *map(str, written)]
    common.print_text("\n".join(lines))
    return 0


def _find_sides(directory: Path) -> tuple[Path, Path]:
    """Return the profiles of both sides of a run; raises ``E_NO_RUN`` if it has one side."""
    if not os.path.lexists(directory):
        problem = f"There is no file and no run {str(directory)!a}."
        raise UsageError(
            "E_NO_RUN", problem, "Give the directory of a run: .flamegate/latest/NAME."
        )
    sides = StoredRun(directory, baseline.BASE), StoredRun(directory)
    if not all(each.has(baseline.FOLDED) for each in sides):
        raise UsageError(
            "E_NO_RUN",
            f"{str(directory)!a} does not hold both sides of a comparison.",
            "Give the other side too: flamegate diff BEFORE AFTER.",
        )
    return sides[0].path(baseline.FOLDED), sides[1].path(baseline.FOLDED)


def _read_difference(directory: Path) -> ProfileDifference | None:
    """Return the difference that the verdict on a run shows; None if it shows none."""
    run = StoredRun(directory)
    if not run.has(baseline.VERDICT):
        return None
    return compare_stored_run(directory, read_verdict(run.read(baseline.VERDICT))[1])


def _write_difference(found: ProfileDifference, parsed: argparse.Namespace) -> list[Path]:
    """Write the picture, the page and both folded stacks; return their paths."""
    is_picture = parsed.output.suffix == ".svg"
    picture = parsed.output if is_picture else parsed.output / baseline.DIFFERENCE
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
    """Return the imported results in a directory, or the file itself if it is one."""
    files = sorted(path.glob("*.json")) if is_directory(path) else [path]
    return [each for each in files if _is_imported(each)]


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
            "E_BAD_OPTION",
            "An imported result has figures and no profile, so --output can draw nothing.",
        )
    compared = imported.compare_results(_read_metrics(parsed.before), _read_metrics(parsed.after))
    if parsed.format == "json":
        common.print_document(comparison_document(compared))
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
            "E_NO_FIGURES",
            "The two have no figure of the same name, formula and statistic.",
            "Take both with one tool.",
        )
    return 0


def _read_metrics(path: Path) -> Sequence[imported.ImportedMetric]:
    results = find_results(path)
    if len(results) > 1:
        raise UsageError(
            "E_NO_FIGURES",
            f"{str(path)!a} holds {len(results)} results: "
            f"{', '.join(each.name for each in results)}.",
            f"Give one of them, such as {results[0]}.",
        )
    if results:
        data = read_bounded(results[0], RECEIPT_LIMITS.max_bytes)
        return imported.decode_imported(data)[0].metrics
    directory = path if is_directory(path) else path.parent
    if directory != path and path.name not in _RUN_FILES:
        raise UsageError(
            "E_NO_FIGURES", f"{str(path)!a} is neither an imported result nor a run with evidence."
        )
    return imported.convert_metrics(StoredRun(directory).evidence().metrics)
