"""Runs inside the observed process: load the engine once, then obey the observer.

``python -P -m pytest_flamegate.child.serve READ_FD WRITE_FD SPEC_FD``, where the last is
an open file with the JSON of what to load. Between commands the process blocks in a read and
spends nothing. When the observer goes away the pipe closes and the process ends.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from pytest_flamegate.child import wire
from pytest_flamegate.engines.tokens import tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


if TYPE_CHECKING:
    Generate = Callable[[str, int], Iterable[Any]]
    Run = Callable[[int, Callable[[], None], Callable[[Any], None]], None]
    Watched = Callable[[Run, int, Generate, Callable[[], None], Callable[[Any], None]], str]
    Serving = Callable[[Generate], None]

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = -1
_WARM_REFERENCE = 2


def measured_sequences(
    generate: Generate,
    prompt: str,
    max_tokens: int,
    times: int,
    began: Callable[[], None],
    token: Callable[[Any], None],
) -> None:
    """Generate ``times`` sequences and hand on each token: the root frame of every profile.

    An engine that calls back has ``stream(prompt, max_tokens, token)`` and is spared a thread.
    """
    stream = getattr(generate, "stream", None)
    for _ in range(times):
        began()
        if stream is not None:
            stream(prompt, max_tokens, token)
            continue
        for each in tokens_of(generate(prompt, max_tokens)):
            token(each)


def serve(generate: Generate, prompt: str, max_tokens: int, read_fd: int, write_fd: int) -> None:
    """Obey commands until the observer is gone; an engine with ``facts`` tells them first."""
    server = _Server(generate, prompt, max_tokens, write_fd)
    if facts := getattr(generate, "facts", None):
        wire.send_text(write_fd, wire.FACTS, json.dumps(dict(facts)))
    wire.send(write_fd, wire.READY)
    while (record := wire.receive(read_fd)) is not None:
        server.obey(*record)
        wire.send(write_fd, wire.DONE)


class _Server:
    def __init__(self, generate: Generate, prompt: str, max_tokens: int, write_fd: int) -> None:
        self._generate = generate
        self._prompt = prompt
        self._max_tokens = max_tokens
        self._fd = write_fd
        self._reference: Any = None
        self._paused: Iterator[Any] | None = None

    def obey(self, command: bytes, value: int) -> None:
        if command == wire.REFERENCE:
            self._run_reference(value)
        elif command == wire.WARM:
            self._sequences(min(value, self._max_tokens), 1, self._began, self._token)
            self._reports()
        elif command == wire.PART:
            self._part(value)
        elif command == wire.PROFILE:
            self._told_at_the_end(value)
        elif command == wire.BRICKS:
            # Nobody else loads anything of bricks.
            from pytest_flamegate.child.brick_run import record_bricks

            self._told_at_the_end(value, record_bricks)
        else:
            self._sequences(self._max_tokens, value, self._began, self._token)
            for report in self._reports():
                wire.send_text(self._fd, wire.REPORT, json.dumps(report))

    def _sequences(
        self, max_tokens: int, times: int, began: Callable[[], None], token: Callable[[Any], None]
    ) -> None:
        measured_sequences(self._generate, self._prompt, max_tokens, times, began, token)

    def _part(self, tokens: int) -> None:
        if self._paused is None:
            self._began()
            self._paused = iter(tokens_of(self._generate(self._prompt, self._max_tokens)))
        part = list(islice(self._told(self._paused), tokens))
        if len(part) < tokens:
            self._paused = None
            wire.send(self._fd, wire.ENDED)

    def _told(self, tokens: Iterator[Any]) -> Iterator[Any]:
        for each in tokens:
            self._token(each)
            yield each

    def _told_at_the_end(self, times: int, watched: Watched | None = None) -> None:
        """Generate without telling: in a profile the telling would stand beside the work."""
        kept: list[Any] = []
        starts: list[int] = []

        def began() -> None:
            starts.append(len(kept))

        if watched is None:
            self._sequences(self._max_tokens, times, began, kept.append)
        else:
            run = partial(self._sequences, self._max_tokens)
            recorded = watched(run, times, self._generate, began, kept.append)
            wire.send_text(self._fd, wire.RECORDED, recorded)
        for start, end in zip(starts, [*starts[1:], len(kept)], strict=True):
            self._began()
            for each in kept[start:end]:
                self._token(each)

    def _reports(self) -> list[dict[str, Any]]:
        """Take what the engine has to say of its last sequences, where it says anything."""
        reports = getattr(self._generate, "reports", None)
        return [] if reports is None else list(reports())

    def _began(self) -> None:
        wire.send(self._fd, wire.SEQUENCE)

    def _token(self, each: Any) -> None:
        wire.send_token(self._fd, each)

    def _run_reference(self, times: int) -> None:
        if self._reference is None:
            from pytest_flamegate.child.reference import Reference

            self._reference = Reference()
            self._reference.run(_WARM_REFERENCE)
        self._reference.run(times)


def guarded(work: Callable[[], None], write_fd: int) -> int:
    """Run ``work``; a failure is told to the observer instead of printed as a traceback."""
    from pytest_flamegate.core.errors import FlamegateError, UsageError

    failure: dict[str, object]
    try:
        work()
    except BrokenPipeError:
        return 0
    except FlamegateError as error:
        usage = isinstance(error, UsageError)
        failure = {
            "code": error.code,
            "what": error.problem,
            "remedy": error.remedy,
            "usage": usage,
        }
    except (Exception, SystemExit) as error:
        import traceback

        traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        failure = {
            "code": "E_ENGINE_RAISED",
            "what": f"The engine raised {type(error).__name__}: {error} "
            f"({os.path.basename(where.filename)}:{where.lineno}).",  # noqa: PTH119
            "remedy": "Run the engine by itself with the same prompt to see the whole traceback.",
            "usage": False,
        }
    else:
        return 0
    wire.send_text(write_fd, wire.FAILED, json.dumps(failure))
    return 1


def load(spec: dict[str, Any]) -> Generate:
    """Return the ``generate`` that the factory named in ``spec`` (``module:function``) makes.

    Where ``spec`` names a ``project`` and a ``checkout`` of it, the code comes from the latter.
    """
    check = _relocated(spec)
    generate: Generate = _named(spec["factory"])(spec)
    check()
    return generate


def run(spec: dict[str, Any], serving: Serving) -> None:
    """Load what ``spec`` names and hand it to ``serving``, which returns when all is over.

    A ``host`` (``module:function``) runs what the engine lives in, and calls ``serving``
    from within: it is called with the spec and with that.
    """
    if "host" not in spec:
        serving(load(spec))
        return
    check = _relocated(spec)

    def checked(generate: Generate) -> None:
        check()
        serving(generate)

    _named(spec["host"])(spec, checked)


def _relocated(spec: dict[str, Any]) -> Callable[[], None]:
    """Import from the side that ``spec`` names from now on; return what checks that afterwards."""
    if "checkout" not in spec:
        return lambda: None
    from pathlib import Path

    from pytest_flamegate.child import relocation

    project, checkout = Path(spec["project"]), Path(spec["checkout"])
    relocation.relocate(project, checkout)
    own_model = spec.get("own_model", False)
    return lambda: relocation.check_side(project, checkout, own_model=own_model)


def _named(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def allow_profiler() -> None:
    """Let any process of this user trace this one, where Yama would allow parents only."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PTRACER, ctypes.c_long(_PR_SET_PTRACER_ANY), 0, 0, 0)


def main(arguments: list[str]) -> int:
    """Load what the arguments name and serve it; the exit status is 1 if it failed."""
    read_fd, write_fd, spec_fd = map(int, arguments)
    with os.fdopen(spec_fd, "rb") as file:
        spec = json.load(file)

    def work() -> None:
        allow_profiler()
        run(spec, lambda made: serve(made, spec["prompt"], spec["max_tokens"], read_fd, write_fd))

    return guarded(work, write_fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
