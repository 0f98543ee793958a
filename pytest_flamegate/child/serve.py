"""Runs inside the observed process: load the engine once, then obey the observer.

``python -P -m pytest_flamegate.child.serve READ_FD WRITE_FD SPEC_FD`` serves the observer over two
pipes; SPEC_FD is an open file with the specification as JSON. Between commands the process blocks
in a read and uses no CPU. When the observer goes away the pipe closes and the process ends.

``python -P -m pytest_flamegate.child.serve count ANSWER SPEC TOKENS`` generates one sequence and
ends, for a profiler that counts instructions: two such runs that differ in TOKENS alone differ by
the work of those tokens. ANSWER and SPEC are files; the tokens are written as records of ``wire``.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import cycle, islice
from pkgutil import resolve_name
from typing import Any

from pytest_flamegate.child import Run, wire

Generate = Callable[[str, int], Iterable[Any]]
Recorder = Callable[[Run, int, Generate, Callable[[], None], Callable[[Any], None]], str]
Serving = Callable[[Generate], None]

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = -1
_WARM_REFERENCE = 2
_SMALL_BYTES, _CLASS_BYTES = 512, 16
"""The largest object that CPython allocates in pools, and the step between sizes of pools."""
_MOST_FILLED, _LARGE_BYTES = 1024, 65_536
"""More objects of one size than a pool of CPython holds; and the size of what lies elsewhere."""


def measured_sequences(
    generate: Generate,
    prompts: Sequence[str],
    max_tokens: int,
    times: int,
    began: Callable[[], None],
    token: Callable[[Any], None],
) -> None:
    """Generate ``times`` sequences and hand on each token: the root frame of every profile.

    They answer ``prompts`` in turn, again from the first one if there are fewer.
    An engine of this package that calls back has ``stream(prompt, max_tokens, token)`` and is
    spared a thread. Another one could be fast in that alone, which its users never call.
    """
    is_own = type(generate).__module__.startswith("pytest_flamegate.")
    stream = getattr(generate, "stream", None) if is_own else None
    for prompt in islice(cycle(prompts), times):
        began()
        if stream is not None:
            stream(prompt, max_tokens, token)
            continue
        for each in wire.tokens_of(generate(prompt, max_tokens)):
            token(each)


def serve(generate: Generate, prompt: str, max_tokens: int, read_fd: int, write_fd: int) -> None:
    """Obey commands until the observer is gone; an engine with ``facts`` sends them first."""
    server = _CommandServer(generate, prompt, max_tokens, write_fd)
    if facts := getattr(generate, "facts", None):
        wire.send_text(write_fd, wire.FACTS, json.dumps(dict(facts)))
    wire.send(write_fd, wire.READY)
    while (record := wire.receive(read_fd)) is not None:
        if record[0] == wire.PROMPTS:
            payload = wire.receive_payload(read_fd, record[1])
            server.prompts = json.loads(payload or b"[]")  # noqa: TID251 - its own parent wrote it
            continue
        server.obey(*record)
        wire.send(write_fd, wire.DONE)


class _CommandServer:
    def __init__(self, generate: Generate, prompt: str, max_tokens: int, write_fd: int) -> None:
        self.prompts = [prompt]
        self._engine = generate
        self._max_tokens = max_tokens
        self._fd = write_fd
        self._reference: Any = None

    def obey(self, command: bytes, value: int) -> None:
        if command == wire.REFERENCE:
            self._run_reference(value)
        elif command == wire.WARM:
            self._generate(min(value, self._max_tokens), 1, self._send_start, self._send_token)
            self._take_reports()
        elif command == wire.PROFILE:
            self._generate_silently(value)
        elif command == wire.BRICKS:
            # Imported late: only a brick run needs anything of bricks.
            from pytest_flamegate.child.brick_run import record_bricks

            self._generate_silently(value, record_bricks)
        elif command == wire.CALLS:
            from pytest_flamegate.child.call_counts import SEQUENCES, record_calls

            self._generate_silently(SEQUENCES, record_calls, value)
        else:
            self._generate(self._max_tokens, value, self._send_start, self._send_token)
            for report in self._take_reports():
                wire.send_text(self._fd, wire.REPORT, json.dumps(report))

    def _generate(
        self, tokens: int, times: int, began: Callable[[], None], token: Callable[[Any], None]
    ) -> None:
        measured_sequences(self._engine, self.prompts, tokens, times, began, token)

    def _generate_silently(
        self, times: int, recorder: Recorder | None = None, most: int | None = None
    ) -> None:
        """Generate, and send the tokens afterwards: a profile would show the sending as work."""
        tokens: list[Any] = []
        starts: list[int] = []

        def begin() -> None:
            starts.append(len(tokens))

        if recorder is None:
            self._generate(self._max_tokens, times, begin, tokens.append)
        else:
            tokens_each = min(self._max_tokens, most or self._max_tokens)
            run = partial(self._generate, tokens_each)
            recorded = recorder(run, times, self._engine, begin, tokens.append)
            wire.send_text(self._fd, wire.RECORDED, recorded)
        for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
            self._send_start()
            for each in tokens[start:end]:
                self._send_token(each)

    def _take_reports(self) -> list[dict[str, Any]]:
        """Return the engine's own reports of its last sequences, if it makes any."""
        reports = getattr(self._engine, "reports", None)
        return [] if reports is None else list(reports())

    def _send_start(self) -> None:
        wire.send(self._fd, wire.SEQUENCE)

    def _send_token(self, each: Any) -> None:
        wire.send_token(self._fd, each)

    def _run_reference(self, times: int) -> None:
        if self._reference is None:
            from pytest_flamegate.child.machine import Reference

            self._reference = Reference()
            self._reference.run(_WARM_REFERENCE)
        self._reference.run(times)


def guarded(work: Callable[[], None], write_fd: int) -> int:
    """Run ``work``; send a failure to the observer instead of printing a traceback alone."""
    from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError

    try:
        work()
    except wire.ReaderGoneError:
        return 0
    except FlamegateError as error:
        failure = error
    except (Exception, SystemExit) as error:
        import traceback

        traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        failure = ToolError(
            "E_ENGINE_RAISED",
            f"The engine raised {type(error).__name__}: {error} "
            f"({os.path.basename(place.filename)}:{place.lineno}).",  # noqa: PTH119
        )
    else:
        return 0
    facts = (failure.code, failure.problem, failure.remedy, isinstance(failure, UsageError))
    wire.send_text(write_fd, wire.FAILED, json.dumps(facts))
    return 1


def run(spec: dict[str, Any], serving: Serving) -> None:
    """Hand the engine of ``spec`` to ``serving``, which returns at the very end.

    Its ``factory`` (``module:function``) is called with the spec and makes it. A ``host`` is called
    with the spec and with ``serving`` instead, if the engine exists only within a call of something
    else, such as pytest. If ``spec`` names ``projects`` and a ``checkout``, their code comes from
    the checkout; ``copies`` is a directory for copies of its libraries, if each process is to have
    its own.
    """
    finders = list[Any]()
    if "checkout" in spec:
        from pathlib import Path

        from pytest_flamegate.child.relocation import copy_libraries, relocate_imports

        checkout = Path(spec["checkout"])
        # Another checkout may lie within the project, and so comes first.
        for project in reversed(spec["projects"]):
            finders.insert(0, relocate_imports(Path(project), checkout))
        if "copies" in spec:
            copy_libraries(checkout, spec["copies"])

    def checked(generate: Generate) -> None:
        for finder in finders:
            finder.check(has_own_code="target" in spec)
        serving(generate)

    if "host" in spec:
        resolve_name(spec["host"])(spec, checked)
    else:
        checked(resolve_name(spec["factory"])(spec))


def shuffle_heap() -> list[bytes]:
    """Return objects that put everything allocated later at places drawn at random.

    Addresses within a page depend on all that was allocated before: on the length of a path, for
    example. The same code can be a few percent slower for that in each process of one side.
    """
    header = sys.getsizeof(b"")
    kept = [bytes(_draw(_LARGE_BYTES)) for _ in range(16)]
    for size in range(_CLASS_BYTES, _SMALL_BYTES + 1, _CLASS_BYTES):
        kept += [bytes(max(1, size - header)) for _ in range(_draw(_MOST_FILLED))]
    return kept


def _draw(most: int) -> int:
    return int.from_bytes(os.urandom(4), "little") % most


def allow_profiler() -> None:
    """Let any process of this user trace this one: Yama may allow it to parents only."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_long(_PR_SET_PTRACER_ANY), 0, 0, 0)


def stop_tracing() -> None:
    """End the tracing that a fork inherits, as of coverage: the other side has none."""
    sys.settrace(None)
    sys.setprofile(None)
    if monitoring := getattr(sys, "monitoring", None):
        for tool in range(6):
            if monitoring.get_tool(tool) is not None:
                monitoring.set_events(tool, 0)


def main(arguments: list[str]) -> int:
    """Serve or count; the exit status is 1 if it failed."""
    if arguments[0] == "count":
        return _count(*arguments[1:])
    read_fd, write_fd, spec_fd = map(int, arguments)
    with os.fdopen(spec_fd, "rb") as file:
        spec = json.load(file)  # noqa: TID251 - its own parent wrote it

    _kept = shuffle_heap()  # alive as long as the process serves

    def work() -> None:
        allow_profiler()
        run(spec, lambda made: serve(made, spec["prompt"], spec["max_tokens"], read_fd, write_fd))

    return guarded(work, write_fd)


def _count(answer: str, spec_file: str, max_tokens: str) -> int:
    with open(spec_file, "rb") as file:  # noqa: PTH123 - one module less
        spec = json.load(file)  # noqa: TID251 - its own parent wrote it
    fd = os.open(answer, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    tokens: list[Any] = []

    def count(generate: Generate) -> None:
        prompts = [spec["prompt"]]
        measured_sequences(generate, prompts, int(max_tokens), 1, lambda: None, tokens.append)
        for each in tokens:
            wire.send_token(fd, each)
        wire.send(fd, wire.DONE)

    return guarded(lambda: run(spec, count), fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
