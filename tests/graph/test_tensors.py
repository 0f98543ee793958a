"""Digests do not depend on the source of values; their file is strict; two runs are compared."""

import array
import base64
import hashlib
import json
import math
from typing import Any

import numpy as np
import pytest

from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.graph import tensors
from pytest_flamegate.graph.tensors import (
    Digests,
    TensorKey,
    Tolerance,
    divergence,
    read_digests,
    read_tensor,
    sentence,
    trueno_checksum,
    write_digests,
)

ONES = np.arange(12, dtype=np.float32).reshape(3, 4)
LAYER: Any = np.int64(0)
NAN, INF = math.nan, math.inf


def with_array(read: Any) -> Any:
    return type("Foreign", (), {"__array__": read})()


def sha256(value: Any) -> str:
    return Digests().record("a", value).sha256


@pytest.mark.parametrize(
    "same",
    [
        ONES,
        ONES.astype(">f4"),
        np.asfortranarray(ONES),
        np.repeat(ONES, 2, axis=1)[:, ::2],
        with_array(lambda *_, **__: ONES),
        memoryview(ONES.tobytes()).cast("B").cast("f", (3, 4)),
    ],
    ids=["itself", "big-endian", "fortran", "strided", "__array__", "buffer"],
)
def test_digest_is_of_type_shape_and_bytes_whatever_their_source(same: Any) -> None:
    assert sha256(same) == hashlib.sha256(b"float32 [3, 4]\n" + ONES.tobytes()).hexdigest()


def test_empty_tensors_and_single_values_have_digests() -> None:
    some = (np.float32(1), np.ones(1, np.float32), np.zeros((0, 3)), np.zeros((3, 0)))
    assert len({sha256(each) for each in some}) == 4
    assert sha256(array.array("f", [1.0])) == sha256(some[1])


@pytest.mark.parametrize(
    "value",
    [
        *([1.0, 2.0], None, np.array(["a"]), np.array([{}]), with_array(lambda *_: 1 / 0)),
        *(np.array([(1, 2.0)], "i4,f4"), np.zeros(2, np.longdouble)),
        np.ma.masked_array([1.0, 2.0], [True, False]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_other_values_raise(value: Any) -> None:
    with pytest.raises(UsageError, match="E_TENSOR"):
        sha256(value)


def test_tensors_of_torch_are_read() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ours = torch.from_numpy(ONES).clone().requires_grad_()
    # Small whole numbers are exact in bfloat16.
    assert sha256(ours) == sha256(ours.to(torch.bfloat16)) == sha256(ONES)


def test_checksum_is_that_of_trueno_over_the_first_64_values() -> None:
    known = {(): 0xCBF29CE484222325, (1.0, 2.0, 3.0): 0x1DE40D89811FE258}
    for values, expected in known.items():
        for dtype in ("<f4", ">f4", "f8"):
            assert trueno_checksum(read_tensor(np.array(values, dtype))) == expected
    one, other = (Digests().record("a", np.append(np.ones(64, "f4"), last)) for last in (1, 2))
    assert (one.trueno == other.trueno, one.sha256 == other.sha256) == (True, False)
    assert Digests().record("a", np.ones(3, np.int32)).trueno is None


# The record and its file


def recorded(*, values_bytes: int = 0) -> Digests:
    found = Digests(values_bytes=values_bytes)
    found.record("Embedding", ONES, position=0)
    found.record("RmsNorm", 2 * ONES, layer=LAYER, position=0)
    found.record("tokens", np.array([1, 2], np.int64))
    return found


@pytest.mark.parametrize(
    "key",
    [
        *({"name": ""}, {"name": "x" * 201}, {"name": "\ud800"}, {"name": 3}),
        *({"name": "a", "layer": -1}, {"name": "a", "position": 1.0}),
        *({"name": "a", "position": 2**60}, {"name": "RmsNorm", "layer": 0, "position": 0}),
    ],
    ids=str,
)
def test_invalid_or_repeated_key_raises(key: dict[str, Any]) -> None:
    found = recorded()
    with pytest.raises(UsageError, match="E_TENSOR"):
        found.record(array=ONES, **key)
    assert len(found.tensors) == 3


def test_values_are_limited() -> None:
    found = Digests(values_bytes=2 * ONES.nbytes)
    found.record("a", ONES)
    with pytest.raises(UsageError, match="E_TENSOR"):
        found.record("a", ONES)  # takes no room
    copied = ONES.copy()
    kept = found.record("b", copied)
    copied[:] = 5
    assert kept.values == ONES.tobytes()
    with pytest.raises(UsageError, match=r"E_TENSOR.*more bytes of values"):
        found.record("c", ONES)


@pytest.mark.parametrize("values_bytes", [0, 1000])
def test_file_holds_the_record(values_bytes: int) -> None:
    found = recorded(values_bytes=values_bytes)
    names = ["Embedding, position 0", "RmsNorm, layer 0, position 0", "tokens"]
    assert list(map(str, found.tensors)) == names
    data = write_digests(found)
    again = read_digests(data)
    assert list(again.tensors.items()) == list(found.tensors.items())
    assert write_digests(again) == data
    assert read_digests(write_digests(Digests())).tensors == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"key": {"name": ""}},
        {"key": {"name": "a", "layer": -1}},
        {"key": {"name": "RmsNorm", "layer": 0, "position": 0}},
        *({"dtype": "float31"}, {"dtype": "float31", "values": None}),
        *({"sha256": "0" * 63}, {"sha256": "0" * 64}),
        *({"shape": [4, 4]}, {"shape": [4, 3]}, {"shape": [-1]}, {"values": "AAAA"}, {"more": 1}),
    ],
    ids=str,
)
def test_invalid_tensor_in_a_file_raises(fields: dict[str, Any]) -> None:
    document = json.loads(write_digests(recorded(values_bytes=1000)))
    document["tensors"][0].update(fields)
    with pytest.raises(ReceiptError, match="E_DIGESTS"):
        read_digests(json.dumps(document).encode())


def test_values_of_another_length_raise() -> None:
    document = json.loads(write_digests(recorded(values_bytes=1000)))
    first = document["tensors"][0]
    values = b"\0" * 3
    heading = f"{first['dtype']} {first['shape']}\n".encode()
    first["values"] = base64.b64encode(values).decode()
    first["sha256"] = hashlib.sha256(heading + values).hexdigest()
    with pytest.raises(ReceiptError, match="E_DIGESTS"):
        read_digests(json.dumps(document).encode())


def test_size_of_a_file_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    # The documentation keeps 256 MiB; base64 makes four characters of three bytes.
    assert tensors.MAX_BYTES > (256 << 20) * 4 / 3 + 100_000 * 400
    data = write_digests(recorded())
    monkeypatch.setattr(tensors, "MAX_BYTES", 100)
    with pytest.raises(ReceiptError, match="E_JSON_SIZE"):
        read_digests(data)


# Two runs


def run(*values: tuple[str, Any], values_bytes: int = 1 << 20) -> Digests:
    found = Digests(values_bytes=values_bytes)
    for position, (name, value) in enumerate(values):
        array = value if isinstance(value, np.ndarray) else np.array(value, np.float32)
        found.record(name, array, layer=1, position=position)
    return found


def both(one: Any, other: Any, *limits: float) -> Any:
    return divergence(run(("a", one)), run(("a", other)), tolerance=Tolerance(*limits))


def test_first_difference_is_named_with_both_digests() -> None:
    one = run(("z", [1.0]), ("b", [2.0]), ("a", [3.0]))
    assert sentence(divergence(one, one)) == "All 3 tensors that both runs have are the same."
    other = run(("z", [1.0]), ("b", [2.5]), ("a", [3.5]))
    found = divergence(one, other)
    assert len(found.differing) == 2
    first, second = (each.tensors[TensorKey("b", 1, 1)].sha256[:16] for each in (one, other))
    assert sentence(found) == (
        f"The runs differ from b, layer 1, position 1 on: float32 [1] {first} in the first run, "
        f"float32 [1] {second} in the second; 2 of 3 tensors differ."
    )


def test_missing_and_extra_tensors_are_a_difference() -> None:
    found = divergence(run(("a", [1.0]), ("b", [2.0])), run(("a", [1.0]), ("c", [2.0])))
    assert found.differing == ()
    assert (found.missing, found.extra) == ((TensorKey("b", 1, 1),), (TensorKey("c", 1, 1),))
    assert "1 are only in the first run: b, layer 1, position 1." in sentence(found)
    assert "1 are only in the second run: c" in sentence(found)
    nothing = divergence(run(*[(name, [1.0]) for name in "abcde"]), run(("z", [1.0])))
    assert sentence(nothing).startswith("The runs have no tensor in common. 5 are only in the ")
    assert "c, layer 1, position 2 and 2 more." in sentence(nothing)


@pytest.mark.parametrize(
    ("one", "other", "atol", "rtol", "same"),
    [
        ([1.0], [1.5], 0.5, 0, True),
        ([1.0], [1.5], 0.499, 0, False),
        ([100.0], [101.0], 0, 0.01, True),
        ([100.0], [101.1], 0, 0.01, False),
        ([100.0], [101.5], 0.5, 0.01, True),
        ([0.0], [-0.0], 0, 0, True),
        ([NAN, 1], [NAN, 1], 0, 0, True),
        ([NAN], [1.0], 1e30, 0, False),
        ([INF], [-INF], 1e30, 1e30, False),
        ([1.0], [INF], 1e30, 0, False),
        (np.array([1e308]), np.array([-1e308]), 1e300, 1, False),
        (np.array([2**62]), np.array([2**62 + 1]), 9, 9, False),
        (np.array([1.0], np.float16), np.array([1.0], np.float32), 0, 0, True),
        (np.array([1.0]), np.array([1]), 9, 9, False),
        (np.ones((1, 2)), np.ones((2, 1)), 9, 9, False),
        (np.ones((0, 2)), np.ones((0, 2)), 0, 0, True),
    ],
)
def test_floats_agree_within_the_tolerance(
    one: Any, other: Any, atol: float, rtol: float, same: bool
) -> None:
    assert (not both(one, other, atol, rtol).differing) is same


def test_largest_difference_of_a_tensor_is_located() -> None:
    other = ONES.copy()
    other[2, 1] += 0.5
    other[0, 3] -= 0.25
    assert sentence(both(ONES, other, 0.3)) == (
        "The runs differ from a, layer 1, position 0 on: 1 values, at most 0.5 (9 against 9.5) at "
        "[2, 1]; 1 of 1 tensors differ."
    )
    # A large value may differ by more and still be within a relative tolerance.
    assert both([1e6, 1.0], [1e6 + 100, 1.1], 0, 1e-3).difference.endswith("at [1]")
    assert "at most inf (1 against nan) at [0]" in sentence(both([1.0, NAN], [NAN, NAN], 1))


def test_a_comparison_needs_tensors_and_values() -> None:
    some = run(("a", [1.0]), values_bytes=0)
    for runs, name in (((Digests(), some), "first"), ((some, Digests()), "second")):
        with pytest.raises(UndecidedError, match=f"E_NO_DIGESTS: The {name} run"):
            divergence(*runs)
    with pytest.raises(UndecidedError, match=r"E_NO_DIGESTS.*values of a"):
        divergence(some, some, tolerance=Tolerance())
