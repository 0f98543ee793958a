"""Skip a test whose tool is missing, or fail it where tools are promised."""

from __future__ import annotations

import os

import pytest


def require(present: bool, reason: str) -> None:
    """Go on if ``present``; else skip, or fail under ``FLAMEGATE_REQUIRE_TOOLS=1``."""
    if present:
        return
    if os.environ.get("FLAMEGATE_REQUIRE_TOOLS") == "1":
        pytest.fail(f"FLAMEGATE_REQUIRE_TOOLS=1, but {reason}", pytrace=False)
    pytest.skip(reason)
