"""``flamegate import FILE``: what another tool recorded, as flamegate's own files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.commands import common
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from pytest_flamegate.profile.model import Profile


def recognises(data: bytes) -> bool:
    """Whether ``data`` is a result that can be read, or one that is refused by its name."""
    from pytest_flamegate.receipt.imports import detect_import_format

    return detect_import_format(data) is not None


def run_import_results(
    data: bytes,
    parsed: argparse.Namespace,
    name: str,
    write: Callable[[Mapping[str, bytes], str, argparse.Namespace], Path],
) -> int:
    """Write each result of ``data`` as a document of its own, all or none, and tell them."""
    from pytest_flamegate.core.clocks import utc_now
    from pytest_flamegate.receipt.imports import detect_import_format
    from pytest_flamegate.receipt.imports.imported import ImportSource, encode_imported
    from pytest_flamegate.report.terminal import imported_text

    found = detect_import_format(data)
    assert found is not None  # it was recognised
    results = found.read(data)
    digest = hashlib.sha256(data).hexdigest()
    file = parsed.file.name.encode("utf-8", "backslashreplace").decode()
    source = ImportSource(file, found.name, digest, utc_now())
    files = {f"{each.result}.json": encode_imported(each, source) for each in results}
    _require_same_source(parsed, name, digest, files)
    directory = write(files, name, parsed)
    common.print_text(imported_text(results))
    common.print_text(str(directory))
    return 0


def _require_same_source(
    parsed: argparse.Namespace, name: str, digest: str, files: Mapping[str, bytes]
) -> None:
    """Refuse to write over the results of another file: its name may be that of this one.

    Below ``.flamegate`` the whole directory is replaced, elsewhere only ``files`` are.
    """
    from pytest_flamegate.commands.diff import results_in
    from pytest_flamegate.core.files import read_bounded
    from pytest_flamegate.core.json import RECEIPT_LIMITS
    from pytest_flamegate.receipt.imports.imported import decode_imported

    directory = parsed.output or common.read_settings(parsed).directory / "imported" / name
    for each in results_in(directory):
        if parsed.output is not None and each.name not in files:
            continue
        source = decode_imported(read_bounded(each, RECEIPT_LIMITS.max_bytes))[1]
        if source.sha256 != digest:
            raise UsageError(
                "E_NOT_OVERWRITTEN",
                f"{str(directory)!a} holds the results of another file ({source.file!a}).",
                "Say --name NAME to keep both, or remove that directory.",
            )


_HOTTEST = 10
_ENDS = (
    *(".gz", ".json", ".speedscope", ".folded", ".collapsed", ".txt", ".raw"),
    *(".jsonl", ".csv", ".md"),
)


def add(subparsers: common.Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "import",
        help="read a profile or a benchmark's result that another tool wrote",
        description="Reads folded stacks or a speedscope file, recognised by what is in it, and "
        "writes profile.folded, profile.speedscope.json, flamegraph.svg and flamegraph.html. "
        "Or reads results of llama-bench (JSON, JSON lines, CSV, markdown), vLLM bench, GuideLLM, "
        "inference-perf, AIPerf or GenAI-Perf, and writes a document of grade SELF_REPORTED for "
        "each. What the file does not tell stays unknown; nothing is gated by it.",
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--name", metavar="NAME", help="what to call it (default: as the file)")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="where to write (default: .flamegate/imported/NAME)",
    )
    common.add_options(parser, "dir")
    parser.set_defaults(run=run)


class Importer(NamedTuple):
    """Something that can be imported: whether bytes are of it, and what is done with them."""

    recognises: Callable[[bytes], bool]
    run: Callable[[bytes, argparse.Namespace], int]


def run(parsed: argparse.Namespace) -> int:
    """Import the file with the first importer that knows it."""
    from pytest_flamegate.profile.formats.registry import read_file, unknown_format_error, unpack

    data = unpack(read_file(parsed.file))
    for importer in IMPORTERS:
        if importer.recognises(data):
            return importer.run(data, parsed)
    raise unknown_format_error(data)


def _is_profile(data: bytes) -> bool:
    from pytest_flamegate.profile.formats.registry import detect_format

    return detect_format(data) is not None


def _profile(data: bytes, parsed: argparse.Namespace) -> int:
    from pytest_flamegate.profile.formats.registry import export_profile, parse_profile
    from pytest_flamegate.profile.frames import path_prefixes
    from pytest_flamegate.receipt.baseline import DESCRIBED, FOLDED, INTERACTIVE, PICTURE
    from pytest_flamegate.report import flamegraph, flamegraph_html

    name = _name(parsed)
    profile = parse_profile(data, path_prefixes(Path.cwd()))
    origin = f"imported from {parsed.file.name}"
    picture = flamegraph(profile, title=name, subtitle=origin, cpu_s_per_token=None)
    page = flamegraph_html(profile, title=name, subtitle=origin, cpu_s_per_token=None)
    files = {
        FOLDED: export_profile(profile, "folded", name),
        DESCRIBED: export_profile(profile, "speedscope", name),
        PICTURE: picture.encode(),
        INTERACTIVE: page.encode(),
    }
    directory = _write(files, name, parsed)
    common.print_text("\n".join(_told(profile)))
    common.print_text(str(directory))
    return 0


def _results(data: bytes, parsed: argparse.Namespace) -> int:
    return run_import_results(data, parsed, _name(parsed), _write)


IMPORTERS = (
    Importer(recognises, _results),
    Importer(_is_profile, _profile),
)


def _name(parsed: argparse.Namespace) -> str:
    from pytest_flamegate.engines.declare import NAME

    name: str = parsed.name or parsed.file.name
    while not parsed.name and name.endswith(_ENDS) and os.path.splitext(name)[0]:  # noqa: PTH122
        name = os.path.splitext(name)[0]  # noqa: PTH122
    if not NAME.fullmatch(name):
        raise UsageError(
            "E_BAD_NAME",
            f"{name!a} is no name for what is imported.",
            "Say --name NAME: letters, digits, dots, dashes and underscores.",
        )
    return name


def _write(files: Mapping[str, bytes], name: str, parsed: argparse.Namespace) -> Path:
    from pytest_flamegate.core.files import require_confined as confined
    from pytest_flamegate.receipt import store
    from pytest_flamegate.receipt.baseline import EVIDENCE, RECEIPT

    if parsed.output is None:
        root = common.read_settings(parsed).directory
        published = confined(root, store.child_path(root / "imported", name))
        store.ensure_gitignore(root)
        store.publish(published, files)
        return published
    directory: Path = parsed.output
    for kept in (RECEIPT, EVIDENCE):
        if os.path.lexists(directory / kept):
            raise UsageError(
                "E_NOT_OVERWRITTEN",
                f"{str(directory)!a} holds a measured run ({kept}).",
                "Name another directory.",
            )
    for file, data in files.items():
        store.write_atomic(directory / file, data)
    return directory


def _told(profile: Profile) -> list[str]:
    """Return the hottest functions, and what the file did not tell."""
    from pytest_flamegate.profile.hotspots import rank_hotspots
    from pytest_flamegate.report import text as figures
    from pytest_flamegate.report.text import clip, columns, visible

    spots = [spot for spot in rank_hotspots(profile) if spot.self_samples]
    rows = [
        (figures.share(spot.self_share), clip(visible(spot.name), 60), visible(spot.module))
        for spot in spots[:_HOTTEST]
    ]
    total = figures.count(profile.samples)
    if profile.unit == "nanoseconds":
        total = figures.seconds(profile.samples / 1e9)
    else:
        total += f" {profile.unit}"
    head = f"{total} in {figures.plural(len(spots), 'function')}, hottest first by self share:"
    notes = [f"note: {visible(note, 300)}" for note in profile.degraded]
    return [head, *columns(rows, right=(0,), indent=2), *notes]
