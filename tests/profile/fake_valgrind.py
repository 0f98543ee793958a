"""A stand-in for valgrind that runs the program as it is and writes what a plan says.

``counts`` maps a process's number to the file it leaves, ``log`` is what is said once
the program has begun and ``code`` the exit status (None: the program's own). ``begun``
false says that valgrind itself fails, ``hang`` that it never ends, ``signal`` of what it dies.
Without ``counts`` one process is counted: ``per_token`` for each token of the last
argument, and ``load``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.profile.fakes import Tools

_PROGRAM = """#!{python} -SE
import json, os, subprocess, sys, time

if sys.argv[1] == "--version":
    print("valgrind-3.19.0")
    sys.exit(0)
plan = json.load(open({plan!r}))
json.dump([sys.argv[1:], dict(os.environ)], open({seen!r}, "w"))
options = dict(each.split("=", 1) for each in sys.argv[1:] if each.startswith("--") and "=" in each)
program = [each for each in sys.argv[1:]]
while program and program[0].startswith("--"):
    program.pop(0)
sys.stderr.write(plan.get("err", ""))
if plan.get("hang"):
    time.sleep(60)
if not plan.get("begun", True):
    if "signal" in plan:
        os.kill(os.getpid(), plan["signal"])
    sys.exit(plan["code"])


def write(option, number, text):
    with open(options[option].replace("%p", number), "w") as stream:
        stream.write(text)


write("--log-file", "1", "==1== Command: " + " ".join(program) + "\\n" + plan.get("log", ""))
if "signal" in plan:
    os.kill(os.getpid(), plan["signal"])
done = subprocess.run(program).returncode if plan.get("run", True) else 0
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
    """The only valgrind that can be found while a test runs, or one in a directory."""

    def __init__(self, tools: Tools | Path, **plan: Any) -> None:
        directory = tools if isinstance(tools, Path) else tools.directory
        written = directory / "valgrind.json"
        self._seen = directory / "seen.json"
        written.write_text(json.dumps(plan))
        program = directory / "valgrind"
        program.write_text(
            _PROGRAM.format(python=sys.executable, plan=str(written), seen=str(self._seen))
        )
        program.chmod(0o755)

    @property
    def seen(self) -> tuple[list[str], dict[str, str]]:
        """The arguments and the environment of its last run."""
        arguments, environment = json.loads(Path(self._seen).read_text())
        return arguments, environment
