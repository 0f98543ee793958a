"""pytest-flamegate: a performance gate for LLM inference.

Importing this package is free: its public names load their rooms on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_flamegate.core import __version__
    from pytest_flamegate.receipt import Verification, verify_receipt


__all__ = ["Verification", "__version__", "verify_receipt"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from pytest_flamegate.core import __version__

        return __version__
    if name in {"Verification", "verify_receipt"}:
        from pytest_flamegate import receipt

        return getattr(receipt, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
