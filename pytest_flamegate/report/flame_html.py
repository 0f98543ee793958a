"""The interactive flame graph as HTML: its page, its legend, its tables, its data.

In the data, paths are in preorder, each with its depth alone: that determines every parent, and
three small numbers a path keep the page of a hundred thousand stacks small.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, TypeVar

from pytest_flamegate.profile.difference import (
    FunctionChange,
    PathChange,
    ProfileDifference,
    State,
)
from pytest_flamegate.profile.model import Frame, Hotspot, Profile
from pytest_flamegate.profile.source_lines import fold_by_line
from pytest_flamegate.report import markup, text
from pytest_flamegate.report.difference import (
    BOX_FIGURE,
    CALL_SHADES,
    SHARES_ONLY,
    STEPS,
    Scale,
    change_legend,
    change_shade,
    describe_difference,
    finite_z,
    state_word,
    z_text,
)
from pytest_flamegate.report.flame import (
    CallPath,
    Colouring,
    Drawn,
    P,
    category_shares,
    colour_hotspots,
    join_chain,
    split_stacks,
)
from pytest_flamegate.report.flame_svg import profile_notes
from pytest_flamegate.report.text import visible

T = TypeVar("T")
Folding = Literal["function", "line"]
"""What a box of a flame graph stands for."""

TABLE_ROWS = 200
"""Functions in a table at most; the search finds all that have a box."""


def flame(drawn: Drawn, name: str) -> str:
    """Return the markup of one flame graph; ``name`` is its id. Raises as ``colour_hotspots``.

    If the lines of its samples are known, a hidden flame graph of them follows, which a switch
    shows in its place.
    """
    if not drawn.profile.lines:
        return _draw_folded(drawn, name, "function")
    by_line = replace(drawn, profile=fold_by_line(drawn.profile), difference=None)
    other = f"{name}-lines"
    return "\n".join(
        [
            _draw_folded(drawn, name, "function", data_other=other),
            _draw_folded(by_line, other, "line", data_other=name, hidden=""),
        ]
    )


def _draw_folded(drawn: Drawn, name: str, folding: Folding, **attributes: str) -> str:
    profile, difference = drawn.profile, drawn.difference
    colouring, spots = colour_hotspots(drawn)
    warning = scale = changes = ""
    if difference is not None:
        sentences = [
            f"Not comparable: the profiles were taken differently ({each}), so this shows more "
            "than the program's change."
            for each in difference.mismatches
        ]
        warning = markup.lines("p", sentences, class_="warning", role="alert")
        scale = _change_legend(difference)
        changes = _changes(difference)
    notes = markup.lines("p", [" · ".join(profile_notes(profile)), _KEYS])
    no_script = markup.element("noscript", markup.lines("p", [_WITHOUT_SCRIPT]))
    picture = markup.element(
        "div",
        markup.element("div", no_script, class_="room"),
        _legend(spots, colouring, drawn.cpu_s_per_token),
        scale,
        markup.element("div", notes, class_="notes"),
        class_="picture",
    )
    section = markup.element(
        "section",
        picture,
        markup.element("div", _hottest(spots, colouring, folding), changes, class_="beside"),
        class_="flame compared" if drawn.opens_compared and difference else "flame",
        data_flame=name,
        data_title=drawn.title,
        data_folding=folding,
        **attributes,
    )
    return "\n".join([warning, section, markup.data(name, flame_data(drawn, spots, colouring))])


# Legends and tables


def _swatch(name: str) -> str:
    """Return a small square in the colours of a class."""
    return markup.element("span", class_=f"swatch {name}", aria_hidden="true")


def named(name: str, colour: str) -> str:
    """Return a name next to a square in the colours of a class."""
    label = markup.element("span", markup.xml_text(name), class_="name")
    return markup.element("span", _swatch(colour), label, class_="named")


def _exact(shown: str, value: float) -> str:
    """Return a figure that sorts by its exact value."""
    return markup.element("span", markup.xml_text(shown), data_value=repr(value))


def _legend(spots: Sequence[Hotspot], colouring: Colouring, cpu_s_per_token: float | None) -> str:
    """Return the kinds of work with the self share and cost of each, largest first."""
    items = []
    for name, share in category_shares(spots).items():
        tone = colouring.tone(name)
        cost = "" if cpu_s_per_token is None else f" · {text.seconds(cpu_s_per_token * share)}"
        figure = markup.element("span", markup.xml_text(text.share(share) + cost), class_="figure")
        content = (_swatch(f"tone-{tone.name}"), markup.xml_text(name), figure)
        items.append(markup.element("li", *content, data_category=name, title=tone.meaning))
    return markup.element("ul", *items, class_="legend of-profile", aria_label="Kinds of work")


_TOTALS: dict[Folding, str] = {
    "function": "Self is the function's own time, total adds its callees; recursion counts once.",
    "line": "Self is the line with what it calls outside of the project, total adds all callees.",
}


def _hottest(spots: Sequence[Hotspot], colouring: Colouring, folding: Folding) -> str:
    """Return the table of the hottest functions or lines."""
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
    head = [folding, "self", "total", *(["µs/token"] if known else [])]
    table = _functions(head, rows, _TOTALS[folding], len(spots))
    return markup.element("div", table, class_="of-profile")


def _functions(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str, count: int) -> str:
    left = count - TABLE_ROWS
    more = f" {text.plural(left, f'further {head[0]}')}: search." if left > 0 else ""
    right = range(1, len(head))
    return markup.table(head, rows, right=right, caption=caption + more, class_="functions")


def _change_legend(difference: ProfileDifference) -> str:
    """Return the colours of a difference, in the words of the SVG."""
    items = [
        markup.element("li", *(_swatch(f"change-{name}") for name in names), markup.xml_text(words))
        for names, words in change_legend(difference)
    ]
    note = f"colour of a box, and figure in it: {BOX_FIGURE}"
    items.append(markup.element("li", markup.xml_text(note), class_="muted"))
    return markup.element("ul", *items, class_="scale of-difference", aria_label="Colours")


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
    answer = markup.lines("p", [describe_difference(difference)], class_="answer")
    if difference.measure == "share":
        answer += markup.lines("p", [SHARES_ONLY], class_="muted")
    table = _functions(head, rows, caption, len(found))
    return markup.element("div", answer, table, class_="of-difference")


def _change_row(each: FunctionChange, difference: ProfileDifference, scale: Scale) -> list[str]:
    own = each.own
    part = abs(own.change) / difference.larger_total
    state = "" if each.state == "unchanged" else state_word(difference, each.state)
    return [
        named(each.frame.name, f"change-{change_shade(each.state, part)}")
        + markup.lines("strong", [state], class_="state"),
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
_WITHOUT_SCRIPT = (
    "The picture needs JavaScript, which is turned off here. The table of functions does not, "
    "nor do the SVG pictures of a run."
)


# Data


PARTS = 20_000
"""Paths below one in so many of the whole are one box under their caller."""
REST = Frame("(paths too small to show)", "", "native")
_STATES: tuple[State, ...] = ("unchanged", "up", "down", "new", "vanished")


@dataclass(frozen=True, slots=True)
class _Row:
    """A path in the data: a frame at a depth, with its own samples on either side.

    ``last`` is the frame whose kind colours a chain. ``own_before``, ``state``, ``z`` and
    ``shade`` are those of a difference, ``shade`` the class of an unchanged box; ``merged`` counts
    the paths in ``REST``.
    """

    depth: int
    frame: Frame
    last: Frame
    own: int
    own_before: int = 0
    state: int = 0
    z: float = 0.0
    shade: str = "same"
    merged: int = 0


def flame_data(drawn: Drawn, spots: Sequence[Hotspot], colouring: Colouring) -> dict[str, object]:
    """Return JSON-ready data: each name once and on one line, frames by name, paths by frame."""
    profile, difference = drawn.profile, drawn.difference
    paths = list(_walk_profile(profile) if difference is None else _walk_difference(difference))
    frames = _numbered(path.frame for path in paths)
    listed = [spot.name for spot in spots[:TABLE_ROWS]]
    if difference is not None:
        listed += [each.frame.name for each in difference.functions[:TABLE_ROWS]]
    # A search for a name of the tables needs its samples, also if it is in chains or REST alone.
    names = _numbered(chain((frame.name for frame in frames), listed))
    modules = _numbered(frame.module for frame in frames)
    lasts = {path.frame: path.last for path in paths}
    kinds = {frame: colouring.kind(lasts[frame]) if frame is not REST else "" for frame in frames}
    categories = _numbered(kinds.values())
    tones = [colouring.tone(name) for name in categories]
    by_name = {spot.name: spot for spot in spots}
    counted = [by_name.get(name) for name in names]
    found: dict[str, object] = {
        "unit": profile.unit,
        "total": profile.samples,
        "cost": drawn.cpu_s_per_token,
        "categories": [
            [name, tone.name, tone.meaning] for name, tone in zip(categories, tones, strict=True)
        ],
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
        "left": sum(path.merged for path in paths),
    }
    if difference is not None:
        found["difference"] = _difference(difference, paths, list(names))
    return found


def _numbered(values: Iterable[T]) -> dict[T, int]:
    """Return a number for each distinct value, in the order in which they come."""
    return {value: index for index, value in enumerate(dict.fromkeys(values))}


def _walk(
    roots: Iterable[P],
    size: Callable[[P], tuple[int, int]],
    least: float,
    row: Callable[[int, Frame, P], _Row],
) -> Iterator[_Row]:
    """Yield rows in preorder; siblings of less than ``least`` samples on both sides are one row.

    ``size`` returns the samples of a path now and before, ``row`` its row at a depth under the
    name of a frame.
    """
    todo: list[tuple[int, P] | _Row] = []

    def push(paths: Iterable[P], depth: int) -> None:
        small: list[P] = []
        large: list[P] = []
        for path in paths:
            (small if max(size(path)) < least else large).append(path)
        if small:
            now, before = (sum(sizes) for sizes in zip(*map(size, small), strict=True))
            todo.append(_Row(depth, REST, REST, now, before, merged=len(small)))
        todo.extend((depth, path) for path in reversed(large))

    push(roots, 0)
    # A list and not recursion: a stack may be deeper than Python's own.
    while todo:
        entry = todo.pop()
        if isinstance(entry, _Row):
            yield entry
            continue
        depth, path = entry
        frame, last = join_chain(path)
        yield row(depth, frame, last)
        push(last.children, depth + 1)


def _walk_profile(profile: Profile) -> Iterator[_Row]:
    def row(depth: int, frame: Frame, path: CallPath) -> _Row:
        return _Row(depth, frame, path.frame, path.self_samples)

    roots, least = split_stacks(profile.stacks.items()), profile.samples / PARTS
    return _walk(roots, lambda path: (path.samples, 0), least, row)


def _walk_difference(difference: ProfileDifference) -> Iterator[_Row]:
    def row(depth: int, frame: Frame, path: PathChange) -> _Row:
        z = finite_z(difference.change(path.base_self, path.head_self).z)
        shade = CALL_SHADES[difference.one_sided_call(path)]
        own = (path.head_self, path.base_self)
        return _Row(depth, frame, path.frame, *own, _STATES.index(path.state), z, shade)

    def size(path: PathChange) -> tuple[int, int]:
        return path.head_samples, path.base_samples

    least = max(difference.base.profile.samples, difference.head.profile.samples) / PARTS
    return _walk(difference.roots, size, least, row)


def _difference(
    difference: ProfileDifference, paths: list[_Row], names: list[str]
) -> dict[str, object]:
    by_name = {each.frame.name: each for each in difference.functions}
    known = [by_name.get(name) for name in names]
    shades = {index: path.shade for index, path in enumerate(paths) if path.shade != "same"}
    return {
        "measure": difference.measure,
        "base": visible(difference.base.name),
        "head": visible(difference.head.name),
        "total": difference.base.profile.samples,
        "cost": difference.base.cpu_s_per_token,
        "now": difference.head.cpu_s_per_token,
        "certain": round(difference.certain_z, 2),
        "states": [state_word(difference, state) for state in _STATES],
        "kinds": list(_STATES),
        "steps": list(STEPS),
        "before": [path.own_before for path in paths],
        "state": [path.state for path in paths],
        "z": [path.z for path in paths],
        "shade": shades,
        "functions": {
            "own": [each.own.base_samples if each else 0 for each in known],
            "all": [each.inclusive.base_samples if each else 0 for each in known],
            "state": [_STATES.index(each.state) if each else 0 for each in known],
            "z": [finite_z(each.own.z) if each else 0.0 for each in known],
        },
    }
