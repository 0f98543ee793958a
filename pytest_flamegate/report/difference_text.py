"""A difference of two profiles for a terminal, and as plain data for a program."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flamegate.report import figures
from pytest_flamegate.report.difference_words import SHARES_ONLY, Scale, answer, rows, whole
from pytest_flamegate.report.text import columns, paint, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.profile.difference import Change, Difference, Side

_LONG = 2000


def difference_text(difference: Difference, *, colour: bool = False) -> str:
    """Return the answer, what warns of it, and a table, without a line break at the end."""
    said = visible(answer(difference), _LONG)
    lines = [paint(said, "yellow" if difference.changed else "green") if colour else said]
    lines += _warnings(difference)
    for role, side in (("before", difference.base), ("after", difference.head)):
        samples = figures.plural(side.profile.samples, side.profile.unit.removesuffix("s"))
        lines.append(f"  {role:<6}  {visible(side.name)} · {samples}")
    own = f"own part in {Scale.of(difference).unit}"
    table = [("", own, "", "before", "after", "change", "share", "moved", "z")]
    table += [
        (row.rank, row.name, row.said, row.before, row.after, row.change, row.share, row.shift,
         row.z)
        for row in rows(difference)
    ]  # fmt: skip
    lines += columns(table, right=(0, 3, 4, 5, 6, 7, 8), indent=2, gap=2)
    lines.append(f"  in all  {whole(difference)}")
    lines.append(
        f"  changed means |z| ≥ {difference.certain_z:.1f}: of two profiles of one program one in "
        "a hundred shows any change; ± is two standard errors"
    )
    return "\n".join(lines)


def _warnings(difference: Difference) -> Iterator[str]:
    if difference.mismatches:
        told = "; ".join(visible(str(each)) for each in difference.mismatches)
        yield f"  NOT COMPARABLE  the two profiles were not taken alike: {told}"
    if difference.measure == "share":
        yield f"  shares only  {SHARES_ONLY}"


def difference_document(difference: Difference) -> dict[str, object]:
    """Return all of it as plain data; every function, the largest change first.

    Values are in ``unit``: seconds per token, shares of 0 to 1, or instructions. ``z`` is
    null where something exact changed.
    """
    units = {"cost": "s/token", "share": "share", "count": "instructions"}
    return {
        "answer": answer(difference),
        "measure": difference.measure,
        "unit": units[difference.measure],
        "certain_z": difference.certain_z,
        "mismatches": [
            {"what": each.what, "base": each.base, "head": each.head}
            for each in difference.mismatches
        ],
        "base": _side(difference.base),
        "head": _side(difference.head),
        "total": _change(difference.total),
        "functions": [
            {
                "name": each.frame.name,
                "module": each.frame.module,
                "kind": each.frame.kind,
                "state": each.state,
                "own": _change(each.own),
                "inclusive": _change(each.inclusive),
            }
            for each in difference.functions
        ],
    }


def _side(side: Side) -> dict[str, object]:
    profile = side.profile
    return {
        "name": side.name,
        "samples": profile.samples,
        "profiler": profile.profiler,
        "event": profile.event,
        "rate_hz": profile.rate_hz,
        "call_graph": profile.call_graph,
        "python": profile.python,
        "covers": profile.covers,
        "cpu_s_per_token": side.cpu_s_per_token,
    }


def _change(change: Change) -> dict[str, object]:
    return {
        "base": change.base,
        "head": change.head,
        "change": change.change,
        "error": change.error,
        "z": change.z if math.isfinite(change.z) else None,
        "base_samples": change.base_samples,
        "head_samples": change.head_samples,
        "base_share": change.base_share,
        "head_share": change.head_share,
        "shift_pp": change.shift_pp,
    }
