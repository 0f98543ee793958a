"""A server that is measured over HTTP and clocked from outside.

The client runs in the observer's process. The server is idle between two requests, and its
clocks are read then. Each token is timed when its piece of the stream is read.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import clocks, process, process_system
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.base import Endpoint
from pytest_flamegate.engines.figures import Report, make_report
from pytest_flamegate.engines.openai import Origin
from pytest_flamegate.observe import completions, engine_process
from pytest_flamegate.observe.http import BrokenError, find_free_port
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.observe.prompts import PromptQueue

HOST = "127.0.0.1"
HEALTH_PATHS = ("/health", "/v1/models")
"""Paths that answer 200 when ready: llama.cpp's and vLLM's own, and OpenAI's list."""
CHUNK, USAGE = "sse:chunk", "sse:usage"
"""Token sources: one token in each piece of the stream, or the count that the server reports."""
_POLL_S = 0.02
_FIRST_TOKENS = 8


class EndpointProcess(engine_process.EngineProcess):
    """One server that answers requests; ``close()`` ends it if it was started here.

    ``began(pid)`` is called as soon as the server runs. ``pid`` is the process that was started
    or that listens, or the one of its descendants that computes.
    """

    def __init__(
        self,
        plan: Endpoint,
        workload: Workload,
        sink: engine_process.Sink,
        prompts: PromptQueue,
        cpu: int | None = None,
        began: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(workload, sink, prompts)
        self._plan = plan
        self._key = completions.read_key(workload, plan.key_variable)
        self._without: tuple[str, ...] = ()
        self.token_source = CHUNK
        self._has_probed = False
        self._cpu, self._began = cpu, began
        if plan.url is not None:
            self._find_server(Origin.of(plan.url))
        else:
            self._start()

    def await_ready(self) -> None:
        """Wait for the server, find the process that computes, and see how it sends tokens."""
        if self._child is not None:
            self._await_answer(time.monotonic() + self._workload.timeout_s)
            self._require_own_port(self._child)
            self.load_ns = time.monotonic_ns() - self._began_ns
        self._server_pid = self.pid
        self._model = self._plan.served_model or self._client.find_model()
        self._probe()

    def _find_server(self, origin: Origin) -> None:
        """Find the process of a server that runs already."""
        self._client = completions.CompletionClient(
            self._workload, origin, self._key, self._require_running
        )
        self._await_answer(time.monotonic() + completions.GET_TIMEOUT_S)
        pid = process_system.find_server(origin.host, origin.port)
        if pid is None:
            raise ToolError(
                "E_SERVER_ELSEWHERE",
                f"The process behind {origin} of {self._workload.name!r} cannot be observed: it "
                "runs on another machine, in a container or as another user.",
            )
        self.pid = pid
        self._began(pid)
        self.notes["I_ONE_PROCESS"] = (
            f"All runs are windows of one process ({pid}) that ran before, so it is not "
            "known how much its figures differ from one start to the next."
        )

    def _start(self) -> None:
        """Start the server on a free port."""
        self._port = port = find_free_port(HOST)
        argv = [
            part.replace("{host}", HOST).replace("{port}", str(port)) for part in self._plan.argv
        ]
        self._child = process.start(
            argv,
            env=engine_process.make_environment(self._workload),
            cwd=self._workload.directory,
            cpu=self._cpu,
            executable=self._plan.executable,
        )
        self._began_ns = time.monotonic_ns()
        self.pid = self._child.pid
        self._client = completions.CompletionClient(
            self._workload, Origin("http", HOST, port), self._key, self._require_running
        )
        try:
            self._began(self.pid)
        except BaseException:
            self._child.end()
            raise

    def _require_own_port(self, child: process.Child) -> None:
        """Raise an error if another process took the port before the server did."""
        found = process_system.find_listeners(self._port)
        if found and found.isdisjoint(process_system.find_tree(self.pid, child.marker)):
            pids = ", ".join(map(str, sorted(found)))
            raise ToolError(
                "E_PORT_TAKEN",
                f"Port {self._port}, given to the server of {self._workload.name!r}, is answered "
                f"by another process ({pids}).",
            )

    def _await_answer(self, until_s: float) -> None:
        """Poll the server until it answers, up to ``until_s`` on the monotonic clock."""
        paths = list(HEALTH_PATHS if self._plan.health is None else (self._plan.health,))
        state = "it does not answer"
        while True:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                problem = f"was not ready in time: {state}"
                raise completions.server_error(self._workload, "E_TIMEOUT", problem)
            try:
                status, _ = self._client.get(paths[0], min(left_s, completions.GET_TIMEOUT_S))
            except (OSError, *BrokenError) as error:
                if self._child is None:
                    raise self._client.unreachable_error(error) from None
                state = f"it does not answer ({error or type(error).__name__})"
            else:
                if 200 <= status < 300:
                    return
                if status in (401, 403):
                    raise completions.key_rejected_error(self._workload, status)
                state = f"{paths[0]} answers with status {status}"
                if status in (404, 405, 501) and len(paths) > 1:
                    del paths[0]
                    continue
            self._require_running()
            time.sleep(_POLL_S)

    def _require_running(self) -> None:
        if self._child is not None:
            engine_process.check_output_size(self._workload, self._child)
            if error := self._find_end(0.0):
                raise error

    def _find_end(self, timeout_s: float = 1.0) -> ToolError | None:
        """Return the error of a server that was started here and has ended; None if it runs."""
        if self._child is None or (status := self._child.wait(timeout_s)) is None:
            return None
        return engine_process.EngineDiedError(self._workload, status, self._child.stderr_text())

    def _gone_error(self) -> ToolError:
        return self._find_end() or ToolError(
            "E_ENGINE_CHANGED",
            f"Process {self.pid} of the server of {self._workload.name!r} is gone.",
            "See the server's own log, and start it again.",
        )

    def close(self, leave_s: float = 0.0) -> None:  # noqa: ARG002 - no server leaves by itself
        """End the server and all it started, if it was started here."""
        if self._child is not None:
            self._child.end()

    def warm_up(self, tokens: int) -> Interval:
        """Generate one sequence of at most ``tokens`` tokens; return its time."""
        before = self._begin_interval(is_measured=False)
        answer = self._complete(self.prompts.warm_up, min(tokens, self._workload.max_tokens))
        return self._end_interval(before, answer.answer_ns)

    def block(self, sequences: int) -> Block:
        """Generate ``sequences`` whole sequences and return their times.

        The server's figures for the last of them are stored as its report.
        """
        return self._ask(self.prompts.take(sequences))

    def profile_block(self, sequences: int) -> Block:
        """Like ``block``; prompts are asked again if none is left."""
        return self._ask(self.prompts.take(sequences, again=True))

    def _ask(self, prompts: Sequence[int]) -> Block:
        before = self._begin_interval(is_measured=True)
        answers = [self._complete(each, self._workload.max_tokens) for each in prompts]
        interval = self._end_interval(before, sum(answer.answer_ns for answer in answers))
        for answer, prompt in zip(answers, prompts, strict=True):
            if self.token_source == CHUNK:
                self._sink(tuple(answer.pieces), prompt)
            else:  # merged tokens are one text in the first of them
                count = max(answer.counted or 0, len(answer.pieces))
                self._sink(("".join(answer.pieces), *[""] * (count - 1)), prompt)
        self._reports += answers[-1].reports()
        return Block(interval, tuple(self._gaps(answer) for answer in answers))

    def reports(self) -> tuple[Report, ...]:
        """Return the server's own figures for its measured sequences, one for each block."""
        dropped = [make_report(f"openai:asked without {name}") for name in self._without]
        return (*self._reports, *dropped)

    def _probe(self) -> None:
        """Find out which process computes, and whether each token comes in a piece of its own."""
        before = self._read_cpu_ns()
        tokens = min(_FIRST_TOKENS, self._workload.max_tokens)
        answer = self._complete(self.prompts.warm_up, tokens)
        self._has_probed = True
        if answer.is_merged:
            self.token_source = USAGE
            self.notes["W_TOKENS_MERGED"] = (
                f"The server counts {answer.counted} tokens and sent {len(answer.pieces)} pieces "
                "of text: its count is used, and no time between two tokens was observed."
            )
        used = self._used_since(before)
        if self._busiest(used) not in before:
            # It started with the request, and may be busy only once, as one that compiles.
            before = self._read_cpu_ns()
            self._complete(self.prompts.warm_up, tokens)
            used = self._used_since(before)
        self.pid = self._busiest(used)
        own = used.pop(self.pid, 0)
        self._note_work_beside(own, sum(used.values()))

    def _read_cpu_ns(self) -> dict[int, int]:
        """Return the CPU time in ns of each process of the server."""
        times = {}
        for pid in process_system.find_descendants(self._server_pid):
            with suppress(ProcessLookupError, PermissionError):
                times[pid] = clocks.read_clocks(pid).cpu_ns
        return times

    def _busiest(self, used: Mapping[int, int]) -> int:
        return max(used, key=lambda pid: (used[pid], pid == self.pid), default=self.pid)

    def _used_since(self, before: Mapping[int, int]) -> dict[int, int]:
        """Return the CPU time in ns of each process since ``before``, or since its start."""
        return {pid: ns - before.get(pid, 0) for pid, ns in self._read_cpu_ns().items()}

    def _complete(self, prompt: int, max_tokens: int) -> completions.Completion:
        (text,) = self.prompts.texts([prompt])
        answer = self._request(text, max_tokens)
        count = max(len(answer.pieces), answer.counted or 0) if answer.pieces else 0
        engine_process.check_token_count(self._workload, count)
        if answer.cached:
            problem = (
                f"took {answer.cached} tokens of the prompt from a cache, so there is no prefill"
            )
            raise completions.server_error(self._workload, "E_PROMPT_CACHED", problem)
        if self._has_probed and answer.is_merged and self.token_source == CHUNK:
            counts = f"{answer.counted} tokens in {len(answer.pieces)} pieces"
            raise answer.disagreement_error(f"{counts}, and sent one by one before")
        return answer

    def _request(self, prompt: str, max_tokens: int) -> completions.Completion:
        try:
            while True:
                try:
                    return self._send(prompt, max_tokens)
                except completions.RejectedFieldsError as error:
                    self._without += error.args
        except (OSError, *BrokenError) as error:
            if ended := self._find_end():
                raise ended from None
            was_connected = isinstance(error, ConnectionResetError | BrokenPipeError)
            if isinstance(error, OSError) and not was_connected:
                raise self._client.unreachable_error(error) from None
            problem = "ended its stream before it was complete"
            raise completions.server_error(self._workload, "E_SERVER_ERROR", problem) from None

    def _send(self, prompt: str, max_tokens: int) -> completions.Completion:
        body = completions.make_request(
            self._plan, self._workload, self._model, prompt, max_tokens, self._without
        )
        path = "/v1/chat/completions" if self._plan.chat else "/v1/completions"
        droppable = [name for name in completions.DROPPABLE if name not in self._without]
        return self._client.complete(path, body, droppable)

    def _gaps(self, answer: completions.Completion) -> tuple[int, ...]:
        """Return a gap for each token; a token that was not observed counts as the last."""
        gaps = tuple(answer.gaps_ns)
        if self.token_source == CHUNK:
            return gaps
        return (*gaps, *[0] * ((answer.counted or 0) - len(gaps)))
