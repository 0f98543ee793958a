"""Typed data to plain data and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import from_plain, to_plain
from pytest_flamegate.receipt.types import Evidence, ProcessProfile, Receipt
from tests.made import bundle

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Leaf:
    name: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Tree:
    mode: Literal["a", "b", 3]
    share: float
    flag: bool
    leaf: Leaf | None
    leaves: tuple[Leaf, ...]
    nested: tuple[tuple[int, ...], ...]
    table: Mapping[str, str | int]
    anything: object
    tags: tuple[str, ...] = ()
    table_of_leaves: Mapping[str, Leaf] = field(default_factory=lambda: MappingProxyType({}))
    pair: tuple[str, float] = ("x", 1.0)


@dataclass(frozen=True, slots=True)
class Twig(Leaf):
    length_mm: float = 2.0


TREE = Tree(
    mode="a",
    share=0.5,
    flag=True,
    leaf=None,
    leaves=(Leaf("x"), Leaf("y", 2)),
    nested=((1, 2), ()),
    table={"b": 1, "a": "x"},
    anything={"list": (1, "two", None)},
    table_of_leaves={"l": Leaf("z")},
)


def test_round_trip() -> None:
    plain = to_plain(TREE)
    assert from_plain(Tree, plain) == TREE
    assert list(plain["table"]) == ["a", "b"]
    assert plain["nested"] == [[1, 2], []]


def test_what_is_read_cannot_be_changed() -> None:
    read = from_plain(Tree, to_plain(TREE))
    with pytest.raises(TypeError):
        read.table["a"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        read.anything["list"] = 1  # type: ignore[index]


def test_defaults_fill_in_and_unknown_fields_are_ignored() -> None:
    assert from_plain(Leaf, {"name": "x", "later": {"version": 2}}) == Leaf("x", 1)


def test_fields_of_a_base_are_read_too() -> None:
    assert from_plain(Twig, to_plain(Twig("x", 3, 4.5))) == Twig("x", 3, 4.5)


def test_whole_numbers_are_rates_too() -> None:
    read = from_plain(Tree, {**to_plain(TREE), "share": 1})
    assert type(read.share) is float


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("mode", "c", "mode"),
        ("mode", 3.0, "mode"),
        ("mode", [], "mode"),
        ("share", "0.5", "share"),
        ("share", True, "share"),
        ("flag", 1, "flag"),
        ("leaf", [], "leaf"),
        ("leaf", {"name": 1}, "leaf.name"),
        ("leaf", {}, "leaf.name"),
        ("leaves", {}, "leaves"),
        ("leaves", [{"name": "x"}, {"name": "y", "count": 1.0}], "leaves[1].count"),
        ("nested", [[1], [2, True]], "nested[1][1]"),
        ("nested", [1], "nested[0]"),
        ("table", {"a": None}, "table.a"),
        ("table", [], "table"),
        ("tags", ["x", 1], "tags[1]"),
        ("table_of_leaves", {"l": {"name": None}}, "table_of_leaves.l.name"),
        ("pair", ["x"], "pair"),
        ("pair", ["x", 1.0, 2.0], "pair"),
        ("pair", ["x", "y"], "pair[1]"),
    ],
)
def test_a_wrong_type_is_refused_with_its_path(name: str, value: object, path: str) -> None:
    with pytest.raises(ReceiptError) as raised:
        from_plain(Tree, {**to_plain(TREE), name: value})
    assert raised.value.code in {"E_WRONG_TYPE", "E_MISSING_FIELD"}
    assert f'"{path}"' in raised.value.problem


def test_a_document_that_is_no_object_is_refused() -> None:
    with pytest.raises(ReceiptError, match="The document must be an object"):
        from_plain(Leaf, [])


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="set has no form"):
        to_plain({"a": {1}})


def test_receipt_and_evidence_round_trip() -> None:
    triple = bundle()
    assert from_plain(Receipt, to_plain(triple.receipt)) == triple.receipt
    assert from_plain(Evidence, to_plain(triple.evidence)) == triple.evidence


def test_token_times_are_read_without_a_call_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand gaps take the bulk path: no reader is called for a gap."""
    from pytest_flamegate.core import json_old as codec

    calls = 0
    reader = codec._tuple_reader(int)
    scalar = codec._scalar_reader(int)

    def counting(data: object) -> Any:
        nonlocal calls
        calls += 1
        return scalar(data)

    monkeypatch.setattr(codec, "_reader", lambda _kind: counting)
    counted = codec._tuple_reader(int)
    assert counted(list(range(100_000))) == reader(list(range(100_000)))
    assert calls == 0
    with pytest.raises(codec._MisfitError):
        counted([1, 2, "x"])
    assert calls == 3


def test_evidence_of_before_profiles_knew_when_processes_started_is_read() -> None:
    plain = {"pid": 7, "samples": 3, "self_samples": {"rms_norm": 3}}
    assert from_plain(ProcessProfile, plain).started_ticks is None
    assert from_plain(ProcessProfile, {**plain, "started_ticks": 9}).started_ticks == 9
