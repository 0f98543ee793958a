"""What reads memory reads all of it, and every thread's failure is told."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

from pytest_flamegate.graph import read_memory
from pytest_flamegate.graph.read_memory import LEAST_PASSES, READS, main, measure

SLICE = 1 << 16


@pytest.fixture(autouse=True)
def small_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_memory, "_PASS_BYTES", 2 * SLICE)


@pytest.mark.parametrize("name", READS)
def test_every_value_counts(name: str) -> None:
    """No part is passed over: whichever value changes, the answer changes."""
    values = np.full(SLICE // 4, 1.0, np.float32)
    whole = READS[name](values)
    for at in (0, 1, 100, SLICE // 8 - 1, SLICE // 8, SLICE // 4 - 1):
        changed = values.copy()
        changed[at] = 5.0
        assert READS[name](changed) != whole


def test_all_threads_read_their_own_filled_slice() -> None:
    seen: dict[int, tuple[int, int, float]] = {}
    calls: list[int] = []

    def look(values: Any) -> None:
        here = threading.get_ident()
        seen[here] = (values.ctypes.data, values.nbytes, float(values.min()))
        calls.append(here)

    pass_bytes, took = measure({"look": look}, [None, None], SLICE, 0.0)
    assert pass_bytes == 2 * 2 * SLICE
    assert len(took["look"]) == LEAST_PASSES
    assert {size for _, size, _ in seen.values()} == {SLICE}
    assert {least for _, _, least in seen.values()} == {1.0}
    first, second = (address for address, _, _ in seen.values())
    assert abs(first - second) >= SLICE
    # Two slices, twice a pass, and one pass that does not count.
    assert len(calls) == 2 * 2 * (LEAST_PASSES + 1)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no thread is bound here")
def test_each_thread_is_bound_to_its_core_and_nobody_else() -> None:
    before = os.sched_getaffinity(0)
    cpus = sorted(before)[:2]
    bound = set()

    def look(_: Any) -> None:
        bound.add(frozenset(os.sched_getaffinity(0)))

    measure({"look": look}, cpus, SLICE, 0.0)
    assert bound == {frozenset([cpu]) for cpu in cpus}
    assert os.sched_getaffinity(0) == before


def test_a_failure_of_one_thread_ends_all() -> None:
    def fail(_: Any) -> None:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        measure({"fail": fail}, [None, None], SLICE, 0.0)


def test_the_program_prints_every_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(SLICE), "0", "-"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == list(READS)
    for _, pass_bytes, *seconds in lines:
        assert int(pass_bytes) == 2 * SLICE
        assert len(seconds) == LEAST_PASSES


def test_the_program_tells_in_a_line_why_it_could_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(1 << 60), "0", "-"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
