"""Samples by the project's lines as text: ``src/run.c:670;src/run.c:331 191``, root first.

The text lies next to the folded profile of a run. It is no evidence, and others may have written
it: a path that leaves the project, a control character or an absurd number is an error.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_flamegate.core.text import is_clean, quote
from pytest_flamegate.profile.frames import folded_error, read_rows, write_rows
from pytest_flamegate.profile.model import Frame, FrameKind, LineStack, Profile, SourceLine, Stack

MAX_BYTES = 32 << 20
"""Limit of the file: 100,000 distinct stacks of ten lines each."""
_LINE = re.compile(r"(.+):([1-9][0-9]{0,8})")
OUTSIDE = Frame("(outside of the project)", "", "system")
"""Stands for samples that passed no line of the project."""
_NO_NAMES = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class LineTotals:
    """Samples by line: those that ended in it, and those that passed it."""

    own: Mapping[SourceLine, int]
    passed: Mapping[SourceLine, int]


def is_project_path(path: str) -> bool:
    """Whether ``path`` is a relative path that stays in the project and can be printed."""
    return is_clean(path) and _NO_NAMES.isdisjoint(path.split("/"))


def fold_lines(lines: Mapping[LineStack, int]) -> str:
    """Return stacks of lines as text."""
    return write_rows(
        (";".join(f"{line.file}:{line.line}" for line in stack), samples)
        for stack, samples in lines.items()
    )


def parse_lines(data: bytes, most: int) -> Mapping[LineStack, int]:
    """Return the stacks of lines that ``fold_lines`` wrote.

    Raises ``ReceiptError`` ``E_PROFILE_FILE`` if it did not write them, and if they have more than
    ``most`` samples: those of the profile.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise folded_error("it is not UTF-8") from None
    known: dict[str, SourceLine] = {}
    stacks: dict[LineStack, int] = {}
    for number, path, count in read_rows(text):
        for part in path.split(";"):
            if part not in known:
                known[part] = _parse_line(part, number)
        stacks[tuple(known[part] for part in path.split(";"))] = count
    if (samples := sum(stacks.values())) > most:
        raise folded_error(f"it has {samples:,} samples by line, and the profile {most:,}")
    return stacks


def count_samples(lines: Mapping[LineStack, int]) -> LineTotals:
    """Return the samples of each line; one that a stack passes twice counts once."""
    own, passed = Counter[SourceLine](), Counter[SourceLine]()
    for stack, samples in lines.items():
        own[stack[-1]] += samples
        for line in set(stack):
            passed[line] += samples
    return LineTotals(own, passed)


def fold_by_line(profile: Profile) -> Profile:
    """Return ``profile`` with its lines as frames: ``run.c:331`` of the module ``src/run.c``.

    The name has the whole path if two files have the same name.
    """
    lines = {line for stack in profile.lines for line in stack}
    same_name = Counter(file.rpartition("/")[2] for file in {line.file for line in lines})

    def frame(line: SourceLine) -> Frame:
        name = line.file.rpartition("/")[2]
        shown = name if same_name[name] == 1 else line.file
        kind: FrameKind = "python" if name.endswith(".py") else "native"
        return Frame(f"{shown}:{line.line}", line.file, kind)

    frames = {line: frame(line) for line in lines}
    stacks: dict[Stack, int] = {
        tuple(frames[line] for line in stack): samples for stack, samples in profile.lines.items()
    }
    if (outside := profile.samples - sum(stacks.values())) > 0:
        stacks[(OUTSIDE,)] = outside
    return replace(profile, stacks=stacks, lines={})


def _parse_line(part: str, number: int) -> SourceLine:
    found = _LINE.fullmatch(part)
    if found is None or not is_project_path(found[1]):
        raise folded_error(f"line {number} holds {quote(part)}, which is no line of the project")
    return SourceLine(found[1], int(found[2]))
