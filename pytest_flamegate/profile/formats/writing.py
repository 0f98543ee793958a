"""A profile as a file for other tools. A new format is one line in ``WRITERS``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.profile.folded import fold
from pytest_flamegate.profile.formats.pprof import write_pprof
from pytest_flamegate.profile.formats.speedscope_profile import write_speedscope

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.profile.model import Profile


WRITERS: dict[str, Callable[[Profile, str], bytes]] = {
    "folded": lambda profile, _: fold(profile).encode(),
    "speedscope": write_speedscope,
    "pprof": write_pprof,
}
"""By name of the format: from a profile and what to call it to the bytes of the file."""
BINARY = frozenset({"pprof"})
"""Formats that no terminal shows."""


def export_profile(profile: Profile, form: str, name: str) -> bytes:
    """Return ``profile``, called ``name``, in the format ``form``; equal ones give equal bytes.

    Raises ``UsageError`` ``E_UNKNOWN_FORMAT`` for a format that there is not.
    """
    writer = WRITERS.get(form)
    if writer is None:
        raise UsageError(
            "E_UNKNOWN_FORMAT",
            f"There is no format {form!r} to write.",
            f"Use one of: {', '.join(WRITERS)}.",
        )
    return writer(profile, name)
