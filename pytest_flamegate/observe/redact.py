"""Remove secrets from text: published forms of tokens, and values of names that sound secret.

A form is searched for only if one of its plain marks is in the text, so that text without secrets
costs a few scans for substrings.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pytest_flamegate.core.text import escape_control_characters, list_some

Span = tuple[int, int]

_MAX_TAIL = 4096
_KNOWN = tomllib.loads(Path(__file__).with_name("secrets.toml").read_text("utf-8"))
_FORMS = [(form["marks"], re.compile(form["pattern"])) for form in _KNOWN["form"]]
_NAMES = {kind: frozenset(words) for kind, words in _KNOWN["names"].items()}
"""Forms of tokens, and the words of names that sound secret: ``secrets.toml`` explains them."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WEAK = frozenset(["auth", "cookie", "key", "pass", "private", "token"])
"""Common names of arguments in programs: secret only as an option or in capitals."""

_ASSIGNED = re.compile(
    r"(?P<dash>(?<![\w-])--?)?(?P<name>[A-Za-z][\w.-]{0,80})"
    r"[\"']?\s{0,2}(?:=|(?<=[\"']):|(?<=[\"'] ):)\s{0,2}"
    rf"(?:\"(?P<double>[^\"\n]{{1,{_MAX_TAIL}}})\"|'(?P<single>[^'\n]{{1,{_MAX_TAIL}}})'|"
    rf"(?P<bare>[^\s\"',;&<>)}}\]]{{1,{_MAX_TAIL}}}))"
)
_FLAG = re.compile(
    rf"(?<![\w-])--?(?P<name>[A-Za-z][\w.-]{{0,80}})[ ](?P<value>[^\s-]\S{{0,{_MAX_TAIL}}})"
)
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}|\$\{?\w+\}?|\$\(.*|[*x.]{3,}|redacted|None|null|true|false")
"""Values that are no secret: a placeholder, a reference, a mask, a switch."""


def is_secret_name(name: str) -> bool:
    """Return whether the value of ``name`` (a variable, an option, a key) is a secret."""
    words = [word.upper() for word in _WORDS.findall(name)]
    if not words or words[-1] in _NAMES["no_secrets"]:
        return False
    if not _NAMES["anywhere"].isdisjoint(words):
        return True
    if words[-1] not in _NAMES["last"]:
        return False
    return _NAMES["no_tokens" if words[-1] == "TOKEN" else "no_keys"].isdisjoint(words[:-1])


def is_placeholder(value: str) -> bool:
    """Return whether ``value`` stands for a secret: ``{prompt}``, ``$TOKEN``, ``***``."""
    return _PLACEHOLDER.fullmatch(value) is not None


def find_tokens(text: str) -> Iterator[Span]:
    """Yield the spans of tokens of a published form in ``text``."""
    for marks, pattern in _FORMS:
        if any(mark in text for mark in marks):
            group = "secret" if "secret" in pattern.groupindex else 0
            for found in pattern.finditer(text):
                if not is_placeholder(found[group]):
                    yield found.span(group)


def find_assigned(text: str) -> Iterator[Span]:
    """Yield the spans of values in ``PASSWORD=x``, ``"api_key": "x"`` and ``--token x``."""
    if "=" in text or ":" in text:
        for found in _ASSIGNED.finditer(text):
            value = found.lastgroup or "bare"
            weak = found["name"] in _WEAK and not found["dash"]
            if is_secret_name(found["name"]) and not weak and not is_placeholder(found[value]):
                yield found.span(value)
    if "-" in text:
        for found in _FLAG.finditer(text):
            if is_secret_name(found["name"]) and not is_placeholder(found["value"]):
                yield found.span("value")


REDACTED = "redacted"
CODE = "W_SECRET_REDACTED"
_MIN_VALUE_CHARACTERS = 8
_MIN_NUMBER_DIGITS = 12
_COMMON_VALUES = frozenset(
    {"anonymous", "default", "disabled", "enabled", "optional", "production", "required", REDACTED}
)
_SKIPPED_FIELDS = frozenset({"runs", "tokens", "metrics"})
"""Fields of figures and of single tokens: too long to search, and they hold no secrets."""
_LISTED_PLACES = 6

T = TypeVar("T")


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` with the values of secrets replaced, by name or by form.

    Line breaks and other control characters are escaped, since a receipt contains none, and
    backslashes, so that no two values become the same.
    """
    redactor = Redactor()
    return {
        name: REDACTED
        if value and is_secret_name(name)
        else escape_control_characters(redactor.redact_text(value, name))
        for name, value in environment.items()
    }


@dataclass(slots=True)
class Redactor:
    """Removes secrets: ``values``, the longest first. ``places`` lists where one was removed."""

    values: tuple[str, ...] = ()
    places: list[str] = field(default_factory=list)

    @classmethod
    def from_environments(cls, *environments: Mapping[str, str]) -> Redactor:
        """Return a redactor that knows the values of all variables whose names sound secret."""
        found = {
            text
            for environment in environments
            for name, value in environment.items()
            if is_secret_name(name) and _is_distinctive(value)
            for text in (value, escape_control_characters(value))
        }
        return cls(tuple(sorted(found, key=lambda value: (-len(value), value))))

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence if anything was removed."""
        if not self.places:
            return ()
        return (
            f"{CODE}: A value that looks like a secret was recorded as {REDACTED!r} "
            f"({list_some(self.places, _LISTED_PLACES)}). Give it "
            "to the process by a variable of its environment, not in the declaration.",
        )

    def redact_text(self, text: str, place: str) -> str:
        """Return ``text`` without secrets, assigned ones (``password=X``) included.

        For command lines and messages; a prompt or a page would lose more than secrets.
        """
        return self._remove(text, place, [*self._find_certain(text), *find_assigned(text)])

    def redact_certain(self, text: str, place: str) -> str:
        """Return ``text`` without the secrets that are certain by their form or value."""
        return self._remove(text, place, self._find_certain(text))

    def holds_secret(self, text: str) -> bool:
        """Whether ``redact_certain`` would remove something of ``text``."""
        return bool(self._find_certain(text))

    def redact_words(self, words: Sequence[str], place: str) -> list[str]:
        """Return an argument list without secrets; ``--token X`` may be two words of it."""
        clean, follows = [], False
        for index, word in enumerate(words):
            at = f"{place}[{index}]"
            if follows and word and not word.startswith("--") and not is_placeholder(word):
                clean.append(self._replace(at))
            else:
                clean.append(self.redact_text(word, at))
            follows = word.startswith("-") and "=" not in word and is_secret_name(word)
        return clean

    def clean(self, thing: T, place: str = "") -> T:
        """Return a frozen dataclass or plain data without secrets in its text; keys stay."""
        found: Any = self._clean(thing, place)
        return thing if found == thing else found

    def _clean(self, thing: Any, place: str) -> Any:
        if isinstance(thing, str):
            return self.redact_certain(thing, place)
        if isinstance(thing, Mapping):
            return self._clean_mapping(thing, place)
        if isinstance(thing, (list, tuple)):
            if all(isinstance(each, str) for each in thing):
                return type(thing)(self.redact_words(thing, place))
            return type(thing)(self._clean(e, f"{place}[{i}]") for i, e in enumerate(thing))
        if is_dataclass(thing) and not isinstance(thing, type):
            return self._clean_fields(thing, place)
        return thing

    def _clean_mapping(self, thing: Mapping[Any, Any], place: str) -> dict[Any, Any]:
        clean: dict[Any, Any] = {}
        for name, value in thing.items():
            at = f"{place}.{name}" if place else str(name)
            is_secret = isinstance(value, str) and value and is_secret_name(str(name))
            clean[name] = self._replace(at) if is_secret else self._clean(value, at)
        return clean

    def _clean_fields(self, thing: Any, place: str) -> Any:
        changed = {}
        for each in fields(thing):
            if each.name in _SKIPPED_FIELDS:
                continue
            value = getattr(thing, each.name)
            found = self._clean(value, f"{place}.{each.name}" if place else each.name)
            if found != value:
                changed[each.name] = found
        return replace(thing, **changed) if changed else thing

    def _find_certain(self, text: str) -> list[Span]:
        spans = list(find_tokens(text))
        for value in self.values:
            start = text.find(value)
            while start >= 0:
                spans.append((start, start + len(value)))
                start = text.find(value, start + len(value))
        return spans

    def _remove(self, text: str, place: str, spans: Iterable[Span]) -> str:
        parts, end = [], 0
        for first, last in sorted(spans):
            if first >= end:
                parts += [text[end:first], REDACTED]
            end = max(end, last)
        if not parts:
            return text
        self._replace(place)
        return "".join([*parts, text[end:]])

    def _replace(self, place: str) -> str:
        if place not in self.places:
            self.places.append(place)
        return REDACTED


def _is_distinctive(value: str) -> bool:
    """Return whether a secret's value can be searched for: short or common ones are everywhere."""
    if len(value) < (_MIN_NUMBER_DIGITS if value.isdigit() else _MIN_VALUE_CHARACTERS):
        return False
    if value.lower() in _COMMON_VALUES or len(set(value)) < 4 or is_placeholder(value):
        return False
    return not (value.startswith("/") and os.path.lexists(value))
