from __future__ import annotations

from pathlib import Path

import pytest

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload.discover import find_model


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_the_bitnet_folder_comes_before_the_others(tmp_path: Path) -> None:
    touch(tmp_path / "models/other.gguf")
    wanted = touch(tmp_path / "models/microsoft-bitnet-b1.58-2B-4T-gguf/ggml-model-i2_s.gguf")
    assert find_model(None, tmp_path) == wanted


@pytest.mark.parametrize("place", ["models/a.gguf", "models/deep/er/a.gguf", "a.gguf"])
def test_the_usual_places(tmp_path: Path, place: str) -> None:
    wanted = touch(tmp_path / place)
    assert find_model(None, tmp_path) == wanted


def test_a_declared_pattern_and_a_declared_path(tmp_path: Path) -> None:
    wanted = touch(tmp_path / "weights/tiny.gguf")
    assert find_model("weights/*.gguf", tmp_path) == wanted
    assert find_model("weights/tiny.gguf", tmp_path) == wanted
    assert find_model(str(wanted), tmp_path / "elsewhere") == wanted


def test_several_candidates_are_listed(tmp_path: Path) -> None:
    touch(tmp_path / "models/a.gguf")
    touch(tmp_path / "models/b.gguf")
    with pytest.raises(ToolError, match=r"a\.gguf.*b\.gguf") as refused:
        find_model(None, tmp_path)
    assert refused.value.code == "E_MODEL_AMBIGUOUS"


@pytest.mark.parametrize(
    "declared",
    [None, "no/such/*.gguf", "/no/such/model.gguf", "", ".", "./", "x" * 300, "a\0b", "**/" * 2000],
)
def test_nothing_found_says_where_it_looked(tmp_path: Path, declared: str | None) -> None:
    with pytest.raises(ToolError, match=r"looked for") as refused:
        find_model(declared, tmp_path)
    assert refused.value.code == "E_MODEL_MISSING"
