"""Source lines: those of addresses in a program or library, and samples by them as text.

A compiler leaves lines and inlined functions in DWARF (``-g``). ``llvm-symbolizer`` reads it, or
binutils' ``addr2line``, which answers in the same format and takes longer for large files.

The text, ``src/run.c:670;src/run.c:331 191`` root first, lies next to the folded profile of a run.
It is no evidence, and others may have written it: a path that leaves the project, a control
character or an absurd number is an error.
"""

import hashlib
import re
import shutil
import stat
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.text import decode_name, is_clean, quote
from pytest_flamegate.profile.frames import JIT_FILE, folded_error, read_rows, write_rows
from pytest_flamegate.profile.model import Frame, FrameKind, LineStack, Profile, SourceLine, Stack

TIMEOUT_S = 60.0
"""For one file: a damaged one must not stop a run."""
_MEMORY_BYTES, _MEMORY_FACTOR = 1 << 30, 8
"""The address space of a symbolizer: so much, and this factor of the file's size. It uses five
times the size."""
_LARGEST_BYTES = 4 << 30
"""A library with debug information may have a gigabyte, a sparse file of any size."""
_BATCH = 5000
"""Addresses of one call, 60 kB of arguments."""
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_PLACE = re.compile(r"(.*):(\d{1,9}|\?)(?: \(discriminator \d+\))?")
_SYSTEM = re.compile(r"/(?:usr/)?(?:s?bin|lib(?:32|64|exec)?)/|/(?:proc|dev)/|/memfd:|//")
"""Libraries of the distribution: whether their debug files are installed differs between machines,
and no pull request changes them."""
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_LOAD = 1
_DEBUG_SECTIONS = (b".debug_line", b".gnu_debuglink", b".gnu_debugaltlink")


class FunctionLine(NamedTuple):
    """A function and the line within it; ``file`` is empty and ``line`` 0 if not known."""

    function: str
    file: str
    line: int


class _Image(NamedTuple):
    """The loaded parts of a file: (offset, size, address) each, and the digest of the file."""

    segments: tuple[tuple[int, int, int], ...]
    has_debug: bool
    digest: str
    size: int


_known: dict[str, dict[int, tuple[FunctionLine, ...]]] = {}
"""Places by the digest of the file and the offset in it: each pair of runs has its own copy. They
live as long as the process: 5,000 addresses of a file of 50 MB take a second."""
_hanging: set[str] = set()
"""The digests of files that took too long: they are not read again for the next profile."""


def locate(library: str, offsets: Collection[int]) -> Mapping[int, tuple[FunctionLine, ...]]:
    """Return the places of code at ``offsets`` of the file ``library``, innermost function first.

    More than one place stands for one address if functions were inlined there. An offset that no
    line is known of is absent; the result is empty if the file has no debug information or is
    damaged, and if neither ``llvm-symbolizer`` nor ``addr2line`` is installed.
    """
    command = find_symbolizer()
    if command is None:
        return {}
    try:
        image = _read_image(Path(library))
        if not image.has_debug:
            return {}
        known = _known.setdefault(image.digest, {})
        unknown = sorted(set(offsets) - known.keys())
        for first in range(0, len(unknown), _BATCH):
            if image.digest not in _hanging:
                known.update(_ask(command, library, image, unknown[first : first + _BATCH]))
    except (OSError, ValueError, struct.error, FlamegateError):
        return {}
    return {offset: known[offset] for offset in offsets if known.get(offset)}


def has_lines(library: str) -> bool:
    """Whether lines may be known of a library: a compiler wrote it, not for the distribution."""
    is_file = library.startswith("/") and not JIT_FILE.search(library)
    return is_file and not _SYSTEM.match(library)


def find_symbolizer() -> tuple[str, ...] | None:
    """Return the command that names addresses, None if none is installed."""
    if program := shutil.which("llvm-symbolizer"):
        return (program, "--output-style=GNU")
    program = shutil.which("addr2line")
    return None if program is None else (program,)


def _ask(
    command: Sequence[str], library: str, image: _Image, offsets: Sequence[int]
) -> Iterator[tuple[int, tuple[FunctionLine, ...]]]:
    addresses = {offset: _to_address(image, offset) for offset in offsets}
    asked = [f"{address:#x}" for address in addresses.values()]
    result = process.run(
        [*command, "-a", "-f", "-i", "-C", "-e", library, *asked],
        timeout_s=TIMEOUT_S,
        env={"LC_ALL": "C", "DEBUGINFOD_URLS": ""},
        memory_bytes=_MEMORY_BYTES + _MEMORY_FACTOR * image.size,
    )
    if result.timed_out:
        _hanging.add(image.digest)
    answers = dict(_parse_answers(decode_name(result.stdout)))
    for offset, address in addresses.items():
        yield offset, answers.get(address, ())


def _parse_answers(text: str) -> Iterator[tuple[int, tuple[FunctionLine, ...]]]:
    """Yield the places of each address: a line with it, then one each for function and file."""
    address, places, function = 0, list[FunctionLine](), ""
    for line in text.split("\n"):  # a name may hold what splitlines() takes for an end of line
        if _ADDRESS.fullmatch(line):
            yield address, tuple(places)
            address, places, function = int(line, 16), [], ""
        elif not function:
            function = line
        else:
            found = _PLACE.fullmatch(line)
            if found and found[2] not in ("?", "0") and not found[1].startswith("?"):
                places.append(FunctionLine(function, found[1], int(found[2])))
            function = ""
    yield address, tuple(places)


def _to_address(image: _Image, offset: int) -> int:
    """Return the address that the linker gave to the code at ``offset`` of the file."""
    for start, size, address in image.segments:
        if start <= offset < start + size:
            return address + offset - start
    return offset


def _read_image(path: Path) -> _Image:
    """Read the tables of an ELF file. ValueError or ``struct.error`` if it is damaged."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_BYTES:
        raise ValueError("no file that can be read to its end")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()

        def read(offset: int, length: int) -> bytes:
            if offset + length > size:
                raise ValueError("a table lies outside of its file")
            file.seek(offset)
            return file.read(length)

        header = read(0, _HEADER.size)
        if not header.startswith(_ELF64_LITTLE):
            raise ValueError("no ELF file of 64 bits")
        fields = _HEADER.unpack(header)
        segments_at, sections_at, segment_count = fields[4], fields[5], fields[9]
        section_count, names_number = fields[11], fields[12]
        segments = _SEGMENT.iter_unpack(read(segments_at, segment_count * _SEGMENT.size))
        sections = list(_SECTION.iter_unpack(read(sections_at, section_count * _SECTION.size)))
        names = b""
        if names_number < section_count:
            _, _, _, _, names_at, names_size, *_ = sections[names_number]
            names = read(names_at, names_size)
    return _Image(
        tuple(
            (at, length, address)
            for kind, _, at, address, _, length, *_ in segments
            if kind == _LOAD
        ),
        any(name in names for name in _DEBUG_SECTIONS),
        digest,
        size,
    )


MAX_BYTES = 32 << 20
"""Limit of the file: 100,000 distinct stacks of ten lines each."""
_TEXT_LINE = re.compile(r"(.+):([1-9][0-9]{0,8})")
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
    found = _TEXT_LINE.fullmatch(part)
    if found is None or not is_project_path(found[1]):
        raise folded_error(f"line {number} holds {quote(part)}, which is no line of the project")
    return SourceLine(found[1], int(found[2]))
