"""The functions of a profile, ranked, and the refusals where there is too little to rank."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.profile.category import categorize_frame
from pytest_flamegate.profile.model import Hotspot

if TYPE_CHECKING:
    from pytest_flamegate.profile.model import Frame, Profile


def rank_hotspots(profile: Profile, cpu_s_per_token: float | None = None) -> tuple[Hotspot, ...]:
    """Return every function, the one with the largest self share first.

    Functions of one name are one hotspot; it shows the module, kind and category of
    its heaviest frame. ``cpu_s_per_token`` is the CPU time of one token in seconds, of
    which each hotspot gets its self share.
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
    found = [
        _hotspot(frame, own_by_name[name], inclusive[name], profile.samples, cpu_s_per_token)
        for name, frame in heaviest.items()
    ]
    found.sort(key=lambda spot: (-spot.self_samples, -spot.inclusive_samples, spot.name))
    return tuple(found)


def require_samples(profile: Profile, floor: int) -> None:
    """Refuse a profile with fewer than ``floor`` samples.

    Raises ``UndecidedError``: ``E_NO_SAMPLES`` where there are none, else ``E_FEW_SAMPLES``.
    """
    if profile.samples == 0:
        raise no_samples_error(profile.profiler, profile.errors, profile.lost)
    if profile.samples < floor:
        raise UndecidedError(
            "E_FEW_SAMPLES",
            f"{profile.profiler} took {profile.samples} samples, and {floor} are needed.",
            "Let the workload run longer: more tokens, or a larger --flamegate-budget.",
        )


def no_samples_error(profiler: str, errors: int, lost: int) -> UndecidedError:
    """Return the refusal of a profile without a sample."""
    return UndecidedError(
        "E_NO_SAMPLES",
        f"{profiler} took no sample ({errors} errors, {lost} lost).",
        "Let the workload run longer: more tokens, or a larger --flamegate-budget.",
    )


def _hotspot(
    frame: Frame, own: int, inclusive: int, total: int, cpu_s_per_token: float | None
) -> Hotspot:
    share = own / total
    return Hotspot(
        name=frame.name,
        module=frame.module,
        kind=frame.kind,
        category=categorize_frame(frame),
        self_samples=own,
        inclusive_samples=inclusive,
        self_share=share,
        inclusive_share=inclusive / total,
        cpu_s_per_token=None if cpu_s_per_token is None else share * cpu_s_per_token,
    )
