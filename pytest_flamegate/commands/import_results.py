"""``flamegate import`` of what another benchmark tool says it measured."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping
    from pathlib import Path


def recognises(data: bytes) -> bool:
    """Whether ``data`` is a result that can be read, or one that is refused by its name."""
    from pytest_flamegate.receipt.imports import format_of

    return format_of(data) is not None


def run(
    data: bytes,
    parsed: argparse.Namespace,
    name: str,
    write: Callable[[Mapping[str, bytes], str, argparse.Namespace], Path],
) -> int:
    """Write each result of ``data`` as a document of its own, all or none, and tell them."""
    from pytest_flamegate.receipt.imports import Source, encode_imported, format_of
    from pytest_flamegate.report.imported import imported_text
    from pytest_flamegate.workload.clocks import utc_now

    found = format_of(data)
    assert found is not None  # it was recognised
    results = found.read(data)
    digest = hashlib.sha256(data).hexdigest()
    file = parsed.file.name.encode("utf-8", "backslashreplace").decode()
    source = Source(file, found.name, digest, utc_now())
    files = {f"{each.result}.json": encode_imported(each, source) for each in results}
    _require_same_source(parsed, name, digest, files)
    directory = write(files, name, parsed)
    common.say(imported_text(results))
    common.say(str(directory))
    return 0


def _require_same_source(
    parsed: argparse.Namespace, name: str, digest: str, files: Mapping[str, bytes]
) -> None:
    """Refuse to write over the results of another file: its name may be that of this one.

    Below ``.flamegate`` the whole directory is replaced, elsewhere only ``files`` are.
    """
    from pytest_flamegate.commands.diff_figures import results_in
    from pytest_flamegate.receipt.disk import read_bounded
    from pytest_flamegate.receipt.imports import decode_imported
    from pytest_flamegate.receipt.strict_json import RECEIPT_MAX_BYTES

    directory = parsed.output or common.settings_of(parsed).directory / "imported" / name
    for each in results_in(directory):
        if parsed.output is not None and each.name not in files:
            continue
        source = decode_imported(read_bounded(each, RECEIPT_MAX_BYTES))[1]
        if source.sha256 != digest:
            raise UsageError(
                "E_NOT_OVERWRITTEN",
                f"{str(directory)!a} holds the results of another file ({source.file!a}).",
                "Say --name NAME to keep both, or remove that directory.",
            )
