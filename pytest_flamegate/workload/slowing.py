"""Real extra work in one Python function of the user's, to see the gate close.

The function's own code is replaced, so every reference to it takes part. What replaces
it calls the original once, clocks it, and then spins: in its own frame and under the
original's name and file, so that a profile shows the extra work as the function's.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_flamegate.errors import UsageError
from pytest_flamegate.workload import functions
from pytest_flamegate.workload.charging import Accounts, calibrated, charge
from pytest_flamegate.workload.injection import extra_share
from pytest_flamegate.workload.wrapping import is_asynchronous

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

_TOLERANCE = 0.05
_SLACK_NS = 100_000.0


@dataclass(slots=True)
class Slowed:
    """A function that has been slowed, and whether it really was."""

    frame: str
    extra_pct: float
    accounts: Accounts
    _calls: int = field(default=0, init=False)

    def checked(self) -> Iterator[Any]:
        """Yield nothing: chained behind a sequence's tokens it checks when they are done."""
        self.check()
        yield from ()

    def check(self) -> None:
        """Refuse if the calls since the last check did not get the extra work asked for.

        ``UsageError``: E_FRAME_NOT_CALLED, E_INJECTION_TOO_SMALL (the calls are so short
        that the replacement alone costs more than what was asked for).
        """
        accounts = list(self.accounts.values())
        calls = sum(account.calls for account in accounts)
        if calls == self._calls:
            raise UsageError(
                "E_FRAME_NOT_CALLED",
                f"{self.frame!r} was not called while a whole sequence was generated, so no work "
                "was injected.",
                "Name a function that this process calls for every sequence.",
            )
        self._calls = calls
        due_ns = sum(account.due_ns for account in accounts)
        owed_ns = sum(account.owed_ns for account in accounts)
        if -owed_ns > _TOLERANCE * due_ns + _SLACK_NS:
            raise UsageError(
                "E_INJECTION_TOO_SMALL",
                f"A call of {self.frame!r} is so short that +{self.extra_pct:g}% of it, "
                f"{due_ns / calls:.0f} ns, is less than what injecting costs, "
                f"{(due_ns - owed_ns) / calls:.0f} ns.",
                "Ask for more, or slow the function that calls it.",
            )


def slow(frame: str, extra_pct: float, modules: Iterable[ModuleType]) -> Slowed:
    """Make the Python function ``frame`` take ``extra_pct`` percent more CPU time in this process.

    The extra follows what each outermost call, or each resumption of a generator, took with
    all that it called; results and exceptions stay as they are. What is owed is paid once
    it is 50 µs. Short calls are clocked by the wall, which is cheap; from the length on at
    which it is worth it, at most 1 ms, the CPU clock tells what a thread lost to others.
    What this costs, some 0.5 µs a call, is part of the extra. It is known from empty calls
    only, so that a call's extra may be too large by about 1 µs.

    Frames are found by ``functions.find``. Raises ``UsageError``: E_UNKNOWN_FRAME,
    E_AMBIGUOUS_FRAME, E_CANNOT_SLOW (a coroutine), E_INJECTION (not a percentage above 0).
    """
    share = extra_share(extra_pct)
    found = functions.find(frame, modules)
    if any(is_asynchronous(each) for each in found):
        raise UsageError(
            "E_CANNOT_SLOW",
            f"{functions.label(found[0])} is asynchronous, and its time cannot be told from that "
            "of others.",
            "Name a plain function or a generator that it calls.",
        )
    accounts = Accounts()
    terms = calibrated(found[0], share)
    # Each call now takes two frames: what could recurse so far must be able to now.
    sys.setrecursionlimit(2 * sys.getrecursionlimit())
    for each in found:
        charge(each, accounts, terms)
    return Slowed(frame, extra_pct, accounts)
