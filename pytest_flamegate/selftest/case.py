"""What a case is: something done, what has to happen, and what did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate import exit_code, fails_test, headline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_flamegate.gate import Verdict, VerdictName
    from pytest_flamegate.selftest.bench import Bench

Result = Literal["ok", "differs", "undecided", "left out"]
"""``undecided``: noise or too little work, said so; ``left out``: not possible here."""
Need = Literal["injection", "other", "profile"]
_DIFFERS, _UNDECIDED = 1, UndecidedError.exit_code


@dataclass(frozen=True, slots=True)
class Happened:
    """What came of a case: a few words for the table, and in ``detail`` all of it."""

    words: str
    result: Result
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One way to try the gate. Its words may name ``{frame}``, ``{extra}`` and ``{another}``."""

    name: str
    done: str
    expected: str
    needs: tuple[Need, ...]
    check: Callable[[Bench], Happened]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    done: str
    expected: str
    happened: str
    result: Result
    detail: str = ""


CASES: list[Case] = []
"""Every case, in the order in which they are tried."""


def case(
    name: str, done: str, expected: str, needs: tuple[Need, ...] = ()
) -> Callable[[Callable[[Bench], Happened]], Callable[[Bench], Happened]]:
    """Register the function below as a case."""

    def register(check: Callable[[Bench], Happened]) -> Callable[[Bench], Happened]:
        CASES.append(Case(name, done, expected, needs, check))
        return check

    return register


def try_all(bench: Bench, cases: Sequence[Case] | None = None) -> Iterator[Row]:
    """Try one case after another; what raises anything but ``UndecidedError`` ends them all."""
    for each in CASES if cases is None else cases:
        happened = _happened(each, bench)
        # Afterwards: how much the other function gets follows from what was measured.
        done, expected = (text.format(**bench.words) for text in (each.done, each.expected))
        yield Row(each.name, done, expected, happened.words, happened.result, happened.detail)


def _happened(each: Case, bench: Bench) -> Happened:
    for need in each.needs:
        if (why := bench.lacking(need)) is not None:
            return Happened("–", "left out", why)
    try:
        return each.check(bench)
    except UndecidedError as error:
        return Happened(error.code, "undecided", str(error))


def exit_code_of(rows: Sequence[Row]) -> int:
    """Return 0 where all is as expected, 1 where anything differs, else 4: less was shown."""
    results = {row.result for row in rows}
    if "differs" in results:
        return _DIFFERS
    return 0 if results == {"ok"} else _UNDECIDED


def is_open(verdict: Verdict) -> bool:
    """Whether a build goes on with this verdict, by any of the words that say so."""
    return (
        verdict.verdict in ("pass", "improved")
        or exit_code(verdict) == 0
        or not fails_test(verdict, ci=True, strict=False)
    )


def closed(verdict: Verdict, name: VerdictName, code: str) -> Happened:
    """Return ok where the verdict is ``name``, for the reason ``code``, and stops a build."""
    codes = [reason.code for reason in verdict.reasons]
    fits = verdict.verdict == name and code in codes and not is_open(verdict)
    shown = code if code in codes else next(iter(codes), "no reason")
    return Happened(f"{verdict.verdict}, {shown}", "ok" if fits else "differs", headline(verdict))
