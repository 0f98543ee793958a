"""The interactive flame graph as HTML: its legend, its tables of functions, its page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pytest_flamegate.profile.difference import FunctionChange, ProfileDifference, State
from pytest_flamegate.profile.hotspots import no_samples_error, rank_hotspots
from pytest_flamegate.profile.model import Frame, Hotspot
from pytest_flamegate.report import html, text
from pytest_flamegate.report.difference import (
    SHARES_ONLY,
    STEPS,
    Scale,
    change_shade,
    describe_difference,
    finite_z,
    state_word,
    z_text,
)
from pytest_flamegate.report.flame import Colouring, Drawn, choose_colours, self_shares
from pytest_flamegate.report.flame_data import flame_data
from pytest_flamegate.report.flame_svg import profile_notes
from pytest_flamegate.report.hotspots import category_shares
from pytest_flamegate.report.text import require_cost

TABLE_ROWS = 200
"""Functions in a table at most; the search finds all that have a box."""


def flamegraph_html(drawn: Drawn, *, subtitle: str) -> str:
    """Return a flame graph as one self-contained HTML page.

    Equal arguments give equal bytes.

    Raises:
        UndecidedError: The profile holds no samples.
        ReceiptError: A figure is impossible.
    """
    title = html.lines("h1", [drawn.title])
    header = html.element("div", title, html.lines("p", [subtitle], class_="muted"))
    return html.document(
        f"{drawn.title} · flame graph",
        [
            html.element("header", header, html.element("div", class_="theme")),
            html.element("main", flame(drawn, "flame-1")),
        ],
    )


def flame(drawn: Drawn, name: str) -> str:
    """Return one flame graph with its legend, tables and data as markup.

    ``name`` is its own on the page. Raises as ``flamegraph_html`` does.
    """
    profile, difference = drawn.profile, drawn.difference
    require_cost(drawn.cpu_s_per_token)
    if not profile.samples:
        raise no_samples_error(profile.profiler, profile.errors, profile.lost)
    colouring = choose_colours(self_shares(profile.stacks), drawn.categorise)
    spots = [
        replace(spot, category=colouring.kind(Frame(spot.name, spot.module, spot.kind)))
        for spot in rank_hotspots(profile, drawn.cpu_s_per_token)
    ]
    notes = [html.element("p", html.text(" · ".join(profile_notes(profile)), 2000)),
             html.element("p", html.text(_KEYS, 2000))]  # fmt: skip
    picture = html.element(
        "div",
        html.element("div", _without_script(), class_="room"),
        _legend(spots, colouring, drawn.cpu_s_per_token),
        _change_legend(difference) if difference is not None else "",
        html.element("div", *notes, class_="notes"),
        class_="picture",
    )
    changes = _changes(difference) if difference is not None else ""
    tables = html.element("div", _hottest(spots, colouring), changes, class_="beside")
    compared = drawn.opens_compared and difference is not None
    section = html.element(
        "section",
        picture,
        tables,
        class_="flame compared" if compared else "flame",
        data_flame=name,
        data_title=drawn.title,
    )
    warning = _warnings(difference) if difference is not None else ""
    return "\n".join([warning, section, html.data(name, flame_data(drawn, spots, colouring))])


# Legends and tables


def _swatch(name: str) -> str:
    """Return a small square in the colours of a class."""
    return html.element("span", class_=f"swatch {name}", aria_hidden="true")


def named(name: str, colour: str) -> str:
    """Return a name next to a square in the colours of a class."""
    label = html.element("span", html.text(name), class_="name")
    return html.element("span", _swatch(colour), label, class_="named")


def _exact(shown: str, value: float) -> str:
    """Return a figure that sorts by its exact value."""
    return html.element("span", html.text(shown), data_value=repr(value))


def _legend(spots: Sequence[Hotspot], colouring: Colouring, cpu_s_per_token: float | None) -> str:
    """Return the kinds of work with the self share and cost of each, largest first."""
    items = []
    for name, share in category_shares(spots).items():
        tone = colouring.tone(name)
        cost = "" if cpu_s_per_token is None else f" · {text.seconds(cpu_s_per_token * share)}"
        figure = html.element("span", html.text(text.share(share) + cost), class_="figure")
        items.append(
            html.element(
                "li",
                _swatch(f"tone-{tone.name}"),
                html.text(name),
                figure,
                data_category=name,
                title=tone.meaning,
            )
        )
    return html.element("ul", *items, class_="legend of-profile", aria_label="Kinds of work")


def _hottest(spots: Sequence[Hotspot], colouring: Colouring) -> str:
    """Return the table of the hottest functions."""
    known = any(spot.cpu_s_per_token is not None for spot in spots)
    rows = [
        [
            named(spot.name, f"tone-{colouring.tone(spot.category).name}"),
            _exact(text.share(spot.self_share), spot.self_share),
            _exact(text.share(spot.inclusive_share), spot.inclusive_share),
            *([_exact(text.micros(cost), cost)] if (cost := spot.cpu_s_per_token) is not None
              else []),
        ]
        for spot in spots[:TABLE_ROWS]
    ]  # fmt: skip
    head = ["function", "self", "total", *(["µs/token"] if known else [])]
    caption = "Self is the function's own time, total adds its callees; recursion counts once."
    return html.element("div", _functions(head, rows, caption, len(spots)), class_="of-profile")


def _functions(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str, count: int) -> str:
    left = count - TABLE_ROWS
    more = f" {text.plural(left, 'further function')}: search." if left > 0 else ""
    right = range(1, len(head))
    return html.table(head, rows, right=right, caption=caption + more, class_="functions")


_COLOURS: tuple[tuple[str, State], ...] = (
    ("down3", "down"),
    ("same", "unchanged"),
    ("up3", "up"),
    ("more", "new"),
    ("less", "vanished"),
)


def _warnings(difference: ProfileDifference) -> str:
    """Warn loudly if the two sides were taken differently."""
    sentences = [
        f"Not comparable: the profiles were taken differently ({each}), so this shows more than "
        "the program's change."
        for each in map(str, difference.mismatches)
    ]
    return html.lines("p", sentences, class_="warning", role="alert")


def _change_legend(difference: ProfileDifference) -> str:
    """Return the colours of a difference."""
    items = [
        html.element("li", _swatch(f"change-{name}"), html.text(state_word(difference, state)))
        for name, state in _COLOURS
    ]
    steps = " and ".join(f"{100 * step:g} %" for step in STEPS)
    note = html.element("li", html.text(f"stronger from {steps} of the whole on"), class_="muted")
    return html.element("ul", *items, note, class_="scale of-difference", aria_label="Colours")


def _changes(difference: ProfileDifference) -> str:
    """Return the change in one sentence, and the table of functions by their change."""
    scale = Scale.of(difference)
    found = [each for each in difference.functions if each.own.base or each.own.head]
    rows = [_change_row(each, difference, scale) for each in found[:TABLE_ROWS]]
    caption = (
        f"Own {difference.measure} in {scale.unit}: {difference.base.name}, then "
        f"{difference.head.name}. A change is certain from |z| = {difference.certain_z:.1f} on."
    )
    head = ["function", "before", "after", "change", "z"]
    parts = [
        html.lines("p", [describe_difference(difference)], class_="answer"),
        html.lines("p", [SHARES_ONLY] if difference.measure == "share" else [], class_="muted"),
        _functions(head, rows, caption, len(found)),
    ]
    return html.element("div", *parts, class_="of-difference")


def _change_row(each: FunctionChange, difference: ProfileDifference, scale: Scale) -> list[str]:
    own, total = each.own, difference.total
    part = abs(own.change) / max(total.base, total.head)
    state = "" if each.state == "unchanged" else state_word(difference, each.state)
    return [
        named(each.frame.name, f"change-{change_shade(each.state, part)}")
        + html.lines("strong", [state], class_="state"),
        _exact(scale.bare(own.base), own.base),
        _exact(scale.bare(own.head), own.head),
        _exact(scale.signed(own.change), own.change),
        _exact(z_text(own.z), finite_z(own.z)),
    ]


_KEYS = (
    "Click or Enter zooms in; Escape, Backspace or a click on a caller zooms out, Home shows all. "
    "Arrow keys move from box to box. Ctrl+F or / searches; a second Ctrl+F is the browser's own. "
    "The address holds zoom, search and view: copy it to share them."
)


def _without_script() -> str:
    note = (
        "The picture needs JavaScript, which is turned off here. The table of functions does not, "
        "nor do the SVG pictures of a run."
    )
    return html.element("noscript", html.element("p", html.text(note)))
