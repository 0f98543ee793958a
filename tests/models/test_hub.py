"""The hub's cache as its own tools lay it out, and as others might."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_flamegate.models.discover import DirectorySearch, hub_cache, hub_files

OLD, NEW = "0" * 40, "1" * 40
VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    return cache


def snapshot(hub: Path, revision: str, name: str = "m.gguf", repo: str = "org--m") -> Path:
    """Lay a file out as the hub's tools do: a link in the snapshot, its bytes in a blob."""
    model = hub / f"models--{repo}"
    blob = model / "blobs" / f"{revision}{name.replace('/', '_')}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_text(name)
    link = model / "snapshots" / revision / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    return link


def main(hub: Path, text: bytes) -> None:
    ref = hub / "models--org--m/refs/main"
    ref.parent.mkdir(exist_ok=True)
    ref.write_bytes(text)


def found() -> list[Path]:
    return hub_files(DirectorySearch(), "**/*.gguf")


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, "home/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "xdg"}, "xdg/huggingface/hub"),
        ({"XDG_CACHE_HOME": "xdg", "HF_HOME": "hf"}, "hf/hub"),
        ({"HF_HOME": "hf", "HUGGINGFACE_HUB_CACHE": "older"}, "older"),
        ({"HF_HOME": "hf", "HF_HUB_CACHE": "cache"}, "cache"),
        ({"HF_HUB_CACHE": "", "HF_HOME": "~/hf"}, "home/hf/hub"),
    ],
)
def test_where_it_is(
    variables: Mapping[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "home")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hub_cache() == Path(place)


def test_one_snapshot_needs_no_reference(hub: Path) -> None:
    wanted = snapshot(hub, OLD)
    deeper = snapshot(hub, OLD, "Q4/deep.gguf")
    snapshot(hub, OLD, "README.md")
    assert found() == [deeper, wanted]


def test_of_several_the_one_that_main_names(hub: Path) -> None:
    snapshot(hub, OLD)
    wanted = snapshot(hub, NEW)
    main(hub, f"{NEW}\n".encode())
    assert found() == [wanted]


@pytest.mark.parametrize("text", [b"", b"2" * 40, b"..", b"\xff" * 40, b"0" * 100_000])
def test_where_main_names_none_all_count(hub: Path, text: bytes) -> None:
    both = [snapshot(hub, OLD), snapshot(hub, NEW)]
    main(hub, text)
    assert found() == both


def test_a_link_out_of_the_cache_is_passed_over(hub: Path, tmp_path: Path) -> None:
    wanted = snapshot(hub, OLD)
    outside = tmp_path / "elsewhere/secret.gguf"
    outside.parent.mkdir()
    outside.touch()
    wanted.with_name("out.gguf").symlink_to(outside)
    (hub / "models--org--evil").symlink_to(tmp_path)
    (hub / "models--org--worse").mkdir()
    (hub / "models--org--worse/snapshots").symlink_to(tmp_path)
    assert found() == [wanted]
