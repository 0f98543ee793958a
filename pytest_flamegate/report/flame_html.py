"""A profile as the compact data that the interactive flame graph draws from.

Paths stand in preorder, each with its depth alone: that tells every parent, and three
small numbers a path keep the page of a hundred thousand stacks small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_flamegate.profile.hotspots import categorize_frame, no_samples_error, rank_hotspots
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.report import html, text
from pytest_flamegate.report.difference import (
    SHARES_ONLY,
    STEPS,
    Scale,
    alone,
    answer,
    kind,
    state_words,
    told_z,
    z_words,
)
from pytest_flamegate.report.flame import ending, split, tone
from pytest_flamegate.report.sections import category_shares, profile_notes
from pytest_flamegate.report.text import require_cost, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_flamegate.profile.difference import (
        FunctionChange,
        PathChange,
        ProfileDifference,
        State,
    )
    from pytest_flamegate.profile.model import Hotspot, Profile, Stack
    from pytest_flamegate.report.flame import Group


T = TypeVar("T")

PARTS = 20_000
"""Paths below one in so many of the whole are told together under their caller."""
REST = Frame("(paths too small to tell)", "", "native")
STATES: tuple[State, ...] = ("unchanged", "up", "down", "new", "vanished")


@dataclass(frozen=True, slots=True)
class Path:
    """One row of the data: a frame at a depth, with its own samples on either side.

    ``was``, ``state``, ``z`` and ``calm`` are of a difference, ``calm`` the class of its box
    where it did not change; ``together`` counts the paths that ``REST`` stands for.
    """

    depth: int
    frame: Frame
    own: int
    was: int = 0
    state: int = 0
    z: float = 0.0
    calm: str = "same"
    together: int = 0


def flame_data(
    profile: Profile,
    *,
    spots: Sequence[Hotspot],
    cpu_s_per_token: float | None,
    difference: ProfileDifference | None,
    categorise: Callable[[Frame], str],
) -> dict[str, object]:
    """Return JSON-ready data: names once, frames by name, paths by frame.

    ``spots`` are the hotspots of ``profile``, ``difference`` one whose head it is.
    Shown names are one line each, with nothing hidden in them.
    """
    paths = list(plain(profile) if difference is None else changed(difference))
    frames = _numbered(path.frame for path in paths)
    names = _numbered(frame.name for frame in frames)
    modules = _numbered(frame.module for frame in frames)
    kinds = {frame: categorise(frame) if frame is not REST else "" for frame in frames}
    categories = _numbered(kinds.values())
    by_name = {spot.name: spot for spot in spots}
    counted = [by_name.get(name) for name in names]
    told: dict[str, object] = {
        "unit": profile.unit,
        "total": profile.samples,
        "cost": cpu_s_per_token,
        "categories": [[name, tone(name).name, tone(name).meaning] for name in categories],
        "names": [visible(name) for name in names],
        "modules": [visible(module) for module in modules],
        "functions": {
            "own": [spot.self_samples if spot else 0 for spot in counted],
            "all": [spot.inclusive_samples if spot else 0 for spot in counted],
        },
        "frames": {
            "name": [names[frame.name] for frame in frames],
            "module": [modules[frame.module] for frame in frames],
            "category": [categories[kinds[frame]] for frame in frames],
        },
        "paths": {
            "depth": [path.depth for path in paths],
            "frame": [frames[path.frame] for path in paths],
            "own": [path.own for path in paths],
        },
        "left": sum(path.together for path in paths),
    }
    if difference is not None:
        told["difference"] = _difference(difference, paths, list(names))
    return told


def _numbered(values: Iterable[T]) -> dict[T, int]:
    """Return a number for each distinct value, in the order in which they come."""
    return {value: index for index, value in enumerate(dict.fromkeys(values))}


def plain(profile: Profile) -> Iterator[Path]:
    """Yield the paths of one profile in preorder, siblings in the order of their names."""
    least = profile.samples / PARTS
    remedy: list[tuple[int, Group] | Path] = []

    def enter(stacks: Sequence[tuple[Stack, int]], depth: int) -> None:
        groups = split(stacks, depth)
        small = [group for group in groups if group.samples < least]
        if small:
            own = sum(group.samples for group in small)
            remedy.append(Path(depth, REST, own, together=len(small)))
        remedy.extend((depth, group) for group in reversed(groups) if group.samples >= least)

    enter([each for each in profile.stacks.items() if each[1]], 0)
    # A list and not recursion: a stack may be deeper than Python's own.
    while remedy:
        entry = remedy.pop()
        if isinstance(entry, Path):
            yield entry
            continue
        depth, group = entry
        yield Path(depth, group.frame, ending(group.stacks, depth + 1))
        enter(group.stacks, depth + 1)


def changed(difference: ProfileDifference) -> Iterator[Path]:
    """Yield the paths of both sides together in preorder."""
    least = max(difference.base.profile.samples, difference.head.profile.samples) / PARTS
    remedy: list[tuple[int, PathChange] | Path] = []

    def enter(paths: Sequence[PathChange], depth: int) -> None:
        small: list[PathChange] = []
        kept: list[PathChange] = []
        for path in paths:
            size = max(path.base_samples, path.head_samples)
            (small if size < least else kept).append(path)
        if small:
            now = sum(path.head_samples for path in small)
            was = sum(path.base_samples for path in small)
            remedy.append(Path(depth, REST, now, was, together=len(small)))
        remedy.extend((depth, path) for path in reversed(kept))

    enter(difference.roots, 0)
    while remedy:
        entry = remedy.pop()
        if isinstance(entry, Path):
            yield entry
            continue
        depth, path = entry
        z = told_z(difference.change(path.base_self, path.head_self).z)
        state = STATES.index(path.state)
        calm = alone(difference.one_sided_call(path))
        yield Path(depth, path.frame, path.head_self, path.base_self, state, z, calm)
        enter(path.children, depth + 1)


def _difference(
    difference: ProfileDifference, paths: list[Path], names: list[str]
) -> dict[str, Any]:
    by_name = {each.frame.name: each for each in difference.functions}
    known = [by_name.get(name) for name in names]
    return {
        "measure": difference.measure,
        "base": visible(difference.base.name),
        "head": visible(difference.head.name),
        "total": difference.base.profile.samples,
        "cost": difference.base.cpu_s_per_token,
        "now": difference.head.cpu_s_per_token,
        "certain": round(difference.certain_z, 2),
        "states": [state_words(difference, state) for state in STATES],
        "kinds": list(STATES),
        "steps": list(STEPS),
        "was": [path.was for path in paths],
        "state": [path.state for path in paths],
        "z": [path.z for path in paths],
        "calm": {index: path.calm for index, path in enumerate(paths) if path.calm != "same"},
        "functions": {
            "own": [each.own.base_samples if each else 0 for each in known],
            "all": [each.inclusive.base_samples if each else 0 for each in known],
            "state": [STATES.index(each.state) if each else 0 for each in known],
            "z": [told_z(each.own.z) if each else 0.0 for each in known],
        },
    }


TABLE_ROWS = 200
"""Functions in a table at most; the search finds all that have a box."""


def swatch(name: str) -> str:
    """Return a small square in the colours of a class."""
    return html.element("span", class_=f"swatch {name}", aria_hidden="true")


def legend(spots: Sequence[Hotspot], cpu_s_per_token: float | None) -> str:
    """Return the kinds of work with the self share and cost of each, largest first."""
    items = [
        html.element(
            "li",
            swatch(f"tone-{tone(name).name}"),
            html.text(name),
            html.element("span", _share_and_cost(value, cpu_s_per_token), class_="figure"),
            data_category=name,
            title=tone(name).meaning,
        )
        for name, value in category_shares(spots).items()
    ]
    return html.element("ul", *items, class_="legend of-profile", aria_label="Kinds of work")


def _share_and_cost(share: float, cpu_s_per_token: float | None) -> str:
    cost = "" if cpu_s_per_token is None else f" · {text.seconds(cpu_s_per_token * share)}"
    return html.text(text.share(share) + cost)


def exact(shown: str, value: float) -> str:
    """Return a figure that sorts by its exact value."""
    return html.element("span", html.text(shown), data_value=repr(value))


def named(name: str, colour: str) -> str:
    """Return a function's name beside a square in the colours of a class."""
    told = html.element("span", html.text(name), class_="name")
    return html.element("span", swatch(colour), told, class_="named")


def hottest(spots: Sequence[Hotspot]) -> str:
    """Return the table of the hottest functions."""
    known = any(spot.cpu_s_per_token is not None for spot in spots)
    head = ["function", "self", "total", *(["µs/token"] if known else [])]
    rows = [_row_flame_tables(spot) for spot in spots[:TABLE_ROWS]]
    said = "Self is what a function spends itself, total adds all it calls; recursion counts once."
    return html.element("div", functions(head, rows, said, len(spots)), class_="of-profile")


def _row_flame_tables(spot: Hotspot) -> list[str]:
    cost = spot.cpu_s_per_token
    return [
        named(spot.name, f"tone-{tone(spot.category).name}"),
        exact(text.share(spot.self_share), spot.self_share),
        exact(text.share(spot.inclusive_share), spot.inclusive_share),
        *([] if cost is None else [exact(text.micros(cost), cost)]),
    ]


def functions(head: Sequence[str], rows: Iterable[Sequence[str]], said: str, count: int) -> str:
    """Return a table of functions under the caption ``said``; ``count`` is how many there are."""
    left = count - TABLE_ROWS
    more = f" {text.plural(left, 'further function')}: search." if left > 0 else ""
    right = range(1, len(head))
    return html.table(head, rows, right=right, caption=said + more, class_="functions")


_COLOURS: tuple[tuple[str, State], ...] = (
    ("down3", "down"),
    ("same", "unchanged"),
    ("up3", "up"),
    ("more", "new"),
    ("less", "vanished"),
)


def warnings(difference: ProfileDifference) -> str:
    """Return, loudly, how the two sides were not taken alike."""
    told = [
        f"Not comparable: the two profiles were not taken alike ({each}), so this shows more "
        "than the program's change."
        for each in map(str, difference.mismatches)
    ]
    return html.lines("p", told, class_="warning", role="alert")


def change_legend(difference: ProfileDifference) -> str:
    """Return the colours of a difference."""
    items = [
        html.element("li", swatch(f"change-{name}"), html.text(state_words(difference, state)))
        for name, state in _COLOURS
    ]
    steps = " and ".join(f"{100 * step:g} %" for step in STEPS)
    said = html.element("li", html.text(f"stronger from {steps} of the whole on"), class_="muted")
    return html.element("ul", *items, said, class_="scale of-difference", aria_label="Colours")


def changes(difference: ProfileDifference) -> str:
    """Return what changed in one sentence, and the table of functions by their change."""
    scale = Scale.of(difference)
    rows = [_row(each, difference, scale) for each in difference.functions[:TABLE_ROWS]]
    said = (
        f"Own {difference.measure} in {scale.unit}: {difference.base.name}, then "
        f"{difference.head.name}. From |z| = {difference.certain_z:.1f} on a change is no noise."
    )
    head = ["function", "before", "after", "change", "z"]
    parts = [
        html.lines("p", [answer(difference)], class_="answer"),
        html.lines("p", [SHARES_ONLY] if difference.measure == "share" else [], class_="muted"),
        functions(head, rows, said, len(difference.functions)),
    ]
    return html.element("div", *parts, class_="of-difference")


def _row(each: FunctionChange, difference: ProfileDifference, scale: Scale) -> list[str]:
    own, total = each.own, difference.total
    part = abs(own.change) / max(total.base, total.head)
    state = "" if each.state == "unchanged" else state_words(difference, each.state)
    return [
        named(each.frame.name, f"change-{kind(each.state, part)}")
        + html.lines("strong", [state], class_="state"),
        exact(scale.bare(own.base), own.base),
        exact(scale.bare(own.head), own.head),
        exact(scale.signed(own.change), own.change),
        exact(z_words(own.z), told_z(own.z)),
    ]


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
    difference: ProfileDifference | None = None
    categorise: Callable[[Frame], str] = categorize_frame


def flamegraph_html(
    profile: Profile,
    *,
    title: str,
    subtitle: str,
    cpu_s_per_token: float | None,
    difference: ProfileDifference | None = None,
    categorise: Callable[[Frame], str] = categorize_frame,
) -> str:
    """Draw ``profile`` as one self-contained HTML page.

    ``cpu_s_per_token`` is the CPU time of one token in seconds; with it each function
    tells what it costs. ``difference`` is one whose head is ``profile``. Equal arguments
    give equal bytes. Raises ``UndecidedError`` where the profile holds no samples and
    ``ReceiptError`` where a figure makes no sense.
    """
    drawn = Drawn(title, profile, cpu_s_per_token, difference, categorise)
    header = html.element(
        "div", html.lines("h1", [title]), html.lines("p", [subtitle], class_="muted")
    )
    return html.document(
        f"{title} · flame graph",
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
    spots = [
        replace(spot, category=drawn.categorise(Frame(spot.name, spot.module, spot.kind)))
        for spot in rank_hotspots(profile, drawn.cpu_s_per_token)
    ]
    room = html.element("div", _without_script(), class_="room")
    picture = html.element(
        "div",
        room,
        legend(spots, drawn.cpu_s_per_token),
        change_legend(difference) if difference is not None else "",
        _notes(profile),
        class_="picture",
    )
    changed = changes(difference) if difference is not None else ""
    beside = html.element("div", hottest(spots), changed, class_="beside")
    found = flame_data(
        profile,
        spots=spots,
        cpu_s_per_token=drawn.cpu_s_per_token,
        difference=difference,
        categorise=drawn.categorise,
    )
    section = html.element(
        "section", picture, beside, class_="flame", data_flame=name, data_title=drawn.title
    )
    warned = warnings(difference) if difference is not None else ""
    return "\n".join([warned, section, html.data(name, found)])


def _notes(profile: Profile) -> str:
    taken = html.element("p", html.text(" · ".join(profile_notes(profile)), 2000))
    return html.element("div", taken, html.element("p", html.text(KEYS, 2000)), class_="notes")


def _without_script() -> str:
    said = (
        "The picture needs JavaScript, which is turned off here. The table of functions does "
        "not, nor do the SVG pictures of a run."
    )
    return html.element("noscript", html.element("p", html.text(said)))
