from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.models import discover
from pytest_flamegate.models.discover import (
    PLACES,
    DirectorySearch,
    find_model,
    find_tokenizer,
)
from tests.models.gguf_files import ARRAY, GgufFile, key, strings

BITNET = "models/microsoft-bitnet-b1.58-2B-4T-gguf"


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Look into a hub's cache of this test's own."""
    cache = tmp_path / "cache/hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    return cache


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def sound(path: Path, *, vocabulary: bool = False) -> Path:
    touch(path)
    file = GgufFile()
    if vocabulary:
        file.keys.append(key("tokenizer.ggml.tokens", ARRAY, strings(["a"] * 30)))
    path.write_bytes(file.packed())
    return path


def code_of(declared: str | None, directory: Path) -> str:
    with pytest.raises(ToolError) as refused:
        find_model(declared, directory)
    return refused.value.code


def test_the_bitnet_folder_comes_before_the_others(tmp_path: Path) -> None:
    touch(tmp_path / "models/other.gguf")
    wanted = touch(tmp_path / BITNET / "ggml-model-i2_s.gguf")
    assert find_model(None, tmp_path) == wanted
    touch(tmp_path / BITNET / "ggml-model-f32.gguf")
    assert find_model(None, tmp_path) == wanted


@pytest.mark.parametrize(
    "place",
    [
        f"{BITNET}/a.gguf",
        "models/a.gguf",
        "models/deep/er/a.gguf",
        "a.gguf",
        "ggml-model-i2_s.gguf",
        "cache/hub/models--org--m/snapshots/0/a.gguf",
    ],
)
def test_the_usual_places(tmp_path: Path, place: str) -> None:
    wanted = touch(tmp_path / place)
    assert find_model(None, tmp_path) == wanted


def test_a_declared_pattern_and_a_declared_path(tmp_path: Path) -> None:
    wanted = touch(tmp_path / "weights/tiny.gguf")
    touch(tmp_path / BITNET / "ggml-model-i2_s.gguf")
    assert find_model("weights/*.gguf", tmp_path) == wanted
    assert find_model("weights/tiny.gguf", tmp_path) == wanted
    assert find_model(str(wanted), tmp_path / "elsewhere") == wanted
    assert find_model(f"{tmp_path}/weights/*", tmp_path / "elsewhere") == wanted


def test_several_candidates_are_listed(tmp_path: Path) -> None:
    sound(tmp_path / "models/a.gguf")
    touch(tmp_path / "models/b.gguf")
    with pytest.raises(
        ToolError, match=r"models/a\.gguf \(0\.4 kB, TQ2_0\), models/b\.gguf \(E_MODEL_BROKEN\)"
    ) as refused:
        find_model(None, tmp_path)
    assert refused.value.code == "E_MODEL_AMBIGUOUS"


def test_one_file_under_two_names_is_one_model(tmp_path: Path) -> None:
    wanted = touch(tmp_path / "models/a.gguf")
    (tmp_path / "models/b.gguf").symlink_to(wanted)
    assert find_model(None, tmp_path) == wanted


def test_a_projector_is_no_model_but_may_be_declared(tmp_path: Path) -> None:
    projector = touch(tmp_path / "models/mmproj-m.gguf")
    assert code_of(None, tmp_path) == "E_MODEL_MISSING"
    wanted = touch(tmp_path / "models/m.gguf")
    assert find_model(None, tmp_path) == wanted
    assert find_model("models/mmproj*", tmp_path) == projector


def test_a_split_model_is_its_first_part(tmp_path: Path) -> None:
    first, _, third = (touch(tmp_path / f"models/m-0000{n}-of-00003.gguf") for n in (1, 2, 3))
    assert find_model(None, tmp_path) == first
    assert find_model("models/*.gguf", tmp_path) == first
    assert code_of("models/m-00003-of-00003.gguf", tmp_path) == "E_MODEL_PARTS"
    third.unlink()
    with pytest.raises(ToolError, match="m-00003-of-00003") as refused:
        find_model(None, tmp_path)
    assert refused.value.code == "E_MODEL_PARTS"
    first.unlink()
    assert code_of(None, tmp_path) == "E_MODEL_PARTS"


@pytest.mark.parametrize(
    "declared",
    [None, "no/such/*.gguf", "/no/such/model.gguf", "", ".", "./", "x" * 300, "a\0b", "**/" * 2000],
)
def test_nothing_found_says_where_it_looked(tmp_path: Path, declared: str | None) -> None:
    with pytest.raises(ToolError, match=r"searched ") as refused:
        find_model(declared, tmp_path)
    assert refused.value.code == "E_MODEL_MISSING"


def test_nothing_found_names_every_place(tmp_path: Path, hub: Path) -> None:
    with pytest.raises(ToolError) as refused:
        find_model(None, tmp_path)
    assert all(place in refused.value.problem for place in (*PLACES, str(hub)))
    assert "hf download" in refused.value.remedy


def test_too_much_to_look_through_is_no_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = DirectorySearch(most=5)
    monkeypatch.setattr(discover, "DirectorySearch", lambda: small)
    touch(tmp_path / "models/a.gguf")
    for number in range(10):
        touch(tmp_path / f"models/{number}.txt")
    assert code_of(None, tmp_path) == "E_MODEL_SEARCH"


def test_names_that_are_not_utf_8_can_be_told(tmp_path: Path) -> None:
    for name in (b"\xff.gguf", b"\xfe.gguf"):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).touch()
    with pytest.raises(ToolError) as refused:
        find_model(None, tmp_path)
    assert r"\xff.gguf" in refused.value.problem
    refused.value.problem.encode()
    with pytest.raises(ToolError) as refused:
        find_model(os.fsdecode(b"\xfd*.gguf"), tmp_path)
    refused.value.problem.encode()


@pytest.mark.parametrize(
    ("places", "wanted"),
    [
        (["m/tokenizer.json", "m/tokenizer.model", "models/tokenizer.json"], "m/tokenizer.json"),
        (["m/tokenizer.model", "models/tokenizer.json"], "m/tokenizer.model"),
        (["models/tokenizer.model", "tokenizer.json"], "models/tokenizer.model"),
        (["tokenizer.json"], "tokenizer.json"),
        ([], "m/m.gguf"),
    ],
)
def test_a_tokenizer_is_looked_for_beside_the_model_first(
    tmp_path: Path, places: list[str], wanted: str
) -> None:
    model = sound(tmp_path / "m/m.gguf", vocabulary=True)
    touch(tmp_path / BITNET / "tokenizer.json")  # of another model
    for place in places:
        touch(tmp_path / place)
    assert find_tokenizer(tmp_path, model) == tmp_path / wanted


def test_without_a_model_the_bitnet_folder_comes_first(tmp_path: Path) -> None:
    touch(tmp_path / "models/tokenizer.json")
    wanted = touch(tmp_path / BITNET / "tokenizer.json")
    assert find_tokenizer(tmp_path, None) == wanted


@pytest.mark.parametrize("model", [None, "sound.gguf", "broken.gguf"])
def test_no_tokenizer_says_where_it_looked(tmp_path: Path, model: str | None) -> None:
    sound(tmp_path / "sound.gguf")
    touch(tmp_path / "broken.gguf")
    with pytest.raises(
        ToolError, match=r"searched for tokenizer\.json and tokenizer\.model"
    ) as told:
        find_tokenizer(tmp_path, None if model is None else tmp_path / model)
    assert told.value.code == "E_TOKENIZER_MISSING"
