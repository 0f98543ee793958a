"""Under pytest-xdist nothing measures beside another that does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sharing import QUIET, STEADY, together

TESTS = Path(__file__).parent


@pytest.mark.parametrize(
    ("nodeid", "shared"),
    [
        ("tests/doors/test_plugin.py::test_fixture_and_marker", "measuring"),
        ("tests/workload/test_observer.py::test_it[a::b]", "measuring"),
        ("tests/profile/test_not_yet_written.py::test_it", "measuring"),
        ("tests/doors/test_variants.py::test_it", "measuring"),
        ("tests/doors/test_faults.py::test_it", "tests/doors/test_faults.py"),
        ("tests/profile/test_counted.py::test_it", "tests/profile/test_counted.py"),
        ("tests/gate/test_verdict.py::TestIt::test_it", "tests/gate/test_verdict.py"),
    ],
)
def test_what_measures_shares_one_worker(nodeid: str, shared: str) -> None:
    assert together(nodeid) == shared


def test_what_is_said_to_only_compute_is_there_and_starts_no_engine() -> None:
    starting = ("Session(", "Observer(", "observer(", "ServedProcess(", "QUICK", "SEEN", "py_spy")
    for room, names in QUIET.items():
        for name in names:
            text = (TESTS / room / f"test_{name}.py").read_text()
            assert not [word for word in starting if word in text], f"{room}: {name}"


def test_what_is_said_to_ask_nothing_of_speed_is_there_and_expects_no_verdict_of_it() -> None:
    expecting = ('== "regressed"', '== "improved"', "slower*", ".cpu_ns", "perf_counter")
    for room, names in STEADY.items():
        assert not names & QUIET[room]
        for name in names:
            text = (TESTS / room / f"test_{name}.py").read_text()
            assert not [word for word in expecting if word in text], f"{room}: {name}"
