"""Servers that misbehave: each ends in a code of its own, and nothing is left running."""

import sys
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import process_system
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.observe import endpoint
from pytest_flamegate.observe.http import find_free_port
from tests.engines.endpoints import observer, running, workload


def error_of(of: Workload) -> FlamegateError:
    seen = observer(of)
    with pytest.raises(FlamegateError) as caught:
        seen.run_timed(0.05)
    assert seen.runs == ()
    assert seen.served_pid is None or not process_system.is_alive(seen.served_pid)
    return caught.value


@pytest.mark.parametrize(
    ("way", "code"),
    [
        ("exits", "E_ENGINE_DIED"),
        ("denied", "E_API_KEY"),
        ("500", "E_SERVER_ERROR"),
        ("404", "E_NO_ENDPOINT"),
        ("401", "E_API_KEY"),
        ("stubborn", "E_SERVER_ERROR"),
        ("redirect", "E_NO_ENDPOINT"),
        ("no stream", "E_BAD_STREAM"),
        ("no http", "E_STREAM_CUT"),
        ("garbage", "E_BAD_STREAM"),
        ("error in stream", "E_SERVER_ERROR"),
        ("endless line", "E_BAD_STREAM"),
        ("dies", "E_ENGINE_DIED"),
        ("cut", "E_STREAM_CUT"),
        ("no done", "E_STREAM_CUT"),
        ("empty", "E_NO_TOKENS"),
        ("too many", "E_TOO_MANY_TOKENS"),
        ("cached", "E_PROMPT_CACHED"),
        ("contradicts", "E_SOURCES_DISAGREE"),
        ("undercounts", "E_SOURCES_DISAGREE"),
        ("never healthy", "E_SERVER_NOT_READY"),
        ("never listens", "E_SERVER_NOT_READY"),
        ("silent", "E_TIMEOUT"),
    ],
)
def test_misbehaviour_has_its_code(way: str, code: str) -> None:
    waits = code in ("E_SERVER_NOT_READY", "E_TIMEOUT")
    error = error_of(replace(workload(way), timeout_s=4.0 if waits else 60.0))
    assert error.code == code
    assert way != "exits" or "no such model" in error.problem


@pytest.mark.parametrize("way", ["ignores SIGTERM", "holds the port"])
def test_stubborn_server_is_ended(way: str) -> None:
    seen = observer(workload(way))
    seen.run_timed(0.05)
    first = seen.served_pid
    assert first is not None
    assert not process_system.is_alive(first)
    seen.run_timed(0.05)
    assert seen.served_pid != first


def test_a_port_that_another_process_took(monkeypatch: pytest.MonkeyPatch) -> None:
    with running("ignores SIGTERM") as url:
        monkeypatch.setattr(endpoint, "find_free_port", lambda _: int(url.rpartition(":")[2]))
        stays = workload(serve=(sys.executable, "-c", "import time; time.sleep(60)", "{port}"))
        assert error_of(stays).code == "E_PORT_TAKEN"


def test_nothing_answers_at_the_url() -> None:
    nowhere = f"http://127.0.0.1:{find_free_port('127.0.0.1')}"
    assert error_of(workload(url=nowhere)).code == "E_UNREACHABLE"
    with running() as url, pytest.raises(FlamegateError, match="E_BAD_CERTIFICATE"):
        observer(workload(url=url.replace("http:", "https:"))).run_timed(0.05)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    for child in psutil.Process().children(recursive=True):
        assert "tests.engines.servers" not in child.cmdline()
