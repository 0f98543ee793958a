"""The observer's side of a server: asked over HTTP, clocked from outside.

The client runs in the observer's process. Between two requests the server stands still, and
that is when its clocks are read; each token is timed when its piece of the stream is read.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload import clocks, completions
from pytest_flamegate.workload.api import BrokenError, FieldsRefusedError
from pytest_flamegate.workload.observation import Block
from pytest_flamegate.workload.refusals import check_count
from pytest_flamegate.workload.reported import report
from pytest_flamegate.workload.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_flamegate.workload.completions import Answer
    from pytest_flamegate.workload.engines.base import Endpoint
    from pytest_flamegate.workload.reported import Report
    from pytest_flamegate.workload.spec import Workload

CHUNK, USAGE = "sse:chunk", "sse:usage"
"""Where the tokens come from: one from each piece of the stream, or so many as the server says."""
MOST_BESIDE = 0.1
"""How much CPU another process of the server may use, of what the one that is clocked does."""
BURST = 0.1
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
        self._server = Server(plan, workload, env, cpu, began)
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
        asked = [report(f"openai:asked without {name}") for name in self._without]
        return (*self._reports, *asked)

    def counters(self) -> clocks.Counters:
        """Read the process's counters."""
        return clocks.counters(self.pid)

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
        if others > MOST_BESIDE * own and others > 1_000_000:
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
                spent[pid] = clocks.read(pid).cpu_ns
        return spent

    def _answer(self, max_tokens: int) -> Answer:
        answer = self._asked(max_tokens)
        check_count(self._workload, max(len(answer.pieces), answer.counted or 0))
        if not answer.pieces:
            check_count(self._workload, 0)
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

    def _asked(self, max_tokens: int) -> Answer:
        path = completions.path_of(self._plan)
        try:
            try:
                return self._server.api.answer(path, self._body(max_tokens))
            except FieldsRefusedError as error:
                # Once: what it still refuses without them it refuses for another reason.
                self._without = tuple(dict.fromkeys((*self._without, *error.names)))
                try:
                    return self._server.api.answer(path, self._body(max_tokens))
                except FieldsRefusedError as again:
                    told = f"it refuses {', '.join(again.names)}, and the request without"
                    raise completions.failed(self._workload, 400, told) from None
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
        return completions.request(plan, workload, self._model, max_tokens, self._without)

    def _tokens(self, answer: Answer) -> tuple[str, ...]:
        """Return the tokens as text; where they came merged the whole text stands at the first."""
        if self.token_source == CHUNK:
            return tuple(answer.pieces)
        count = max(answer.counted or 0, len(answer.pieces))
        return ("".join(answer.pieces), *[""] * (count - 1))

    def _gaps(self, answer: Answer) -> tuple[int, ...]:
        """Return a gap for each token; one that nobody saw come is taken to have come last."""
        gaps = tuple(answer.gaps_ns)
        if self.token_source == CHUNK:
            return gaps
        return (*gaps, *[0] * ((answer.counted or 0) - len(gaps)))

    def _bursts(self, answer: Answer) -> None:
        gaps = sorted(answer.gaps_ns[1:])
        if len(gaps) >= _FIRST_TOKENS and gaps[len(gaps) // 2] < BURST * sum(gaps) / len(gaps):
            self._notes["W_TOKENS_IN_BURSTS"] = (
                f"Tokens came in bursts: the median gap is {gaps[len(gaps) // 2] / 1e6:.3f} ms and "
                f"the mean {sum(gaps) / len(gaps) / 1e6:.3f} ms. Rates are right, gaps are not; "
                "see what the server itself says of them (reported)."
            )

    def _clocks(self) -> clocks.Reading:
        try:
            return clocks.read(self.pid)
        except ProcessLookupError:
            if left := self._server.left():
                raise left from None
            raise ToolError(
                "E_SERVER_GONE",
                f"The process {self.pid} of the server of {self._workload.name!r} is gone.",
                "See the server's own log, and start it again.",
            ) from None
