"""A function by the name that was given, in what a profile shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_flamegate.sealing import Sealed

_MOST = 0.5


def means(given: str, shown: str) -> bool:
    """Whether ``given`` (``f``, ``C.f``, ``module.f``, ``module:f``) is what a profile calls so."""
    dotted = f".{given.replace(':', '.')}"
    return dotted.endswith(f".{shown}") or f".{shown}".endswith(dotted)


def share_of(given: str, sealed: Sealed | None) -> float | None:
    """Return the part of the time, 0 to 1, in that function and all it calls; None if unseen."""
    if sealed is None or sealed.profile is None:
        return None
    stacks = sealed.profile.stacks
    within = sum(
        samples
        for stack, samples in stacks.items()
        if any(means(given, frame.name) for frame in stack)
    )
    return within / sealed.profile.samples if within else None


def below(given: str, shown: str, sealed: Sealed | None) -> bool:
    """Whether most samples of the function ``shown`` were taken in calls by the one ``given``.

    A profiler that sees native code shows the extra work where it was done: there.
    """
    if sealed is None or sealed.profile is None:
        return False
    own = {stack: n for stack, n in sealed.profile.stacks.items() if stack[-1].name == shown}
    called = sum(n for stack, n in own.items() if any(means(given, f.name) for f in stack))
    return called > _MOST * sum(own.values())
