"""Programs of others that fold and draw, each as a shell line, if installed.

inferno reaches Python's package index only as the library within ``flamegraph``, which asks
perf to print, folds, hands the stacks to a program of the user's, and draws the
result. In perf's place it is given the file; the program takes the folded stacks away, or
puts others in their place.
"""

from __future__ import annotations

import shlex
import shutil
import sysconfig
from pathlib import Path

NOTHING = "echo nothing 1"
_ONE = r"engine 1/1 1.000001: 1 cpu-clock: \n\t    9045 main (/engine)\n\n"


def folding(printed: Path, folded: Path) -> dict[str, list[str] | None]:
    """Return commands that fold ``printed``, with commands in its headers; None: not installed."""
    direct = {
        name: _shell(f"{shlex.quote(program)} < {_quote(printed)} > {_quote(folded)}")
        if (program := found(name))
        else None
        for name in ("inferno-collapse-perf", "stackcollapse-perf.pl")
    }
    wrapped = _flamegraph(
        folded, f"cat {_quote(printed)}", f"cat > {_quote(folded)}; {NOTHING}", folded.parent
    )
    return {"inferno (in flamegraph)": wrapped, **direct}


def drawing(folded: Path, picture: Path) -> dict[str, list[str] | None]:
    """Return the command that draws ``folded``; None: not installed."""
    direct = {
        name: _shell(f"{shlex.quote(program)} < {_quote(folded)} > {_quote(picture)}")
        if (program := found(name))
        else None
        for name in ("inferno-flamegraph", "flamegraph.pl")
    }
    wrapped = _flamegraph(
        picture, f"printf {shlex.quote(_ONE)}", f"cat {_quote(folded)}", folded.parent
    )
    return {"inferno (in flamegraph)": wrapped, **direct}


def found(name: str) -> str | None:
    """Return a program's path: from this environment, else from PATH."""
    return shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)


def _flamegraph(
    output: Path, instead_of_perf: str, post_process: str, directory: Path
) -> list[str] | None:
    program = found("flamegraph")
    if program is None:
        return None
    perf = directory / f"{output.name}.perf"
    perf.write_text(f"#!/bin/sh\nexec {instead_of_perf}\n")
    perf.chmod(0o755)
    (directory / "perf.data").touch()
    picture = output if output.suffix == ".svg" else output.with_suffix(".svg")
    options = ["--perfdata", str(directory / "perf.data"), "-o", str(picture)]
    options += ["--post-process", f"sh -c {shlex.quote(post_process)}"]
    return ["env", f"PERF={perf}", program, *options]


def _shell(line: str) -> list[str]:
    return ["sh", "-c", line]


def _quote(path: Path) -> str:
    return shlex.quote(str(path))
