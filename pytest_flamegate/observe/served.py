"""A child process that loads an engine once and generates on command, clocked from outside."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle

from pytest_flamegate.bricks.record import Recorded
from pytest_flamegate.child import serve, wire
from pytest_flamegate.child.call_counts import CountedCalls
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import PACKAGE, clocks, process
from pytest_flamegate.core.clocks import Interval, ProcessCounters, sum_intervals
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.json import decode_json, replace
from pytest_flamegate.core.json_parser import EVIDENCE_LIMITS
from pytest_flamegate.core.process import OUTPUT_LIMIT_BYTES
from pytest_flamegate.core.process_system import wait_readable
from pytest_flamegate.engines.base import ROUND, Served
from pytest_flamegate.engines.figures import read_facts, read_report
from pytest_flamegate.observe import engine_process
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.observe.prompts import PromptQueue

_OTHER_PYTHON = f"""\
import importlib.util, runpy, sys
spec = importlib.util.spec_from_file_location(
    {PACKAGE.name!r}, {str(PACKAGE / "__init__.py")!r},
    submodule_search_locations=[{str(PACKAGE)!r}])
sys.modules[spec.name] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""Runs a module in another environment, which gains this package and none of its neighbours."""

_READ_BYTES = 65536
BLOCKS = 6
REFERENCE_TIMES = 15
_REPORT_S = 30.0
"""Extra time for a profiled block: its tokens are reported only at its end."""


def make_command(plan: Served, module: str, python_flags: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a module of this package on the plan's interpreter."""
    # A .pyc file in the repository could be that of other source.
    flags = ["--check-hash-based-pycs", "always", *python_flags, "-P"]
    if plan.python is None:
        return [sys.executable, *flags, "-m", module]
    return [plan.python, *flags, "-c", _OTHER_PYTHON, module]


def _start_child(
    plan: Served,
    workload: Workload,
    prompt: str,
    python_flags: Sequence[str],
    cpu: int | None,
) -> tuple[process.Child, int, int]:
    """Start the child; return it, the pipe with its reports and the pipe for commands."""
    env = engine_process.make_environment(workload)
    command_read, command_write = os.pipe()
    report_read, report_write = os.pipe()

    def serve_call() -> None:
        """Serve a callable of this process, in a fork of it."""
        os.close(command_write)
        os.close(report_read)
        # Libraries loaded before the fork have read the old values; later ones read these.
        os.environ.update(env)

        def work() -> None:
            serve.allow_profiler()
            serve.stop_tracing()
            assert plan.call is not None
            fds = (command_read, report_write)
            serve.serve(plan.call, prompt, workload.max_tokens, *fds)

        serve.guarded(work, report_write)

    try:
        if plan.call is not None:
            child = process.fork(serve_call, cpu=cpu)
        else:
            with tempfile.TemporaryFile() as spec:
                # A file: a prompt may be too long for a command line.
                load = {"prompt": prompt, "max_tokens": workload.max_tokens}
                spec.write(json.dumps({**plan.load, **load}).encode())
                spec.seek(0)
                fds = (command_read, report_write, spec.fileno())
                argv = [*make_command(plan, serve.__name__, python_flags), *map(str, fds)]
                child = process.start(argv, env=env, cwd=workload.directory, pass_fds=fds, cpu=cpu)
    except BaseException:
        os.close(command_write)
        os.close(report_read)
        raise
    finally:
        os.close(command_read)
        os.close(report_write)
    return child, report_read, command_write


class ServedProcess(engine_process.EngineProcess):
    """One child that loads once and then obeys commands.

    ``cpu`` is the core that the child is bound to. ``began(pid)`` is called as soon as it runs.
    """

    _child: process.Child

    def __init__(
        self,
        plan: Served,
        workload: Workload,
        sink: engine_process.Sink,
        prompts: PromptQueue,
        python_flags: Sequence[str] = (),
        cpu: int | None = None,
        began: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(workload, sink, prompts)
        self._extend_deadline()
        self._parser = wire.Parser()
        self._recorded: str | None = None
        origin = "called" if plan.token_unit == ROUND else "yielded"
        self.token_source = f"{origin}:{plan.token_unit}"
        (known,) = prompts.texts([prompts.warm_up])
        started = _start_child(plan, workload, known, python_flags, cpu)
        self._child, self._read_fd, self._write_fd = started
        # On a busy machine seconds can pass before the process exists; they are not its own.
        self._began_ns = time.monotonic_ns()
        self.pid = self._child.pid
        try:
            began(self.pid)
        except BaseException:
            self.close()
            raise

    def await_ready(self) -> None:
        """Wait until the engine has loaded and its facts are known."""
        while True:
            for kind, _, text in self._receive()[1]:
                if kind == wire.READY:
                    self.load_ns = time.monotonic_ns() - self._began_ns
                    return
                if kind != wire.FACTS:
                    raise self._gone_error()
                self.facts = read_facts(json.loads(text))  # noqa: TID251 - each value is validated

    def close(self, leave_s: float = 1.0) -> None:
        """End the process; its interpreter may have files to write before it leaves."""
        for fd in (self._write_fd, self._read_fd):
            if fd >= 0:
                os.close(fd)
        self._write_fd = self._read_fd = -1
        try:
            self._child.wait(leave_s)
        finally:
            self._child.end()

    def warm_up(self, tokens: int) -> Interval:
        """Generate one sequence of at most ``tokens`` tokens; return its time."""
        return self._command(wire.WARM, tokens, [self.prompts.warm_up])[0]

    def block(self, sequences: int) -> Block:
        """Generate ``sequences`` whole sequences and return their times."""
        numbers = self.prompts.take(sequences)
        return Block(*self._command(wire.BLOCK, len(numbers), numbers))

    def profile_block(self, sequences: int) -> Block:
        """Like ``block``, with the tokens reported at the end: their times mean nothing.

        Prompts are asked again if none is left: nothing is timed.
        """
        before_ns, all_before_ns = clocks.read_clocks(self.pid).cpu_ns, self.read_clocks().cpu_ns
        block = Block(*self._command(wire.PROFILE, sequences, self._take_again(sequences)))
        own_ns = clocks.read_clocks(self.pid).cpu_ns - before_ns
        self._note_work_beside(own_ns, self.read_clocks().cpu_ns - all_before_ns - own_ns)
        return block

    def brick_block(self, sequences: int) -> tuple[Block, Recorded]:
        """Like ``profile_block`` with the brick clock on; return its report too.

        Raises ``ToolError`` ``E_BAD_BRICKS`` if the report is missing or cannot be read.
        """
        # Imported late: only a brick run needs it.
        from pytest_flamegate.bricks.record import decode_recorded, missing_record_error

        self._recorded = None
        block = Block(*self._command(wire.BRICKS, sequences, self._take_again(sequences)))
        if self._recorded is None:
            raise missing_record_error()
        return block, decode_recorded(self._recorded)

    def count_calls(self, tokens: int) -> CountedCalls:
        """Return the calls of functions in one sequence of at most ``tokens`` tokens.

        Raises ``ReceiptError`` if the record is missing or malformed.
        """
        self._recorded = None
        self._command(wire.CALLS, tokens, [0])  # calls of both sides are compared
        data = (self._recorded or "").encode()
        return decode_json(data, CountedCalls, EVIDENCE_LIMITS, subject="The record of calls")

    def reference(self, times: int) -> Interval:
        """Run the reference kernel ``times`` times and return its cost."""
        return self._command(wire.REFERENCE, times, ())[0]

    def _take_again(self, sequences: int) -> Sequence[int]:
        return self.prompts.take(sequences, again=True)

    def _command(
        self, kind: bytes, value: int, prompts: Sequence[int]
    ) -> tuple[Interval, tuple[tuple[int, ...], ...]]:
        """Have a command obeyed; return its time, and the gap before each token by sequence.

        The child learns of its ``prompts``, if they vary, when their time has begun.

        A gap begins at the previous token, even across sequences; the first one when the command
        was sent. If the observer reads late because it got no core, time moves from gap to gap
        and none is lost: the gaps always add up to the time from the command to the last token.
        """
        self._extend_deadline(_REPORT_S if kind in (wire.PROFILE, wire.BRICKS, wire.CALLS) else 0.0)
        before = self._begin_interval(is_measured=kind == wire.BLOCK)
        last_ns = time.monotonic_ns()
        try:
            self._send(kind, value, prompts)
        except wire.ReaderGoneError:
            raise self._gone_error() from None
        sent_ns = time.monotonic_ns()
        sequences: list[tuple[list[int], list[str]]] = []
        interval: Interval | None = None
        while interval is None:
            delay_ns = clocks.read_own_delay_ns()
            now_ns, records = self._receive()
            for record, number, text in records:
                if record in (wire.TOKEN, wire.TEXT):
                    gaps, tokens = sequences[-1]
                    gaps.append(now_ns - last_ns)
                    tokens.append(str(number) if record == wire.TOKEN else text)
                    last_ns = now_ns
                    if len(tokens) > self._workload.max_tokens:
                        engine_process.check_token_count(self._workload, len(tokens))
                elif record == wire.SEQUENCE:
                    sequences.append(([], []))
                    self._extend_deadline()
                elif record == wire.DONE:
                    ready_ns = now_ns - (clocks.read_own_delay_ns() - delay_ns)
                    interval = self._end_interval(before, ready_ns - sent_ns)
                    break
                else:
                    self._take_report(record, text)
        for (_, tokens), prompt in zip(sequences, cycle(prompts), strict=False):
            engine_process.check_token_count(self._workload, len(tokens))
            if kind != wire.WARM:
                self._sink(tuple(tokens), prompt)
        return interval, tuple(tuple(gaps) for gaps, _ in sequences)

    def _send(self, kind: bytes, value: int, prompts: Sequence[int]) -> None:
        if self._workload.prompts and prompts:
            texts = json.dumps(self.prompts.texts(prompts))
            wire.send_text(self._write_fd, wire.PROMPTS, texts)
        wire.send(self._write_fd, kind, value)

    def _take_report(self, record: bytes, text: str) -> None:
        if record == wire.REPORT:
            self._reports.append(read_report(json.loads(text)))  # noqa: TID251 - each value is validated
        elif record == wire.RECORDED:
            # The child records once: a second record is the engine's own, and neither is true.
            self._recorded = text if self._recorded is None else ""
            self._extend_deadline(_REPORT_S)

    def _extend_deadline(self, more_s: float = 0.0) -> None:
        self._deadline_s = time.monotonic() + self._workload.timeout_s + more_s

    def _receive(self) -> tuple[int, list[tuple[bytes, int, str]]]:
        """Wait for at least one record; return the time it was read and all that came with it."""
        while True:
            left_s = self._deadline_s - time.monotonic()
            if left_s <= 0:
                raise engine_process.timeout_error(self._workload)
            if not wait_readable(self._read_fd, min(left_s, 1.0)):
                engine_process.check_output_size(self._workload, self._child)
                continue
            data = os.read(self._read_fd, _READ_BYTES)
            now_ns = time.monotonic_ns()
            if not data:
                raise self._gone_error()
            records = self._parser.feed(data)
            if self._parser.held_bytes > OUTPUT_LIMIT_BYTES:
                raise engine_process.output_flood_error(self._workload)
            for kind, _, text in records:
                if kind == wire.FAILED:
                    self._child.wait(1.0)
                    raise engine_process.read_child_error(text)
            if records:
                return now_ns, records

    def _gone_error(self) -> ToolError:
        status = self._child.wait(1.0)
        return engine_process.EngineDiedError(self._workload, status, self._child.stderr_text())


def time_blocks(
    process: engine_process.EngineProcess, seconds: float, after_block: Callable[[], None]
) -> tuple[list[Block], ProcessCounters]:
    """Warm ``process`` up and run blocks for about ``seconds``; return them and its counters.

    The reference kernel runs only in served processes. The peak memory is read before it
    allocates its own.
    """
    sequences = process.warm_up_for_block(seconds / BLOCKS)
    sequences = min(sequences, -(-process.prompts.left // BLOCKS))
    began_s = time.monotonic()
    blocks: list[Block] = []

    def needs_more() -> bool:
        timed_s = time.monotonic() - began_s
        is_over = len(blocks) == BLOCKS or timed_s >= seconds
        return not blocks or not (process.note_few_prompts(timed_s, seconds) or is_over)

    if not isinstance(process, ServedProcess):
        while needs_more():
            blocks.append(process.block(sequences))
            after_block()
        return blocks, process.counters()
    peak_rss_bytes = process.counters().peak_rss_bytes
    process.reference(1)
    before = process.reference(REFERENCE_TIMES)
    while needs_more():
        block = process.block(sequences)
        after_block()
        after = process.reference(REFERENCE_TIMES)
        blocks.append(replace(block, reference=sum_intervals([before, after])))
        before = after
    return blocks, replace(process.counters(), peak_rss_bytes=peak_rss_bytes)
