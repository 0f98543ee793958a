"""``flamegate run [WORKLOAD…]``: the gate without pytest."""

import argparse
import sys
from collections.abc import Sequence

from pytest_flamegate.commands import common
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.files import relative
from pytest_flamegate.core.progress import stream_progress
from pytest_flamegate.core.text import suggest
from pytest_flamegate.engines.declare import (
    InvalidWorkload,
    WorkloadDeclarations,
    find_file,
    find_workloads,
    read_declarations,
)
from pytest_flamegate.engines.gguf import embedded_workloads
from pytest_flamegate.run import present
from pytest_flamegate.run.publish import Hints, Outcome
from pytest_flamegate.run.session import Session


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``run``."""
    parser.description = (
        "Measures and gates workloads. The flamegate_ keys of pytest's configuration file count "
        "as under pytest; its addopts do not."
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="default: all declared")
    common.add_options(
        parser,
        *("update", "update_in_ci", "against", "profiler", "budget"),
        *("config", "dir", "report", "bricks", "inject"),
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Gate the workloads; return the exit code of the worst verdict."""
    settings = common.read_settings(parsed)
    if settings.report is not None:
        # Before the measurements: a missing permission is reported at once.
        present.require_writable(settings.report)
    outcomes = gate_all(settings, choose_entries(settings, parsed.workloads))
    hints = Hints(settings, as_command=True)
    shown = [present.view_of(outcome, outcome.workload.node_name, hints) for outcome in outcomes]
    for outcome, one in zip(outcomes, shown, strict=True):
        if outcome.fails:
            common.print_text(one.section + "\n")
    width, colour = common.terminal_width(), sys.stdout.isatty()
    table = present.summary_lines(shown, hints, parsed.workloads, width=width, colour=colour)
    common.print_text("\n".join(table))
    if settings.report is not None:
        present.write_report(settings.report, present.report_results(shown, settings), settings)
        common.print_text(f"report: {relative(settings.report, settings.root)}")
    return worst_exit_code(outcomes)


def gate_all(settings: Settings, entries: Sequence[Workload | InvalidWorkload]) -> list[Outcome]:
    """Gate one workload after another, with progress on standard error.

    A declaration with an error is an outcome too, and the other workloads are measured. It is
    raised if there are no others.
    """
    session = Session(settings, stream_progress(sys.stderr), as_command=True)
    workloads = [each for each in entries if isinstance(each, Workload)]
    for each in entries if not workloads else ():
        if isinstance(each, InvalidWorkload):
            raise each.error
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
    """Return the declarations that ``names`` select, also the ones with an error.

    The embedded workloads stand for a file that declares none. ``embedded::NAME`` always
    selects one of them.
    """
    file = settings.config or find_file(settings.root)
    found = read_declarations(file, settings.thresholds) if file else WorkloadDeclarations()
    embedded = embedded_workloads(settings.root, settings.thresholds)
    by_node = {each.node_name: each for each in (*embedded, *found.workloads)}
    chosen: dict[str, Workload | InvalidWorkload] = {}
    for name in names:
        wrong = [each for each in found.invalid if each.name == name.rpartition("::")[2]]
        if wrong or name in by_node:
            chosen[name.rpartition("::")[2]] = wrong[0] if wrong else by_node[name]
        else:
            known = found.workloads or embedded
            chosen |= {each.name: each for each in choose_workloads(known, [name])}
    return list(chosen.values()) if names else list(found.entries or embedded)


def choose_workloads(known: Sequence[Workload], names: Sequence[str]) -> list[Workload]:
    """Return the workloads called ``names``, each once; all of them if ``names`` is empty.

    The name of a template selects its variants.
    """
    found = {name: find_workloads(known, name) for name in names}
    if unknown := [name for name in names if not found[name]]:
        raise UsageError(
            "E_UNKNOWN_WORKLOAD",
            f"There is no workload {unknown[0]!r}.",
            suggest(unknown[0], [each.name for each in known]),
        )
    if not names:
        return list(known)
    return list({each.name: each for name in names for each in found[name]}.values())


def worst_exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return the exit code of the worst outcome; an accepted run is no failure."""
    return common.worst_code(each.exit_code for each in outcomes if each.accepted is None)
