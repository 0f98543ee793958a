"""The report on one run: its sections, in the order in which they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.engines.declare import split_variant_name
from pytest_flamegate.report.bricks import brick_section
from pytest_flamegate.report.evidence import (
    build_section,
    engine_section,
    machine_section,
    metric_section,
    profiler_section,
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
    """All that is known of one run. A part that was not measured is None or empty.

    Attributes:
        name: The workload's name.
        verdict: None if the run was not judged.
        headline: The verdict in one sentence, as it was stored.
        receipt: The claim.
        evidence: The observations.
        drawn: The data of the interactive flame graph, for an HTML page.
        picture: The path of the flame graph from a Markdown page.
        difference: The path of the picture of the difference.
        decode: The profile of decode alone.
        decode_picture: The path of its picture.
        bricks: The bricks, if any were clocked.
        pairs_pct: The change of the rate in each pair, in percent.
        again: The command that measures it again.
        accept: The command that accepts it as the baseline.
        warnings: What went wrong next to the measurement, one sentence each.
    """

    name: str
    verdict: Verdict | None
    headline: str = ""
    receipt: Receipt | None = None
    evidence: Evidence | None = None
    drawn: Drawn | None = None
    picture: str = ""
    difference: str = ""
    decode: DecodeProfile | None = None
    decode_picture: str = ""
    bricks: BrickView | None = None
    pairs_pct: tuple[float, ...] = ()
    again: str | None = None
    accept: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def workload(self) -> str:
        """The workload's name."""
        return self.name

    @property
    def family(self) -> str | None:
        """The template that it is a variant of, None if it is no variant."""
        return split_variant_name(self.name)[0]

    @property
    def variant(self) -> str | None:
        """Its name within its family."""
        return split_variant_name(self.name)[1]


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
            machine_section(evidence),
            build_section(evidence, run.receipt),
            profiler_section(evidence),
            proof_section(evidence, run.receipt, verdict.grade if verdict is not None else None),
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
