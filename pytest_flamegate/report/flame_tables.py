"""What stands beside a flame graph: the legend of its colours, and the table of functions.

Both are read without JavaScript; with it the legend highlights and the table sorts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report import figures, page
from pytest_flamegate.report.insights import category_shares
from pytest_flamegate.report.palette import tone

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_flamegate.profile.model import Hotspot

TABLE_ROWS = 200
"""Functions in a table at most; the search finds all that have a box."""


def swatch(name: str) -> str:
    """Return a small square in the colours of a class."""
    return page.element("span", class_=f"swatch {name}", aria_hidden="true")


def legend(spots: Sequence[Hotspot], cpu_s_per_token: float | None) -> str:
    """Return the kinds of work with the self share and cost of each, largest first."""
    items = [
        page.element(
            "li",
            swatch(f"tone-{tone(name).name}"),
            page.text(name),
            page.element("span", _share_and_cost(value, cpu_s_per_token), class_="figure"),
            data_category=name,
            title=tone(name).meaning,
        )
        for name, value in category_shares(spots).items()
    ]
    return page.element("ul", *items, class_="legend of-profile", aria_label="Kinds of work")


def _share_and_cost(share: float, cpu_s_per_token: float | None) -> str:
    cost = "" if cpu_s_per_token is None else f" · {figures.seconds(cpu_s_per_token * share)}"
    return page.text(figures.share(share) + cost)


def exact(shown: str, value: float) -> str:
    """Return a figure that sorts by its exact value."""
    return page.element("span", page.text(shown), data_value=repr(value))


def named(name: str, colour: str) -> str:
    """Return a function's name beside a square in the colours of a class."""
    told = page.element("span", page.text(name), class_="name")
    return page.element("span", swatch(colour), told, class_="named")


def hottest(spots: Sequence[Hotspot]) -> str:
    """Return the table of the hottest functions."""
    known = any(spot.cpu_s_per_token is not None for spot in spots)
    head = ["function", "self", "total", *(["µs/token"] if known else [])]
    rows = [_row(spot) for spot in spots[:TABLE_ROWS]]
    said = "Self is what a function spends itself, total adds all it calls; recursion counts once."
    return page.element("div", functions(head, rows, said, len(spots)), class_="of-profile")


def _row(spot: Hotspot) -> list[str]:
    cost = spot.cpu_s_per_token
    return [
        named(spot.name, f"tone-{tone(spot.category).name}"),
        exact(figures.share(spot.self_share), spot.self_share),
        exact(figures.share(spot.inclusive_share), spot.inclusive_share),
        *([] if cost is None else [exact(figures.micros(cost), cost)]),
    ]


def functions(head: Sequence[str], rows: Iterable[Sequence[str]], said: str, count: int) -> str:
    """Return a table of functions under the caption ``said``; ``count`` is how many there are."""
    left = count - TABLE_ROWS
    more = f" {figures.plural(left, 'further function')}: search." if left > 0 else ""
    right = range(1, len(head))
    return page.table(head, rows, right=right, caption=said + more, class_="functions")
