"""``flamegate run [WORKLOAD…]``: the gate without pytest."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_flamegate.commands import common
from pytest_flamegate.config.options import EMBEDDED
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UsageError, worst_code
from pytest_flamegate.core.files import real_path, relative
from pytest_flamegate.core.progress import stream_progress
from pytest_flamegate.core.text import suggest
from pytest_flamegate.engines.declare import InvalidWorkload
from pytest_flamegate.engines.gguf import embedded_workloads
from pytest_flamegate.observe.worktree import Checkout
from pytest_flamegate.run import present
from pytest_flamegate.run.publish import Hints, Outcome
from pytest_flamegate.run.session import Session


def run(parsed: argparse.Namespace) -> int:
    """Gate the workloads; return the exit code of the worst verdict."""
    settings = common.read_settings(parsed)
    if settings.report is not None:
        # Before the measurements: a missing permission is reported at once.
        present.require_writable(settings.report)
    entries = choose_entries(settings, parsed.workloads)
    file, declared = common.read_declarations(settings)
    undeclared = None if declared or parsed.workloads else file or settings.root
    outcomes = gate_all(settings, entries, require_possible=True, undeclared=undeclared)
    hints = Hints(settings, as_command=True)
    views = [present.view_of(each, each.workload.node_name, hints) for each in outcomes]
    show_views(views, hints, parsed.workloads)
    return worst_exit_code(outcomes)


def show_views(
    views: Sequence[present.ResultView], hints: Hints, names: Sequence[str] = ()
) -> None:
    """Print the failures and the table, and write the report if one is asked for."""
    settings = hints.settings
    for one in views:
        if one.fails:
            common.print_text(one.section + "\n")
    width, colour = common.terminal_width(), sys.stdout.isatty()
    table = present.summary_lines(views, hints, names, width=width, colour=colour)
    common.print_text("\n".join(table))
    if settings.report is not None:
        present.write_report(settings.report, present.report_results(views, settings), settings)
        common.print_text(f"report: {relative(settings.report, settings.root)}")


def gate_all(
    settings: Settings,
    entries: Sequence[Workload | InvalidWorkload],
    trees: tuple[Checkout, Checkout] | None = None,
    *,
    require_possible: bool = False,
    undeclared: Path | None = None,
) -> list[Outcome]:
    """Gate one workload after another, with progress on standard error.

    A declaration with an error is an outcome too, and the other workloads are measured. ``trees``
    are checkouts of base and head, to measure in. What keeps all workloads from being measured is
    an outcome of each, or one error at the start if ``require_possible`` is set.
    ``undeclared`` is the workload file or the directory that declares none, if that is why these
    are measured.
    """
    session = Session(settings, stream_progress(sys.stderr), as_command=True, trees=trees)
    workloads = [each for each in entries if isinstance(each, Workload)]
    if require_possible:
        session.require_possible(workloads)
    if undeclared is not None:
        session.announce_embedded(undeclared)
    common.print_text(session.preamble(workloads))
    session.announce(workloads)
    try:
        return [
            session.gate(each) if isinstance(each, Workload) else session.reject(each)
            for each in entries
        ]
    finally:
        session.close()


def choose_entries(settings: Settings, names: Sequence[str]) -> list[Workload | InvalidWorkload]:
    """Return the declarations that ``names`` select, each once; only those may be invalid.

    A name is that of a workload, or a node as pytest prints it. The name of a template selects its
    variants, the workload file all that it declares, and ``embedded`` all embedded ones. Without
    names it is all declared workloads, or the embedded ones of a project that declares none. Raises
    ``UsageError``: ``E_UNKNOWN_WORKLOAD``, ``E_BAD_OPTION`` for a declared and an embedded workload
    of one name, and the first error if all of them have one.
    """
    file, declared = common.read_declarations(settings)
    embedded = embedded_workloads(settings.root, settings.thresholds)
    entries = {file.name if file else "": declared, EMBEDDED: embedded}
    chosen: dict[str, Workload | InvalidWorkload] = {}
    for name in names:
        place, _, short = name.rpartition("::")
        place = _find_source(place, file)
        found = (
            [each for each in known if short in (each.name, each.name.partition("[")[0])]
            for source, known in entries.items()
            if place in ("", source)
        )
        whole = entries.get(_find_source(name, file), ())
        matching = next(filter(None, (*found, whole)), ())
        if not matching:
            raise UsageError(
                "E_UNKNOWN_WORKLOAD",
                f"There is no workload {name!r}.",
                suggest(name, [each.name for each in declared or embedded]),
            )
        for each in matching:
            if chosen.setdefault(each.name, each) is not each:
                raise UsageError(
                    "E_BAD_OPTION",
                    f"{file.name if file else ''}::{each.name} and {EMBEDDED}::{each.name} have "
                    "one name, and one directory for their files.",
                    "Run one of them at a time.",
                )
    selected = list(chosen.values()) if names else list(declared or embedded)
    errors = [each.error for each in selected if isinstance(each, InvalidWorkload)]
    if errors and len(errors) == len(selected):
        raise errors[0]
    return selected


def _find_source(place: str, file: Path | None) -> str:
    """Return the name of the workload file if ``place`` is a path to it, else ``place``."""
    if file is not None and place and real_path(Path(place)) == real_path(file):
        return file.name
    return place


def worst_exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return the exit code of the worst outcome; an accepted run is no failure."""
    return worst_code(each.exit_code for each in outcomes if each.accepted is None)
