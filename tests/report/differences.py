"""Differences for the reports to show: figures made up, shapes real."""

from __future__ import annotations

from pytest_flamegate.profile.difference import ProfileDifference, ProfileSide, compare_profiles
from pytest_flamegate.profile.model import Stack
from tests.report import factory

BASE, HEAD = "base 4f2c91a", "head 4f2c91a + 2 uncommitted files"
CPU_S = 2e-3
STACKS: dict[Stack, int] = {
    (*factory.FFN, factory.python("ternary_gemv", "kernels.py")): 14_000,
    (*factory.FFN, factory.python("rms_norm")): 600,
    (*factory.ROOT, factory.python("attention")): 3_000,
    (*factory.ROOT, factory.python("attention"), factory.python("softmax")): 1_400,
    (*factory.ROOT, factory.python("rms_norm")): 400,
    factory.ROOT: 600,
}
"""20,000 samples: one is 0.1 µs of a token of 2 ms."""


def slowed(name: str, factor: float, stacks: dict[Stack, int] = STACKS) -> dict[Stack, int]:
    """Return ``stacks`` with the own samples of a function times ``factor``."""
    return {
        stack: round(count * (factor if stack[-1].name == name else 1))
        for stack, count in stacks.items()
    }


def compared(
    head: dict[Stack, int], base: dict[Stack, int] = STACKS, *, costs: bool = True
) -> ProfileDifference:
    """Compare: the CPU time of a token is that of its samples."""
    whole = sum(STACKS.values())
    sides = [
        ProfileSide(
            name,
            factory.profile(stacks),
            CPU_S * sum(stacks.values()) / whole if costs else None,
        )
        for name, stacks in ((BASE, base), (HEAD, head))
    ]
    return compare_profiles(*sides)
