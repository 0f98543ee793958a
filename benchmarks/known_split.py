"""Programs that spend 60, 30 and 10 % of their CPU time in functions of these names.

Turns are of 13 lengths, so that they never fall into step with a sampler.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pytest_flamegate.profile.model import Stack

PARTS = {"sixty": 0.6, "thirty": 0.3, "ten": 0.1}
_TENTHS = {name: round(10 * part) for name, part in PARTS.items()}

_PYTHON = """\
import sys

{functions}
for turn in range(int(sys.argv[1])):
    length = 1 + 5 * turn % 13
    {calls}
"""
_PYTHON_FUNCTION = """
def {name}(length):
    x = 1
    for _ in range({tenths} * 600 * length):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x
"""
_C = """\
#include <stdlib.h>
{functions}
int main(int argc, char **argv) {{
    int turns = argc > 1 ? atoi(argv[1]) : 0;
    for (int turn = 0; turn < turns; turn++) {{ int length = 1 + 5 * turn % 13; {calls}; }}
    return 0;
}}
"""
_C_FUNCTION = """
__attribute__((noinline)) static unsigned {name}(int length) {{
    volatile unsigned x = 1;
    for (int i = 0; i < {tenths} * 15000 * length; i++) x = x * 1103515245u + 12345u;
    return x;
}}
"""


def python_program(directory: Path) -> list[str]:
    """Write the Python program; return the command that runs it, without the number of turns."""
    path = directory / "known_split_of_time.py"
    path.write_text(_source(_PYTHON, _PYTHON_FUNCTION))
    return [sys.executable, str(path)]


def c_program(directory: Path) -> list[str] | None:
    """Compile the C program; None if there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, program = directory / "known.c", directory / "known"
    source.write_text(_source(_C, _C_FUNCTION))
    subprocess.run([compiler, "-O1", "-g", "-o", str(program), str(source)], check=True)
    return [str(program)]


def parts(stacks: Mapping[Stack, int]) -> dict[str, float]:
    """Return each function's part (0 to 1) of the time of all three."""
    counts: Counter[str] = Counter(dict.fromkeys(PARTS, 0))
    for stack, samples in stacks.items():
        for frame in stack:
            if frame.name in PARTS:
                counts[frame.name] += samples
                break
    total = counts.total()
    return {name: count / total if total else 0.0 for name, count in counts.items()}


def _source(program: str, function: str) -> str:
    functions = "".join(function.format(name=name, tenths=n) for name, n in _TENTHS.items())
    return program.format(functions=functions, calls="; ".join(f"{name}(length)" for name in PARTS))
