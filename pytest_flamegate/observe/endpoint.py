"""The observer's side of a server: asked over HTTP, clocked from outside.

The client runs in the observer's process. Between two requests the server stands still, and
that is when its clocks are read; each token is timed when its piece of the stream is read.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_flamegate.core import clocks, listeners, process, process_tree
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.figures import make_report
from pytest_flamegate.engines.openai import Origin
from pytest_flamegate.observe import http
from pytest_flamegate.observe.engine_process import (
    check_output_size,
    check_token_count,
    engine_died_error,
)
from pytest_flamegate.observe.http import (
    BrokenError,
    CompletionClient,
    RejectedFieldsError,
    find_free_port,
    key_rejected_error,
    read_key,
)
from pytest_flamegate.observe.observation import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Endpoint
    from pytest_flamegate.engines.figures import Report
    from pytest_flamegate.observe.http import Completion


HOST = "127.0.0.1"
HEALTH_PATHS = ("/health", "/v1/models")
"""Where servers say that they are ready: llama.cpp's and vLLM's own, and OpenAI's list."""
_TRIES = 3
_POLL_S = 0.02
_ONE_LOOK_S = 5.0
_ABSENT = frozenset({404, 405, 501})


class EngineServer:
    """A server that answers. ``pid`` is the process that was started, or that listens.

    ``child`` is None where it ran before: then nothing is ended.
    """

    def __init__(
        self,
        plan: Endpoint,
        workload: Workload,
        env: Mapping[str, str],
        cpu: int | None,
        began: Callable[[int], None],
    ) -> None:
        self._plan = plan
        self._workload = workload
        self.child: process.Child | None = None
        self._key = read_key(workload, plan.key_variable)
        if plan.url is not None:
            origin = Origin.of(plan.url)
            self.api = self._api(origin)
            self._await(time.monotonic() + _ONE_LOOK_S)
            self.pid = _found(workload, origin)
            began(self.pid)
            return
        for tries_left in reversed(range(_TRIES)):
            if self._started(env, cpu, began, last=not tries_left):
                break

    @property
    def tree(self) -> set[int]:
        """The processes that may compute: it and all below it."""
        return process_tree.find_descendants(self.pid)

    def close(self) -> None:
        """End what was started."""
        if self.child is not None:
            self.child.end()

    def left(self) -> ToolError | None:
        """Return the refusal of a server that was started and has ended; None while it runs."""
        if self.child is None or (status := self.child.wait(1.0)) is None:
            return None
        return engine_died_error(self._workload, status, self.child.stderr_text())

    def model(self) -> str | None:
        """Return the name of the model to ask for: declared, or the first that is listed."""
        if self._plan.served_model is not None:
            return self._plan.served_model
        try:
            status, body = self.api.get("/v1/models", _ONE_LOOK_S)
        except (OSError, *BrokenError):
            return None
        listed = (http.parse_object(body) or {}).get("data") if status == 200 else None
        first = listed[0] if isinstance(listed, list) and listed else None
        name = first.get("id") if isinstance(first, dict) else None
        return name if isinstance(name, str) else None

    def _api(self, origin: Origin) -> CompletionClient:
        return CompletionClient(self._workload, origin, self._key, self._idle)

    def _idle(self) -> None:
        if self.child is not None:
            check_output_size(self._workload, self.child)

    def _started(
        self, env: Mapping[str, str], cpu: int | None, began: Callable[[int], None], *, last: bool
    ) -> bool:
        """Start it; False where another process took its port first."""
        port = find_free_port(HOST)
        filled = {"{host}": HOST, "{port}": str(port)}
        argv = [_filled(part, filled) for part in self._plan.argv]
        self.child = process.start(argv, env=env, cwd=self._workload.directory, cpu=cpu)
        self.pid = self.child.pid
        self.api = self._api(Origin("http", HOST, port))
        try:
            began(self.pid)
            self._await(time.monotonic() + self._workload.timeout_s)
            mine = listeners.find_listeners(port, self.tree)
            if mine or not (others := listeners.find_listeners(port)):
                return True
            raise _taken(self._workload, port, others)
        except BaseException as error:
            self.child.end()
            lost = isinstance(error, ToolError) and bool(listeners.find_listeners(port))
            if last or not lost:
                raise
            return False

    def _await(self, until_s: float) -> None:
        """Wait for the server to say that it is ready, until then on the monotonic clock."""
        paths = list(HEALTH_PATHS if self._plan.health is None else (self._plan.health,))
        said = "it does not answer"
        while True:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise _not_ready(self._workload, said)
            try:
                status, _ = self.api.get(paths[0], min(left_s, _ONE_LOOK_S))
            except (OSError, *BrokenError) as error:
                if self.child is None:
                    raise self.api.unreachable(error) from None
                said = f"it does not answer ({error or type(error).__name__})"
            else:
                if 200 <= status < 300:
                    return
                if status in (401, 403):
                    raise key_rejected_error(self._workload, status)
                said = f"{paths[0]} answers with status {status}"
                if status in _ABSENT and len(paths) > 1:
                    del paths[0]
                    continue
            self._still_there()
            time.sleep(_POLL_S)

    def _still_there(self) -> None:
        if self.child is None:
            return
        check_output_size(self._workload, self.child)
        if (status := self.child.poll()) is not None:
            raise engine_died_error(self._workload, status, self.child.stderr_text())


def _filled(part: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        part = part.replace(name, value)
    return part


def _found(workload: Workload, origin: Origin) -> int:
    pid = listeners.find_server(origin.host, origin.port)
    if pid is None:
        raise ToolError(
            "E_SERVER_ELSEWHERE",
            f"The process behind {origin} of {workload.name!r} is not to be seen from here: it "
            "runs on another machine, in a container or as another user.",
            "Measure beside it, as its user or as root; or have it started: serve = [...]. "
            "Clocks and profile are those of a process, and of a client's waiting nothing is "
            "claimed.",
        )
    return pid


def _not_ready(workload: Workload, said: str) -> ToolError:
    return ToolError(
        "E_SERVER_NOT_READY",
        f"The server of {workload.name!r} was not ready in time: {said}.",
        "Raise timeout (seconds) of the workload, or name the path that tells of it: health.",
    )


def _taken(workload: Workload, port: int, others: set[int]) -> ToolError:
    who = ", ".join(map(str, sorted(others)))
    return ToolError(
        "E_PORT_TAKEN",
        f"Port {port}, which the server of {workload.name!r} was given, is answered by another "
        f"process ({who}).",
        "Check that {port} reaches the server, and run again.",
    )


CHUNK, USAGE = "sse:chunk", "sse:usage"
"""Where the tokens come from: one from each piece of the stream, or so many as the server says."""
MAX_OTHER_SHARE = 0.1
"""How much CPU another process of the server may use, of what the one that is clocked does."""
BURST_RATIO = 0.1
"""A median gap below this part of the mean one: the tokens came in bursts."""
_FIRST_TOKENS = 8


class EndpointProcess:
    """One server that answers requests. Use it as a context manager.

    ``sink(tokens)`` is called with the tokens of every whole sequence. ``began(pid)`` is called
    as soon as the server runs. ``load_ns`` is None for a server that ran before. ``notes`` are
    what has to be known of how it was observed, each with its code.
    """

    def __init__(
        self,
        plan: Endpoint,
        workload: Workload,
        env: Mapping[str, str],
        sink: Callable[[tuple[str, ...]], None],
        cpu: int | None = None,
        began: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._plan = plan
        self._workload = workload
        self._sink = sink
        self._without: tuple[str, ...] = ()
        self._reports: list[Report] = []
        self.facts: Mapping[str, str] = {}
        self._notes: dict[str, str] = {}
        self.token_source = CHUNK
        self._settled = False
        self.started_at = clocks.utc_now()
        began_ns = time.monotonic_ns()
        self._server = EngineServer(plan, workload, env, cpu, began)
        self.load_ns = None if plan.url is not None else time.monotonic_ns() - began_ns
        self.pid = self._server.pid
        if plan.url is not None:
            self._notes["I_ONE_PROCESS"] = (
                f"All runs are windows of one process ({self.pid}), which ran before: nothing is "
                "known of how its figures differ from one start to the next."
            )
        try:
            self._model = self._server.model()
            self._settle()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EndpointProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def notes(self) -> Mapping[str, str]:
        """What has to be known of how it was observed so far, by code."""
        return dict(self._notes)

    def close(self, leave_s: float = 0.0) -> None:  # noqa: ARG002 - no server leaves by itself
        """End the server and all it started, if it was started here."""
        self._server.close()

    def warm_up(self, tokens: int) -> None:
        """Generate one sequence of at most ``tokens`` tokens, unmeasured."""
        before = self._spent()
        self._answer(min(tokens, self._workload.max_tokens))
        self._beside(before)

    def block(self, sequences: int) -> Block:
        """Generate ``sequences`` whole sequences; return what they took.

        What the server said of the last of them is kept as its report.
        """
        before = self._clocks()
        answers = [self._answer(self._workload.max_tokens) for _ in range(sequences)]
        interval = before.until(self._clocks())
        for answer in answers:
            self._sink(self._tokens(answer))
        self._reports += answers[-1].reports()
        return Block(interval, tuple(self._gaps(answer) for answer in answers))

    untold_block = block

    def reports(self) -> tuple[Report, ...]:
        """Return what the server said of its measured sequences so far, one for each block."""
        asked = [make_report(f"openai:asked without {name}") for name in self._without]
        return (*self._reports, *asked)

    def counters(self) -> clocks.ProcessCounters:
        """Read the process's counters."""
        return clocks.read_counters(self.pid)

    def _settle(self) -> None:
        """Find out which process computes, and whether each token comes by itself."""
        before = self._spent()
        answer = self._answer(min(_FIRST_TOKENS, self._workload.max_tokens))
        self._settled = True
        if answer.merged:
            self.token_source = USAGE
            self._notes["W_TOKENS_MERGED"] = (
                f"The server counts {answer.counted} tokens and sent {len(answer.pieces)} pieces "
                "of text: tokens are counted by its word, and no time between two was observed."
            )
        after = self._spent()
        used = {pid: after[pid] - before[pid] for pid in after.keys() & before.keys()}
        busiest = max(used, key=lambda pid: used[pid], default=self.pid)
        if used.get(busiest, 0) > used.get(self.pid, 0):
            self.pid = busiest

    def _beside(self, before: Mapping[int, int]) -> None:
        """Note where other processes of the server compute beside the one that is clocked."""
        after = self._spent()
        used = {pid: after[pid] - before.get(pid, 0) for pid in after}
        own = used.pop(self.pid, 0)
        others = sum(used.values())
        if others > MAX_OTHER_SHARE * own and others > 1_000_000:
            self._notes["W_WORK_BESIDE"] = (
                f"{len(used)} other process(es) of the server used {others / 1e6:.0f} ms of CPU "
                f"while process {self.pid}, which is clocked, used {own / 1e6:.0f} ms: their work "
                "is in no figure of CPU time and in no profile."
            )

    def _spent(self) -> dict[int, int]:
        """Return the CPU time in ns of each process of the server."""
        spent = {}
        for pid in self._server.tree:
            with suppress(ProcessLookupError, PermissionError):
                spent[pid] = clocks.read_clocks(pid).cpu_ns
        return spent

    def _answer(self, max_tokens: int) -> Completion:
        answer = self._asked(max_tokens)
        check_token_count(self._workload, max(len(answer.pieces), answer.counted or 0))
        if not answer.pieces:
            check_token_count(self._workload, 0)
        if answer.cached:
            raise ToolError(
                "E_PROMPT_CACHED",
                f"The server of {self._workload.name!r} took {answer.cached} tokens of the prompt "
                "from a cache: a measured prefill would be none.",
                "Turn its prompt cache off (llama-server: cache_prompt = false in request, or "
                "--no-cache-prompt; vLLM: --no-enable-prefix-caching).",
            )
        if self._settled and answer.merged and self.token_source == CHUNK:
            raise ToolError(
                "E_TOKENS_MERGED",
                f"The server of {self._workload.name!r} sent {answer.counted} tokens in "
                f"{len(answer.pieces)} pieces, and one by one before.",
                "Measure on a machine that has time for both, or have the server send each token.",
            )
        self._bursts(answer)
        return answer

    def _asked(self, max_tokens: int) -> Completion:
        path = http.choose_path(self._plan)
        try:
            try:
                return self._server.api.answer(path, self._body(max_tokens))
            except RejectedFieldsError as error:
                # Once: what it still refuses without them it refuses for another reason.
                self._without = tuple(dict.fromkeys((*self._without, *error.names)))
                try:
                    return self._server.api.answer(path, self._body(max_tokens))
                except RejectedFieldsError as again:
                    told = f"it refuses {', '.join(again.names)}, and the request without"
                    raise http.server_error(self._workload, 400, told) from None
        except (OSError, *BrokenError) as error:
            if left := self._server.left():
                raise left from None
            if isinstance(error, OSError) and not isinstance(error, ConnectionResetError):
                raise self._server.api.unreachable(error) from None
            raise ToolError(
                "E_STREAM_CUT",
                f"The server of {self._workload.name!r} ended its stream before it was whole.",
                "See the server's own log; a whole stream ends with data: [DONE].",
            ) from None

    def _body(self, max_tokens: int) -> bytes:
        plan, workload = self._plan, self._workload
        return http.make_request(plan, workload, self._model, max_tokens, self._without)

    def _tokens(self, answer: Completion) -> tuple[str, ...]:
        """Return the tokens as text; where they came merged the whole text stands at the first."""
        if self.token_source == CHUNK:
            return tuple(answer.pieces)
        count = max(answer.counted or 0, len(answer.pieces))
        return ("".join(answer.pieces), *[""] * (count - 1))

    def _gaps(self, answer: Completion) -> tuple[int, ...]:
        """Return a gap for each token; one that nobody saw come is taken to have come last."""
        gaps = tuple(answer.gaps_ns)
        if self.token_source == CHUNK:
            return gaps
        return (*gaps, *[0] * ((answer.counted or 0) - len(gaps)))

    def _bursts(self, answer: Completion) -> None:
        gaps = sorted(answer.gaps_ns[1:])
        if len(gaps) >= _FIRST_TOKENS and gaps[len(gaps) // 2] < BURST_RATIO * sum(gaps) / len(
            gaps
        ):
            self._notes["W_TOKENS_IN_BURSTS"] = (
                f"Tokens came in bursts: the median gap is {gaps[len(gaps) // 2] / 1e6:.3f} ms and "
                f"the mean {sum(gaps) / len(gaps) / 1e6:.3f} ms. Rates are right, gaps are not; "
                "see what the server itself says of them (reported)."
            )

    def _clocks(self) -> clocks.ClockReading:
        try:
            return clocks.read_clocks(self.pid)
        except ProcessLookupError:
            if left := self._server.left():
                raise left from None
            raise ToolError(
                "E_SERVER_GONE",
                f"The process {self.pid} of the server of {self._workload.name!r} is gone.",
                "See the server's own log, and start it again.",
            ) from None
