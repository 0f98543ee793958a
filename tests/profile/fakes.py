"""Stand-ins for perf and py-spy that do what a plan says.

A plan maps a subcommand (``record``, ``evlist``, ``--version``, …) to a step:
``out`` and ``err`` are printed, ``code`` is the exit status, ``do`` is one of

- ``hang``: never answer;
- ``die``: begin to sample, then say ``err`` and end with ``code``, or of the signal ``signal``;
- ``crash``: die of a signal;
- ``serve``: for ``perf record``, acknowledge every command but those in ``ignore``, and
  on ``stop`` write ``file``; for ``py-spy record``, announce sampling and on SIGINT
  (unless there is something to ``ignore``) write ``file`` and the closing words.

A list of steps is gone through call by call, and its last one stays.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.profile.profiles import DATA

_PROGRAM = """#!{python} -SE
import json, os, signal, sys, time

arguments = sys.argv[1:]
plan = json.load(open({plan!r}))
step = plan.get(arguments[0] if arguments else "", {{}})
if isinstance(step, list):
    with open({plan!r} + "." + arguments[0], "a+") as calls:
        calls.seek(0)
        step = step[min(len(calls.read()), len(step) - 1)]
        calls.write(".")
if "--nonblocking" in arguments:
    step = plan.get("nonblocking", step)


def write(option):
    if "file" in step:
        with open(arguments[arguments.index(option) + 1], "w") as stream:
            stream.write(step["file"])


def serve_perf():
    theirs, ours = arguments[arguments.index("--control") + 1][3:].split(",")
    if step.get("ignore"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in os.fdopen(int(theirs)):
        if line.strip() in step.get("ignore", ()):
            continue
        os.write(int(ours), b"ack\\n\\0")
        if do == "die":
            die()
        if line == "stop\\n":
            break
    write("-o")


def die():
    sys.stderr.write(step.get("err", ""))
    sys.stderr.flush()
    if "signal" in step:
        os.kill(os.getpid(), step["signal"])
    sys.exit(step["code"])


def serve_spy():
    def stop(*_):
        write("--output")
        print("\\npy-spy> Stopped sampling because Control-C pressed")
        closing = step.get("closing", "Samples: 1 Errors: 0")
        print("py-spy> Wrote speedscope file to 'x'. " + closing)
        sys.exit(0)

    signal.signal(signal.SIGINT, signal.SIG_IGN if "ignore" in step else stop)
    print("py-spy> Sampling process 200 times a second. Press Control-C to exit.\\n", flush=True)
    if do == "die":
        die()
    while True:
        time.sleep(60)


do = step.get("do")
sys.stdout.write(step.get("out", ""))
if do == "die":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # told to stop, it dies all the same
else:
    sys.stderr.write(step.get("err", ""))
sys.stdout.flush()
if do == "hang":
    time.sleep(60)
elif do == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
elif do in ("serve", "die"):
    serve_perf() if "--control" in arguments else serve_spy()
sys.exit(step.get("code", 0))
"""

SCRIPT = (DATA / "perf-script-dwarf.txt").read_text()
EVLIST = (DATA / "evlist-dwarf.txt").read_text()
SPEEDSCOPE = (DATA / "py-spy-speedscope.json").read_text()

PERF: dict[str, Any] = {
    "--version": {"out": "perf version 6.1.187\n"},
    "record": {"do": "serve", "file": "PERFILE2"},
    "evlist": {"out": EVLIST},
    "report": {"out": "Aggregated stats:\n  UNTHROTTLE events:  3  ( 0.1%)\n"},
    "script": {"out": SCRIPT},
}
PYSPY: dict[str, Any] = {
    "--version": {"out": "py-spy 0.4.3\n"},
    "record": {"do": "serve", "file": SPEEDSCOPE},
}


class Tools:
    """The only programs that can be found while a test runs."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        directory.mkdir()
        monkeypatch.setenv("PATH", str(directory))
        monkeypatch.setattr(sysconfig, "get_path", lambda _: str(directory))

    def add(self, name: str, plan: dict[str, Any], **changes: Any) -> Path:
        """Put a fake ``name`` there that follows ``plan`` with ``changes`` to it."""
        written = self.directory / f"{name}.json"
        written.write_text(json.dumps({**plan, **changes}))
        program = self.directory / name
        program.write_text(_PROGRAM.format(python=sys.executable, plan=str(written)))
        program.chmod(0o755)
        return program
