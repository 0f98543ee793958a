"""One workload in several configurations: ``[workloads.decode.variants.i2s]``.

A workload with variants is a template: only its variants run. What a variant says stands
in place of what the template says; ``env``, ``hotspots``, ``bricks`` and ``profile`` are laid
over its own, name by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_flamegate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.workload.spec import Workload

KEY = "variants"
_LAID_OVER = ("env", "hotspots", "bricks", "profile")


@dataclass(frozen=True, slots=True)
class Declared:
    """One workload to read: its name, its whole table, and whose variant it is, if any.

    ``own`` is what stands under its own heading: for a variant the part that it changes.
    """

    name: str
    table: Mapping[str, Any]
    own: object
    family: str | None = None
    variant: str | None = None


def name_of(family: str, variant: str) -> str:
    """Return the name of the workload that one variant is: ``decode[i2s]``.

    No declaration can be called so, as brackets are no part of a name that people give.
    """
    return f"{family}[{variant}]"


def split(name: str) -> tuple[str | None, str | None]:
    """Return family and variant of a workload's name, None twice where it is no variant's."""
    family, bracket, variant = name.removesuffix("]").partition("[")
    return (family, variant) if bracket else (None, None)


def expand(name: str, table: Mapping[str, Any], where: str) -> tuple[Declared, ...]:
    """Return the workloads that ``table`` declares: itself, or in its place its variants.

    ``UsageError`` ``E_BAD_VALUE``, at the place ``where``, for variants that are none.
    """
    if KEY not in table:
        return (Declared(name, table, table),)
    variants = table[KEY]
    if not isinstance(variants, dict) or not variants:
        raise UsageError(
            "E_BAD_VALUE",
            f"{where}: {KEY} holds no variant.",
            f"Declare each under its own heading, [workloads.{name}.{KEY}.NAME].",
        )
    template = {key: value for key, value in table.items() if key != KEY}
    return tuple(
        Declared(name_of(name, variant), _merged(template, own), own, name, variant)
        for variant, own in variants.items()
    )


def named(known: Sequence[Workload], name: str) -> list[Workload]:
    """Return the workload called ``name``, or the variants of the template called so."""
    return [each for each in known if name in (each.name, each.family)]


def _merged(template: Mapping[str, Any], own: object) -> dict[str, Any]:
    merged = dict(template)
    for key, value in own.items() if isinstance(own, dict) else ():
        below = template.get(key)
        if key in _LAID_OVER and isinstance(below, dict) and isinstance(value, dict):
            merged[key] = {**below, **value}
        else:
            merged[key] = value
    return merged
