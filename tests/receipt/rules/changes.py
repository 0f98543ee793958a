"""Changes of a bundle by a forger, an odd engine or an odd machine."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pytest_flamegate.core.json import replace
from pytest_flamegate.core.text import Finding
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.receipt import Verification
from pytest_flamegate.receipt.types import Metric
from tests.made import Bundle, bundle
from tests.receipt.forgeries import book

NOW = datetime(2025, 10, 13, 13, 0, tzinfo=UTC)

Make = Callable[[], Bundle]


def verify(made: Bundle, **options: Any) -> Verification:
    return book.verify(made.files, **{"now": NOW, **options})


def codes(answer: Verification) -> set[str]:
    findings: list[Finding] = [*answer.refusals, *answer.warnings]
    return {finding.code for finding in findings}


def rejected(answer: Verification) -> list[str]:
    return [refusal.code for refusal in answer.refusals]


def refusals(made: Bundle) -> set[str]:
    return set(rejected(verify(made)))


def slow(**options: Any) -> Bundle:
    return bundle(token_ns=20_000_000, **options)


def map_blocks(made: Bundle, change: Callable[[Block], Block]) -> Bundle:
    for index, run in enumerate(made.evidence.runs):
        made = made.with_run(index, blocks=tuple(map(change, run.blocks)))
    return made.recomputed()


def each_run(made: Bundle, **changes: Any) -> Bundle:
    for index in range(len(made.evidence.runs)):
        made = made.with_run(index, **changes)
    return made


def with_share(field: str, share: float) -> Callable[[Block], Block]:
    """Return a change of a block: its interval has ``share`` of its wall time in ``field``."""

    def change(block: Block) -> Block:
        part_ns = int(share * block.interval.wall_ns)
        return replace(block, interval=replace(block.interval, **{field: part_ns}))

    return change


def with_model(made: Bundle, size_bytes: int) -> Bundle:
    """Receipt and evidence state another size of the model file."""
    model = {**made.evidence.model, "size_bytes": size_bytes}
    return made.with_evidence(model=model).with_receipt(model=model)


def with_recipe(made: Bundle, **changes: Any) -> Bundle:
    return made.with_evidence(workload={**made.evidence.workload, **changes})


def with_metric(made: Bundle, name: str, /, **changes: Any) -> Bundle:
    """One metric has other fields; ``value`` is a factor."""

    def edit(old: Metric) -> Metric:
        return replace(old, **{**changes, "value": old.value * changes.get("value", 1.0)})

    found = (edit(each) if each.name == name else each for each in made.evidence.metrics)
    return made.with_evidence(metrics=tuple(found))
