"""The flame graph as a static SVG that reads without JavaScript.

Scripts in an SVG do not run on code-hosting pages or inside ``<img>``, so everything a reader
needs is drawn: names, shares, the legend, how the profile was taken. The ``<title>`` of a frame
shows the rest when the pointer is over it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_flamegate.profile.hotspots import categorize_frame
from pytest_flamegate.profile.model import Hotspot, Profile
from pytest_flamegate.report import flame, markup, text
from pytest_flamegate.report.text import clip, visible

_LEGEND_COLUMNS = 8
_LEGEND_ROW = 38.0
_NARROWEST = 0.5
"""The width of the narrowest box, in units of the picture."""
_EMPTIEST = 3 * markup.MONO_CELL * markup.TEXT + 7
"""The width of all boxes of the emptiest row: that of one box with a word of three letters."""


@dataclass(frozen=True, slots=True)
class _FlamePicture:
    """The data that every part of the picture draws from; shares are 0 to 1, largest first."""

    profile: Profile
    laid: flame.Layout[flame.CallPath]
    colouring: flame.Colouring
    spots: Sequence[Hotspot]
    shares: Mapping[str, float]
    cpu_s_per_token: float | None

    def count(self, number: int) -> str:
        """Return ``1,312 samples``, in the profile's unit."""
        return text.plural(number, self.profile.unit.removesuffix("s"))

    def cost(self, samples: int) -> str:
        """Return `` · 1.38 ms/token`` for ``samples``; nothing if no cost is known."""
        if self.cpu_s_per_token is None:
            return ""
        return f" · {text.seconds(self.cpu_s_per_token * samples / self.profile.samples)}/token"

    def tone(self, box: flame.Placed[flame.CallPath]) -> markup.Shade:
        """Return the colours of a box, which are those of its last frame."""
        return self.colouring.tone(self.colouring.kind(box.path.frame))


def flamegraph(drawn: flame.Drawn, *, subtitle: str) -> str:
    """Draw a profile as one self-contained SVG document, for light and dark themes.

    ``subtitle`` holds notes, separated by middle dots. If the cost of a token is known, each frame
    shows its own. Equal arguments give equal bytes. Raises as ``colour_hotspots`` does.
    """
    profile, cost_s = drawn.profile, drawn.cpu_s_per_token
    colouring, spots = flame.colour_hotspots(drawn)
    picture = _FlamePicture(
        profile,
        flame.layout(
            profile, least_part=_NARROWEST / markup.INNER, least_row=_EMPTIEST / markup.INNER
        ),
        colouring,
        spots,
        flame.category_shares(spots),
        cost_s,
    )
    sheet = markup.Sheet()
    sheet.heading(drawn.title, subtitle)
    _category_bar(sheet, picture)
    _flames(sheet, picture)
    sheet.y += 4
    sheet.notes(profile_notes(profile))
    sheet.notes(list(_reading(picture)))
    names = {picture.tone(box).name for box in picture.laid.boxes} | {"floor"}
    names |= {colouring.tone(kind).name for kind in picture.shares}
    used = {name: each for name, each in flame.shades().items() if name in names}
    return sheet.document(drawn.title, _description(picture), used)


def profile_notes(profile: Profile) -> list[str]:
    """Return short notes: profiler, event, rate, samples, completeness, losses.

    A counted profile has no rate and no losses. A profile that another tool recorded has only
    the notes of its file.
    """
    if not profile.pids:
        known = profile.profiler != "unknown"
        notes = [f"{profile.profiler} {profile.profiler_version}"] if known else []
        if profile.rate_hz:
            notes.append(f"{text.count(profile.rate_hz)} Hz")
        notes.append(f"{text.count(profile.samples)} {profile.unit}")
        return notes + [visible(reason, 200) for reason in profile.degraded]
    sampled = profile.unit != "instructions"
    rate = f"at {text.count(profile.rate_hz)} Hz" if sampled else "counted"
    notes = [
        f"{profile.profiler} {profile.profiler_version}".strip(),
        f"{profile.event} {rate}",
        f"call graph {profile.call_graph}",
        f"{text.plural(profile.samples, profile.unit.removesuffix('s'))} from "
        f"{text.plural(len(profile.pids), 'process', 'processes')}",
        f"{text.share(profile.completeness)} of stacks complete",
    ]
    if sampled:
        notes += [f"{text.count(profile.lost)} lost", text.plural(profile.errors, "error")]
    return notes + [f"degraded: {reason}" for reason in profile.degraded]


def _category_bar(sheet: markup.Sheet, picture: _FlamePicture) -> None:
    """Draw the self share of each kind: one bar, and its legend in columns."""
    x = markup.MARGIN
    for name, value in picture.shares.items():
        tone = picture.colouring.tone(name)
        wide = max(value * markup.INNER - 1, 0.5)
        sheet.parts.append(markup.rect(x, sheet.y, wide, 9, tone.light, class_=tone.name))
        x += value * markup.INNER
    sheet.y += 26
    for index, (name, value) in enumerate(picture.shares.items()):
        row, column = divmod(index, _LEGEND_COLUMNS)
        x = markup.MARGIN + column * markup.INNER / _LEGEND_COLUMNS
        sheet.parts.append(_legend_entry(name, value, picture, x, sheet.y + row * _LEGEND_ROW))
    rows = -(-len(picture.shares) // _LEGEND_COLUMNS)
    sheet.y += rows * _LEGEND_ROW - 8


def _legend_entry(name: str, value: float, picture: _FlamePicture, x: float, y: float) -> str:
    tone = picture.colouring.tone(name)
    fits = markup.room(markup.INNER / _LEGEND_COLUMNS - 16, markup.TEXT, markup.SANS_EM)
    swatch = markup.rect(x, y - 10, 11, 11, tone.light, rx=2, class_=f"{tone.name} swatch")
    label = markup.line(x + 16, y, clip(visible(name), fits), font_size=markup.TEXT, class_="ink")
    figure = f'<tspan font-weight="600" class="ink">{markup.xml_text(text.share(value))}</tspan>'
    if picture.cpu_s_per_token is not None:
        figure += f'<tspan dx="6">{text.seconds(picture.cpu_s_per_token * value)}</tspan>'
    place = markup.attributes(x=x + 16, y=y + 16, font_size=markup.TEXT, class_="muted")
    title = markup.xml_text(f"{name}: {tone.meaning}")
    return f"<g><title>{title}</title>{swatch}{label}<text{place}>{figure}</text></g>"


def _flames(sheet: markup.Sheet, picture: _FlamePicture) -> None:
    laid, top, samples = picture.laid, sheet.y, picture.profile.samples
    unit = markup.INNER / samples
    boxes = markup.Boxes()
    everything = f"all {picture.count(samples)}{picture.cost(samples)}"
    floor = top + laid.depth * markup.ROW
    boxes.add("floor", markup.MARGIN, floor, markup.INNER, [everything], markup.Words(everything))
    for box in laid.boxes:
        frame, y = box.frame, top + (laid.depth - box.depth - 1) * markup.ROW
        share = text.share(box.path.samples / samples)
        words = markup.Words(frame.name, (share, frame.module.rpartition("/")[2]))
        title = list(_title(box, picture))
        x, width = markup.MARGIN + box.start * unit, box.weight * unit
        boxes.add(picture.tone(box).name, x, y, width, title, words)
    sheet.parts.append(boxes.drawn(flame.shades()))
    sheet.y = floor + markup.ROW


def _title(box: flame.Placed[flame.CallPath], picture: _FlamePicture) -> Iterator[str]:
    def measure(samples: int) -> str:
        share = text.share(samples / picture.profile.samples)
        return f"{picture.count(samples)} · {share}{picture.cost(samples)}"

    path, own = box.path, box.path.self_samples
    yield box.frame.name
    yield f"{path.frame.module or 'module unknown'} · {categorize_frame(path.frame)}"
    yield measure(path.samples)
    if own == path.samples:
        yield "all of it itself"
    elif own:
        yield f"itself {measure(own)}"


def _reading(picture: _FlamePicture) -> Iterator[str]:
    laid, profile = picture.laid, picture.profile
    cost = "" if picture.cpu_s_per_token is None else " and CPU time of a token"
    yield f"legend: self share{cost}"
    yield f"width: share of {profile.unit}"
    yield "height: call depth, outermost at the bottom"
    yield "order: by name, not by time"
    if picture.colouring.modules:
        yield "colour: module"
    if any(box.frame != box.path.frame for box in laid.boxes):
        yield "a › b: callers that do no work themselves"
    if stackless := profile.stacks.get((), 0):
        yield f"{picture.count(stackless)} without a stack"
    if laid.left_out:
        drawn = stackless + sum(box.path.self_samples for box in laid.boxes)
        yield (
            f"{picture.count(picture.profile.samples - drawn)} in "
            f"{text.plural(laid.left_out, 'branch', 'branches')} too small to draw or "
            "too deep, left in the width of their callers"
        )


def _description(picture: _FlamePicture) -> str:
    hottest = [spot for spot in picture.spots[:5] if spot.self_samples]
    frames = [f"{visible(s.name, 80)} {text.share(s.self_share)}" for s in hottest]
    kinds = ", ".join(f"{name} {text.share(value)}" for name, value in picture.shares.items())
    return (
        f"Flame graph of {picture.count(picture.profile.samples)}. "
        f"Hottest frames by self share: {', '.join(frames)}. By category: {kinds}."
    )
