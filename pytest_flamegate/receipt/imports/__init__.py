"""Results of other benchmark tools: claims that nobody here saw, one file a format.

They never become receipts: a receipt says whether a real model ran, on what backend, with which
kernels, and no foreign result tells that. So each is a document of its own, ``imported.json``
1.0.0, of grade SELF_REPORTED for good. A new format is one module and one line in ``FORMATS``.
"""

from __future__ import annotations

from pytest_flamegate.receipt.imports.document import (
    FORMATS,
    Format,
    Source,
    decode_imported,
    encode_imported,
    format_of,
    is_imported,
)
from pytest_flamegate.receipt.imports.reading import Imported, ImportedMetric, LeftOut

__all__ = [
    "FORMATS",
    "Format",
    "Imported",
    "ImportedMetric",
    "LeftOut",
    "Source",
    "decode_imported",
    "encode_imported",
    "format_of",
    "is_imported",
]
