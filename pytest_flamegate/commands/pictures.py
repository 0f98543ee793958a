"""``flamegate flamegraph``, ``report`` and ``annotate``: pictures, pages and sources."""

import argparse
import os
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path

from pytest_flamegate.commands import common
from pytest_flamegate.commands.run import gate_all, worst_exit_code
from pytest_flamegate.config.options import shorten_options
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.core.files import is_directory, read_bounded, relative, write_errors
from pytest_flamegate.core.text import suggest
from pytest_flamegate.engines.declare import InvalidWorkload
from pytest_flamegate.engines.gguf import embedded_workloads
from pytest_flamegate.models.gguf import read_header
from pytest_flamegate.observe.scratch import scratch_prefix
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.baseline import EVIDENCE, INTERACTIVE, LINES, PICTURE, StoredRun
from pytest_flamegate.report.markdown import GUIDE_TITLE, guide_readme, run_markdown
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.report.source import source_lines
from pytest_flamegate.run.present import report_directory, require_writable, write_report
from pytest_flamegate.run.publish import Outcome
from pytest_flamegate.run.sources import annotate, find_run

REPORT = "report.html"
"""Below the artifact directory, which git ignores."""
DEFAULT_DIRECTORY = Path("docs/baselines/perf/flamegraphs")
_PROSE = "Once upon a time"
"""A prompt that every model goes on with: some end at once after a question."""
_WORKLOADS = ("1tok", "10tok")
_GUIDE = "README.md"


def run_report(parsed: argparse.Namespace) -> int:
    """Write the page; 0 whatever the verdicts on it are."""
    settings = common.read_settings(parsed)
    path = parsed.output
    if path is None:
        path = settings.directory / REPORT
        path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    require_writable(path)
    write_report(path, report_directory(settings), settings)
    common.print_text(str(path))
    return 0


def run_annotate(parsed: argparse.Namespace) -> int:
    """Print the sources of a run; 0 whatever they cost."""
    settings = common.read_settings(parsed)
    latest, only = ArtifactStore(settings.directory).latest, ""
    directory, name = parsed.path, str(parsed.path)
    name = common.get_workload_name(name) if "::" in name else name
    is_name = Path(name).name == name
    # A program may have the name of its workload; a run's directory is given as such.
    if is_name and not is_directory(directory) and is_directory(latest / name):
        directory = latest / name
    if not is_directory(directory):
        path = Path(os.path.abspath(directory))  # noqa: PTH100 - a link stays what it is
        only = relative(path, settings.root)
        directory = parsed.measured or find_run(latest, only)
        if directory is None:
            if not (runs := sorted(each.parent.name for each in latest.glob(f"*/{EVIDENCE}"))):
                raise UsageError("E_NO_RUN", f"There is no run in {str(latest)!a}.")
            if not os.path.lexists(path):
                problem = f"There is neither a run nor a file {only!a}."
                raise UsageError("E_NO_RUN", problem, suggest(only, runs))
            raise UsageError("E_NO_LINES", f"No run has a sample at a line of {only!a}.")
    elif parsed.measured is not None:
        raise UsageError(
            "E_BAD_OPTION",
            f"--run names the run of a source file, and {str(directory)!a} is a run itself.",
            "Leave out --run, or give a source file.",
        )
    if not StoredRun(directory).has(LINES):
        raise UsageError("E_NO_LINES", f"The run in {str(directory)!a} has no samples by line.")
    view = annotate(directory, settings.root, only)
    common.print_text("\n".join(source_lines(view, common.terminal_width())))
    return 0


def run(parsed: argparse.Namespace) -> int:
    """Measure both workloads and write their pictures; 0 if both were measured."""
    settings = common.read_settings(parsed)
    if settings.profiler == "none":
        raise UsageError(
            "E_NO_PROFILER",
            "There is no flame graph without a profiler, and profiling is turned off.",
            "Use --profiler=auto; it overrides FLAMEGATE_PROFILER and flamegate_profiler.",
        )
    # Before the measurements: a missing permission is reported at once.
    with write_errors(parsed.output):
        parsed.output.mkdir(parents=True, exist_ok=True)
    workloads = _choose_workloads(settings, parsed.model, parsed.tokenizer)
    # Keys of the configuration file that compare or measure more than the pictures show.
    settings = replace(settings, against=None, base=None, bricks=None, instructions=False)
    with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as artifacts:
        # In an artifact directory of its own: the project's runs and baselines stay untouched.
        outcomes = gate_all(replace(settings, directory=Path(artifacts)), workloads)
        failed = [each for each in outcomes if each.receipt is None or each.evidence is None]
        for outcome in failed:
            for reason in outcome.verdict.reasons:
                line = f"{outcome.workload.name}: {reason.code}: {reason.message}"
                common.print_text(shorten_options(line))
        measured = [each for each in outcomes if each not in failed]
        for path in _write(measured, parsed.output) if measured else ():
            common.print_text(str(path))
    return worst_exit_code(failed)


def _choose_workloads(
    settings: Settings, model: str | None, tokenizer: str | None
) -> list[Workload]:
    """Return the two workloads, on the declared command that takes ``{model}`` if there is one.

    Raises ``UsageError`` if there is none, and a declaration has an error: it may be that command.
    """
    declared = common.read_declarations(settings)[1]
    commands = (
        each
        for each in declared
        if isinstance(each, Workload) and any("{model}" in part for part in each.command)
    )
    template = next(commands, None)
    errors = [each.error for each in declared if isinstance(each, InvalidWorkload)]
    if template is None and errors:
        raise errors[0]
    command = template.command if template is not None else ()
    if tokenizer and not any("{tokenizer}" in part for part in command):
        common.print_text(
            f"TOKENIZER {tokenizer} is not used: the engine finds its own with the model"
        )
        tokenizer = None
    # A workload's paths start at its directory.
    directory = settings.root if template is None else template.directory
    model, tokenizer = (
        os.path.relpath(each, directory) if each else None for each in (model, tokenizer)
    )
    workloads = []
    for each in embedded_workloads(settings.root):
        if each.name not in _WORKLOADS:
            continue
        if template is not None:
            each = replace(
                template,
                name=each.name,
                prompt=each.prompt,
                prompts=(),
                max_tokens=each.max_tokens,
            )
        elif model and not _runs_embedded(settings.root / model):
            each = replace(each, engine="llama-cpp", prompt=_PROSE)
        workloads.append(
            replace(each, model=model or each.model, tokenizer=tokenizer or each.tokenizer)
        )
    return workloads


def _runs_embedded(path: Path) -> bool:
    """Whether the embedded engine runs the model; an unreadable one is its to report."""
    try:
        return read_header(path).architecture == "bitnet"
    except FlamegateError:
        return True


def _write(outcomes: list[Outcome], directory: Path) -> list[Path]:
    """Write picture and page of each outcome, and the guide; return their paths."""
    command = _command(outcomes, directory)
    files: dict[str, bytes] = {}
    reports = []
    for outcome in outcomes:
        assert outcome.evidence is not None  # outcomes without evidence are reported as failed
        assert outcome.receipt is not None
        name = outcome.workload.name
        picture = f"{name}.svg"
        for file, source in ((picture, PICTURE), (f"{name}.html", INTERACTIVE)):
            files[file] = read_bounded(outcome.directory / source)
        receipt, evidence = outcome.receipt, outcome.evidence
        report = RunReport(name, None, "", receipt, evidence, picture=picture, again=command)
        files[f"{name}.md"] = run_markdown(report).encode()
        reports.append(report)
    if _is_our_guide(directory / _GUIDE):
        files[_GUIDE] = guide_readme(reports, regenerate=command).encode()
    else:
        common.print_text(f"{directory / _GUIDE} was not written by flamegate and is left as it is")
    for file, data in files.items():
        store.write_atomic(directory / file, data)
    return [directory / file for file in files]


def _is_our_guide(path: Path) -> bool:
    """Whether ``path`` is a guide that this command wrote, or does not exist."""
    if not os.path.lexists(path):
        return True
    try:
        data = read_bounded(path)
    except FlamegateError:
        return False
    return data.startswith(GUIDE_TITLE.encode() + b"\n")


def _command(outcomes: list[Outcome], directory: Path) -> str:
    """Return the command line that writes this directory again."""
    given = next((each.workload for each in outcomes if each.workload.model), None)
    words = ["flamegate", "flamegraph"]
    if given is not None:
        paths = (given.model, given.tokenizer)
        words += [os.path.relpath(given.directory / each) if each else "" for each in paths]
        words.append(str(directory))
    elif directory != DEFAULT_DIRECTORY:
        words += ["", "", str(directory)]
    return shlex.join(words)
