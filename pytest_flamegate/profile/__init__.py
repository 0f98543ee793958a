"""Where does the time go? Profilers behind one small protocol, and what a profile says.

``choose`` picks a profiler; it samples a process and ``parse`` turns what it wrote
into a ``Profile`` of normalised, escaped frames. ``cut`` trims the stacks to the
workload, ``fold`` writes them down and ``hotspots`` ranks the functions.
"""

from __future__ import annotations

from pytest_flamegate.profile.category import category
from pytest_flamegate.profile.folded import fold, label, merge, unfold
from pytest_flamegate.profile.frames import cut
from pytest_flamegate.profile.hotspots import hotspots, no_samples, require_samples, require_stacks
from pytest_flamegate.profile.model import Frame, Hotspot, Profile, Stack
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Recording, Setup, Wrapped
from pytest_flamegate.profile.profilers.choose import PROFILERS, choose, passed_over, profilers

__all__ = [
    "PROFILERS",
    "Frame",
    "Hotspot",
    "Probe",
    "Profile",
    "Profiler",
    "Recording",
    "Setup",
    "Stack",
    "Wrapped",
    "category",
    "choose",
    "cut",
    "fold",
    "hotspots",
    "label",
    "merge",
    "no_samples",
    "passed_over",
    "profilers",
    "require_samples",
    "require_stacks",
    "unfold",
]
