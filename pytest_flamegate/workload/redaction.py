"""What an environment may say in files that people commit and hand on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

REDACTED = "redacted"
_SECRET = re.compile(r"(?:^|_)(?:KEY|TOKEN)$|SECRET|PASSWORD", re.IGNORECASE)


def redacted(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` with the values of names that sound like secrets replaced."""
    return {
        name: REDACTED if _SECRET.search(name) else value for name, value in environment.items()
    }
