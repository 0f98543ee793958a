"""Stand-ins for perf and py-spy that follow a plan, and messages that the real ones print.

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

from pytest_flamegate.profile.profilers import perf, perf_data, pyspy, tools
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # asked to stop, it dies all the same
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


PERF_DENIED = """Error:
Access to performance monitoring and observability operations is limited.
Consider adjusting /proc/sys/kernel/perf_event_paranoid setting to open
access to performance monitoring and observability operations for processes
without CAP_PERFMON, CAP_SYS_PTRACE or CAP_SYS_ADMIN Linux capability.
perf_event_paranoid setting is 2:
  -1: Allow use of (almost) all events by all users
"""
PERF_SECCOMP = """perf_event_open(..., PERF_FLAG_FD_CLOEXEC) failed with unexpected error 1 \
(Operation not permitted)
perf_event_open(..., 0) failed unexpectedly with error 1 (Operation not permitted)
Error:
No permission to enable cpu-clock event.
"""
PERF_NO_SYSCALL = """Error:
The sys_perf_event_open() syscall returned with 38 (Function not implemented) for event (cpu-clock).
/bin/dmesg | grep -i perf may provide additional information.
"""
PERF_RATE = """error: Maximum frequency rate (100000 Hz) exceeded.
       Please use -F freq option with a lower value or consider
       tweaking /proc/sys/kernel/perf_event_max_sample_rate.
"""
PERF_WRAPPER = (
    "WARNING: perf not found for kernel 6.18.44\n\n  You may need to install linux-tools\n"
)
PERF_OLD = "  Error: unknown option `control'\n\n Usage: perf record [<options>] [<command>]\n"
PERF_UNCLOSED = """WARNING: The k.data file's data size field is 0 which is unexpected.
Was the 'perf record' command properly terminated?
"""
SPY_DENIED = (
    "Permission Denied: Try running again with elevated permissions by going "
    "'sudo env \"PATH=$PATH\" !!'\n"
)
SPY_SECCOMP = """Error: Failed to suspend process

Caused by:
    0: EPERM: Operation not permitted
    1: EPERM: Operation not permitted

Stack backtrace:
   0: <E as anyhow::context::ext::StdError>::ext_context
"""
SPY_NO_PYTHON = """Error: Failed to find python version from target process

Stack backtrace:
   0: anyhow::error::<impl anyhow::Error>::msg
"""
SPY_GONE = """Error: Failed to get process executable name. Check that the process is running.

Caused by:
    0: No such file or directory (os error 2)
"""
SPY_NEW_PYTHON = "Error: Unsupported version of Python: 3.99.0\n"


def failing(stderr: str, code: int = 255) -> dict[str, Any]:
    """Return the change to a plan with which recording fails."""
    return {"record": {"err": stderr, "code": code}}


def shorten_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give tools two seconds to answer, for tests in which they hang."""
    for module in (perf, pyspy):
        monkeypatch.setattr(module, "ANSWER_TIMEOUT_S", 2.0)
        monkeypatch.setattr(module, "STOP_TIMEOUT_S", 0.5)
    monkeypatch.setattr(tools, "VERSION_TIMEOUT_S", 0.5)
    monkeypatch.setattr(perf_data, "READ_TIMEOUT_S", 1.0)
