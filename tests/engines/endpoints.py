"""Workloads that ask a small server of the tests' own, and that server."""

import socket
import sys
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
    found = {"serve": (*SERVER, way), **options}
    return Workload(
        name="asked",
        engine="openai",
        prompt="count",
        max_tokens=6,
        source="test",
        directory=REPOSITORY,
        timeout_s=60.0,
        options=MappingProxyType(found),
    )


def observer(of: Workload) -> Observer:
    chosen = engine("openai")
    chosen.validate(of)
    return Observer(of, chosen.plan(of, None))


class running:  # noqa: N801 - read as a verb
    """A server of the test's own, and its url."""

    def __init__(self, way: str = "") -> None:
        self.port = find_free_port("127.0.0.1")
        argv = [part.replace("{port}", str(self.port)) for part in SERVER]
        self.child = process.start([*argv, way], cwd=REPOSITORY)

    def __enter__(self) -> str:
        for _ in range(1200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return f"http://127.0.0.1:{self.port}"
            assert self.child.wait(0.05) is None
        raise AssertionError("the server never listened")

    def __exit__(self, *_: object) -> None:
        self.child.end()
