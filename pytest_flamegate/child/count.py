"""Runs inside a counted process: load the engine, generate one sequence, end.

``python -P -m pytest_flamegate.child.count ANSWER SPEC TOKENS``, where SPEC is the
file with the JSON of what to load and ANSWER the one that the tokens are written to, as the
records of ``wire``. Two such runs that differ in TOKENS alone differ by the work of those tokens.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pytest_flamegate.child import serve, wire


def main(arguments: list[str]) -> int:
    """Generate once and write the answer down; the exit status is 1 if it failed."""
    path, tokens = arguments[0], int(arguments[2])
    with open(arguments[1], "rb") as file:  # noqa: PTH123 - one module less
        spec = json.load(file)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    kept: list[Any] = []

    def work() -> None:
        serve.measured_sequences(
            serve.load(spec), spec["prompt"], tokens, 1, lambda: None, kept.append
        )
        for each in kept:
            wire.send_token(fd, each)
        wire.send(fd, wire.DONE)

    return serve.guarded(work, fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
