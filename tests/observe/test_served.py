"""A child leaves nothing behind, and is not read without end."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.child import wire
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.base import Served
from pytest_flamegate.observe import served
from pytest_flamegate.observe.prompts import PromptQueue
from pytest_flamegate.observe.served import ServedProcess

WORKLOAD = Workload("toy", "python", "go on", 2, "test", directory=Path())


def start(facts: Any = None, began: Any = lambda _: None) -> ServedProcess:
    """Start an engine that says ``facts`` of itself and generates numbers."""

    def generate(prompt: str, max_tokens: int) -> Iterator[int]:
        return iter(range(max_tokens))

    generate.facts = facts or {}  # type: ignore[attr-defined]
    plan, queue = Served({}, generate), PromptQueue(WORKLOAD)
    return ServedProcess(plan, WORKLOAD, lambda *_: None, queue, began=began)


def test_a_failed_start_leaves_nothing() -> None:
    begun: list[int] = []

    def interrupted(pid: int) -> None:
        begun.append(pid)
        raise KeyboardInterrupt

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt):
        start(began=interrupted)
    assert not psutil.pid_exists(begun[0])
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_load_begins_when_the_process_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run lasts longer than its process, which a verifier takes for a forgery."""
    fork = process.fork

    def fork_late(*given: Any, **more: Any) -> process.Child:
        time.sleep(0.3)
        return fork(*given, **more)

    monkeypatch.setattr(process, "fork", fork_late)
    with closing(start()) as running:
        running.await_ready()
        age_s = time.time() - psutil.Process(running.pid).create_time()
        assert running.load_ns is not None
        assert running.load_ns / 1e9 < age_s + 0.05  # ticks of 10 ms


def test_an_interrupt_while_it_leaves_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    running = start()
    running.await_ready()
    wait = process.Child.wait

    def interrupted(child: process.Child, timeout_s: float, *more: Any) -> int | None:
        monkeypatch.setattr(process.Child, "wait", wait)
        raise KeyboardInterrupt

    os.kill(running.pid, signal.SIGSTOP)
    monkeypatch.setattr(process.Child, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        running.close()
    assert not psutil.pid_exists(running.pid)


def test_facts_that_are_no_texts_are_rejected() -> None:
    with closing(start({"version": 3})) as running, pytest.raises(ToolError, match="E_BAD_REPORT"):
        running.await_ready()


def test_a_record_without_end_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "OUTPUT_LIMIT_BYTES", 1 << 16)
    # Of two records the first is whole, and the second longer than is held.
    endless = lambda fd, _: wire.send_text(fd, wire.TEXT, "x" * 999_999)  # noqa: E731
    monkeypatch.setattr(wire, "send_token", endless)
    with closing(start()) as running:
        running.await_ready()
        with pytest.raises(ToolError, match="E_OUTPUT_FLOOD"):
            running.block(1)


@given(
    tokens=st.lists(st.one_of(st.integers(), st.text(), st.binary()), max_size=20),
    cut=st.integers(1, 7),
)
def test_tokens_survive_any_cutting_of_the_stream(tokens: list[object], cut: int) -> None:
    read_fd, write_fd = os.pipe()
    try:
        for token in tokens:
            wire.send_token(write_fd, token)
        wire.send(write_fd, wire.DONE)
        data = os.read(read_fd, 1 << 20)
    finally:
        os.close(read_fd)
        os.close(write_fd)
    parser = wire.Parser()
    records = []
    for at in range(0, len(data), cut):
        records += parser.feed(data[at : at + cut])
    assert records.pop()[0] == wire.DONE
    for token, (kind, value, text) in zip(tokens, records, strict=True):
        if isinstance(token, int) and -(2**31) <= token < 2**31:
            assert (kind, value) == (wire.TOKEN, token)
        elif isinstance(token, int):
            assert text == str(token)
        else:
            assert kind == wire.TEXT


def test_receive_tells_the_end_of_the_stream() -> None:
    read_fd, write_fd = os.pipe()
    wire.send(write_fd, wire.BLOCK, 3)
    os.close(write_fd)
    assert wire.receive(read_fd) == (wire.BLOCK, 3)
    assert wire.receive(read_fd) is None
    os.close(read_fd)
