"""Extra work as people write it: ``rms_norm:+10%``."""

from __future__ import annotations

import math
import re

from pytest_flamegate.errors import UsageError
from pytest_flamegate.workload.spec import Injection

_WRITTEN = re.compile(r"(.+):\+(\d+(?:\.\d+)?)%")


def parse_injection(text: str) -> Injection:
    """Return frame and percent of ``"rms_norm:+10%"``; ``UsageError`` ``E_BAD_INJECTION``."""
    match = _WRITTEN.fullmatch(text)
    if match is None or not 0 < float(match[2]) < math.inf:
        raise UsageError(
            "E_BAD_INJECTION",
            f"{text!r} says no frame and extra work.",
            "Write FRAME:+PERCENT%, for example ternary_gemv:+10%.",
        )
    return Injection(match[1], float(match[2]))


def extra_share(extra_pct: float) -> float:
    """Return ``extra_pct`` percent as a share; ``UsageError`` ``E_INJECTION`` if not above 0."""
    if not 0 < extra_pct < math.inf:
        raise UsageError(
            "E_INJECTION",
            f"{extra_pct} percent of extra work cannot be injected.",
            "Give a percentage above 0, such as +10%.",
        )
    return extra_pct / 100.0
