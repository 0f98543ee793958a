"""``flamegate import``, ``export`` and ``bricks``: files of other tools, read and written."""

import argparse
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_flamegate.commands import common
from pytest_flamegate.core.clocks import utc_now
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.files import require_confined
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.engines.declare import NAME
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import ExecutionGraph, to_document
from pytest_flamegate.graph.text import draw_dot, draw_tree
from pytest_flamegate.profile.formats import export_profile, parse_profile, read_file, unpack
from pytest_flamegate.profile.frames import path_prefixes
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.receipt import baseline, store
from pytest_flamegate.receipt.imports.imported import ImportSource, encode_imported
from pytest_flamegate.receipt.imports.reading import detect_import_format
from pytest_flamegate.report import text as figures
from pytest_flamegate.report.bricks import brick_lines, graph_text
from pytest_flamegate.report.flame import Drawn
from pytest_flamegate.report.flame_html import flamegraph_html
from pytest_flamegate.report.flame_svg import flamegraph
from pytest_flamegate.report.terminal import imported_text
from pytest_flamegate.report.text import clip, columns, visible
from pytest_flamegate.run.open import open_graph, open_profile, open_sums

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
    """Import a profile, or write each result of a file as a document: all of them or none."""
    data, name = unpack(read_file(parsed.file)), _choose_name(parsed)
    results_format = detect_import_format(data)
    if results_format is None:
        return _import_profile(data, name, parsed)
    results = results_format.read(data)
    digest = hashlib.sha256(data).hexdigest()
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
    while not parsed.name and name.endswith(_EXTENSIONS) and os.path.splitext(name)[0]:  # noqa: PTH122
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
    for measured in (baseline.RECEIPT, baseline.EVIDENCE):
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
