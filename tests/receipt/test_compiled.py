"""The compiled schemas answer as jsonschema does, and refuse to guess."""

from __future__ import annotations

import copy
import json
import math
import random
from functools import cache
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker, validators

from pytest_flamegate.core import schema
from pytest_flamegate.core.json import is_timestamp
from pytest_flamegate.core.schema import Compiler, Kind
from tests.made import bundle
from tests.receipt.documents import INVALID, VALID

KINDS: tuple[Kind, ...] = get_args(Kind)
NASTY: list[Any] = [
    *(None, True, False, 0, 1, -1, 7, 10**40, -0.0, 0.0, 1.0, 0.5, 1e308, math.nan, math.inf),
    *("", " ", "\n", "cpu", "CUDA", "cpu\n", "real", "1.0.0", "1.1.0", "x" * 129, "é", "timed"),
    *("2025-10-13T12:00:00Z", "2025-02-30T12:00:00Z", "0" * 64, "0" * 64 + "\n", "A" * 64),
    *([], [[]], [1], [True], [1.0], [-1], [[1, 2], [3]], [[1, -2]], [[1], 2], ["a"], [""], [None]),
    *({}, {"OS": "linux"}, {"OS": 1}, {"path": "x"}, {"engine": "e"}, {"schema_version": "1.1.0"}),
    *({"fallback_count": -1}, {"types_used": [1]}, {"wall_ns": 1, "cpu_ns": 1, "run_delay_ns": 0}),
]
NAMES = ["kernel_path", "quantization", "decode", "tree", "unknown", "OS", "method", "looks"]


@cache
def jsonschema_validator(kind: Kind) -> Any:
    """Return jsonschema itself with the strict types, and none of our keywords."""

    def integer(_: object, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def number(_: object, value: object) -> bool:
        return integer(_, value) or (isinstance(value, float) and math.isfinite(value))

    types = Draft202012Validator.TYPE_CHECKER.redefine_many({"integer": integer, "number": number})
    formats = FormatChecker(formats=())
    formats.checks("date-time")(lambda value: not isinstance(value, str) or is_timestamp(value))
    extend: Any = validators.extend
    strict = extend(Draft202012Validator, type_checker=types)
    return strict(schema.load(kind), format_checker=formats)


def seeds(kind: Kind) -> list[Any]:
    found = list(schema.load(kind)["examples"])
    if kind == "receipt":
        found += [json.loads(path.read_bytes()) for path in VALID]
        for path in INVALID:
            try:
                found.append(json.loads(path.read_bytes()))
            except ValueError:
                continue
    if kind == "evidence":
        small = bundle(timed=1, profiled=1, sequences=1, token_ns=200_000_000)
        found.append(json.loads(small.files["evidence.json"]))
    return found


SEEDS = {kind: seeds(kind) for kind in KINDS}


def containers(document: Any) -> list[Any]:
    """Return every object and list in ``document`` that holds something."""
    found, pending = [], [document]
    while pending:
        value = pending.pop()
        if isinstance(value, (dict, list)) and value:
            found.append(value)
            pending.extend(value.values() if isinstance(value, dict) else value)
    return found


def mutated(source: random.Random, seed: Any) -> Any:
    """Return a copy of ``seed`` with a few parts replaced, dropped, doubled or added."""
    document = copy.deepcopy(seed)
    for _ in range(source.choice((0, 1, 1, 1, 2, 3))):
        holders = containers(document)
        if not holders:
            return source.choice(NASTY)
        holder = source.choice(holders)
        value = copy.deepcopy(source.choice(NASTY))
        if isinstance(holder, list):
            place = source.randrange(len(holder))
            holder[place : place + source.randrange(2)] = [value] * source.randrange(3)
        elif source.randrange(4) == 0:
            holder[source.choice(NAMES)] = value
        elif source.randrange(3) == 0:
            del holder[source.choice(list(holder))]
        else:
            holder[source.choice(list(holder))] = value
    return document


def agree(kind: Kind, document: Any) -> bool:
    surely = schema._compiler(kind).test(schema.load(kind))(document)
    errors = list(jsonschema_validator(kind).iter_errors(document))
    assert surely is (not errors), (errors[:1], document)
    # And what is reported is what jsonschema finds: the same fields, in few words.
    fields = {fault.field for fault in schema.faults(document, kind)}
    tops = {str(error.path[0]) if error.path else None for error in errors}
    missing = {None} if any(error.validator == "required" for error in errors) else set()
    assert tops - missing <= fields or not isinstance(document, dict)
    assert bool(fields) is bool(errors)
    return surely


@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_as_jsonschema_does_for_mutated_documents(kind: Kind) -> None:
    source = random.Random(1)
    answers = [agree(kind, mutated(source, source.choice(SEEDS[kind]))) for _ in range(400)]
    assert 40 < sum(answers) < 360  # both answers were given, and often


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_it_answers_as_jsonschema_does_for_any_value_anywhere(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    document = copy.deepcopy(data.draw(st.sampled_from(SEEDS[kind])))
    values = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.lists(st.integers(-1, 3)),
        st.lists(st.lists(st.integers(-1, 3))),
        st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.text())),
    )
    holders = containers(document)
    if holders:
        holder = data.draw(st.sampled_from(holders))
        steps = list(holder) if isinstance(holder, dict) else range(len(holder))
        holder[data.draw(st.sampled_from(list(steps)))] = data.draw(values)
    agree(kind, document)


@pytest.mark.parametrize("kind", KINDS)
def test_each_part_answers_as_jsonschema_does_for_each_nasty_value(kind: Kind) -> None:
    whole = schema.load(kind)
    parts: list[Any] = [whole]
    for part in parts:
        parts.extend(part.get("properties", {}).values())
        parts.extend(part.get("anyOf", []))
        parts.extend(part.get("$defs", {}).values())
        parts.extend(part[name] for name in ("items", "if", "then") if name in part)
    assert len(parts) > 10
    for part in parts:
        test = schema._compiler(kind).test(part)
        plain = jsonschema_validator(kind).evolve(schema={"$defs": whole.get("$defs", {}), **part})
        for value in NASTY:
            assert test(value) is plain.is_valid(value), (part, value)


@pytest.mark.parametrize(
    "unknown",
    [
        {"multipleOf": 2},
        {"type": "object", "patternProperties": {"^a": {"type": "string"}}},
        {"properties": {"a": {"uniqueItems": True}}},
        {"items": {"oneOf": [{"type": "string"}]}},
        {"additionalProperties": False},
        {"enum": ["a", 1]},
        {"const": True},
        {"format": "uri"},
        {"$ref": "https://example.org/other"},
        {"anyOf": [{"not": {}}]},
        {"if": {"minLenght": 1}, "then": {}},
        ["type"],
    ],
    ids=str,
)
def test_what_it_does_not_know_is_an_error_and_never_ignored(unknown: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="here"):
        Compiler({}).test(unknown)


def test_an_else_is_not_ignored() -> None:
    with pytest.raises(ValueError, match="'else'"):
        Compiler({}).test({"if": {}, "then": {}, "else": {}})
