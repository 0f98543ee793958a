"""The kind of work that a frame does, by the table in ``category.toml``."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flamegate.profile.model import Frame


_QUALIFIER = re.compile(r"^.*(?:::|\.)(?=[^:.]+$)")


@dataclass(frozen=True, slots=True)
class CategoryRule:
    """One row of the table: frames of ``kinds`` with such a name or module have ``category``."""

    category: str
    kinds: frozenset[str]
    names: re.Pattern[str] | None
    modules: re.Pattern[str] | None

    def matches(self, frame: Frame) -> bool:
        """Whether ``frame`` belongs to this category."""
        if self.kinds and frame.kind not in self.kinds:
            return False
        if self.modules is not None and self.modules.match(frame.module.lower()):
            return True
        if self.names is None:
            return False
        name = frame.name.lower()
        bare = _QUALIFIER.sub("", name)
        return any(self.names.match(candidate) for candidate in (name, bare))


@cache
def load_category_rules() -> tuple[CategoryRule, ...]:
    """Return the rows of the table in their order; the last one matches every frame."""
    text = files("pytest_flamegate.profile").joinpath("category.toml").read_text("utf-8")
    rows: list[dict[str, Any]] = tomllib.loads(text)["rule"]
    return tuple(
        CategoryRule(
            category=row["category"],
            kinds=frozenset(row.get("kinds", ())),
            names=_compile(row.get("names", ())),
            modules=_compile(row.get("modules", ())),
        )
        for row in rows
    )


@lru_cache(maxsize=65536)
def categorize_frame(frame: Frame) -> str:
    """Return the category of the first rule that matches ``frame``."""
    return next(rule.category for rule in load_category_rules() if rule.matches(frame))


def _compile(globs: Iterable[str]) -> re.Pattern[str] | None:
    parts = [translate(glob) for glob in globs]
    return re.compile("|".join(parts)) if parts else None
