"""A bandwidth is measured in a process of its own, kept with its spread, and never guessed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.process import CompletedCommand
from pytest_flamegate.graph import roofline
from pytest_flamegate.graph.roofline import find_known_bandwidth, measure_bandwidth

SAID = b"sum-int64 1000 0.5 0.25 1.0\ndot-float32 1000 0.4 0.2 0.5\n"


def answer(
    stdout: bytes = SAID, stderr: bytes = b"", code: int = 0, *, late: bool = False
) -> Callable[..., CompletedCommand]:
    def run(argv: Any, **_: Any) -> CompletedCommand:
        return CompletedCommand(tuple(argv), code, stdout, stderr, late, 0.1)

    return run


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of its own, and a machine that has memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(roofline, "find_available_bytes", lambda: 1 << 40)
    monkeypatch.setattr(process, "run", answer())
    return tmp_path / "pytest-flamegate/bandwidth-1"


def test_it_is_really_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(roofline, "find_cache_bytes", lambda _: 1 << 20)
    monkeypatch.setattr(roofline, "MEASURE_S", 0.0)
    monkeypatch.setattr(roofline, "_keep", lambda *_: None)
    found = measure_bandwidth(fresh=True)
    assert found.array_bytes >= 4 << 20
    # Wide enough for any machine, narrow enough for a unit that is wrong.
    assert 1e8 < found.low <= found.median <= found.bytes_per_second < 1e13
    assert (found.threads, found.cached, found.repeats) == (1, False, 5)


def test_the_fastest_pass_of_the_fastest_method_counts() -> None:
    found = measure_bandwidth()
    assert found.method == "dot-float32"
    assert (found.bytes_per_second, found.median, found.low) == (5000, 2500, 2000)
    assert found.repeats == 3
    assert not found.cached
    assert "5.0 GB/s by 1 thread" in replace(found, bytes_per_second=5e9).words


def test_it_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_known_bandwidth() is None
    first = measure_bandwidth()
    monkeypatch.setattr(process, "run", answer(code=1))
    assert measure_bandwidth() == replace(first, cached=True) == find_known_bandwidth()
    with pytest.raises(FlamegateError, match="E_BANDWIDTH_FAILED"):
        measure_bandwidth(fresh=True)


CORES = len(roofline._cpus(1 << 16))


@pytest.mark.skipif(CORES < 2, reason="one core has one figure")
def test_each_number_of_threads_has_its_own() -> None:
    measure_bandwidth(1)
    assert find_known_bandwidth(2) is None
    assert measure_bandwidth(2).threads == 2


def test_more_threads_than_cores_are_as_many_as_cores() -> None:
    assert measure_bandwidth(CORES + 5).threads == CORES
    assert find_known_bandwidth(CORES) is not None


def test_another_machine_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    measure_bandwidth()
    monkeypatch.setattr(roofline, "identity", lambda: {"cpu_model": "another"})
    assert find_known_bandwidth() is None


def test_the_array_is_four_times_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "find_cache_bytes", lambda _: 30 << 20)
    found = measure_bandwidth()
    assert found.cache_bytes == 30 << 20
    assert 0 <= found.array_bytes - 4 * (30 << 20) <= 64
    assert "4 × its cache" in found.words


def test_a_cache_that_nobody_tells_is_assumed_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "find_cache_bytes", lambda _: None)
    found = measure_bandwidth()
    assert found.cache_bytes is None
    assert found.array_bytes >= 4 * roofline.ASSUMED_CACHE_BYTES
    assert "4 × an assumed cache" in found.words
    assert find_known_bandwidth() == replace(found, cached=True)


def test_too_little_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "find_cache_bytes", lambda _: 32 << 20)
    monkeypatch.setattr(roofline, "find_available_bytes", lambda: 200 << 20)
    with pytest.raises(FlamegateError, match=r"E_BANDWIDTH_MEMORY: .*128 MiB.*200 MiB"):
        measure_bandwidth()


@pytest.mark.parametrize("threads", [0, -1])
def test_no_thread_reads_nothing(threads: int) -> None:
    with pytest.raises(FlamegateError, match="E_BANDWIDTH_THREADS"):
        measure_bandwidth(threads)


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (answer(b"", b"x\nMemoryError: no room\n", 1), "MemoryError: no room"),
        (answer(late=True), "30 s"),
        (answer(b""), "failed"),
        (answer(b"sum-int64 1000\nanother 1000 0.5\nsum-int64 1000 0 0\n\nx y"), "failed"),
        (answer(b"sum-int64 1000 nan\nsum-int64 inf 1\nsum-int64 -5 1\n"), "failed"),
    ],
    ids=["no memory", "late", "silent", "no figures", "no numbers"],
)
def test_a_failure_has_its_code(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., CompletedCommand], word: str
) -> None:
    monkeypatch.setattr(process, "run", run)
    with pytest.raises(FlamegateError, match=f"E_BANDWIDTH_FAILED: .*{word}"):
        measure_bandwidth()
    assert find_known_bandwidth() is None


def told(at: datetime, figures: str = "5000,2000,2500,134217728,9,33554432") -> str:
    return f"{at.isoformat(timespec='seconds')},sum-int64,{figures}"


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (told(datetime.now(UTC) - timedelta(days=6)), True),
        (told(datetime.now(UTC) - timedelta(days=8)), False),
        (told(datetime.now(UTC) + timedelta(days=1)), False),
        (told(datetime.now(UTC), "5000,6000,2500,134217728,9,33554432"), False),
        (told(datetime.now(UTC), "0,0,0,134217728,9,33554432"), False),
        (told(datetime.now(UTC), "5000,2000,2500,134217728"), False),
        (told(datetime.now(UTC).replace(tzinfo=None)), False),
        ("yesterday,sum-int64,5000,2000,2500,134217728,9,0", False),
    ],
    ids=["week", "old", "ahead", "order", "nothing", "short", "zone", "words"],
)
def test_what_is_kept_is_looked_at(kept: Path, text: str, *, good: bool) -> None:
    measure_bandwidth()
    key = kept.read_text().split()[0]
    kept.write_text(f"{key} {text}\n")
    assert (find_known_bandwidth() is not None) == good
