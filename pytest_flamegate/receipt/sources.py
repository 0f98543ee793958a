"""Read the files of a receipt: bytes that are given, or files in one directory."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.files import OpenDirectory, open_directory, read_bounded
from pytest_flamegate.core.json_parser import EVIDENCE_LIMITS, RECEIPT_LIMITS
from pytest_flamegate.core.text import Refusal
from pytest_flamegate.receipt.baseline import ATTESTATION, EVIDENCE, FOLDED, RECEIPT

FOLDED_MAX_BYTES = 64 << 20

Source: TypeAlias = bytes | Path


@dataclass(frozen=True, slots=True)
class Sources:
    """The raw bytes of each file, or why it cannot be read; None if there is no such file.

    The ``attestation`` is not read here, because it is needed only if there is a key.
    """

    receipt: bytes | Refusal
    evidence: bytes | Refusal | None
    folded: bytes | Refusal | None
    attestation: Source | None = None

    @property
    def files(self) -> dict[str, bytes]:
        """Name and content of each file that could be read."""
        parts = {
            RECEIPT: self.receipt,
            EVIDENCE: self.evidence,
            FOLDED: self.folded,
        }
        return {name: raw for name, raw in parts.items() if isinstance(raw, bytes)}


def read_sources(
    receipt: Source,
    evidence: Source | None = None,
    folded: Source | None = None,
    attestation: Source | None = None,
    side: str = "",
) -> Sources:
    """Read the files that are given, and those next to the receipt that are not. Never raises.

    The names of the latter begin with ``side``. They are read through one open directory, so that
    it cannot be replaced in between.
    """
    with _open_parent(receipt) as directory:

        def read_near(given: Source | None, name: str, limit: int) -> bytes | Refusal | None:
            if given is not None:
                return read_source(given, limit)
            # A dangling link is present too: it is an error, and not skipped.
            name = f"{side}{name}"
            is_present = directory is not None and directory.holds(name)
            return _read(directory, Path(name), limit) if is_present else None

        name = f"{side}{ATTESTATION}"
        if attestation is None and directory is not None and directory.holds(name):
            attestation = directory.path / name
        return Sources(
            _read(directory, receipt, RECEIPT_LIMITS.max_bytes),
            read_near(evidence, EVIDENCE, EVIDENCE_LIMITS.max_bytes),
            read_near(folded, FOLDED, FOLDED_MAX_BYTES),
            attestation,
        )


def read_source(source: Source, limit: int) -> bytes | Refusal:
    """Return at most ``limit`` raw bytes of ``source``, or why it cannot be read. Never raises."""
    with _open_parent(source) as directory:
        return _read(directory, source, limit)


@contextmanager
def _open_parent(source: Source) -> Iterator[OpenDirectory | None]:
    """Open the directory of a path; None for bytes, and if there is no such directory."""
    directory = None
    with ExitStack() as stack:
        if not isinstance(source, bytes):
            path = Path(source)
            with suppress(FlamegateError):
                directory = stack.enter_context(open_directory(path.parent if path.name else path))
        yield directory


def _read(directory: OpenDirectory | None, source: Source, limit: int) -> bytes | Refusal:
    if isinstance(source, bytes):
        return source
    path = Path(source)
    try:
        if directory is None or path.name in ("", ".."):
            return read_bounded(path, limit)
        return directory.read(path.name, limit)
    except FlamegateError as error:
        return make_refusal(error)


def make_refusal(error: FlamegateError) -> Refusal:
    """Return the reason to reject a receipt that an error is."""
    return Refusal(error.code, error.problem, error.remedy)
