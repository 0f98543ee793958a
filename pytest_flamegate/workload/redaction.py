"""Nothing that looks like a secret is written down: files are committed and handed on.

What is found is replaced by ``redacted`` before any digest is made, and its place is
kept, so that the run can say where something is missing. The scan is a net and no proof:
a secret without a known form, in no variable that sounds like one, is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_flamegate.workload.secret_forms import (
    assigned,
    in_known_form,
    is_stand_in,
    sounds_secret,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_flamegate.workload.secret_forms import Span

REDACTED = "redacted"
CODE = "W_SECRET_REDACTED"
_SHORTEST_VALUE = 8
_SHORTEST_NUMBER = 12
_NO_VALUES = frozenset(
    {"anonymous", "default", "disabled", "enabled", "optional", "production", "required", REDACTED}
)
_NEVER_TEXT = frozenset({"runs", "tokens", "metrics"})
"""Fields of figures and of single tokens: too long to look through, and nothing to find."""
_SHOWN = 6

T = TypeVar("T")


def redacted(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` with every value replaced that is a secret by name or by form."""
    return Redactor().environment(environment, "")


@dataclass(slots=True)
class Redactor:
    """Takes secrets out of text. ``places`` are where it did, each once, without the value.

    ``values`` are secrets known by their very value, the longest first.
    """

    values: tuple[str, ...] = ()
    places: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, *environments: Mapping[str, str]) -> Redactor:
        """Return one that knows the values of all variables whose names sound secret."""
        found = {
            value
            for environment in environments
            for name, value in environment.items()
            if sounds_secret(name) and _is_telling(value)
        }
        return cls(tuple(sorted(found, key=lambda value: (-len(value), value))))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the run is told: one sentence where anything was replaced, none elsewhere."""
        if not self.places:
            return ()
        named = ", ".join(self.places[:_SHOWN])
        if len(self.places) > _SHOWN:
            named += f" and {len(self.places) - _SHOWN} more"
        return (
            f"{CODE}: What looks like a secret was written down as {REDACTED!r} ({named}). "
            "Give it to the process by a variable of its environment, not in the declaration.",
        )

    def text(self, text: str, place: str) -> str:
        """Return ``text`` without secrets, whatever they are known by: ``password=X`` too.

        For command lines and messages; of a prompt or a page more would be lost than secrets.
        """
        return self._without(text, place, [*self._surely(text), *assigned(text)])

    def surely(self, text: str, place: str) -> str:
        """Return ``text`` without what is a secret wherever it stands: by its form or value."""
        return self._without(text, place, self._surely(text))

    def words(self, words: Sequence[str], place: str) -> list[str]:
        """Return an argument list without secrets: ``--token X`` may be two of them."""
        kept, follows = [], False
        for index, word in enumerate(words):
            where = f"{place}[{index}]"
            if follows and word and not word.startswith("--") and not is_stand_in(word):
                kept.append(self._replaced(where))
            else:
                kept.append(self.text(word, where))
            follows = word.startswith("-") and "=" not in word and sounds_secret(word)
        return kept

    def environment(self, environment: Mapping[str, str], place: str) -> dict[str, str]:
        """Return names and values, the latter without secrets."""
        kept = {}
        for name, value in environment.items():
            where = f"{place}.{name}" if place else name
            secret = sounds_secret(name) and value
            kept[name] = self._replaced(where) if secret else self.text(value, where)
        return kept

    def clean(self, thing: T, place: str = "") -> T:
        """Return ``thing`` (a frozen dataclass or plain data) without secrets in its text.

        What holds none is returned as it is, the very same object. Keys of a mapping are
        names: they are looked at, and kept.
        """
        found: Any = self._clean(thing, place)
        return thing if found == thing else found

    def _clean(self, thing: Any, place: str) -> Any:
        if isinstance(thing, str):
            return self.surely(thing, place)
        if isinstance(thing, Mapping):
            return self._mapping(thing, place)
        if isinstance(thing, (list, tuple)):
            if all(isinstance(each, str) for each in thing):
                return type(thing)(self.words(thing, place))
            return type(thing)(self._clean(e, f"{place}[{i}]") for i, e in enumerate(thing))
        if is_dataclass(thing) and not isinstance(thing, type):
            return self._fields(thing, place)
        return thing

    def _mapping(self, thing: Mapping[Any, Any], place: str) -> dict[Any, Any]:
        kept: dict[Any, Any] = {}
        for name, value in thing.items():
            where = f"{place}.{name}" if place else str(name)
            secret = isinstance(value, str) and value and sounds_secret(str(name))
            kept[name] = self._replaced(where) if secret else self._clean(value, where)
        return kept

    def _fields(self, thing: Any, place: str) -> Any:
        changed = {}
        for each in fields(thing):
            if each.name in _NEVER_TEXT:
                continue
            value = getattr(thing, each.name)
            found = self._clean(value, f"{place}.{each.name}" if place else each.name)
            if found != value:
                changed[each.name] = found
        return replace(thing, **changed) if changed else thing

    def _surely(self, text: str) -> list[Span]:
        spans = list(in_known_form(text))
        for value in self.values:
            start = text.find(value)
            while start >= 0:
                spans.append((start, start + len(value)))
                start = text.find(value, start + len(value))
        return spans

    def _without(self, text: str, place: str, spans: Iterable[Span]) -> str:
        parts, end = [], 0
        for first, last in sorted(spans):
            if first >= end:
                parts += [text[end:first], REDACTED]
            end = max(end, last)
        if not parts:
            return text
        self._replaced(place)
        return "".join([*parts, text[end:]])

    def _replaced(self, place: str) -> str:
        if place not in self.places:
            self.places.append(place)
        return REDACTED


def _is_telling(value: str) -> bool:
    """Whether a secret's value can be searched for: what is short or common stands everywhere."""
    if len(value) < (_SHORTEST_NUMBER if value.isdigit() else _SHORTEST_VALUE):
        return False
    if value.lower() in _NO_VALUES or len(set(value)) < 4 or is_stand_in(value):
        return False
    return not (value.startswith("/") and os.path.lexists(value))
