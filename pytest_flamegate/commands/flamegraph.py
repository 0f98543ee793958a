"""``flamegate flamegraph [MODEL] [TOKENIZER] [OUTPUT_DIR]``: pictures to keep."""

from __future__ import annotations

import os
import shlex
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.commands.run import gate_all, worst_exit_code
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_flamegate.config.settings import Settings
    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.report.markdown import GuideEntry
    from pytest_flamegate.run.publish import Outcome


DEFAULT_DIRECTORY = Path("docs/baselines/perf/flamegraphs")
_PAIR = ("1tok", "10tok")
_GUIDE = "README.md"


def add(subparsers: common.Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "flamegraph",
        help="write flame graphs of 1 and 10 tokens, each with its page, and a guide",
        description="Runs MODEL on the declared command that takes {model}, else on the embedded "
        "engine; without MODEL the one that is found, else the embedded one. Nothing is judged, "
        "and earlier results are left as they are.",
    )
    parser.add_argument("model", nargs="?", metavar="MODEL")
    parser.add_argument("tokenizer", nargs="?", metavar="TOKENIZER")
    parser.add_argument(
        "output", nargs="?", type=Path, default=DEFAULT_DIRECTORY, metavar="OUTPUT_DIR"
    )
    common.add_options(parser, "profiler", "budget", "config")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Measure both workloads and write their pictures; 0 where both came to be."""
    settings = common.read_settings(parsed)
    if settings.profiler == "none":
        raise UsageError(
            "E_NO_PROFILER",
            "There is no flame graph without a profiler, and profiling is turned off.",
            "Say --profiler=auto, whatever FLAMEGATE_PROFILER or flamegate_profiler says.",
        )
    with _writing(parsed.output):
        # Said before the measuring, not after it.
        parsed.output.mkdir(parents=True, exist_ok=True)
    workloads = _workloads(settings, parsed.model, parsed.tokenizer)
    with tempfile.TemporaryDirectory(prefix="flamegate-") as shelf:
        # A shelf of its own: what was gated and accepted is no business of a picture.
        outcomes = gate_all(replace(settings, directory=Path(shelf)), workloads)
        failed = [each for each in outcomes if each.receipt is None or each.evidence is None]
        for outcome in failed:
            for reason in outcome.verdict.reasons:
                common.print_text(f"{outcome.workload.name}: {reason.code}: {reason.message}")
        written = [each for each in outcomes if each not in failed]
        for path in _write(written, parsed.output) if written else ():
            common.print_text(str(path))
    return worst_exit_code(failed)


def _workloads(settings: Settings, model: str | None, tokenizer: str | None) -> list[Workload]:
    from pytest_flamegate.engines.embedded import embedded_workloads

    pair = [each for each in embedded_workloads(settings.root) if each.name in _PAIR]
    template = next(
        (
            each
            for each in common.read_workloads(settings)
            if any("{model}" in p for p in each.command)
        ),
        None,
    )
    if tokenizer and (template is None or not any("{tokenizer}" in p for p in template.command)):
        common.print_text(
            f"TOKENIZER {tokenizer} is not used: the engine finds its own with the model"
        )
        tokenizer = None
    if model:
        model = os.path.relpath(model, settings.root)
    if template is not None:
        pair = [
            replace(template, name=each.name, prompt=each.prompt, max_tokens=each.max_tokens)
            for each in pair
        ]
    return [
        replace(each, model=model or each.model, tokenizer=tokenizer or each.tokenizer)
        for each in pair
    ]


def _write(outcomes: list[Outcome], directory: Path) -> list[Path]:
    from pytest_flamegate.core.files import read_bounded
    from pytest_flamegate.core.json import EVIDENCE_LIMITS
    from pytest_flamegate.receipt import store
    from pytest_flamegate.receipt.baseline import INTERACTIVE, PICTURE
    from pytest_flamegate.report import flamegraph_markdown
    from pytest_flamegate.report.markdown import guide_readme

    again = _command(outcomes, directory)
    files: dict[str, bytes] = {}
    for outcome in outcomes:
        assert outcome.evidence is not None  # an outcome without is an error, not written
        assert outcome.receipt is not None
        name = outcome.workload.name
        page = flamegraph_markdown(
            outcome.evidence, outcome.receipt, None, regenerate=again, picture=f"{name}.svg"
        )
        for end, told in ((".svg", PICTURE), (".html", INTERACTIVE)):
            files[name + end] = read_bounded(outcome.directory / told, EVIDENCE_LIMITS.max_bytes)
        files[f"{name}.md"] = page.encode()
    guide = guide_readme([_entry(each) for each in outcomes], regenerate=again)
    if _is_ours(directory / _GUIDE):
        files[_GUIDE] = guide.encode()
    else:
        common.print_text(f"{directory / _GUIDE} is not a guide of ours, and was left as it is")
    for name, data in files.items():
        store.write_atomic(directory / name, data)
    return [directory / name for name in files]


def _is_ours(path: Path) -> bool:
    """Whether ``path`` is a guide that this command wrote, or nothing at all."""
    if not os.path.lexists(path):
        return True
    from pytest_flamegate.core.files import read_bounded
    from pytest_flamegate.core.json import EVIDENCE_LIMITS
    from pytest_flamegate.report.markdown import GUIDE_TITLE as TITLE

    try:
        return read_bounded(path, EVIDENCE_LIMITS.max_bytes).startswith(TITLE.encode() + b"\n")
    except FlamegateError:
        return False


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ToolError(
            "E_CANNOT_WRITE",
            f"Cannot write {error.filename or directory}: {error.strerror}.",
            "Name another OUTPUT_DIR, or make room and permission there.",
        ) from None


def _entry(outcome: Outcome) -> GuideEntry:
    from pytest_flamegate.report.markdown import GuideEntry

    assert outcome.evidence is not None  # an outcome without evidence is an error, not written
    name = outcome.workload.name
    return GuideEntry.of(name, outcome.evidence, picture=f"{name}.svg", page=f"{name}.md")


def _command(outcomes: list[Outcome], directory: Path) -> str:
    """Return the command line that writes this directory again."""
    given = next((each.workload for each in outcomes if each.workload.model), None)
    words = ["flamegate", "flamegraph"]
    if given is not None or directory != DEFAULT_DIRECTORY:
        model = given.model if given is not None and given.model else ""
        tokenizer = given.tokenizer if given is not None and given.tokenizer else ""
        words += [model, tokenizer]
    return shlex.join([*words, *([str(directory)] if len(words) > 2 else [])])
