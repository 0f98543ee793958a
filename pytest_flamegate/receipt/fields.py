"""Fields of foreign documents by their type; what is wrong is a FieldError."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pytest_flamegate.receipt.findings import shown

if TYPE_CHECKING:
    from collections.abc import Mapping


class FieldError(Exception):
    """One sentence: what is wrong with a field."""


def object_of(value: object, name: str) -> Mapping[str, object]:
    """Return ``value`` if it is an object."""
    if not isinstance(value, dict):
        raise FieldError(f"{name} must be an object, and is {shown(value)}.")
    return cast("Mapping[str, object]", value)


def list_of(value: object, name: str, most: int) -> list[object]:
    """Return ``value`` if it is a list of at least one and at ``most`` so many entries."""
    if not isinstance(value, list) or not 0 < len(value) <= most:
        raise FieldError(f"{name} must be a list of 1 to {most}, and is {shown(value)}.")
    return value


def text_of(value: object, name: str) -> str:
    """Return ``value`` if it is text."""
    if not isinstance(value, str):
        raise FieldError(f"{name} must be text, and is {shown(value)}.")
    return value
