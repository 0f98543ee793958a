"""What is observed of a server that behaves, or misbehaves in ways that can be lived with."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import psutil
import pytest

from pytest_flamegate.core import clocks, process_system
from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Endpoint
from pytest_flamegate.observe import completions, endpoint
from pytest_flamegate.observe.completions import make_request
from pytest_flamegate.observe.http import find_free_port
from tests.observe.workloads import observer, run_error, running_server, server_workload
from tests.workload.declared import read_file

TOKENS = ("t0 ", "t1 ", "t2 ", "t3 ", "t4 ", "t5 ")


def test_every_piece_of_the_stream_is_a_token() -> None:
    seen = observer(server_workload())
    run = seen.run_timed(0.05)
    found = seen.observation()
    assert found.tokens == TOKENS
    assert found.differs_at is None
    assert (found.token_source, found.clock_scope) == ("sse:chunk", "sequence")
    assert run.load_ns is not None
    assert run.load_ns > 0
    for block in run.blocks:
        assert {len(gaps) for gaps in block.sequences_ns} == {6}
        # Every token costs the server a millisecond of CPU, and nothing of it is missed.
        assert block.interval.cpu_ns >= 0.9e6 * block.tokens
        assert sum(map(sum, block.sequences_ns)) <= block.interval.wall_ns
    assert run.reported[-1].source == "openai:usage"
    assert run.reported[-1].figures == {"tokens": 6, "prompt_tokens": 3}
    assert not process_system.is_alive(run.pid)


def test_merged_tokens_are_counted_by_the_server() -> None:
    seen = observer(server_workload("merged"))
    run = seen.run_timed(0.05)
    found = seen.observation()
    assert found.token_source == "sse:usage"
    assert found.tokens == ("".join(TOKENS), "", "", "", "", "")
    assert {len(gaps) for block in run.blocks for gaps in block.sequences_ns} == {6}
    assert "W_TOKENS_MERGED" in seen.notes


def test_other_ways_to_answer() -> None:
    seen = observer(server_workload("no health", api="chat"))
    seen.run_timed(0.05)
    assert seen.observation().tokens == TOKENS
    run = observer(server_workload("strict")).run_timed(0.05)
    sources = [each.source for each in run.reported]
    assert sources[-2:] == ["openai:asked without cache_prompt", "openai:asked without seed"]


@pytest.mark.parametrize(
    ("choice", "pieces"),
    [
        ({"text": "a"}, ["a"]),
        ({"delta": {"content": "a", "reasoning": None}}, ["a"]),
        ({"delta": {"reasoning": "a"}}, ["a"]),
        ({"delta": {"reasoning_content": "a", "reasoning": "a"}}, ["a"]),
        ({"delta": {"role": "assistant"}}, []),
    ],
)
def test_the_text_of_a_piece(choice: dict[str, Any], pieces: list[str]) -> None:
    found = completions.Completion(server_workload(), 0)
    found.add_event(5, json.dumps({"choices": [choice]}))
    assert found.pieces == pieces


def test_running_server_is_found_by_its_port_and_left_running() -> None:
    with running_server() as url:
        port = int(url.rpartition(":")[2])
        seen = observer(server_workload(url=url))
        first, second = seen.run_timed(0.05), seen.run_timed(0.05)
        assert process_system.find_server("127.0.0.1", port) == first.pid == second.pid
        assert first.started_ticks == second.started_ticks == clocks.read_start_ticks(first.pid)
        assert first.load_ns is None
        assert first.blocks != second.blocks
        assert process_system.is_alive(first.pid)
        assert "I_ONE_PROCESS" in seen.notes
        assert engine("openai").sees_python(server_workload(url=url))
        seen.served_pid = 1
        with pytest.raises(FlamegateError, match="E_ENGINE_CHANGED"):
            seen.run_timed(0.05)


def test_server_of_another_user_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_system, "find_listeners", lambda *_: set())
    with running_server() as url, pytest.raises(FlamegateError, match="E_SERVER_ELSEWHERE"):
        observer(server_workload(url=url)).run_timed(0.05)


def test_key_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = server_workload("wants a key", api_key_env="KEY_OF_MINE")
    for key in ("", "another"):
        monkeypatch.setenv("KEY_OF_MINE", key)
        with pytest.raises(FlamegateError, match="E_API_KEY"):
            observer(asked).run_timed(0.05)
    monkeypatch.setenv("KEY_OF_MINE", "s3cr3t-of-mine")
    seen = observer(asked)
    assert seen.run_timed(0.05).tokens
    assert "s3cr3t-of-mine" not in repr(seen.observation())


@pytest.mark.parametrize(
    "declared",
    [
        "",
        "serve = ['a', '{port}']\nurl = 'http://127.0.0.1:1'",
        "serve = ['llama-server']",
        'serve = ["a", "{port}\\u0000"]',
        "serve = ['a', '{port}', '{prompt}']",
        "url = '127.0.0.1:8080'",
        "url = 'http://me:secret@127.0.0.1'",
        "url = 'http://127.0.0.1:99999'",
        "url = 'http://127.0.0.1:0'",
        'url = "http://127.0.0.1/ x\\r\\nHost: y"',
        "serve = ['{port}']\napi = 'responses'",
        'serve = ["{port}"]\nhealth = "/he\\r\\nalth"',
        'serve = ["{port}"]\nhealth = "/health\\n"',
        "serve = ['{port}']\napi_key_env = 'sk-123'",
        'serve = ["{port}"]\napi_key_env = "KEY\\n"',
        "serve = ['{port}']\ntokenizer = 't.json'",
        "serve = ['{port}']\nrequest = { stream = false }",
        "serve = ['{port}']\nrequest = { day = 2020-01-01 }",
        "serve = ['{port}']\nrequest = { stop = [{ at = 10:00:00 }] }",
        "serve = ['{port}']\nrequest = { min_p = nan }",
        "serve = ['{port}']\nrequest = { logit_bias = { a = [inf] } }",
    ],
)
def test_invalid_declarations(tmp_path: Path, declared: str) -> None:
    path = tmp_path / "flamegate.toml"
    path.write_text(f"[workloads.w]\nengine = 'openai'\nprompt = 'p'\nmax_tokens = 4\n{declared}\n")
    with pytest.raises(UsageError, match="E_BAD_VALUE"):
        read_file(path)


def test_frames_follow_from_the_servers_interpreter() -> None:
    sees_python = engine("openai").sees_python
    programs = {"python3.12": True, sys.executable: True, "llama-server": False, "true": False}
    for program, python in programs.items():
        assert sees_python(server_workload(serve=(program, "{port}"))) is python
        assert not sees_python(server_workload(serve=(program, "{port}"), frames="native"))


def test_declared_fields_of_a_request_win() -> None:
    fields = MappingProxyType({"temperature": 0.5, "stop": ("a", "b")})
    declared = server_workload(request=fields)
    plan = engine("openai").plan(declared, None)
    assert isinstance(plan, Endpoint)
    body = make_request(plan, declared, "tiny", "count", 3)
    for part in (b'"temperature": 0.5', b'"stop": ["a", "b"]', b'"model": "tiny"', b'"seed": 42'):
        assert part in body


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
        ("no stream", "E_NO_ENDPOINT"),
        ("no http", "E_SERVER_ERROR"),
        ("garbage", "E_NO_ENDPOINT"),
        ("error in stream", "E_SERVER_ERROR"),
        ("endless line", "E_NO_ENDPOINT"),
        ("dies", "E_ENGINE_DIED"),
        ("cut", "E_SERVER_ERROR"),
        ("no done", "E_SERVER_ERROR"),
        ("empty", "E_NO_TOKENS"),
        ("too many", "E_TOO_MANY_TOKENS"),
        ("cached", "E_PROMPT_CACHED"),
        ("contradicts", "E_SOURCES_DISAGREE"),
        ("undercounts", "E_SOURCES_DISAGREE"),
        ("merges later", "E_SOURCES_DISAGREE"),
        pytest.param("never healthy", "E_TIMEOUT", marks=pytest.mark.nightly),
        pytest.param("never listens", "E_TIMEOUT", marks=pytest.mark.nightly),
        ("silent", "E_TIMEOUT"),
    ],
)
def test_misbehaviour_has_its_code(way: str, code: str) -> None:
    waits = code == "E_TIMEOUT"
    error = run_error(observer(replace(server_workload(way), timeout_s=4.0 if waits else 60.0)))
    assert error.code == code
    assert way != "exits" or "no such model" in error.problem


@pytest.mark.parametrize("way", ["ignores SIGTERM", "holds the port"])
def test_stubborn_server_is_ended(way: str) -> None:
    seen = observer(server_workload(way))
    seen.run_timed(0.05)
    first = seen.served_pid
    assert first is not None
    assert not process_system.is_alive(first)
    seen.run_timed(0.05)
    assert seen.served_pid != first


def test_a_port_that_another_process_took(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server("ignores SIGTERM") as url:
        monkeypatch.setattr(endpoint, "find_free_port", lambda _: int(url.rpartition(":")[2]))
        stays = server_workload(
            serve=(sys.executable, "-c", "import time; time.sleep(60)", "{port}")
        )
        with pytest.raises(FlamegateError, match="E_PORT_TAKEN"):
            observer(stays).run_timed(0.05)


def test_a_list_of_connections_that_fails_once_takes_no_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it does now and then while other processes end."""
    real, errors = psutil.net_connections, [RuntimeError("gone")]

    def list_connections(kind: str) -> list[Any]:
        if errors:
            raise errors.pop()
        return list(real(kind))

    monkeypatch.setattr(psutil, "net_connections", list_connections)
    observer(server_workload()).run_timed(0.05)
    assert not errors


def test_nothing_answers_at_the_url() -> None:
    nowhere = f"http://127.0.0.1:{find_free_port('127.0.0.1')}"
    assert run_error(observer(server_workload(url=nowhere))).code == "E_UNREACHABLE"
    with running_server() as url, pytest.raises(FlamegateError, match="E_BAD_CERTIFICATE"):
        observer(server_workload(url=url.replace("http:", "https:"))).run_timed(0.05)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    for child in psutil.Process().children(recursive=True):
        assert "tests.engines.servers" not in child.cmdline()


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ({1: 60, 2: 50}, {}, 1),
        ({1: 5, 3: 50}, {1: 6, 3: 90}, 3),  # a worker that starts with the first request
        ({1: 5, 3: 50}, {1: 60, 3: 50}, 1),  # one that compiles once
        ({1: 5, 3: 50}, {1: 60}, 1),
    ],
)
def test_the_process_that_computes_is_found_though_it_starts_with_a_request(
    first: dict[int, int], second: dict[int, int], found: int
) -> None:
    readings = iter([{1: 0, 2: 0}, first, first, second])
    server = endpoint.EndpointProcess.__new__(endpoint.EndpointProcess)
    server.pid, server.notes = 1, {}
    made: Any = server
    made.prompts, made._child = SimpleNamespace(warm_up=0), None
    made._workload = SimpleNamespace(max_tokens=8)
    made._read_cpu_ns = lambda: next(readings)
    made._complete = lambda *_: SimpleNamespace(is_merged=False)
    made._probe()
    assert server.pid == found
