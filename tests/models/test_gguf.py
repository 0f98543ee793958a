import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.models import gguf
from pytest_flamegate.models.discover import read_model
from pytest_flamegate.models.files import model_sha256
from tests.models.gguf_files import (
    ARRAY,
    BOOL,
    F32,
    F64,
    STRING,
    TENSOR_F32,
    TENSOR_TQ2_0,
    U8,
    U32,
    U64,
    GgufFile,
    key,
    strings,
    tensor,
    text,
    u32,
    u64,
)

MIB = 1 << 20


def read(tmp_path: Path, data: bytes) -> gguf.ModelHeader:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return gguf.read_header(path)


def sound(*keys: bytes) -> bytes:
    return GgufFile(keys=list(keys)).packed()


def test_a_sound_file(tmp_path: Path) -> None:
    header = read(tmp_path, GgufFile().packed())
    start = len(GgufFile().header())
    assert header.path == tmp_path / "model.gguf"
    assert (header.architecture, header.name) == ("bitnet", "tiny")
    assert header.tensors == (
        gguf.TensorInfo("a.weight", (256, 2), "TQ2_0", start, 132),
        gguf.TensorInfo("b.weight", (4,), "F32", start + 160, 16),
    )
    assert [each.parameters for each in header.tensors] == [512, 4]


@pytest.mark.parametrize(
    ("kind", "packed", "value"),
    [
        (U8, b"\xff", 255),
        (1, b"\xff", -1),
        (2, b"\x01\x02", 0x201),
        (3, b"\xfe\xff", -2),
        (U32, u32(7), 7),
        (5, struct.pack("<i", -7), -7),
        (F32, struct.pack("<f", 0.5), 0.5),
        (BOOL, b"\x01", True),
        (STRING, text("Ünïcode"), "Ünïcode"),
        (U64, u64(2**63), 2**63),
        (11, struct.pack("<q", -(2**40)), -(2**40)),
        (F64, struct.pack("<d", 1e300), 1e300),
        (ARRAY, u32(U32) + u64(2) + u32(5) + u32(6), (5, 6)),
        (ARRAY, strings(["a", ""]), ("a", "")),
        (ARRAY, u32(U8) + u64(0), ()),
    ],
)
def test_every_type_of_value(tmp_path: Path, kind: int, packed: bytes, value: object) -> None:
    last = key("after", U32, u32(9))
    metadata = read(tmp_path, sound(key("k", kind, packed), last)).metadata
    assert metadata["k"] == value
    assert type(metadata["k"]) is type(value)
    assert metadata["after"] == 9


def test_long_arrays_and_strings_are_skipped(tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(20)]
    data = sound(
        key("words", ARRAY, strings(words)),
        key("scores", ARRAY, u32(F32) + u64(17) + bytes(4 * 17)),
        key("long", STRING, text("x" * (MIB + 1))),
        key("after", U32, u32(9)),
    )
    metadata = read(tmp_path, data).metadata
    assert {key for key, value in metadata.items() if value is None} == {"words", "scores", "long"}
    assert metadata["after"] == 9


def test_a_type_ggml_does_not_define_takes_the_room_there_is(tmp_path: Path) -> None:
    file = GgufFile(data=bytes(128))
    file.tensors = [
        tensor("ternary", (256,), 36, 0),
        tensor("next", (4,), offset=96),
        tensor("middle", (9,), 250, 64),
    ]
    header = read(tmp_path, file.packed())
    assert [(t.type, t.nbytes) for t in header.tensors] == [
        ("I2_S", 64),
        ("F32", 16),
        ("type_250", 32),
    ]


def holding(*tensors: bytes) -> bytes:
    return GgufFile(tensors=list(tensors)).packed()


A_TENSOR = tensor("w", (4,))
ENDLESS = 2**64 - 1
LONG = key("k", ARRAY, u32(STRING) + u64(17))

BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "another format": (b"\x80\x02}q\x00" * 20, "does not start with GGUF"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid x\n", "Git LFS pointer"),
    "version 1": (GgufFile(version=u32(1)).packed(), "version 1"),
    "big-endian": (GgufFile(version=struct.pack(">I", 3)).packed(), "little-endian"),
    "too many keys": (GgufFile(key_count=ENDLESS).packed(), "claims"),
    "too many tensors": (GgufFile(tensor_count=ENDLESS).packed(), "claims"),
    "endless key": (sound(u64(ENDLESS) + b"x"), "metadata key of"),
    "key not UTF-8": (sound(key(b"\xff\xfe", U32, u32(1))), "not UTF-8"),
    "key twice": (sound(*[key("k", U32, u32(1))] * 2), "'k' twice"),
    "unknown type": (sound(key("k", 13, u32(1))), "unknown type 13"),
    "boolean 2": (sound(key("k", BOOL, b"\x02")), "boolean of value 2"),
    "string not UTF-8": (sound(key("k", STRING, text(b"\xc3("))), "not UTF-8"),
    "endless string": (sound(key("k", STRING, u64(ENDLESS))), "ends inside"),
    "endless strings": (sound(key("k", ARRAY, u32(STRING) + u64(ENDLESS))), "claims"),
    "endless string in a long array": (sound(LONG + u64(ENDLESS) + bytes(200)), "ends inside"),
    "array of arrays": (
        sound(key("k", ARRAY, u32(ARRAY) + u64(1) + u32(U32) + u64(1) + u32(1))),
        "unsupported type 9",
    ),
    "architecture is a number": (sound(key("general.architecture", U32, u32(1))), "is no text"),
    "alignment 24": (sound(key("general.alignment", U32, u32(24))), "alignment of 24"),
    "alignment is true": (sound(key("general.alignment", BOOL, b"\x01")), "alignment of True"),
    "tensor twice": (holding(A_TENSOR, A_TENSOR), "'w' twice"),
    "tensor without a name": (holding(tensor("", (4,))), "name of 0 bytes"),
    "endless dimensions": (holding(text("w") + u32(2**32 - 1) + bytes(64)), "dimensions"),
    "shape overflows to 4": (holding(tensor("w", (2**62 + 1, 4))), "impossible"),
    "a row of half a block": (holding(tensor("w", (128, 4), TENSOR_TQ2_0)), "TQ2_0 rows of 128"),
    "larger than the file": (holding(tensor("w", (45,))), "ends before"),
    "offset off the grid": (holding(tensor("w", (4,), offset=8)), "off its grid of 32"),
    "unknown type at the end": (holding(tensor("w", (4,), 99, 192)), "ends before"),
    "unknown type of less than a bit": (holding(tensor("w", (2**40,), 99)), "ends before"),
}


@pytest.mark.parametrize(("data", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files_are_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ToolError, match=reason) as caught:
            read(tmp_path, data)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == "E_MODEL_BROKEN"
    assert "model.gguf" in caught.value.problem
    assert peak_bytes < 2 * MIB


def test_every_truncation_of_a_sound_file_is_refused(tmp_path: Path) -> None:
    whole = GgufFile().packed()
    for length in range(len(whole)):
        with pytest.raises(ToolError) as caught:
            read(tmp_path, whole[:length])
        assert caught.value.code == "E_MODEL_BROKEN"
    assert len(read(tmp_path, whole).tensors) == 2


MUTABLE = GgufFile(
    keys=[
        key("general.architecture", STRING, text("m")),
        key("words", ARRAY, strings([f"w{i}" for i in range(20)])),
        key("numbers", ARRAY, u32(U32) + u64(18) + bytes(72)),
        key("flag", BOOL, b"\x01"),
        key("m.block_count", U32, u32(1)),
        key("m.expert_count", U32, u32(2)),
        key("m.expert_used_count", U32, u32(1)),
    ],
    tensors=[
        tensor("token_embd.weight", (256, 2), TENSOR_TQ2_0),
        tensor("blk.0.ffn_up_exps.weight", (2, 2), TENSOR_F32, 160),
    ],
)


@settings(max_examples=300)
@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, len(MUTABLE.header()) - 1),
            st.binary(min_size=1, max_size=9) | st.sampled_from([u64(ENDLESS), u64(1 << 40)]),
        ),
        min_size=1,
        max_size=4,
    ),
    length=st.integers(0, len(MUTABLE.packed())) | st.none(),
)
def test_no_mutation_gets_past_the_checks(
    tmp_path_factory: pytest.TempPathFactory,
    edits: list[tuple[int, bytes]],
    length: int | None,
) -> None:
    data = bytearray(MUTABLE.packed())
    for at, new in edits:
        data[at : at + len(new)] = new
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    path.write_bytes(data[:length])
    try:
        header = gguf.read_header(path)
    except ToolError as error:
        assert error.code == "E_MODEL_BROKEN"  # noqa: PT017 - a sound header is no error
        return
    size = path.stat().st_size
    for info in header.tensors:
        assert info.nbytes > 0
        assert info.offset + info.nbytes <= size
    told = read_model(path)
    assert told.parameters == sum(each.parameters for each in header.tensors)
    assert told.bytes_per_token is None or 0 <= told.bytes_per_token <= size
    assert not told.quantisation or sum(told.quantisation.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("read_file", [gguf.read_header, model_sha256])
def test_paths_without_a_readable_file(tmp_path: Path, read_file: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("none", "", "pipe", "none/x", "x" * 300, "a\0b"):
        with pytest.raises(ToolError, match="E_MODEL_MISSING"):
            read_file(tmp_path / name)
