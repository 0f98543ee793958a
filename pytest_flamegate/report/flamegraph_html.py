"""The flame graph as one page to explore: zoom, search, upside down, what changed.

It needs nothing from anywhere else and runs under a policy that lets nothing else in.
Without JavaScript the legend and the table of the hottest functions are still there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_flamegate.profile.category import category
from pytest_flamegate.profile.hotspots import hotspots, no_samples
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.report import page
from pytest_flamegate.report.figures import require_cost
from pytest_flamegate.report.flame_changes import change_legend, changes, warnings
from pytest_flamegate.report.flame_data import flame_data
from pytest_flamegate.report.flame_tables import hottest, legend
from pytest_flamegate.report.provenance import profile_notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.profile.difference import Difference
    from pytest_flamegate.profile.model import Profile

KEYS = (
    "Click or Enter zooms in; Escape, Backspace or a click on a caller zooms out, Home shows all. "
    "Arrow keys walk from box to box. Ctrl+F or / searches; a second Ctrl+F is the browser's own."
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One flame graph to be drawn, and the difference whose head its profile is, if any.

    ``cpu_s_per_token`` is the CPU time of one token in seconds.
    """

    title: str
    profile: Profile
    cpu_s_per_token: float | None = None
    difference: Difference | None = None
    categorise: Callable[[Frame], str] = category


def flamegraph_html(
    profile: Profile,
    *,
    title: str,
    subtitle: str,
    cpu_s_per_token: float | None,
    difference: Difference | None = None,
    categorise: Callable[[Frame], str] = category,
) -> str:
    """Draw ``profile`` as one self-contained HTML page.

    ``cpu_s_per_token`` is the CPU time of one token in seconds; with it each function
    tells what it costs. ``difference`` is one whose head is ``profile``. Equal arguments
    give equal bytes. Raises ``UndecidedError`` where the profile holds no samples and
    ``ReceiptError`` where a figure makes no sense.
    """
    drawn = Drawn(title, profile, cpu_s_per_token, difference, categorise)
    header = page.element(
        "div", page.lines("h1", [title]), page.lines("p", [subtitle], class_="muted")
    )
    return page.document(
        f"{title} · flame graph",
        [
            page.element("header", header, page.element("div", class_="theme")),
            page.element("main", flame(drawn, "flame-1")),
        ],
    )


def flame(drawn: Drawn, name: str) -> str:
    """Return one flame graph with its legend, tables and data as markup.

    ``name`` is its own on the page. Raises as ``flamegraph_html`` does.
    """
    profile, difference = drawn.profile, drawn.difference
    require_cost(drawn.cpu_s_per_token)
    if not profile.samples:
        raise no_samples(profile.profiler, profile.errors, profile.lost)
    spots = [
        replace(spot, category=drawn.categorise(Frame(spot.name, spot.module, spot.kind)))
        for spot in hotspots(profile, drawn.cpu_s_per_token)
    ]
    room = page.element("div", _without_script(), class_="room")
    picture = page.element(
        "div",
        room,
        legend(spots, drawn.cpu_s_per_token),
        change_legend(difference) if difference is not None else "",
        _notes(profile),
        class_="picture",
    )
    changed = changes(difference) if difference is not None else ""
    beside = page.element("div", hottest(spots), changed, class_="beside")
    found = flame_data(
        profile,
        spots=spots,
        cpu_s_per_token=drawn.cpu_s_per_token,
        difference=difference,
        categorise=drawn.categorise,
    )
    section = page.element(
        "section", picture, beside, class_="flame", data_flame=name, data_title=drawn.title
    )
    warned = warnings(difference) if difference is not None else ""
    return "\n".join([warned, section, page.data(name, found)])


def _notes(profile: Profile) -> str:
    taken = page.element("p", page.text(" · ".join(profile_notes(profile)), 2000))
    return page.element("div", taken, page.element("p", page.text(KEYS, 2000)), class_="notes")


def _without_script() -> str:
    said = (
        "The picture needs JavaScript, which is turned off here. The table of functions does "
        "not, nor do the SVG pictures of a run."
    )
    return page.element("noscript", page.element("p", page.text(said)))
