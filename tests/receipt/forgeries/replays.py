"""Replays: honest measurements of another time, and clocks that say so or do not."""

from datetime import timedelta
from random import Random
from typing import Any

from tests.receipt.forgeries.book import EMBEDDED, Book, alone
from tests.receipt.forgeries.draft import Draft, Files, hexadecimal, shift, stamp
from tests.receipt.forgeries.engines import one_server

BOOK = Book("replays")
DAY: dict[str, Any] = {"max_age_s": 24 * 3600.0}
SHORT: dict[str, Any] = {"max_age_s": 1800.0}


@BOOK.refused("E_EXPIRED", wishes=DAY)
def old_receipt(draft: Draft, source: Random) -> Files:
    """Hands in the good measurement of last month once more, with its evidence or without."""
    old = shift(draft, -timedelta(hours=source.uniform(24, 20_000))).reseal()
    return old.files() if source.random() < 0.5 else alone(old)


@BOOK.refused("E_CLOCK_CONTRADICTION", wishes=DAY)
def receipt_freshened(draft: Draft, source: Random) -> None:
    """Gives an old measurement's receipt a new timestamp and forgets its evidence."""
    fresh = draft.receipt["timestamp"]
    shift(draft, -timedelta(hours=source.uniform(26, 9000))).receipt["timestamp"] = fresh


@BOOK.refused("E_EXPIRED", wishes=SHORT)
def receipt_freshened_by_hours(draft: Draft, source: Random) -> None:
    """Freshens the receipt by less than the day that receipt and evidence may lie apart."""
    fresh = stamp(draft.created + timedelta(minutes=50))
    shift(draft, -timedelta(hours=source.uniform(1, 22))).receipt["timestamp"] = fresh


@BOOK.refused("E_CLOCK_CONTRADICTION")
def runs_of_last_month(draft: Draft, source: Random) -> None:
    """Freshens receipt and evidence, and forgets when the runs started."""
    by = timedelta(hours=source.uniform(24, 9000))
    shift(draft, -by)
    draft.evidence["created"] = draft.receipt["timestamp"] = stamp(draft.created + by)


@BOOK.refused("E_CLOCK_CONTRADICTION")
def runs_after_the_evidence(draft: Draft, source: Random) -> None:
    """Adds a run to evidence that was written before it."""
    late = draft.created + timedelta(seconds=source.uniform(310, 3000))
    source.choice(draft.runs)["started_at"] = stamp(late)


@BOOK.refused("E_CLOCK_CONTRADICTION")
def evidence_of_next_week(draft: Draft, source: Random) -> None:
    """Seals evidence that was written long after the receipt under it."""
    written = draft.receipt["timestamp"]
    shift(draft, timedelta(days=source.uniform(1.1, 90))).receipt["timestamp"] = written


@BOOK.refused("E_FROM_THE_FUTURE")
def from_the_future(draft: Draft, source: Random) -> None:
    """Dates the measurement ahead, so that it stays young for long."""
    shift(draft, timedelta(days=source.uniform(1.2, 400)))


@BOOK.refused("E_FROM_THE_FUTURE", wishes=SHORT)
def ahead_by_hours(draft: Draft, source: Random) -> None:
    """Dates it ahead by hours, as a wrong time zone would, to stretch the allowed age."""
    shift(draft, timedelta(hours=source.uniform(1.2, 23)))


@BOOK.refused("E_SCHEMA", then="alone")
def date_that_is_none(draft: Draft, source: Random) -> None:
    """Writes a timestamp that some parsers read as now and others as never."""
    good = draft.receipt["timestamp"]
    odd = ["$(date -u +%FT%TZ)", "now", "", None, source.randrange(2**31), f"{good}\n", f" {good}"]
    odd += [good.removesuffix("Z"), good.replace("T", " ").removesuffix("Z")]
    odd += ["2026-02-30T00:00:00Z", "2026-11-21T24:00:00Z", "2026-11-21T99:00:00Z"]
    draft.receipt["timestamp"] = source.choice(odd)


@BOOK.refused("E_CLOCK_CONTRADICTION")
def ticks_of_another_boot(draft: Draft, source: Random) -> None:
    """Gives a run the identity of a process of another day."""
    run = source.choice(draft.timed)
    run["started_ticks"] += source.randint(10**6, 10**9)


@BOOK.refused("E_CLOCK_CONTRADICTION", of=EMBEDDED)
def runs_of_many_days(draft: Draft, source: Random) -> None:
    """Gathers runs of several mornings, each with the time of day that it should have had."""
    for day, run in enumerate(draft.runs):
        run["started_ticks"] += day * source.randint(2 * 8_640_000, 3 * 8_640_000)
        for process in draft.profile["processes"]:
            if process["pid"] == run["pid"]:
                process["started_ticks"] = run["started_ticks"]


@BOOK.refused("E_CLOCK_CONTRADICTION")
def runs_side_by_side(draft: Draft, source: Random) -> None:
    """Runs several processes at once and hands them in as one after another."""
    first, *rest = draft.timed
    for number, run in enumerate(rest, 1):
        run["started_ticks"] = first["started_ticks"] + number
        run["started_at"] = first["started_at"]


@BOOK.refused("E_CLOCK_CONTRADICTION", of=("callable",))
def windows_side_by_side(draft: Draft, source: Random) -> None:
    """Asks one server several times at once and hands the windows in as one after another."""
    one_server(draft)
    began = draft.runs[0]["started_at"]
    for run in draft.runs:
        run["started_at"] = began


@BOOK.passes("A ledger of nonces, a signature with its own time, or a run that CI starts.")
def everything_freshened(draft: Draft, source: Random) -> None:
    """Moves every time of an old measurement to today, and gives it a new nonce."""
    draft.evidence["nonce"] = draft.profile["nonce"] = hexadecimal(source, 32)
    shift(draft, timedelta(minutes=source.uniform(1, 50)))
