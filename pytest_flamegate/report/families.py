"""The variants of one family side by side, as data for every report.

Only described, never gated: variants may run other models on other prompts, so what was
not alike is said with the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pytest_flamegate.receipt.metrics import value_of
from pytest_flamegate.report.insights import by_self_share, category_shares

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flamegate.profile.model import Hotspot
    from pytest_flamegate.receipt.types import Evidence, Receipt

HOTTEST = 3
TOP_FUNCTIONS = 10
_NAME = "name"
_WORK = ("prompt", "max_tokens")
_TAKEN = {
    "profiler": "profiler",
    "event": "event",
    "rate_hz": "rate",
    "call_graph": "call graph",
    "python": "Python",
    "covers": "phase",
}
"""What two profiles must share before their shares mean the same."""


class Gated(Protocol):
    """One gated workload; ``family`` and ``variant`` are None where it is no variant."""

    @property
    def workload(self) -> str:
        """Its name."""

    @property
    def family(self) -> str | None:
        """The name of its template."""

    @property
    def variant(self) -> str | None:
        """What it is called within its family."""

    @property
    def receipt(self) -> Receipt | None:
        """What is claimed."""

    @property
    def evidence(self) -> Evidence | None:
        """What was seen."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant: times are seconds per token, shares are 0 to 1, None is not measured.

    ``of_fastest`` is its speed by the quiet clock over that of the fastest variant.
    ``categories`` are self shares, ``hottest`` the first few functions by self share.
    """

    name: str
    tokens_per_second: float | None
    quiet_s_per_token: float | None
    of_fastest: float | None
    categories: Mapping[str, float]
    hottest: tuple[Hotspot, ...]


@dataclass(frozen=True, slots=True)
class FunctionCosts:
    """One function's own CPU seconds per token, for each variant in the order of the family.

    None where the variant has no profile or no cost, 0 where no sample was in the function.
    """

    name: str
    category: str
    cpu_s_per_token: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """The variants of one template, their costliest functions, and what was not alike.

    ``categories`` are those of any variant, the largest first.
    """

    name: str
    variants: tuple[Variant, ...]
    categories: tuple[str, ...]
    functions: tuple[FunctionCosts, ...]
    notes: tuple[str, ...]


def family_tables(outcomes: Sequence[Gated]) -> tuple[Family, ...]:
    """Return each family of which at least two variants were gated, in the order gated."""
    families: dict[str, list[Gated]] = {}
    for outcome in outcomes:
        if outcome.family is not None:
            families.setdefault(outcome.family, []).append(outcome)
    return tuple(_family(name, found) for name, found in families.items() if len(found) > 1)


def _family(name: str, outcomes: Sequence[Gated]) -> Family:
    quiet = [
        value_of(each.evidence.metrics, "quiet_s_per_token") if each.evidence else None
        for each in outcomes
    ]
    fastest = min((spent for spent in quiet if spent), default=None)
    variants = tuple(
        Variant(
            name=each.variant or each.workload,
            tokens_per_second=each.receipt.tokens_per_second if each.receipt else None,
            quiet_s_per_token=spent or None,
            of_fastest=fastest / spent if spent and fastest else None,
            categories=category_shares(_hotspots(each)),
            hottest=tuple(s for s in by_self_share(_hotspots(each))[:HOTTEST] if s.self_samples),
        )
        for each, spent in zip(outcomes, quiet, strict=True)
    )
    highest: dict[str, float] = {}
    for variant in variants:
        for category, share in variant.categories.items():
            highest[category] = max(share, highest.get(category, 0.0))
    seen = [each.evidence for each in outcomes if each.evidence is not None]
    return Family(
        name=name,
        variants=variants,
        categories=tuple(sorted(highest, key=lambda each: (-highest[each], each))),
        functions=_functions(outcomes),
        notes=tuple(_notes(seen)),
    )


def _hotspots(outcome: Gated) -> tuple[Hotspot, ...]:
    profile = outcome.evidence.profile if outcome.evidence is not None else None
    return profile.hotspots if profile is not None else ()


def _functions(outcomes: Sequence[Gated]) -> tuple[FunctionCosts, ...]:
    columns = [{each.name: each for each in _hotspots(outcome)} for outcome in outcomes]
    categories = {name: each.category for column in columns for name, each in column.items()}
    found = []
    for name, category in categories.items():
        costs = tuple(_cost(column, name) for column in columns)
        if any(costs):
            found.append(FunctionCosts(name, category, costs))
    found.sort(key=lambda each: (-max(cost or 0.0 for cost in each.cpu_s_per_token), each.name))
    return tuple(found[:TOP_FUNCTIONS])


def _cost(column: Mapping[str, Hotspot], name: str) -> float | None:
    if all(each.cpu_s_per_token is None for each in column.values()):
        return None
    return (column[name].cpu_s_per_token if name in column else None) or 0.0


def _notes(seen: Sequence[Evidence]) -> Iterator[str]:
    """Say what the variants differ in, and what that does to a comparison."""
    keys = dict.fromkeys(key for each in seen for key in each.workload if key != _NAME)
    different = [key for key in keys if _differs([each.workload.get(key) for each in seen])]
    if different:
        yield f"Declared otherwise: {', '.join(different)}."
    if work := [key for key in different if key in _WORK]:
        yield (f"Not the same work ({', '.join(work)}): a token of one is no token of the other.")
    elif _differs([each.token_digest for each in seen]):
        yield "The same prompt was answered with different tokens."
    if _differs([each.clock_scope for each in seen]):
        yield "Some clocks cover a whole program and others its sequences alone."
    if _differs([dict(each.machine) for each in seen]):
        yield "They ran on different machines: no figure compares."
    profiles = [each.profile for each in seen if each.profile is not None]
    taken = [
        words for key, words in _TAKEN.items() if _differs([getattr(p, key) for p in profiles])
    ]
    if taken:
        yield (
            f"Their profiles were not taken alike ({', '.join(taken)}): shares and costs of "
            "functions compare roughly at best."
        )


def _differs(values: Sequence[object]) -> bool:
    return any(value != values[0] for value in values)
