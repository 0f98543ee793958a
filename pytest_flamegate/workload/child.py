"""Runs inside the observed process: load the engine once, then obey the observer.

``python -P -m pytest_flamegate.workload.child READ_FD WRITE_FD SPEC``, where SPEC is
the JSON of what to load. Between commands the process blocks in a read and spends
nothing. When the observer goes away the pipe closes and the process ends.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from pytest_flamegate.workload import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Generate = Callable[[str, int], Iterable[Any]]

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = -1
_WARM_REFERENCE = 2


def measured_sequences(
    generate: Generate, prompt: str, max_tokens: int, times: int, fd: int
) -> None:
    """Generate ``times`` sequences, telling each token: the root frame of every profile."""
    for _ in range(times):
        wire.send(fd, wire.SEQUENCE)
        for token in generate(prompt, max_tokens):
            wire.send_token(fd, token)


def serve(generate: Generate, prompt: str, max_tokens: int, read_fd: int, write_fd: int) -> None:
    """Obey commands until told to quit or until the observer is gone."""
    reference = None
    wire.send(write_fd, wire.READY)
    while (record := wire.receive(read_fd)) is not None:
        command, value = record
        if command == wire.QUIT:
            return
        if command == wire.REFERENCE:
            if reference is None:
                from pytest_flamegate.workload.reference import Reference

                reference = Reference()
                reference.run(_WARM_REFERENCE)
            reference.run(value)
        elif command == wire.WARM:
            measured_sequences(generate, prompt, min(value, max_tokens), 1, write_fd)
        else:
            measured_sequences(generate, prompt, max_tokens, value, write_fd)
        wire.send(write_fd, wire.DONE)


def guarded(work: Callable[[], None], write_fd: int) -> int:
    """Run ``work``; a failure is told to the observer instead of printed as a traceback."""
    from pytest_flamegate.errors import FlamegateError, UsageError

    failure: dict[str, object]
    try:
        work()
    except BrokenPipeError:
        return 0
    except FlamegateError as error:
        usage = isinstance(error, UsageError)
        failure = {"code": error.code, "what": error.what, "todo": error.todo, "usage": usage}
    except (Exception, SystemExit) as error:
        import traceback

        traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        failure = {
            "code": "E_ENGINE_RAISED",
            "what": f"The engine raised {type(error).__name__}: {error} "
            f"({os.path.basename(where.filename)}:{where.lineno}).",  # noqa: PTH119
            "todo": "Run the engine by itself with the same prompt to see the whole traceback.",
            "usage": False,
        }
    else:
        return 0
    wire.send_text(write_fd, wire.FAILED, json.dumps(failure))
    return 1


def load(spec: dict[str, Any]) -> Generate:
    """Return the ``generate`` that the factory named in ``spec`` (``module:function``) makes."""
    module, _, function = spec["factory"].partition(":")
    generate: Generate = getattr(importlib.import_module(module), function)(spec)
    return generate


def allow_profiler() -> None:
    """Let any process of this user trace this one, where Yama would allow parents only."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PTRACER, ctypes.c_long(_PR_SET_PTRACER_ANY), 0, 0, 0)


def main(arguments: list[str]) -> int:
    """Load what the arguments name and serve it; the exit status is 1 if it failed."""
    read_fd, write_fd, spec = int(arguments[0]), int(arguments[1]), json.loads(arguments[2])

    def work() -> None:
        allow_profiler()
        serve(load(spec), spec["prompt"], spec["max_tokens"], read_fd, write_fd)

    return guarded(work, write_fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
