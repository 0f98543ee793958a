"""The server behind an endpoint: one that is started for a run, or one that runs already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload import completions, listeners, process, tree
from pytest_flamegate.workload.api import Api, BrokenError, denied, key_of
from pytest_flamegate.workload.http_client import Origin, free_port
from pytest_flamegate.workload.refusals import check_output, died

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_flamegate.workload.engines.base import Endpoint
    from pytest_flamegate.workload.spec import Workload

HOST = "127.0.0.1"
COMMON = ("/health", "/v1/models")
"""Where servers say that they are ready: llama.cpp's and vLLM's own, and OpenAI's list."""
_TRIES = 3
_POLL_S = 0.02
_ONE_LOOK_S = 5.0
_ABSENT = frozenset({404, 405, 501})


class Server:
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
        self._key = key_of(workload, plan.key_variable)
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
        return tree.below(self.pid)

    def close(self) -> None:
        """End what was started."""
        if self.child is not None:
            self.child.end()

    def left(self) -> ToolError | None:
        """Return the refusal of a server that was started and has ended; None while it runs."""
        if self.child is None or (status := self.child.wait(1.0)) is None:
            return None
        return died(self._workload, status, self.child.stderr_text())

    def model(self) -> str | None:
        """Return the name of the model to ask for: declared, or the first that is listed."""
        if self._plan.served_model is not None:
            return self._plan.served_model
        try:
            status, body = self.api.get("/v1/models", _ONE_LOOK_S)
        except (OSError, *BrokenError):
            return None
        listed = (completions.mapping(body) or {}).get("data") if status == 200 else None
        first = listed[0] if isinstance(listed, list) and listed else None
        name = first.get("id") if isinstance(first, dict) else None
        return name if isinstance(name, str) else None

    def _api(self, origin: Origin) -> Api:
        return Api(self._workload, origin, self._key, self._idle)

    def _idle(self) -> None:
        if self.child is not None:
            check_output(self._workload, self.child)

    def _started(
        self, env: Mapping[str, str], cpu: int | None, began: Callable[[int], None], *, last: bool
    ) -> bool:
        """Start it; False where another process took its port first."""
        port = free_port(HOST)
        filled = {"{host}": HOST, "{port}": str(port)}
        argv = [_filled(part, filled) for part in self._plan.argv]
        self.child = process.start(argv, env=env, cwd=self._workload.directory, cpu=cpu)
        self.pid = self.child.pid
        self.api = self._api(Origin("http", HOST, port))
        try:
            began(self.pid)
            self._await(time.monotonic() + self._workload.timeout_s)
            mine = listeners.listening(port, self.tree)
            if mine or not (others := listeners.listening(port)):
                return True
            raise _taken(self._workload, port, others)
        except BaseException as error:
            self.child.end()
            lost = isinstance(error, ToolError) and bool(listeners.listening(port))
            if last or not lost:
                raise
            return False

    def _await(self, until_s: float) -> None:
        """Wait for the server to say that it is ready, until then on the monotonic clock."""
        paths = list(COMMON if self._plan.health is None else (self._plan.health,))
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
                    raise denied(self._workload, status)
                said = f"{paths[0]} answers with status {status}"
                if status in _ABSENT and len(paths) > 1:
                    del paths[0]
                    continue
            self._still_there()
            time.sleep(_POLL_S)

    def _still_there(self) -> None:
        if self.child is None:
            return
        check_output(self._workload, self.child)
        if (status := self.child.poll()) is not None:
            raise died(self._workload, status, self.child.stderr_text())


def _filled(part: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        part = part.replace(name, value)
    return part


def _found(workload: Workload, origin: Origin) -> int:
    pid = listeners.server_of(origin.host, origin.port)
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
