"""The machine's CPU is identified; its memory's read bandwidth is measured and stored."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from pytest_flamegate.child.machine import MIN_PASSES, measure_rates, read_slice
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.process import CompletedCommand
from pytest_flamegate.observe import machine
from pytest_flamegate.observe.machine import (
    CpuQuota,
    find_available_bytes,
    find_cache_bytes,
    find_instruction_set,
    find_known_bandwidth,
    measure_bandwidth,
    read_cpu_quota,
)
from tests.workload.repositories import write


def test_widest_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, name in {
        "avx2 avx512f": "AVX-512",
        "fp asimd": "NEON",
        "fpu": "scalar",
        "": "",
    }.items():
        monkeypatch.setattr(machine, "_cpu", lambda flags=flags: ("model", flags))
        assert find_instruction_set() == name


def answer(code: int = 0, *, late: bool = False) -> Callable[..., CompletedCommand]:
    return lambda *_, **__: CompletedCommand(code, b"5e9 9\n", b"", late, 0.1)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of stored figures, on a machine with memory and a program that answers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "find_available_bytes", lambda: 1 << 40)
    monkeypatch.setattr(process, "run", answer())
    return tmp_path / "pytest-flamegate/bandwidth"


def test_bandwidth_is_really_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "find_array_bytes", lambda _: 16 << 20)
    monkeypatch.setattr(machine, "MEASURE_S", 0.0)
    found = measure_bandwidth()
    # Wide enough for any machine, narrow enough to find a wrong unit.
    assert 1e8 < found.bytes_per_second < 1e13
    assert (found.threads, found.passes, found.array_bytes) == (1, MIN_PASSES, 16 << 20)


@pytest.mark.usefixtures("stored")
def test_bandwidth_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_known_bandwidth() is None
    first = measure_bandwidth()
    assert (first.bytes_per_second, first.passes) == (5e9, 9)
    assert "5.0 GB/s by 1 thread, the fastest of 9 passes" in first.describe()
    monkeypatch.setattr(process, "run", answer(code=1))
    assert measure_bandwidth() == first == find_known_bandwidth()
    monkeypatch.setattr(machine, "read_identity", lambda: {"cpu_model": "another"})
    assert find_known_bandwidth() is None


@pytest.mark.usefixtures("stored")
def test_the_array_fits_into_no_cache_and_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for cache_mib, array_mib in ((300, 1200), (32, 512), (None, 512)):
        monkeypatch.setattr(
            machine, "find_cache_bytes", lambda _, size=cache_mib: size and size << 20
        )
        monkeypatch.setattr(
            machine, "read_identity", lambda size=cache_mib: {"cpu_model": f"{size}"}
        )
        assert measure_bandwidth().array_bytes == array_mib << 20
    monkeypatch.setattr(machine, "find_available_bytes", lambda: 1000 << 20)
    monkeypatch.setattr(machine, "read_identity", lambda: {"cpu_model": "another"})
    with pytest.raises(FlamegateError, match=r"E_BANDWIDTH: .*512 MiB.*1000 MiB"):
        measure_bandwidth()


@pytest.mark.usefixtures("stored")
def test_each_number_of_threads_has_its_own_bandwidth() -> None:
    cores = len(os.sched_getaffinity(0))
    assert measure_bandwidth(0).threads == 1
    assert (find_known_bandwidth(cores) is None) == (cores > 1)
    assert measure_bandwidth(cores + 5).threads == cores
    assert find_known_bandwidth(cores) is not None


@pytest.mark.usefixtures("stored")
def test_a_failed_measurement_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for run, word in ((answer(late=True), "30 s"), (answer(code=1), "failed")):
        monkeypatch.setattr(process, "run", run)
        with pytest.raises(FlamegateError, match=f"E_BANDWIDTH: .*{word}"):
            measure_bandwidth()
    assert find_known_bandwidth() is None


def test_stored_figure_is_checked(stored: Path) -> None:
    measure_bandwidth()
    (file,) = stored.iterdir()
    known, now_s = json.loads(file.read_text()), time.time()
    for name, value, is_valid in (
        ("measured_at_s", now_s - 6 * 86_400, True),
        ("measured_at_s", now_s - 8 * 86_400, False),
        ("measured_at_s", now_s + 86_400, False),
        ("bytes_per_second", 0, False),
        ("bytes_per_second", "many", False),
    ):
        file.write_text(json.dumps({**known, name: value}))
        assert (find_known_bandwidth() is not None) == is_valid


def test_shared_cache_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores: two complexes of two, each with a third level of its own."""
    for cpu in range(4):
        for index, (size, shared) in enumerate(
            (("32K", str(cpu)), ("1024K", str(cpu)), ("32768K", "0-1" if cpu < 2 else "2-3"))
        ):
            here = tmp_path / f"cpu{cpu}/cache/index{index}"
            write(here, {"size": size + "\n", "shared_cpu_list": shared + "\n"})
    for cpus, mebibytes in ({0, 1}, 32), ({1, 2}, 64), ({0, 1, 2, 3}, 64), ({0, 7}, None):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cpus=cpus: cpus)
        assert find_cache_bytes(len(cpus), tmp_path) == (mebibytes and mebibytes << 20)


def test_control_group_limits_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1 << 40))
    ci = tmp_path / "sys/fs/cgroup/ci"
    write(tmp_path, {"proc/self/cgroup": "0::/ci/job\n"})
    write(ci / "job", {"memory.max": "max\n", "memory.current": "1000\n"})
    assert find_available_bytes(tmp_path) == 1 << 40
    for used, available in ((2000, 3000), (6000, 0)):
        write(ci, {"memory.max": "5000\n", "memory.current": f"{used}\n"})
        assert find_available_bytes(tmp_path) == available


GROUPS = "9:name=systemd:/\n4:memory:/a\n2:cpu,cpuacct:/docker/job\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/ci/job\n", {"ci/job/cpu.max": "max 100000\n"}, None),
        (
            "0::/ci/job\n",
            {
                "ci/job/cpu.max": "80000 100000\n",
                "ci/cpu.max": "50000 100000\n",
                "ci/cpu.stat": "usage_usec 5\nnr_throttled 3\nthrottled_usec 1500000\n",
            },
            CpuQuota(50_000, 100_000, 3, 1.5),
        ),
        (
            GROUPS,
            {
                # A container sees its own group at the top, whatever its path is outside.
                "cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
                "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                "cpu,cpuacct/cpu.stat": "nr_throttled 2\nthrottled_time 250000000\n",
            },
            CpuQuota(150_000, 100_000, 2, 0.25),
        ),
        (GROUPS, {"unified/cpu.max": "200000 100000\n"}, CpuQuota(200_000, 100_000)),
        ("", {}, None),
    ],
)
def test_the_tightest_cpu_quota_counts_and_is_part_of_the_identity(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    groups: str,
    files: dict[str, str],
    quota: CpuQuota | None,
) -> None:
    write(tmp_path, {"proc/self/cgroup": groups})
    write(tmp_path / "sys/fs/cgroup", files)
    assert read_cpu_quota(tmp_path) == quota
    if quota is not None:
        monkeypatch.setattr(machine, "read_cpu_quota", lambda: read_cpu_quota(tmp_path))
        stated = f"{quota.quota_us} {quota.period_us}"
        assert machine.read_identity()["cgroup_cpu"] == stated


SLICE = 1 << 16


def test_every_value_is_read() -> None:
    """Whichever value changes, the result changes."""
    values = np.full(SLICE // 4, 1.0, np.float32)
    whole = read_slice(values)
    for at in (0, 1, 100, SLICE // 8 - 1, SLICE // 8, SLICE // 4 - 1):
        changed = values.copy()
        changed[at] = 5.0
        assert read_slice(changed) != whole


def test_each_thread_reads_its_own_filled_part() -> None:
    parts: list[Any] = []
    rates = measure_rates(parts.append, 2 * SLICE, 2, 0.0)
    assert len(rates) == MIN_PASSES
    assert len({part.ctypes.data for part in parts}) == 2
    assert {(part.nbytes, float(part.min())) for part in parts} == {(SLICE, 1.0)}
    # Two parts a pass, and one pass that does not count.
    assert len(parts) == 2 * (MIN_PASSES + 1)
