"""Stand-ins for perf and py-spy that follow a plan, and messages that the real ones print.

A plan maps a subcommand (``record``, ``evlist``, ``--version``, …) to a step:
``out`` and ``err`` are printed, ``code`` is the exit status, ``do`` is one of

- ``hang``: never answer;
- ``crash``: die of a signal;
- ``serve``: for ``perf record``, acknowledge every command but those in ``ignore``, and
  on ``stop`` write ``file``; for ``py-spy record``, announce sampling and on SIGINT
  (unless there is something to ``ignore``) write ``file`` and the closing words.
"""

import json
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers.base import Profiler
from tests.profile.profiles import DATA

_PROGRAM = """#!{python} -SE
import json, os, signal, sys, time

arguments = sys.argv[1:]
plan = json.load(open({plan!r}))
step = plan.get(arguments[0] if arguments else "", {{}})
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
        if line == "stop\\n":
            break
    write("-o")


def serve_spy():
    def stop(*_):
        write("--output")
        print("\\npy-spy> Stopped sampling because Control-C pressed")
        closing = step.get("closing", "Samples: 1 Errors: 0")
        print("py-spy> Wrote speedscope file to 'x'. " + closing)
        sys.exit(0)

    signal.signal(signal.SIGINT, signal.SIG_IGN if "ignore" in step else stop)
    print("py-spy> Sampling process 200 times a second. Press Control-C to exit.\\n", flush=True)
    while True:
        time.sleep(0.05)  # a signal just before a long sleep would wait for its end


do = step.get("do")
sys.stdout.write(step.get("out", ""))
sys.stderr.write(step.get("err", ""))
sys.stdout.flush()
if do == "hang":
    time.sleep(60)
elif do == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
elif do == "serve":
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
    "report": {"out": "  UNTHROTTLE events:  3  ( 0.1%)\n"},
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
        return _install(self.directory, name, _PROGRAM, {**plan, **changes})

    def sample(self, profiler: Profiler) -> Profile:
        """Return what ``profiler`` reads of its fake program, which samples this process."""
        return profiler.parse(profiler.attach(os.getpid(), self.directory / "raw").stop())


def _install(directory: Path, name: str, text: str, plan: dict[str, Any]) -> Path:
    written, program = directory / f"{name}.json", directory / name
    written.write_text(json.dumps(plan))
    program.write_text(text.format(python=sys.executable, plan=str(written)))
    program.chmod(0o755)
    return program


PERF_DENIED = """Error:
Access to performance monitoring and observability operations is limited.
Consider adjusting /proc/sys/kernel/perf_event_paranoid setting to open
"""


def failing(stderr: str, code: int = 255) -> dict[str, Any]:
    """Return the change to a plan with which recording fails."""
    return {"record": {"err": stderr, "code": code}}


_VALGRIND = """#!{python} -SE
import json, os, subprocess, sys, time

if sys.argv[1] == "--version":
    print("valgrind-3.19.0")
    sys.exit(0)
plan = json.load(open({plan!r}))
json.dump([sys.argv[1:], dict(os.environ)], open({plan!r} + ".seen", "w"))
options = dict(each.split("=", 1) for each in sys.argv[1:] if each.startswith("--") and "=" in each)
program = sys.argv[1:]
while program and program[0].startswith("--"):
    program.pop(0)
sys.stderr.write(plan.get("err", ""))
if plan.get("hang"):
    time.sleep(60)
if not plan.get("begun", True):
    sys.exit(plan["code"])


def write(option, number, text):
    with open(options[option].replace("%p", number), "w") as stream:
        stream.write(text)


write("--log-file", "1", "==1== Command: " + " ".join(program) + "\\n" + plan.get("log", ""))
if "signal" in plan:
    os.kill(os.getpid(), plan["signal"])
done = subprocess.run(program).returncode
counts = plan.get("counts")
if counts is None:
    tokens = int(program[-1]) if program[-1].isdigit() else 0
    cost = tokens * plan.get("per_token", 100)
    load = plan.get("load", 5000)
    text = "version: 1\\nevents: Ir\\nfn=(1) load\\n1 %d\\nfn=(2) decode\\n1 %d\\ntotals: %d\\n"
    counts = {{"1": text % (load, cost, load + cost)}}
for number, text in counts.items():
    write("--callgrind-out-file", number, text)
for number in plan.get("killed", ()):
    write("--log-file", number, "==2== Command: helper")
sys.exit(done if plan.get("code") is None else plan["code"])
"""


class FakeValgrind:
    """A stand-in for valgrind, in a directory, that runs the program and writes a plan's files.

    ``counts`` maps a process's number to the file it leaves, ``log`` is printed once the program
    has begun and ``code`` is the exit status (None: the program's own). ``begun`` false: valgrind
    itself fails; ``hang``: it never ends; ``signal``: it dies of it. Without ``counts`` one process
    is counted: ``per_token`` for each token of the last argument, and ``load``.
    """

    def __init__(self, tools: Tools | Path, **plan: Any) -> None:
        directory = tools if isinstance(tools, Path) else tools.directory
        self._seen = directory / "valgrind.json.seen"
        _install(directory, "valgrind", _VALGRIND, plan)

    @property
    def seen(self) -> tuple[list[str], dict[str, str]]:
        """The arguments and the environment of its last run."""
        arguments, environment = json.loads(self._seen.read_text())
        return arguments, environment
