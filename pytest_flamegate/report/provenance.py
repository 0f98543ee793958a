"""How a profile was taken, in words: the same in the picture, the page and the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report import figures

if TYPE_CHECKING:
    from pytest_flamegate.profile.model import Profile


def profile_notes(profile: Profile) -> list[str]:
    """Return short notes: profiler, event, rate, samples, completeness, what was lost."""
    notes = [
        f"{profile.profiler} {profile.profiler_version}".strip(),
        f"{profile.event} at {figures.count(profile.rate_hz)} Hz",
        f"call graph {profile.call_graph}",
        f"{figures.plural(profile.samples, 'sample')} from "
        f"{figures.plural(len(profile.pids), 'process', 'processes')}",
        f"{figures.share(profile.completeness)} of stacks complete",
        f"{figures.count(profile.lost)} lost",
        f"{figures.plural(profile.errors, 'error')}",
    ]
    return notes + [f"degraded: {reason}" for reason in profile.degraded]
