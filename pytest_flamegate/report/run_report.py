"""The report on one run and on the variants of one template: their sections in reading order."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pytest_flamegate.core.text import significant
from pytest_flamegate.gate.verdict import Tone, Verdict
from pytest_flamegate.profile.model import Hotspot
from pytest_flamegate.receipt.metrics import KERNEL_RATE_NAMES, value_of
from pytest_flamegate.receipt.types import Evidence, Receipt
from pytest_flamegate.report import text
from pytest_flamegate.report.bricks import BrickView, brick_section
from pytest_flamegate.report.evidence import (
    engine_section,
    metric_section,
    proof_section,
    run_section,
)
from pytest_flamegate.report.flame import Drawn, category_shares
from pytest_flamegate.report.sections import (
    NONE,
    Badge,
    Cell,
    Code,
    Items,
    Listing,
    Paragraph,
    Picture,
    Section,
    Table,
    make_section,
)
from pytest_flamegate.report.source import SourceView, source_section
from pytest_flamegate.report.text import visible
from pytest_flamegate.report.verdict import (
    call_section,
    cost_section,
    line_section,
    pair_section,
    phase_section,
    reason_section,
    signal_cells,
    signal_section,
    sureness_section,
)


@dataclass(frozen=True, slots=True)
class RunReport:
    """All that is known of one run; a part that is not known is None or empty.

    ``verdict`` is None if the run was not judged; ``headline`` is its sentence, as it was stored.
    ``family`` and ``variant`` are those of the workload. ``drawn`` and ``source`` are for an HTML
    page; ``picture`` and ``difference`` are paths from a Markdown page.
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
    source: SourceView | None = None
    picture: str = ""
    difference: str = ""
    pairs_pct: tuple[float, ...] = ()
    again: str | None = None
    accept: str | None = None

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        return "not judged" if self.verdict is None else self.verdict.word

    @property
    def tone(self) -> Tone:
        """How good the verdict is, for its colour."""
        return "unsure" if self.verdict is None else self.verdict.kind.tone

    @property
    def lacks_baseline(self) -> bool:
        """Whether there was no other side to compare the run with."""
        return self.verdict is not None and self.verdict.verdict == "no_baseline"

    @property
    def grade(self) -> str:
        """The grade of the receipt."""
        return "not judged" if self.verdict is None else self.verdict.grade

    @property
    def quiet_s_per_token(self) -> float | None:
        """The time of one token on the quiet clock; None if it was not measured.

        It is the mean of the processes, as the verdict compares them; their median without one.
        """
        rate = self.verdict.signal() if self.verdict is not None else None
        if rate is not None and rate.current:
            return 1.0 / rate.current
        return value_of(self.evidence.metrics, "quiet_s_per_token") if self.evidence else None

    @property
    def change_cell(self) -> str:
        """The change of the gated rate with its interval, a dash if it was not compared."""
        rate = self.verdict.signal() if self.verdict is not None else None
        if rate is None or rate.change_pct is None:
            return NONE
        _, _, change, interval, *_ = signal_cells(rate)
        return change if interval == NONE else f"{change} ({interval})"

    @property
    def speed_cells(self) -> tuple[str, str]:
        """The time of a token and the tokens per second, both on the quiet clock.

        They are dashes if they were not measured. For a kernel benchmark both are of its calls.
        """
        cost_s, evidence = self.quiet_s_per_token, self.evidence
        unit, calls = "tok", evidence.workload.get("calls") if evidence else None
        is_kernel = evidence is not None and value_of(evidence.metrics, KERNEL_RATE_NAMES[0])
        # The count is checked: a page may be made of a file that was never verified.
        if cost_s and is_kernel and isinstance(calls, int) and calls > 0:
            unit, cost_s = "call", cost_s / calls
        if not cost_s:
            return NONE, NONE
        rate = significant(1.0 / cost_s)
        return f"{text.seconds(cost_s)}/{unit}", f"{rate} calls" if unit == "call" else rate


def run_sections(run: RunReport) -> list[Section]:
    """Return the sections: the answer, its picture, its figures, then the evidence."""
    verdict, evidence = run.verdict, run.evidence
    difference = Picture(f"What changed in {run.name}", run.difference) if run.difference else None
    found = [make_section("What changed", [difference])]
    reasons = make_section("Reasons", [Paragraph("This run was not judged.")])
    if verdict is not None:
        reasons = reason_section(verdict)
        found += [cost_section(verdict), line_section(verdict), call_section(verdict)]
    # Without costs to compare, the reasons are the answer.
    has_costs = verdict is not None and bool(verdict.attribution)
    if not has_costs:
        found.append(reasons)
    title = f"Flame graph of {run.name}"
    if run.drawn is not None:
        # It has a table of functions of its own.
        found.append(Section("Where the time goes", (Picture(title, drawn=run.drawn),)))
    elif evidence is not None:
        found.append(
            hotspot_section(evidence, Picture(title, run.picture) if run.picture else None)
        )
    found.append(source_section(run.source, run.name))
    if verdict is not None:
        found += [pair_section(verdict, run.pairs_pct), signal_section(verdict)]
        found += [phase_section(verdict), *([reasons] if has_costs else [])]
    if run.bricks is not None:
        found.append(brick_section(run.bricks))
    found.append(next_section(run.again, run.accept))
    if verdict is not None:
        found.append(sureness_section(verdict))
    if evidence is not None:
        found += [
            metric_section(evidence),
            engine_section(evidence),
            run_section(evidence, run.receipt),
            proof_section(evidence, run.receipt, run.grade),
        ]
    return [section for section in found if section.blocks]


def next_section(again: str | None, accept: str | None, accepts: str = "Accept it") -> Section:
    """Return the commands to copy; ``accepts`` says what the second is for."""
    blocks: list[Paragraph | Listing] = []
    for purpose, command in (("Measure it again", again), (accepts, accept)):
        if command:
            blocks += [Paragraph(f"{purpose}:"), Listing(command, "bash")]
    return make_section("Next", blocks)


# Several runs


_SUMMARY_HEAD = ("workload", "change", "quiet clock", "tokens/s", "verdict",
                 "hottest frames (share of CPU)")  # fmt: skip
_CLOCKS = "gated: the quiet clock (wall time less waiting for a CPU), mean of processes"
_NOT_OBSERVED = frozenset({"SELF_REPORTED", "CONSISTENT"})


def summary_section(
    runs: Sequence[RunReport], accepted: Collection[str] = (), *, on_page: bool = True
) -> Section:
    """Return a row for each run, its headline, and what its figures are.

    On a page the N-th name links to ``workload-N``, and a change is a column if any run was
    compared. The table says of the names in ``accepted`` that their verdict is accepted as it is.
    """
    rows: list[tuple[Cell, ...]] = [
        (
            Code(run.name, target=f"workload-{index}"),
            run.change_cell,
            *run.speed_cells,
            Badge(f"{run.word}, accepted", "good")
            if run.name in accepted
            else Badge(run.word, run.tone),
            describe_hottest(run.evidence, ", " if on_page else "  "),
        )
        for index, run in enumerate(runs, 1)
    ]
    headlines = Items(tuple((Code(run.name), f" {run.headline}") for run in runs))
    about = " · ".join(describe_claims(runs)) if runs else "No workload was measured."
    if not on_page or all(run.change_cell == NONE for run in runs):
        head = (_SUMMARY_HEAD[0], *_SUMMARY_HEAD[2:])
        rows = [(row[0], *row[2:]) for row in rows]
        table = Table(head, rows, right=(1, 2), kind="overview")
    else:
        table = Table(_SUMMARY_HEAD, rows, right=(1, 2, 3), kind="overview")
    return make_section("", [table, headlines, Paragraph(about, muted=True)])


def describe_claims(runs: Sequence[RunReport]) -> list[str]:
    """Return what the figures of the summary are, and the grades; nothing without a receipt."""
    counted = Counter(run.grade for run in runs if run.receipt is not None)
    if not counted:
        return []
    grades = ", ".join(
        visible(name) if len(counted) == 1 else f"{visible(name)} ({number})"
        for name, number in counted.items()
    )
    meaning = (
        "some are only the word of their author"
        if set(counted) & _NOT_OBSERVED
        else "the machine's owner could still have forged them"
    )
    return [_CLOCKS, f"receipts {grades} ({meaning})"]


# The profile


_HOTTEST = 3
"""Functions that a row of a table names."""
_MOST_FRAMES, _LEAST_SHARE = 20, 0.005


def describe_hottest(evidence: Evidence | None, separator: str = ", ") -> str:
    """Return the first few frames by self share, with it; empty without a profile."""
    hottest = [hotspot for hotspot in _hotspots(evidence) if hotspot.self_samples][:_HOTTEST]
    return separator.join(f"{visible(h.name)} {text.share(h.self_share)}" for h in hottest)


def hotspot_section(evidence: Evidence, picture: Picture | None) -> Section:
    """Return the flame graph and the table of the hottest frames."""
    title = "Where the time goes"
    if evidence.profile is None:
        return Section(title, (Paragraph("No profile was taken."),))
    ranked = evidence.profile.hotspots
    shown = [each for each in ranked if each.self_share >= _LEAST_SHARE][:_MOST_FRAMES]
    rows = [
        (
            str(rank),
            Code(each.name),
            Code(each.module) if each.module else NONE,
            each.category,
            text.count(each.self_samples),
            text.share(each.self_share),
            text.share(each.inclusive_share),
            NONE if each.cpu_s_per_token is None else text.micros(each.cpu_s_per_token),
        )
        for rank, each in enumerate(shown, 1)
    ]
    head = ("rank", "frame", "module", "category", "self samples", "self", "with callees",
            "self µs/token")  # fmt: skip
    left = len(ranked) - len(shown)
    more = f" {text.plural(left, 'further frame')} in evidence.json." if left > 0 else ""
    caption = (
        "Self is the time in a frame itself; with callees adds all it calls. "
        f"Costs are shares of the CPU time of one token.{more}"
        if rows
        else "The profile holds no frame."
    )
    table = Table(head, rows, right=(0, 4, 5, 6, 7))
    return make_section(title, [picture, table, Paragraph(caption, muted=True)])


# Variants of one template


_MOST_FUNCTIONS = 10


def variant_sections(runs: Sequence[RunReport]) -> list[Section]:
    """Return a section for each family of which at least two variants were gated."""
    families: dict[str, list[RunReport]] = {}
    for run in runs:
        if run.family is not None:
            families.setdefault(run.family, []).append(run)
    return [_family(name, variants) for name, variants in families.items() if len(variants) > 1]


def _family(name: str, variants: Sequence[RunReport]) -> Section:
    shares = [category_shares(_hotspots(variant.evidence)) or None for variant in variants]
    return make_section(
        f"Variants of {visible(name, 80)}",
        [
            Paragraph("Shown next to each other and never gated.", muted=True),
            _speed_table(variants),
            _table_by_variant("share of CPU", variants, shares, text.share),
            _function_table(variants),
        ],
    )


def _speed_table(variants: Sequence[RunReport]) -> Table:
    costs_s = [variant.quiet_s_per_token for variant in variants]
    fastest_s = min((cost for cost in costs_s if cost), default=None)
    rows = [
        (
            Code(_name(variant)),
            *variant.speed_cells,
            text.share(fastest_s / cost_s) if cost_s and fastest_s else NONE,
            describe_hottest(variant.evidence) or NONE,
        )
        for variant, cost_s in zip(variants, costs_s, strict=True)
    ]
    head = ("variant", "quiet clock", "tokens/s", "of fastest", "hottest")
    return Table(head, rows, right=(1, 2, 3))


def _function_table(variants: Sequence[RunReport]) -> Table:
    """Return CPU seconds per token; a dash without a profile, 0 without a sample."""
    columns: list[dict[str, float] | None] = []
    for variant in variants:
        costs = {each.name: each.cpu_s_per_token for each in _hotspots(variant.evidence)}
        known = {name: cost for name, cost in costs.items() if cost}
        columns.append(known if known or any(cost == 0 for cost in costs.values()) else None)
    return _table_by_variant("µs/token", variants, columns, text.micros, Code, _MOST_FUNCTIONS)


def _table_by_variant(
    first: str,
    variants: Sequence[RunReport],
    columns: Sequence[Mapping[str, float] | None],
    show: Callable[[float], str],
    label: Callable[[str], Cell] = str,
    most: int | None = None,
) -> Table:
    """Return a row for each name, the largest figure first; a column of None has dashes."""
    highest: dict[str, float] = {}
    for column in columns:
        for name, value in (column or {}).items():
            highest[name] = max(value, highest.get(name, 0.0))
    rows = [
        (label(name), *(NONE if each is None else show(each.get(name, 0.0)) for each in columns))
        for name in sorted(highest, key=lambda name: (-highest[name], name))[:most]
    ]
    names = [visible(_name(variant), 40) for variant in variants]
    return Table((first, *names), rows, range(1, len(names) + 1))


def _name(variant: RunReport) -> str:
    return variant.variant or variant.name


def _hotspots(evidence: Evidence | None) -> tuple[Hotspot, ...]:
    return evidence.profile.hotspots if evidence is not None and evidence.profile else ()
