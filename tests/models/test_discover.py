"""The models and tokenizers that a search finds, below a directory and in the hub's cache."""

import os
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.models import discover
from tests.models.gguf_files import ARRAY, GgufFile, key, strings

BITNET = "models/microsoft-bitnet-b1.58-2B-4T-gguf"


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Search a hub's cache of this test's own."""
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
        discover.find_model(declared, directory)
    return refused.value.code


def test_earlier_places_come_first(tmp_path: Path) -> None:
    for place in (
        "cache/hub/models--org--m/snapshots/0/a.gguf",
        "a.gguf",
        "ggml-model-i2_s.gguf",
        "models/deep/er/a.gguf",
        "models/ggml-model-i2_s.gguf",
        f"{BITNET}/a.gguf",
        f"{BITNET}/ggml-model-i2_s.gguf",
    ):
        wanted = touch(tmp_path / place)
        assert discover.find_model(None, tmp_path) == wanted


def test_a_declared_pattern_and_a_declared_path(tmp_path: Path) -> None:
    wanted = touch(tmp_path / "weights/tiny.gguf")
    touch(tmp_path / BITNET / "ggml-model-i2_s.gguf")
    assert discover.find_model("weights/*.gguf", tmp_path) == wanted
    assert discover.find_model("weights/tiny.gguf", tmp_path) == wanted
    assert discover.find_model(str(wanted), tmp_path / "elsewhere") == wanted
    assert discover.find_model(f"{tmp_path}/weights/*", tmp_path / "elsewhere") == wanted


def test_several_candidates_are_listed(tmp_path: Path) -> None:
    sound(tmp_path / "models/a.gguf")
    touch(tmp_path / "models/b.gguf")
    words = r"models/a\.gguf \(0\.4 kB, TQ2_0\), models/b\.gguf \(E_MODEL_BROKEN\)"
    with pytest.raises(ToolError, match=f"E_MODEL_AMBIGUOUS.*{words}"):
        discover.find_model(None, tmp_path)


def test_one_file_under_two_names_is_one_model(tmp_path: Path) -> None:
    wanted = touch(tmp_path / "models/a.gguf")
    (tmp_path / "models/b.gguf").symlink_to(wanted)
    assert discover.find_model(None, tmp_path) == wanted


def test_a_projector_is_no_model_but_may_be_declared(tmp_path: Path) -> None:
    projector = touch(tmp_path / "models/mmproj-m.gguf")
    assert code_of(None, tmp_path) == "E_MODEL_MISSING"
    wanted = touch(tmp_path / "models/m.gguf")
    assert discover.find_model(None, tmp_path) == wanted
    assert discover.find_model("models/mmproj*", tmp_path) == projector


def test_a_split_model_is_its_first_part(tmp_path: Path) -> None:
    first, _, third = (touch(tmp_path / f"models/m-0000{n}-of-00003.gguf") for n in (1, 2, 3))
    assert discover.find_model(None, tmp_path) == first
    assert discover.find_model("models/*.gguf", tmp_path) == first
    assert code_of("models/m-00003-of-00003.gguf", tmp_path) == "E_MODEL_PARTS"
    third.unlink()
    with pytest.raises(ToolError, match=r"E_MODEL_PARTS.*m-00003-of-00003"):
        discover.find_model(None, tmp_path)


@pytest.mark.parametrize(
    "declared",
    [None, "no/such/*.gguf", "/no/such/model.gguf", "", ".", "a\0b"],
)
def test_nothing_found_says_where_it_looked(
    tmp_path: Path, hub: Path, declared: str | None
) -> None:
    with pytest.raises(ToolError, match=r"E_MODEL_MISSING.*searched ") as refused:
        discover.find_model(declared, tmp_path)
    if declared is None:
        assert all(place in refused.value.problem for place in (*discover.PLACES, str(hub)))
        assert "hf download" in refused.value.remedy


def test_names_that_are_not_utf_8_can_be_told(tmp_path: Path) -> None:
    for name in (b"\xff.gguf", b"\xfe.gguf"):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).touch()
    with pytest.raises(ToolError) as refused:
        discover.find_model(None, tmp_path)
    assert r"\xff.gguf" in refused.value.problem
    refused.value.problem.encode()
    with pytest.raises(ToolError) as refused:
        discover.find_model(os.fsdecode(b"\xfd*.gguf"), tmp_path)
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
    other = touch(tmp_path / BITNET / "tokenizer.json")
    for place in places:
        touch(tmp_path / place)
    assert discover.find_tokenizer(tmp_path, model) == tmp_path / wanted
    assert discover.find_tokenizer(tmp_path, None) == other


@pytest.mark.parametrize("model", [None, "sound.gguf", "broken.gguf"])
def test_no_tokenizer_says_where_it_looked(tmp_path: Path, model: str | None) -> None:
    sound(tmp_path / "sound.gguf")
    touch(tmp_path / "broken.gguf")
    words = r"E_TOKENIZER_MISSING.*searched for tokenizer\.json and tokenizer\.model"
    with pytest.raises(ToolError, match=words):
        discover.find_tokenizer(tmp_path, None if model is None else tmp_path / model)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.gguf", ["a.gguf"]),
        ("x/**/*.gguf", ["x/b.gguf", "x/y/[c].gguf"]),
        ("**/y/**/*.gguf", ["x/y/[c].gguf"]),
        ("?/[ab].gguf", ["x/b.gguf"]),
        ("./x/../a.gguf", ["a.gguf"]),
        ("x/**", []),
        ("**/" * 2000 + "*.gguf", ["a.gguf", "x/b.gguf", "x/y/[c].gguf"]),
        ("**/x/" * 50 + "*.gguf", []),
        ("a.gguf/*", []),
        ("x" * 300 + "/*", []),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, names: list[str]) -> None:
    for name in ("a.gguf", "x/b.gguf", "x/y/[c].gguf", "x/y/c.txt"):
        touch(tmp_path / name)
    found = [os.path.relpath(path, tmp_path) for path in discover.find_files(tmp_path, pattern)]
    assert found == names


def test_links_in_circles_end(tmp_path: Path) -> None:
    wanted = touch(tmp_path / "a/b.gguf")
    (tmp_path / "a/up").symlink_to(tmp_path)
    (tmp_path / "a/self.gguf").symlink_to(tmp_path / "a/self.gguf")
    assert discover.find_files(tmp_path, "**/*.gguf") == [wanted]
    assert discover.find_files(tmp_path, "a/up/a/up/a/*.gguf") == [tmp_path / "a/up/a/up/a/b.gguf"]


def test_the_place_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "home")
    assert discover.hub_cache() == Path("home/.cache/huggingface/hub")
    # Each comes before the ones set earlier.
    for name, value, place in (
        ("XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub"),
        ("HF_HOME", "~/hf", "home/hf/hub"),
        ("HUGGINGFACE_HUB_CACHE", "older", "older"),
        ("HF_HUB_CACHE", "cache", "cache"),
        ("HF_HUB_CACHE", "", "older"),
    ):
        monkeypatch.setenv(name, value)
        assert discover.hub_cache() == Path(place)


@pytest.mark.parametrize(
    ("main", "is_found"),
    [(f"{'2' * 40}\n".encode(), True), *((text, False) for text in (b"", b"3" * 40, b"\0"))],
)
def test_models_of_the_hub(hub: Path, tmp_path: Path, main: bytes, is_found: bool) -> None:
    """The hub's tools link a file in a snapshot to its bytes in a blob."""
    model = hub / "models--org--m"

    def link(revision: str, blob: str) -> Path:
        place = model / "snapshots" / revision / "Q4/m.gguf"
        place.parent.mkdir(parents=True)
        place.symlink_to(os.path.relpath(touch(model / "blobs" / blob), place.parent))
        return place

    old = link("0" * 40, "a")
    touch(old.with_name("README.md"))
    link("1" * 40, "a")  # the same file in a later revision
    assert discover.find_model(None, tmp_path) == old
    new = link("2" * 40, "b")
    touch(model / "refs/main").write_bytes(main)
    if is_found:
        assert discover.find_model(None, tmp_path) == new
        return
    with pytest.raises(ToolError, match=f"E_MODEL_AMBIGUOUS.*{old.parts[-3]}.*{new.parts[-3]}"):
        discover.find_model(None, tmp_path)
