"""What kind of work a frame does, read from the table in ``category.toml``."""

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
    """One row: frames of ``kinds`` whose name or module matches are of ``category``."""

    category: str
    kinds: frozenset[str]
    names: re.Pattern[str] | None
    modules: re.Pattern[str] | None

    def fits(self, frame: Frame) -> bool:
        """Whether this rule says what ``frame`` does."""
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
    """Return the table in its order."""
    text = files("pytest_flamegate.profile").joinpath("category.toml").read_text("utf-8")
    return tuple(_rule(row) for row in tomllib.loads(text)["rule"])


@lru_cache(maxsize=65536)
def categorize_frame(frame: Frame) -> str:
    """Return the category of a frame; the table's last rule takes every frame."""
    return next(rule.category for rule in load_category_rules() if rule.fits(frame))


def _rule(row: dict[str, Any]) -> CategoryRule:
    return CategoryRule(
        category=row["category"],
        kinds=frozenset(row.get("kinds", ())),
        names=_pattern(row.get("names", ())),
        modules=_pattern(row.get("modules", ())),
    )


def _pattern(globs: Iterable[str]) -> re.Pattern[str] | None:
    parts = [translate(glob) for glob in globs]
    return re.compile("|".join(parts)) if parts else None
