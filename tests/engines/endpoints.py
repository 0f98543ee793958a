"""Workloads that ask a small server of the tests' own, and that server."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import process
from pytest_flamegate.engines import engine
from pytest_flamegate.observe.http import find_free_port
from pytest_flamegate.observe.observer import Observer

REPOSITORY = Path(__file__).parents[2]
SERVER = (sys.executable, "-m", "tests.engines.servers", "{port}")


def workload(way: str = "", **options: object) -> Workload:
    """Return a workload of a server that is started, or of the one at the option ``url``."""
    found = options if "url" in options else {"serve": (*SERVER, way), **options}
    return Workload(
        "asked", "openai", "count", 6, "test", REPOSITORY, timeout_s=60.0,
        options=MappingProxyType(found),
    )  # fmt: skip


def observer(of: Workload) -> Observer:
    chosen = engine("openai")
    chosen.validate(of)
    return Observer(of, chosen.plan(of, None))


@contextmanager
def running(way: str = "") -> Iterator[str]:
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
