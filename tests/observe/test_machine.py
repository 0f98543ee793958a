"""The machine's CPU is identified; its memory's read bandwidth is measured and stored."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from pytest_flamegate.child import machine as child_machine
from pytest_flamegate.child.machine import MIN_PASSES, main, read_slice, time_passes
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.process import CompletedCommand
from pytest_flamegate.observe import machine
from pytest_flamegate.observe.machine import (
    find_available_bytes,
    find_cache_bytes,
    find_instruction_set,
    find_known_bandwidth,
    measure_bandwidth,
)


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("fpu sse2 avx avx2 avx512f", "AVX-512"),
        ("fpu sse2 avx avx2", "AVX2"),
        ("fp asimd crc32", "NEON"),
        ("half thumb neon", "NEON"),
        ("fpu sse2", "scalar"),
    ],
)
def test_widest_instructions(monkeypatch: pytest.MonkeyPatch, flags: str, name: str) -> None:
    monkeypatch.setattr(machine, "_cpu", lambda: ("model", flags))
    assert find_instruction_set() == name


@pytest.mark.parametrize(("arch", "name"), [("arm64", "NEON"), ("x86_64", "")])
def test_without_flags_only_arm_is_known(
    monkeypatch: pytest.MonkeyPatch, arch: str, name: str
) -> None:
    monkeypatch.setattr(machine, "_cpu", lambda: ("model", ""))
    monkeypatch.setattr(platform, "machine", lambda: arch)
    assert find_instruction_set() == name


OUTPUT = b"1000 0.4 0.2 0.5\n"


def answer(
    stdout: bytes = OUTPUT, stderr: bytes = b"", code: int = 0, *, late: bool = False
) -> Callable[..., CompletedCommand]:
    def run(argv: Any, **_: Any) -> CompletedCommand:
        return CompletedCommand(tuple(argv), code, stdout, stderr, late, 0.1)

    return run


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of stored figures, on a machine with memory and a program that answers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "find_available_bytes", lambda: 1 << 40)
    monkeypatch.setattr(process, "run", answer())
    return tmp_path / "pytest-flamegate/bandwidth-2"


def test_bandwidth_is_really_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "find_cache_bytes", lambda _: 1 << 20)
    monkeypatch.setattr(machine, "MEASURE_S", 0.0)
    found = measure_bandwidth()
    assert found.array_bytes >= 4 << 20
    # Wide enough for any machine, narrow enough to find a wrong unit.
    assert 1e8 < found.slowest <= found.median <= found.fastest < 1e13
    assert (found.threads, found.passes) == (1, 5)


@pytest.mark.usefixtures("stored")
def test_bandwidth_is_the_fastest_pass_and_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_known_bandwidth() is None
    first = measure_bandwidth()
    assert (first.fastest, first.median, first.slowest, first.passes) == (5000, 2500, 2000, 3)
    assert "5.0 GB/s by 1 thread" in replace(first, fastest=5e9).describe()
    monkeypatch.setattr(process, "run", answer(code=1))
    assert measure_bandwidth() == first == find_known_bandwidth()
    monkeypatch.setattr(machine, "read_identity", lambda: {"cpu_model": "another"})
    assert find_known_bandwidth() is None


@pytest.mark.usefixtures("stored")
def test_each_number_of_threads_has_its_own_bandwidth() -> None:
    cores = len(machine._list_cpus(1 << 16))
    assert measure_bandwidth(0).threads == 1
    assert (find_known_bandwidth(cores) is None) == (cores > 1)
    assert measure_bandwidth(cores + 5).threads == cores
    assert find_known_bandwidth(cores) is not None


@pytest.mark.usefixtures("stored")
def test_the_array_is_four_times_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_cache_bytes", lambda _: 30 << 20)
    found = measure_bandwidth()
    assert found.cache_bytes == 30 << 20
    assert 0 <= found.array_bytes - 4 * (30 << 20) <= 64
    assert "4 × its cache" in found.describe()


@pytest.mark.usefixtures("stored")
def test_an_unknown_cache_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_cache_bytes", lambda _: None)
    found = measure_bandwidth()
    assert found.cache_bytes is None
    assert found.array_bytes >= 4 * machine.ASSUMED_CACHE_BYTES
    assert "4 × an assumed cache" in found.describe()
    assert find_known_bandwidth() == found


@pytest.mark.usefixtures("stored")
def test_too_little_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_cache_bytes", lambda _: 32 << 20)
    monkeypatch.setattr(machine, "find_available_bytes", lambda: 200 << 20)
    with pytest.raises(FlamegateError, match=r"E_BANDWIDTH: .*128 MiB.*200 MiB"):
        measure_bandwidth()


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("run", "word"),
    [
        (answer(b"", b"x\nMemoryError: no room\n", 1), "MemoryError: no room"),
        (answer(late=True), "30 s"),
        (answer(b""), "failed"),
        (answer(b"1000"), "failed"),
        (answer(b"1000 0 0"), "failed"),
        (answer(b"1000 nan"), "failed"),
        (answer(b"many 1"), "failed"),
    ],
)
def test_a_failed_measurement_is_an_error(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., CompletedCommand], word: str
) -> None:
    monkeypatch.setattr(process, "run", run)
    with pytest.raises(FlamegateError, match=f"E_BANDWIDTH: .*{word}"):
        measure_bandwidth()
    assert find_known_bandwidth() is None


NOW = datetime.now(UTC)


def line(at: datetime, figures: str = "5000,2500,2000,134217728,9,33554432") -> str:
    return f"{at.isoformat(timespec='seconds')},{figures}"


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (line(NOW - timedelta(days=6)), True),
        (line(NOW - timedelta(days=8)), False),
        (line(NOW + timedelta(days=1)), False),
        (line(NOW, "5000,6000,2000,134217728,9,33554432"), False),
        (line(NOW, "0,0,0,134217728,9,33554432"), False),
        (line(NOW, "5000,2500,2000,134217728"), False),
        (line(NOW.replace(tzinfo=None)), False),
        ("2025-99-99T00:00:00,5000,2500,2000,134217728,9,0", False),
    ],
    ids=["week", "old", "ahead", "order", "zero", "short", "no zone", "no date"],
)
def test_stored_figure_is_checked(stored: Path, text: str, *, is_valid: bool) -> None:
    measure_bandwidth()
    key = stored.read_text().split()[0]
    stored.write_text(f"{key} {text}\n")
    assert (find_known_bandwidth() is not None) == is_valid


def cache(root: Path, cpu: int, index: int, *values: str) -> None:
    here = root / f"devices/system/cpu/cpu{cpu}/cache/index{index}"
    here.mkdir(parents=True)
    for name, text in zip(("level", "type", "size", "shared_cpu_list"), values, strict=True):
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
def test_shared_cache_counts_once(tmp_path: Path, cpus: tuple[int, ...], mebibytes: int) -> None:
    two_complexes(tmp_path)
    assert find_cache_bytes(cpus, tmp_path) == mebibytes << 20


def test_core_without_caches_makes_all_unknown(tmp_path: Path) -> None:
    two_complexes(tmp_path)
    assert find_cache_bytes([0, 7], tmp_path) is None
    assert find_cache_bytes([], tmp_path) is None
    cache(tmp_path, 8, 0, "2", "Unified", "4M", "8")
    cache(tmp_path, 9, 0, "3", "Unified", "-1K", "9")
    assert find_cache_bytes([8], tmp_path) == 4 << 20
    assert find_cache_bytes([9], tmp_path) is None


@pytest.fixture
def plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plenty:
        available = 1 << 40

    monkeypatch.setattr(psutil, "virtual_memory", Plenty)


@pytest.mark.usefixtures("plenty")
def test_control_group_limits_memory(tmp_path: Path) -> None:
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


SLICE = 1 << 16
CPU = min(os.sched_getaffinity(0))


@pytest.fixture
def small_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_machine, "_PASS_BYTES", 2 * SLICE)


def test_every_value_is_read() -> None:
    """Whichever value changes, the result changes."""
    values = np.full(SLICE // 4, 1.0, np.float32)
    whole = read_slice(values)
    for at in (0, 1, 100, SLICE // 8 - 1, SLICE // 8, SLICE // 4 - 1):
        changed = values.copy()
        changed[at] = 5.0
        assert read_slice(changed) != whole


@pytest.mark.usefixtures("small_passes")
def test_threads_read_their_own_filled_slice() -> None:
    slices: dict[int, tuple[int, int, float]] = {}
    calls: list[int] = []

    def inspect(values: Any) -> None:
        here = threading.get_ident()
        slices[here] = (values.ctypes.data, values.nbytes, float(values.min()))
        calls.append(here)

    pass_bytes, elapsed_s = time_passes(inspect, [CPU, CPU], SLICE, 0.0)
    assert pass_bytes == 2 * 2 * SLICE
    assert len(elapsed_s) == MIN_PASSES
    assert {(size, least) for _, size, least in slices.values()} == {(SLICE, 1.0)}
    first, second = (address for address, _, _ in slices.values())
    assert abs(first - second) >= SLICE
    # Two slices, twice a pass, and one pass that does not count.
    assert len(calls) == 2 * 2 * (MIN_PASSES + 1)


@pytest.mark.usefixtures("small_passes")
def test_each_thread_is_bound_to_its_core() -> None:
    before = os.sched_getaffinity(0)
    cpus = sorted(before)[:2]
    bound = set()

    def look(_: Any) -> None:
        bound.add(frozenset(os.sched_getaffinity(0)))

    time_passes(look, cpus, SLICE, 0.0)
    assert bound == {frozenset([cpu]) for cpu in cpus}
    assert os.sched_getaffinity(0) == before


def test_failure_of_a_thread_ends_all() -> None:
    def fail(_: Any) -> None:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        time_passes(fail, [CPU, CPU], SLICE, 0.0)


@pytest.mark.usefixtures("small_passes")
def test_program_prints_every_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(SLICE), "0", str(CPU)]) == 0
    pass_bytes, *seconds = capsys.readouterr().out.split()
    assert int(pass_bytes) == 2 * SLICE
    assert len(seconds) == MIN_PASSES


def test_program_reports_a_failure_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(1 << 60), "0", str(CPU)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
