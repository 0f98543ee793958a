"""The functions of a profile, ranked by their cost, and errors for too few samples to rank."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.profile.category import categorize_frame
from pytest_flamegate.profile.model import Hotspot

if TYPE_CHECKING:
    from pytest_flamegate.profile.model import Frame, Profile

_RUN_LONGER = "Let the workload run longer: more tokens, or a larger --flamegate-budget."


def rank_hotspots(profile: Profile, cpu_s_per_token: float | None = None) -> tuple[Hotspot, ...]:
    """Return every function, the one with the largest self share first.

    Functions of one name are one hotspot, which shows the module, kind and category of its
    heaviest frame. With ``cpu_s_per_token``, the CPU time of one token in seconds, each hotspot
    gets its self share of it.
    """
    own: Counter[Frame] = Counter()
    within: Counter[Frame] = Counter()
    inclusive: Counter[str] = Counter()
    for stack, samples in profile.stacks.items():
        within.update(dict.fromkeys(stack, samples))
        inclusive.update(dict.fromkeys((frame.name for frame in stack), samples))
        own.update(dict.fromkeys(stack[-1:], samples))
    heaviest: dict[str, Frame] = {}
    own_by_name: Counter[str] = Counter()
    for frame in sorted(within, key=lambda frame: (own[frame], within[frame], frame)):
        heaviest[frame.name] = frame
        own_by_name[frame.name] += own[frame]
    total = profile.samples
    hotspots = []
    for name, frame in heaviest.items():
        self_share = own_by_name[name] / total
        hotspots.append(
            Hotspot(
                name=name,
                module=frame.module,
                kind=frame.kind,
                category=categorize_frame(frame),
                self_samples=own_by_name[name],
                inclusive_samples=inclusive[name],
                self_share=self_share,
                inclusive_share=inclusive[name] / total,
                cpu_s_per_token=None if cpu_s_per_token is None else self_share * cpu_s_per_token,
            )
        )
    hotspots.sort(key=lambda spot: (-spot.self_samples, -spot.inclusive_samples, spot.name))
    return tuple(hotspots)


def require_samples(profile: Profile, floor: int) -> None:
    """Raise ``UndecidedError`` ``E_NO_SAMPLES`` or ``E_FEW_SAMPLES`` below ``floor`` samples."""
    if profile.samples == 0:
        raise no_samples_error(profile.profiler, profile.errors, profile.lost)
    if profile.samples < floor:
        raise UndecidedError(
            "E_FEW_SAMPLES",
            f"{profile.profiler} took {profile.samples} samples, and {floor} are needed.",
            _RUN_LONGER,
        )


def no_samples_error(profiler: str, errors: int, lost: int) -> UndecidedError:
    """Build the error for a profile without a sample."""
    return UndecidedError(
        "E_NO_SAMPLES", f"{profiler} took no sample ({errors} errors, {lost} lost).", _RUN_LONGER
    )
