"""A corpus of forgeries, made of receipts that the product itself produced.

``python -m tests.receipt.forgeries`` lists them in ``docs/forgeries.md``. A new kind is one
function in its group, whose docstring is its sentence; a new group is one more name below.
"""

from importlib import import_module

from tests.receipt.forgeries.book import Kind

_GROUPS = (
    *("figures", "tokens", "clocks", "profile", "kernels", "binding", "splicing"),
    *("replays", "engines", "documents", "devices", "conduct", "reports", "bricks"),
)
KINDS: tuple[Kind, ...] = tuple(
    kind for group in _GROUPS for kind in import_module(f"{__name__}.{group}").BOOK
)
"""Every kind, those that pass included."""
DETECTABLE = tuple(kind for kind in KINDS if kind.fate in ("refused", "lowered", "suspected"))
UNDETECTABLE = tuple(kind for kind in KINDS if kind.fate == "passes")
