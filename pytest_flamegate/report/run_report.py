"""The report on one run: its sections, in the order in which they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.report.bricks import brick_section
from pytest_flamegate.report.evidence import (
    engine_section,
    metric_section,
    proof_section,
    run_section,
)
from pytest_flamegate.report.hotspots import decode_section, finding_section, hotspot_section
from pytest_flamegate.report.sections import (
    Listing,
    Paragraph,
    Picture,
    Section,
    keep_filled,
    make_section,
)
from pytest_flamegate.report.verdict import (
    cost_section,
    pair_section,
    phase_section,
    reason_section,
    signal_section,
    sureness_section,
)

if TYPE_CHECKING:
    from pytest_flamegate.gate.verdict import Verdict
    from pytest_flamegate.profile.decode import DecodeProfile
    from pytest_flamegate.receipt.types import Evidence, Receipt
    from pytest_flamegate.report.bricks import BrickView
    from pytest_flamegate.report.flame_html import Drawn


@dataclass(frozen=True, slots=True)
class RunReport:
    """All that is known of one run; a part that is not known is None or empty.

    ``verdict`` is None if the run was not judged; ``headline`` is its sentence, as it was stored.
    ``family`` and ``variant`` are those of the workload. ``drawn`` is for an HTML page;
    ``picture``, ``difference`` and ``decode_picture`` are paths from a Markdown page.
    ``pairs_pct`` is the change of the rate in each pair, in percent. ``again`` and ``accept`` are
    commands; ``warnings`` are sentences.
    """

    name: str
    verdict: Verdict | None
    headline: str = ""
    receipt: Receipt | None = None
    evidence: Evidence | None = None
    warnings: tuple[str, ...] = ()
    family: str | None = None
    variant: str | None = None
    bricks: BrickView | None = None
    drawn: Drawn | None = None
    picture: str = ""
    difference: str = ""
    decode: DecodeProfile | None = None
    decode_picture: str = ""
    pairs_pct: tuple[float, ...] = ()
    again: str | None = None
    accept: str | None = None

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        return "not judged" if self.verdict is None else self.verdict.verdict.replace("_", " ")

    @property
    def grade(self) -> str:
        """The grade of the receipt."""
        return "not judged" if self.verdict is None else self.verdict.grade


def run_sections(run: RunReport) -> list[Section]:
    """Return the sections: the answer, its picture, its figures, then what supports them."""
    verdict, evidence = run.verdict, run.evidence
    difference = Picture(f"What changed in {run.name}", run.difference) if run.difference else None
    sections: list[Section | None] = [make_section("What changed", [difference])]
    if verdict is None:
        sections.append(make_section("Reasons", [Paragraph("This run was not judged.")]))
    else:
        # Without costs to compare, the reasons are the answer.
        reasons = reason_section(verdict)
        sections += [cost_section(verdict), None if verdict.attribution else reasons]
    sections.append(_flame_section(run))
    if verdict is not None:
        sections += [
            pair_section(verdict, run.pairs_pct),
            signal_section(verdict),
            phase_section(verdict),
            reasons if verdict.attribution else None,
        ]
    sections += [
        brick_section(run.bricks) if run.bricks is not None else None,
        decode_section(run.decode, run.decode_picture) if run.decode is not None else None,
        finding_section(evidence) if evidence is not None else None,
        next_section(run.again, run.accept),
        sureness_section(verdict) if verdict is not None else None,
    ]
    if evidence is not None:
        sections += [
            metric_section(evidence),
            engine_section(evidence),
            run_section(evidence, run.receipt),
            proof_section(evidence, run.receipt, run.grade),
        ]
    return keep_filled(sections)


def next_section(again: str | None, accept: str | None) -> Section:
    """Return the commands to copy."""
    blocks: list[Paragraph | Listing] = []
    for purpose, command in (("Measure it again", again), ("Accept it as the baseline", accept)):
        if command:
            blocks += [Paragraph(f"{purpose}:"), Listing(command, "bash")]
    return make_section("Next", blocks)


def _flame_section(run: RunReport) -> Section | None:
    title = f"Flame graph of {run.name}"
    if run.drawn is not None:
        # It has a table of functions of its own.
        return Section("Where the time goes", (Picture(title, drawn=run.drawn),))
    if run.evidence is None:
        return None
    return hotspot_section(run.evidence, Picture(title, run.picture) if run.picture else None)
