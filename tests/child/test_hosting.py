"""A benchmark served from a process of its own, and the tests that cannot be."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pytest_flamegate.child import hosting
from pytest_flamegate.child.hosting import MAX_ROUNDS, calibrate_rounds, kernel_rounds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Served
from pytest_flamegate.observe.build import settle_workload
from pytest_flamegate.observe.observer import Observer
from tests.observe.workloads import make_workload

TESTS = """\
import os
import pytest

HERE = os.path.dirname(__file__)
@pytest.fixture(scope="session")
def ten():
    yield 10
    open(os.path.join(HERE, "torn_down"), "w").close()
class TestClass:
    @pytest.mark.parametrize("size", [2, 3])
    def test_sums(self, benchmark, ten, size):
        print("a test may print")
        benchmark(lambda: print(sum(range(size * ten))))
        raise RuntimeError("nobody comes here")
def test_prepared(benchmark):
    benchmark.pedantic(sorted, setup=lambda: (([3, 1, 2],), {}), rounds=3)
def test_never(benchmark):
    pass
def test_skipped(benchmark):
    pytest.skip("not here")
def test_fails(benchmark):
    assert os.environ.get("NOBODY_SETS_THIS")
def test_raises(benchmark):
    benchmark(lambda: 1 // 0)
def test_wears_out(benchmark):
    left = [1]
    benchmark(left.pop)
def test_skips_later(benchmark):
    left = [1]
    benchmark(lambda: left.pop() if left else pytest.skip("no device"))
def test_asynchronous(benchmark):
    async def later():
        pass

    benchmark(later)
"""


def workload(directory: Path, test: str, **options: object) -> Workload:
    (directory / "test_kernels.py").write_text(TESTS)
    target = f"test_kernels.py::{test}"
    return make_workload(directory, "benchmark", prompt="", target=target, options=options)


nightly = partial(pytest.param, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    ("test", "code"),
    [
        ("test_is_not_there", "E_TARGET_NOT_FOUND"),
        ("test_never", "E_NO_BENCHMARK"),
        nightly("test_skipped", "E_BENCHMARK_FAILED"),
        nightly("test_fails", "E_BENCHMARK_FAILED"),
        ("test_raises", "E_BENCHMARK_FAILED"),
        ("test_wears_out", "E_BENCHMARK_FAILED"),
        ("test_skips_later", "E_BENCHMARK_FAILED.*Skipped: no device"),
        ("test_asynchronous", "E_BENCHMARK_ASYNC"),
        ("there_is_no_such_module", "E_BENCHMARK_FAILED"),
    ],
)
def test_tests_that_cannot_be_served(tmp_path: Path, test: str, code: str) -> None:
    asked = workload(tmp_path, test)
    if test.startswith("there"):  # a file that cannot be collected
        (tmp_path / "test_kernels.py").write_text(f"import {test}\n")
    with pytest.raises(FlamegateError, match=f"(?s)(?=.*{test}){code}"):
        settle_workload(asked)


def test_calls_and_rounds_are_calibrated_once_or_those_of_the_compared_run(tmp_path: Path) -> None:
    asked = settle_workload(workload(tmp_path, "TestClass::test_sums[3]"))
    calls = asked.options["calls"]
    assert isinstance(calls, int)
    assert calls > 1
    assert 1 <= asked.max_tokens <= MAX_ROUNDS
    assert settle_workload(asked) is asked
    prepared = workload(tmp_path, "test_prepared")
    asked = settle_workload(prepared, {"calls": 7, "max_tokens": 3})
    assert (asked.options["calls"], asked.max_tokens) == (7, 3)
    assert asked.options["setup"] == "measured with each call"
    with pytest.raises(UsageError, match="E_BAD_VALUE"):
        engine("benchmark").validate(replace(prepared, target="module:f"))


def test_rounds_are_served_and_fixtures_torn_down(tmp_path: Path) -> None:
    asked = workload(tmp_path, "TestClass::test_sums[2]", calls=3)
    plan = engine("benchmark").plan(asked, None)
    assert isinstance(plan, Served)
    observer = Observer(asked, plan)
    with observer.serve() as served:
        pid = served.pid
        block = served.block(2)
        assert len(served.facts["test_sha256"]) == 64
        assert served.token_source == "called:round"
    assert block.tokens == 8
    assert observer.observation().tokens == ("0", "1", "2", "3")
    assert (tmp_path / "torn_down").exists()
    assert not psutil.pid_exists(pid)


def test_a_round_is_a_number_of_calls() -> None:
    calls: list[int] = []
    assert list(kernel_rounds(calls.append, (1,), {}, 5, "", 3)) == [0, 1, 2]
    assert len(calls) == 15


def test_a_call_that_waited_for_the_cpu_is_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first call takes 20 ms, since it waits, and each later one 0.1 ms.
    now_s = 0.0
    left_s = [0.02]

    def call() -> None:
        nonlocal now_s
        now_s += left_s.pop() if left_s else 0.0001

    monkeypatch.setattr(hosting, "time", SimpleNamespace(perf_counter=lambda: now_s))
    assert calibrate_rounds(call, (), {}) == (8, 6)
