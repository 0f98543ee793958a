"""Workloads and observers for tests of the observer, and a small server of their own."""

import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Served
from pytest_flamegate.observe.http import find_free_port
from pytest_flamegate.observe.observer import Observer


def make_workload(directory: Path, kind: str, **changes: object) -> Workload:
    values: dict[str, Any] = {
        "name": "w",
        "engine": kind,
        "prompt": "p",
        "max_tokens": 4,
        "source": "test",
        "directory": directory,
        **changes,
    }
    return Workload(**values)


def command_workload(directory: Path, code: str, **changes: object) -> Workload:
    """A program: Python running ``code`` with the prompt and the number of tokens."""
    argv = (sys.executable, "-c", code, "{prompt}", "{max_tokens}")
    return make_workload(directory, "command", command=argv, **changes)


def observer(workload: Workload) -> Observer:
    kind = engine(workload.engine)
    kind.validate(workload)
    return Observer(workload, kind.plan(workload, kind.model(workload)))


def forked(
    directory: Path,
    call: Callable[[str, int], Iterable[Any]],
    **changes: object,
) -> Observer:
    """An observer of ``call`` in forks of this process: the fastest served engine."""
    workload = make_workload(directory, "python", **changes)
    return Observer(workload, Served({}, call))


def sleepy(prompt: str, max_tokens: int) -> Iterator[int]:
    """Yield a number every two milliseconds or a little later."""
    for i in range(max_tokens):
        time.sleep(0.002)
        yield i


def run_error(observer: Observer) -> FlamegateError:
    """Return the error of a run, which leaves no process and records nothing."""
    with pytest.raises(FlamegateError) as caught:
        observer.run_timed(0.05)
    assert_nothing_left()
    assert observer.runs == ()
    return caught.value


def assert_nothing_left() -> None:
    assert psutil.Process().children(recursive=True) == []


REPOSITORY = Path(__file__).parents[2]
SERVER = (sys.executable, "-m", "tests.engines.servers", "{port}")


def server_workload(way: str = "", **options: object) -> Workload:
    """Return a workload of a server that is started, or of the one at the option ``url``."""
    found = options if "url" in options else {"serve": (*SERVER, way), **options}
    return Workload(
        "asked", "openai", "count", 6, "test", REPOSITORY, timeout_s=60.0,
        options=MappingProxyType(found),
    )  # fmt: skip


@contextmanager
def running_server(way: str = "") -> Iterator[str]:
    """Run a server of the test's own; yield its url."""
    port = find_free_port("127.0.0.1")
    argv = [part.replace("{port}", str(port)) for part in SERVER]
    child = process.start([*argv, way], cwd=REPOSITORY)
    try:
        for _ in range(1200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert child.wait(0.05) is None
        yield f"http://127.0.0.1:{port}"
    finally:
        child.end()
