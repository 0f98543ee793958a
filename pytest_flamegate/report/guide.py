"""How to view and read a flame graph, and the README of a folder of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.report.markup import block, code, escape, link, table
from pytest_flamegate.report.palette import PALETTE
from pytest_flamegate.report.provenance import hardware, what_ran

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.receipt.types import Evidence

VIEWING = """\
Open the SVG in any browser, or look at it where the repository is hosted: it needs no
JavaScript, and it scales to the width of the window. Hover over a frame for its full
name, module, samples, share and cost; search with the browser's own search (Ctrl+F)."""

READING = f"""\
{VIEWING}

1. Width is the share of the samples: the wider, the more time. Narrow frames seldom
   repay work.
2. Height is the depth of calls. The outermost function is at the bottom, and each
   frame was called by the one under it.
3. What a frame spends itself is what is left open above it. A wide frame with nothing
   on it is where the time goes.
4. Left to right is the order of names, not of time.
5. Colour is the kind of work; the legend gives the share of each kind.
6. A share says nothing about cost alone: when another function gets faster, this one's
   share grows. The cost for each token (µs/token) tells the two apart."""

_WORKFLOW = """\
1. Start with the table of hottest frames in the page beside the picture, and take the
   first one whose cost you can do something about.
2. In the picture, look under it: who calls it, and from how many places?
3. Change one thing.
4. Run `pytest --flamegate`. The verdict says whether tokens per second changed and in
   which function, and how small a change it could have seen.
5. When the change is meant to stay, accept it with `pytest --flamegate --flamegate-update`
   and commit the baseline."""

_COMPARING = """\
Every page has a section "Against the baseline": the figures before and after, each with
its interval, what each function costs for each token, and a picture of the difference
(`diff.svg`). The picture draws both sides at once, on one scale of cost: grey did not
change, orange costs more now, blue less, and a frame that is new or gone says so. A frame
whose callees alone changed is grey. When nothing is certain, it says so.

Any two profiles compare by hand: `flamegate diff BEFORE AFTER -o diff.svg` takes runs,
receipts, folded stacks and speedscope files. Profiles that were not taken alike (profiler,
rate, event, call graph, Python) are refused, because their difference is not the program's;
`--anyway` draws them under a warning. The folded stacks of both sides stand beside every
picture, sorted text with one stack a line."""

_TROUBLE = (
    (
        "No samples, or too few",
        "The run was short. Give it more time: `--flamegate-budget=60` (seconds for each "
        "workload).",
    ),
    (
        "The profiler is not permitted",
        "`flamegate doctor` says what was tried, the profiler's own words and what to type. "
        "Without permission py-spy samples without stopping the process, and the page says "
        "degraded.",
    ),
    (
        "Kernel frames are missing",
        "perf sees user space only where `kernel.perf_event_paranoid` is 2 or more: "
        "`sudo sysctl kernel.perf_event_paranoid=1`.",
    ),
    (
        "Stacks are cut off: complete stacks well below 100 %",
        "The code was built without frame pointers. Build with `-fno-omit-frame-pointer` "
        "(Rust: `-C force-frame-pointers=yes`).",
    ),
    (
        "Names are missing or read like `[libfoo.so]`",
        "The library was stripped. Keep its symbols (Rust: `debug = 1` in the release "
        "profile; C and C++: `-g`).",
    ),
    (
        "Native frames are missing",
        "py-spy shows Python frames and perf shows native ones: choose with "
        "`--flamegate-profiler=perf`.",
    ),
    (
        "The shares differ from run to run",
        "Sampling has an error: the page says how many samples tell a shift of 2 percentage "
        "points from chance. Take more samples before believing less.",
    ),
)


@dataclass(frozen=True, slots=True)
class GuideEntry:
    """One flame graph of a folder; ``picture`` and ``page`` are paths relative to its README.

    ``generated`` is RFC 3339, ``about`` one line on what ran and ``hardware`` on what.
    """

    name: str
    picture: str
    page: str
    generated: str
    about: str
    hardware: str

    @classmethod
    def of(cls, name: str, evidence: Evidence, *, picture: str, page: str) -> GuideEntry:
        """Return the entry of what ``evidence`` saw."""
        return cls(
            name=name,
            picture=picture,
            page=page,
            generated=evidence.created,
            about=", ".join(what_ran(evidence)),
            hardware=", ".join(hardware(evidence)),
        )


TITLE = "# Flame graphs"
"""How every guide begins: a README that does not is somebody else's."""


def guide_readme(entries: Sequence[GuideEntry], *, regenerate: str = "flamegate flamegraph") -> str:
    """Return the README of a folder of flame graphs as Markdown, ending in a line break.

    Lists ``entries`` in the order of their names; ``regenerate`` is the command that
    makes them again. Equal arguments give equal bytes.
    """
    parts = [
        TITLE,
        "CPU flame graphs of inference workloads, each with a page on what ran, where, and "
        "what stands out.",
        "## Current baselines",
        _listed(sorted(entries, key=lambda each: (each.name, each.picture))),
        "## Make them again",
        block(regenerate, "bash"),
        "The build is skipped with `FLAMEGATE_SKIP_BUILD=1`; the profiler is chosen with "
        "`FLAMEGATE_PROFILER`.",
        "## How to view and read them",
        READING,
        "## The colours",
        _colours(),
        "## From a picture to a faster engine",
        _WORKFLOW,
        "## Before and after",
        _COMPARING,
        "## When something is wrong",
        "\n".join(f"- **{what}.** {todo}" for what, todo in _TROUBLE),
    ]
    return "\n\n".join(parts) + "\n"


def _listed(entries: Sequence[GuideEntry]) -> str:
    if not entries:
        return "None yet."
    rows = [
        [
            link(each.name, each.picture),
            link("page", each.page),
            escape(each.about) or "–",
            code(each.generated),
            escape(each.hardware) or "–",
        ]
        for each in entries
    ]
    return table(["flame graph", "details", "what ran", "generated", "hardware"], rows)


def _colours() -> str:
    rows = [[code(name), code(each.fill), escape(each.meaning)] for name, each in PALETTE.items()]
    return table(["category", "colour", "what belongs to it"], rows)
