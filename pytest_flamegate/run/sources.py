"""The sources of a run with the cost of each line: its stored samples, and the text from git.

Both come from files that others may have written. A source that cannot be shown is a sentence in
the view; samples that cannot be used are an error.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, zip_longest
from pathlib import Path

from pytest_flamegate.core import PACKAGE, git
from pytest_flamegate.core.errors import FlamegateError, ToolError, system_errors
from pytest_flamegate.core.files import is_file, read_beneath
from pytest_flamegate.core.git import Commit, FileChange, Hunk
from pytest_flamegate.gate.document import read_verdict
from pytest_flamegate.observe.redact import Redactor
from pytest_flamegate.profile import source_lines
from pytest_flamegate.profile.difference import ProfileDifference
from pytest_flamegate.profile.model import LineStack, SourceLine
from pytest_flamegate.profile.source_lines import LineTotals
from pytest_flamegate.profile.stacks import EMBEDDED_ENGINE
from pytest_flamegate.receipt import baseline
from pytest_flamegate.receipt.baseline import StoredRun
from pytest_flamegate.receipt.metrics import cost_of
from pytest_flamegate.report.evidence import revision_note
from pytest_flamegate.report.source import (
    Excerpt,
    SideCost,
    SourceCell,
    SourceFile,
    SourceRow,
    SourceView,
)
from pytest_flamegate.run.open import compare_stored_run

MAX_SOURCE_BYTES = 1 << 20
MAX_SOURCE_LINES = 50_000
_MIN_SHARE = 0.01
"""Lines with at least this share of the samples of a side are shown."""
_FILES, _HOTTEST, _CHANGED, _CONTEXT = 6, 12, 60, 3
_LONG_HUNK = 40
"""Lines of a change that are all shown; of a longer one only the hot lines are."""
_REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_QUALIFIER = re.compile(r"::|\.")
_NAMED = re.compile(r"(\w+)\s*[(<]")
_NO_SCOPE = ("{", "}", "#", "/", ")")
"""How lines begin that are no head of a function, although they are not indented."""


@dataclass(frozen=True, slots=True)
class _SampledSide:
    """One side of a run: its samples by line, and the commit that they are of.

    ``functions`` are the names in the profile by their last part.
    """

    totals: LineTotals
    samples: int
    cost: SideCost
    commit: Commit | None
    created: str
    functions: Mapping[str, Sequence[str]]

    def shares(self, line: SourceLine) -> tuple[float, float]:
        """Return the own and the total share of a line."""
        own, passed = self.totals.own.get(line, 0), self.totals.passed.get(line, 0)
        return (own / self.samples, passed / self.samples) if passed else (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _SourceText:
    """A file on one side; ``lines`` is None if it cannot be shown, and ``note`` says why."""

    file: str
    lines: Sequence[str] | None
    note: str = ""

    def cell(self, side: _SampledSide | None, number: int | None) -> SourceCell | None:
        """Return a line with its cost; None without a side, and beyond the end."""
        if side is None or number is None or not self.lines or number > len(self.lines):
            return None
        own, total = side.shares(SourceLine(self.file, number))
        return SourceCell(number, self.lines[number - 1], own, total)


_Pair = tuple[int | None, int | None, Hunk | None]
"""The numbers of a line on both sides, and the change that it belongs to."""


def read_lines(run: StoredRun, most: int) -> Mapping[LineStack, int]:
    """Return the samples by line of a side of a run, at most so many. Raises ``ReceiptError``.

    Earlier versions wrote none.
    """
    return source_lines.parse_lines(run.read(baseline.LINES, source_lines.MAX_BYTES), most)


def find_run(latest: Path, file: str) -> Path | None:
    """Return the directory of the newest run that has a sample at a line of ``file``.

    A run that cannot be read is passed over.
    """
    found = []
    for path in latest.glob(f"*/{baseline.LINES}"):
        try:
            side = _read_side(StoredRun(path.parent), None)
        except FlamegateError:
            continue
        if any(line.file == file for line in side.totals.passed):
            found.append((side.created, path.parent))
    return max(found)[1] if found else None


def annotate(directory: Path, root: Path, only: str = "") -> SourceView:
    """Return ``read_sources`` of a run with the costs that its verdict compares."""
    difference, run = None, StoredRun(directory)
    if run.has(baseline.VERDICT):
        _, verdict = read_verdict(run.read(baseline.VERDICT))
        difference = compare_stored_run(directory, verdict)
    return read_sources(directory, root, difference, only)


def read_sources(
    directory: Path, root: Path, difference: ProfileDifference | None, only: str = ""
) -> SourceView:
    """Return the sources of a run around its hottest and its changed lines.

    Args:
        directory: The run's files.
        root: The project, which the paths of its lines are relative to.
        difference: The costs of both sides, if they were compared.
        only: The path of the one file to show; empty for the costliest and the changed ones.

    Raises:
        ReceiptError: ``E_PROFILE_FILE`` if the samples are malformed, and whatever evidence raises.
    """
    costs: tuple[float | None, float | None] = (None, None)
    if difference is not None:
        costs = difference.base.cpu_s_per_token, difference.head.cpu_s_per_token
    run = StoredRun(directory)
    head = _read_side(run, costs[1])
    base, changes, notes = None, None, list[str]()
    if run.base.has(baseline.LINES):
        base = _read_side(run.base, costs[0])
        changes = _read_changes(root, base, head)
        if changes is None:
            notes = [f"Without {base.cost.name}: git cannot compare it with {head.cost.name}."]
            base = None
    by_file = {change.head_file: change for change in changes or () if change.head_file}
    files = [
        _read_file(root, by_file.get(file, FileChange(file, file, ())), base, head)
        for file in ([only] if only else _choose_files(base, head, by_file))
    ]
    return SourceView(tuple(files), head.cost, base.cost if base else None, tuple(notes))


# Samples


def _read_side(run: StoredRun, cost_s: float | None) -> _SampledSide:
    evidence = run.evidence()
    profile = evidence.profile
    samples = profile.samples if profile is not None else 0
    totals = source_lines.count_samples(read_lines(run, samples))
    if profile is not None and cost_s is None:
        cost_s = cost_of(profile.covers, evidence.metrics)
    functions = defaultdict(list)
    for spot in profile.hotspots if profile is not None else ():
        functions[_QUALIFIER.split(spot.name)[-1]].append(spot.name)
    name = f"{'base' if run.side else 'head'} {revision_note(evidence.commit)}".rstrip()
    cost = SideCost(name, cost_s)
    return _SampledSide(totals, samples, cost, evidence.commit, evidence.created, functions)


def _read_changes(
    root: Path, base: _SampledSide, head: _SampledSide
) -> Sequence[FileChange] | None:
    """Return git's own difference of the two sides; None if it does not know one of them."""
    if base.commit is None or head.commit is None:
        return None
    revisions = [base.commit.revision, head.commit.revision]
    if not all(_REVISION.fullmatch(each) for each in revisions):
        return None
    return git.read_changes(root, *revisions[: 1 if head.commit.uncommitted else 2])


def _choose_files(
    base: _SampledSide | None, head: _SampledSide, by_file: Mapping[str, FileChange]
) -> Sequence[str]:
    """Return the changed files that ran, and then those with hot lines, the hottest first."""
    by_base = {change.base_file: name for name, change in by_file.items()}
    hottest: dict[str, float] = {}
    for side in filter(None, (base, head)):
        for line in side.totals.passed:
            file = by_base.get(line.file, line.file) if side is base else line.file
            hottest[file] = max(side.shares(line)[0], hottest.get(file, 0.0))
    shown = [file for file, own in hottest.items() if own >= _MIN_SHARE or file in by_file]
    return sorted(shown, key=lambda file: (file not in by_file, -hottest[file], file))[:_FILES]


# One file


def _read_file(
    root: Path, change: FileChange, base: _SampledSide | None, head: _SampledSide
) -> SourceFile:
    redactor = Redactor.from_environments(os.environ)
    source = before = _read_source(root, change.head_file, head, redactor)
    if base is not None and (change.hunks or change.base_file != change.head_file):
        before = _SourceText("", ())
        if change.base_file:
            before = _read_source(root, change.base_file, base, redactor)
    notes = dict.fromkeys(each.note for each in (before, source) if each.note)
    if source.lines is None:
        return SourceFile(source.file, (), tuple(notes))
    if before.lines is None:
        base = None
    pairs: list[_Pair] = [(None, number, None) for number in range(1, len(source.lines) + 1)]
    if base is not None:
        pairs = list(_align(change.hunks, len(before.lines or ()), len(source.lines)))
    notes |= dict.fromkeys(_describe_beyond(source, head))

    def weigh(pair: _Pair) -> float:
        cells = [source.cell(head, pair[1]), before.cell(base, pair[0])]
        # A change counts with all that it calls, as in the verdict.
        shares = [cell.own if pair[2] is None else cell.total for cell in cells if cell]
        return max(shares, default=0.0)

    excerpts = []
    for near in _group(_choose_rows(pairs, weigh)):
        rows = tuple(
            SourceRow(before.cell(base, old), source.cell(head, new), hunk is not None)
            for old, new, hunk in (pairs[index] for index in near if index < len(pairs))
        )
        hot = [row.head.number for row in rows if row.head and row.head.own >= _MIN_SHARE]
        found = [name for line in hot for name in _find_function(source.lines, line, head)]
        excerpts.append(Excerpt(rows, tuple(dict.fromkeys(found))))
    if not excerpts:
        notes["No line of it has 1 % of the samples."] = None
    return SourceFile(source.file, tuple(excerpts), tuple(notes))


def _align(hunks: Sequence[Hunk], base_count: int, head_count: int) -> Iterator[_Pair]:
    """Yield the numbers of every line of both sides next to each other."""
    old = new = 1
    for hunk in hunks:
        # With a count of 0 the start is the line before the place.
        while old < min(hunk.base_start + (not hunk.base_count), base_count + 1):
            yield old, new, None
            old, new = old + 1, new + 1
        gone = range(old, min(old + hunk.base_count, base_count + 1))
        come = range(new, min(new + hunk.head_count, head_count + 1))
        for pair in zip_longest(gone, come):
            yield *pair, hunk
        old, new = gone.stop, come.stop
    for pair in zip_longest(range(old, base_count + 1), range(new, head_count + 1)):
        yield *pair, None


def _choose_rows(pairs: Sequence[_Pair], weigh: Callable[[_Pair], float]) -> Sequence[int]:
    """Return the places in ``pairs`` of the hottest lines and of short changes."""
    hot = [(share, at) for at, pair in enumerate(pairs) if (share := weigh(pair)) >= _MIN_SHARE]
    hottest = {at for _, at in sorted(hot, reverse=True)[:_HOTTEST]}
    changed = [
        at
        for at, (_, _, hunk) in enumerate(pairs)
        if hunk is not None and hunk.base_count + hunk.head_count <= _LONG_HUNK
    ]
    return sorted(hottest.union(changed[:_CHANGED]))


def _group(wanted: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the places around ``wanted``, those that follow each other together."""
    around = range(-_CONTEXT, _CONTEXT + 1)
    near = sorted({at + step for at in wanted for step in around if at + step >= 0})
    for _, block in groupby(enumerate(near), key=lambda each: each[1] - each[0]):
        yield [at for _, at in block]


def _find_function(lines: Sequence[str], number: int, side: _SampledSide) -> Sequence[str]:
    """Return the names in the profile of the function around a line; nothing if none is found.

    Indentation alone is read: the head of a function names it before a parenthesis, and stands
    further out than its lines.
    """
    indent = _measure_indent(lines[number - 1])
    for text in reversed(lines[: number - 1]):
        here = _measure_indent(text)
        if here < indent and not text.lstrip().startswith(_NO_SCOPE):
            indent = here
            for name in _NAMED.findall(text):
                if found := side.functions.get(name):
                    return found
    return ()


def _measure_indent(text: str) -> int:
    bare = text.lstrip()
    return len(text) - len(bare) if bare else len(text) + 1_000


def _describe_beyond(source: _SourceText, side: _SampledSide) -> Iterator[str]:
    """Yield a sentence if samples are at lines that the source does not have."""
    count = len(source.lines or ())
    beyond = [
        line.line for line in side.totals.passed if line.file == source.file and line.line > count
    ]
    if beyond:
        yield (
            f"Samples are at line {max(beyond):,}, and it has {count:,} lines: it was generated "
            "from another file, or changed after the build."
        )


# Text


def _read_source(root: Path, file: str, side: _SampledSide, redactor: Redactor) -> _SourceText:
    """Return the text of a file at the revision of a side, without secrets."""
    whose = side.cost.name
    try:
        with system_errors():
            data, note = _load(root, file, side)
        if b"\0" in data:
            raise ToolError("E_CANNOT_READ", "It is binary.")
        text = data.decode()
        if (count := text.count("\n")) > MAX_SOURCE_LINES:
            most = f"at most {MAX_SOURCE_LINES:,} are shown"
            raise ToolError("E_CANNOT_READ", f"It has {count:,} lines, {most}.")
    except UnicodeDecodeError:
        return _SourceText(file, None, f"Not shown of {whose}: It is not UTF-8.")
    except FlamegateError as error:
        return _SourceText(file, None, f"Not shown of {whose}: {error.problem}")
    clean = redactor.redact_text(text, file)
    if clean.count("\n") != count:
        return _SourceText(file, None, f"Not shown of {whose}: It holds a text like a secret's.")
    if clean != text:
        note = f"{note} Values that look like a secret are shown as 'redacted'.".lstrip()
    # Not splitlines: to a compiler a form feed does not end a line.
    lines = clean.removesuffix("\n").split("\n") if clean else []
    return _SourceText(file, [line.removesuffix("\r") for line in lines], note)


def _load(root: Path, file: str, side: _SampledSide) -> tuple[bytes, str]:
    """Return the bytes of a file, and a note on them. Raises ``FlamegateError`` and OSError."""
    if not source_lines.is_project_path(file):
        raise ToolError("E_CANNOT_READ", f"{file!a} is no path in the project.")
    if file.startswith(EMBEDDED_ENGINE) and not is_file(root / file):
        data = read_beneath(PACKAGE.parent, *file.split("/"), limit=MAX_SOURCE_BYTES)
        return data, "From the installed package."
    commit = side.commit
    if commit is None or commit.uncommitted:
        # Which files were uncommitted is not recorded.
        data = read_beneath(root, *file.split("/"), limit=MAX_SOURCE_BYTES)
        written_s = (root / file).lstat().st_mtime
        is_newer = written_s > datetime.fromisoformat(side.created).timestamp()
        return data, "Written after the run: its lines may have moved." if is_newer else ""
    if not _REVISION.fullmatch(commit.revision):
        raise ToolError("E_GIT", "Its commit is not recorded.")
    return git.read_file(root, commit.revision, file, MAX_SOURCE_BYTES), ""
