"""Caches, limits and flags are read as the kernel tells them, and absent where it does not."""

from __future__ import annotations

import platform
from pathlib import Path

import psutil
import pytest

from pytest_flamegate.graph.roofline import (
    find_available_bytes,
    find_cache_bytes,
    find_instruction_set,
)


def cache(root: Path, cpu: int, index: int, *told: str) -> None:
    here = root / f"devices/system/cpu/cpu{cpu}/cache/index{index}"
    here.mkdir(parents=True)
    for name, text in zip(("level", "type", "size", "shared_cpu_list"), told, strict=True):
        (here / name).write_text(text + "\n")


def two_complexes(root: Path) -> None:
    """Four cores: two complexes of two, each with a third level of its own."""
    for cpu in range(4):
        cache(root, cpu, 0, "1", "Data", "32K", str(cpu))
        cache(root, cpu, 1, "1", "Instruction", "64K", str(cpu))
        cache(root, cpu, 2, "2", "Unified", "1M", str(cpu))
        cache(root, cpu, 3, "3", "Unified", "32768K", "0-1" if cpu < 2 else "2-3")


@pytest.mark.parametrize(
    ("cpus", "mebibytes"), [((0,), 32), ((0, 1), 32), ((1, 2), 64), ((0, 1, 2, 3), 64)]
)
def test_a_shared_cache_counts_once(tmp_path: Path, cpus: tuple[int, ...], mebibytes: int) -> None:
    two_complexes(tmp_path)
    assert find_cache_bytes(cpus, tmp_path) == mebibytes << 20


def test_no_third_level(tmp_path: Path) -> None:
    cache(tmp_path, 0, 0, "1", "Data", "32K", "0")
    cache(tmp_path, 0, 1, "2", "Unified", "4M", "0-3")
    assert find_cache_bytes([0], tmp_path) == 4 << 20


def test_a_core_that_tells_nothing_makes_the_whole_unknown(tmp_path: Path) -> None:
    two_complexes(tmp_path)
    assert find_cache_bytes([0, 7], tmp_path) is None
    assert find_cache_bytes([], tmp_path) is None


@pytest.mark.parametrize("size", ["", "K", "0K", "many", "32", "-1K"])
def test_a_size_that_is_none_is_unknown(tmp_path: Path, size: str) -> None:
    cache(tmp_path, 0, 0, "3", "Unified", size, "0")
    assert find_cache_bytes([0], tmp_path) is None


@pytest.fixture
def plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plenty:
        available = 1 << 40

    monkeypatch.setattr(psutil, "virtual_memory", Plenty)


@pytest.mark.usefixtures("plenty")
def test_a_control_group_limits_memory(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/ci/job\n")
    job = tmp_path / "sys/fs/cgroup/ci/job"
    job.mkdir(parents=True)
    (job / "memory.max").write_text("max\n")
    (job / "memory.current").write_text("1000\n")
    assert find_available_bytes(tmp_path) == 1 << 40
    (job.parent / "memory.max").write_text("5000\n")
    (job.parent / "memory.current").write_text("2000\n")
    assert find_available_bytes(tmp_path) == 3000
    (job.parent / "memory.current").write_text("6000\n")
    assert find_available_bytes(tmp_path) == 0


@pytest.mark.usefixtures("plenty")
def test_a_control_group_of_version_1_limits_memory(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,cpuacct:/a\n3:memory:/a\n")
    group = tmp_path / "sys/fs/cgroup/memory/a"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("700\n")
    (group / "memory.usage_in_bytes").write_text("200\n")
    assert find_available_bytes(tmp_path) == 500


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("flags\t\t: fpu sse2 avx avx2 avx512f", "AVX-512"),
        ("flags\t\t: fpu sse2 avx avx2", "AVX2"),
        ("Features\t: fp asimd crc32", "NEON"),
        ("Features\t: half thumb neon", "NEON"),
        ("flags\t\t: fpu sse2", "scalar"),
    ],
)
def test_the_widest_instructions_are_named(tmp_path: Path, line: str, named: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\n{line}\n")
    assert find_instruction_set(tmp_path) == named


@pytest.mark.parametrize(("machine", "named"), [("arm64", "NEON"), ("x86_64", "")])
def test_without_flags_only_arm_is_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, named: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert find_instruction_set(tmp_path) == named
