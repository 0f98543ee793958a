"""Folded stacks as text, read back into counts by function."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ReceiptError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Folded:
    """Samples in all, by leaf name and by name anywhere in a stack (once a stack).

    ``problem`` says why the text is no folded profile, None where it is one.
    """

    samples: int
    self_samples: Mapping[str, int]
    inclusive_samples: Mapping[str, int]
    problem: str | None = None


def read_folded(data: bytes) -> Folded:
    """Return what the folded text ``data`` holds; never raises."""
    # The profile room brings every profiler's adapter along; most receipts have no profile.
    from pytest_flamegate.profile.fold import unfold

    try:
        stacks = unfold(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Folded(0, {}, {}, f"The folded profile is not UTF-8 at byte {error.start}.")
    except ReceiptError as error:
        return Folded(0, {}, {}, error.what)
    own: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    for stack, count in stacks.items():
        if stack:
            own[stack[-1].name] += count
        for name in {frame.name for frame in stack}:
            inclusive[name] += count
    return Folded(sum(stacks.values()), own, inclusive)
