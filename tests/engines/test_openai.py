"""What is observed of a server that behaves, or misbehaves in ways that can be lived with."""

import sys
from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_flamegate.core import clocks, process_system
from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Endpoint
from pytest_flamegate.observe.completions import make_request
from tests.engines.endpoints import observer, running, workload
from tests.workload.declared import read_file

TOKENS = ("t0 ", "t1 ", "t2 ", "t3 ", "t4 ", "t5 ")


def test_every_piece_of_the_stream_is_a_token() -> None:
    seen = observer(workload())
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
    seen = observer(workload("merged"))
    run = seen.run_timed(0.05)
    found = seen.observation()
    assert found.token_source == "sse:usage"
    assert found.tokens == ("".join(TOKENS), "", "", "", "", "")
    assert {len(gaps) for block in run.blocks for gaps in block.sequences_ns} == {6}
    assert "W_TOKENS_MERGED" in seen.notes


def test_other_ways_to_answer() -> None:
    seen = observer(workload("no health", api="chat"))
    seen.run_timed(0.05)
    assert seen.observation().tokens == TOKENS
    run = observer(workload("strict")).run_timed(0.05)
    assert "openai:asked without cache_prompt" in [each.source for each in run.reported]


def test_running_server_is_found_by_its_port_and_left_running() -> None:
    with running() as url:
        port = int(url.rpartition(":")[2])
        seen = observer(workload(url=url))
        first, second = seen.run_timed(0.05), seen.run_timed(0.05)
        assert process_system.find_server("127.0.0.1", port) == first.pid == second.pid
        assert first.started_ticks == second.started_ticks == clocks.read_start_ticks(first.pid)
        assert first.load_ns is None
        assert first.blocks != second.blocks
        assert process_system.is_alive(first.pid)
        assert "I_ONE_PROCESS" in seen.notes
        assert engine("openai").sees_python(workload(url=url))
        seen.served_pid = 1
        with pytest.raises(FlamegateError, match="E_SERVER_CHANGED"):
            seen.run_timed(0.05)


def test_server_of_another_user_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_system, "find_listeners", lambda *_: set())
    with running() as url, pytest.raises(FlamegateError, match="E_SERVER_ELSEWHERE"):
        observer(workload(url=url)).run_timed(0.05)


def test_key_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = workload("wants a key", api_key_env="KEY_OF_MINE")
    for key in ("", "another"):
        monkeypatch.setenv("KEY_OF_MINE", key)
        with pytest.raises(FlamegateError, match="E_API_KEY"):
            observer(asked).run_timed(0.05)
    monkeypatch.setenv("KEY_OF_MINE", "s3cr3t-of-mine")
    seen = observer(asked)
    assert seen.run_timed(0.05).tokens
    assert "s3cr3t-of-mine" not in repr(seen.observation())


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ("", "E_NO_SERVER"),
        ("serve = ['a', '{port}']\nurl = 'http://127.0.0.1:1'", "E_NO_SERVER"),
        ("serve = ['llama-server']", "E_NO_SERVER"),
        ("serve = []", "E_BAD_VALUE"),
        ("serve = ['a', 1]", "E_BAD_VALUE"),
        ('serve = ["a", "{port}\\u0000"]', "E_BAD_VALUE"),
        ("serve = ['a', '{port}', '{prompt}']", "E_UNKNOWN_PLACEHOLDER"),
        ("url = '127.0.0.1:8080'", "E_BAD_VALUE"),
        ("url = 'http://me:secret@127.0.0.1'", "E_BAD_VALUE"),
        ("url = 'http://127.0.0.1:99999'", "E_BAD_VALUE"),
        ("url = 'http://127.0.0.1:0'", "E_BAD_VALUE"),
        ('url = "http://127.0.0.1/ x\\r\\nHost: y"', "E_BAD_VALUE"),
        ("serve = ['{port}']\napi = 'responses'", "E_BAD_VALUE"),
        ("serve = ['{port}']\nhealth = 'health'", "E_BAD_VALUE"),
        ('serve = ["{port}"]\nhealth = "/he\\r\\nalth"', "E_BAD_VALUE"),
        ("serve = ['{port}']\napi_key_env = 'sk-123'", "E_BAD_VALUE"),
        ("serve = ['{port}']\nrequest = { stream = false }", "E_BAD_VALUE"),
    ],
)
def test_invalid_declarations(tmp_path: Path, declared: str, code: str) -> None:
    path = tmp_path / "flamegate.toml"
    path.write_text(f"[workloads.w]\nengine = 'openai'\nprompt = 'p'\nmax_tokens = 4\n{declared}\n")
    with pytest.raises(UsageError, match=code):
        read_file(path)


def test_frames_follow_from_the_servers_interpreter() -> None:
    for program, python in (
        *(("python3.12", True), (sys.executable, True)),
        *(("llama-server", False), ("true", False)),
    ):
        asked = workload(serve=(program, "{port}"))
        assert engine("openai").sees_python(asked) is python
        assert not engine("openai").sees_python(
            workload(serve=(program, "{port}"), frames="native")
        )


def test_declared_fields_of_a_request_win() -> None:
    fields = MappingProxyType({"temperature": 0.5, "stop": ("a", "b")})
    declared = workload(request=fields)
    plan = engine("openai").plan(declared, None)
    assert isinstance(plan, Endpoint)
    body = make_request(plan, declared, "tiny", 3)
    for part in (b'"temperature": 0.5', b'"stop": ["a", "b"]', b'"model": "tiny"', b'"seed": 42'):
        assert part in body
