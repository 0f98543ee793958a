"""The structure and the language of the project in figures, and the cost of having it installed.

``python -m benchmarks.house [--timed] [--markdown]``. The tables stand in docs/architecture.md.

The figures of the structure are counted from the source: rooms are the folders and files at the
top of the package, an arrow is a pair of rooms of which one imports the other. ``--timed`` adds
the figures that depend on the machine: imports of the plugin while it is off, ``flamegate
--help``, and the time to verify and to sign 10,000 receipts.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import subprocess
import sys
import time
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

from benchmarks.tables import Table, as_markdown, as_text

ROOT = Path(__file__).parents[1]
PACKAGE = "pytest_flamegate"
LAYERS = (
    *("__init__", "__main__", "cli", "plugin", "pytest_", "commands", "run", "report", "gate"),
    *("graph", "receipt", "profile", "observe", "child", "engines", "models", "bricks"),
    *("config", "core"),
)
"""The rooms from top to bottom; each may import only rooms to its right. ``__init__`` hands on
names of others, and no room imports it."""
SHORT, LONG = 60, 400
WORDS = {
    "what": r"\bwhat\b",
    "where": r"\bwhere\b",
    "told, tell": r"\b(?:told|tells?|telling)\b",
    "if, when": r"\b(?:if|when)\b",
}
CODE = re.compile(r"[EWIF](?:_[A-Z0-9]+)+")


@cache
def modules() -> dict[str, Path]:
    """Return the modules of the package by their dotted name."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(module: str) -> str:
    """Return the folder or file at the top of the package that holds ``module``."""
    _, *parts = module.split(".")
    return parts[0] if parts else "__init__"


def imports(path: Path) -> Iterator[str]:
    """Yield the modules of the package that a file imports, also within functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                name = inner if inner in modules() else node.module
                if name in modules():
                    yield name
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())


def arrows() -> set[tuple[str, str]]:
    """Return the pairs of rooms of which the first imports the second."""
    found = {(room(name), room(used)) for name, path in modules().items() for used in imports(path)}
    return {(one, other) for one, other in found if one != other}


def circles() -> int:
    """Return how many groups of modules import each other in a circle, faces of packages aside."""
    uses = {
        name: {used for used in imports(path) if modules()[used].name != "__init__.py"}
        for name, path in modules().items()
        if path.name != "__init__.py"
    }
    reach = {name: _reached(name, uses) for name in uses}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in uses}
    return len({group for group in groups if len(group) > 1})


def _reached(start: str, uses: dict[str, set[str]]) -> set[str]:
    reached, pending = set[str](), [start]
    while pending:
        for used in uses[pending.pop()] - reached:
            reached.add(used)
            pending.append(used)
    return reached


def structure() -> Table:
    """Count lines, files, rooms and arrows."""
    lines = {path: path.read_text("utf-8").count("\n") for path in modules().values()}
    plain = {path: n for path, n in lines.items() if not path.name.startswith("__")}
    found = arrows()
    up = sum(LAYERS.index(one) > LAYERS.index(other) for one, other in found)
    classes = Counter(
        node.name.lstrip("_")
        for path in modules().values()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    tests = sorted((ROOT / "tests").rglob("*.py"))
    rows = (
        ("lines of the package", f"{sum(lines.values()):,}"),
        ("files", f"{len(lines)}"),
        (f"files of fewer than {SHORT} lines", f"{sum(n < SHORT for n in plain.values())}"),
        (f"files of more than {LONG} lines", f"{sum(n > LONG for n in lines.values())}"),
        ("rooms", f"{len({room(name) for name in modules()})}"),
        ("arrows between rooms", f"{len(found)}"),
        ("arrows up", f"{up}"),
        ("circles", f"{circles()}"),
        ("class names in more than one module", f"{sum(n > 1 for n in classes.values())}"),
        ("codes of errors, warnings and notes", f"{len(codes())}"),
        ("lines of the tests", f"{sum(p.read_text('utf-8').count(chr(10)) for p in tests):,}"),
    )
    return Table("Structure", ("", "count"), rows)


def codes() -> set[str]:
    """Return every code that a string of the package is."""
    return {
        node.value
        for path in modules().values()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and CODE.fullmatch(node.value)
    }


def rooms() -> Table:
    """Count the lines and files of each room."""
    lines, files = Counter[str](), Counter[str]()
    for name, path in modules().items():
        lines[room(name)] += path.read_text("utf-8").count("\n")
        files[room(name)] += 1
    below: dict[str, list[str]] = {}
    for one, other in sorted(arrows(), key=lambda pair: LAYERS.index(pair[1])):
        below.setdefault(one, []).append(other)
    rows = tuple(
        (each, f"{lines[each]:,}", f"{files[each]}", f"{len(below.get(each, []))}")
        for each in LAYERS
        if each in lines
    )
    return Table("Rooms", ("room", "lines", "files", "rooms it uses"), rows)


def texts() -> Iterator[str]:
    """Yield the docstrings and comments of the package, and the prose of the documents."""
    for path in modules().values():
        source = path.read_text("utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield str(node.value.value)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield re.sub(r"```.*?```|`[^`]*`", " ", path.read_text("utf-8"), flags=re.S)


def language() -> Table:
    """Count telltale words of docstrings, comments and documents, in a thousand words."""
    whole = "\n".join(texts())
    words = len(re.findall(r"[A-Za-z']+", whole))
    rows = tuple(
        (name, f"{1000 * len(re.findall(pattern, whole, re.IGNORECASE)) / words:.1f}")
        for name, pattern in WORDS.items()
    )
    return Table(f"Words in a thousand, of {words:,}", ("", "rate"), rows)


def import_cost_ms(runs: int = 15) -> float:
    """Return the median import time of the plugin's own modules while it is off."""
    argv = [sys.executable, "-X", "importtime", "-c", "import pytest, pytest_flamegate.plugin"]
    costs = []
    for _ in range(runs):
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        lines = [line.split("|") for line in done.stderr.splitlines() if PACKAGE in line]
        costs.append(sum(int(own.split(":")[1]) for own, _, _ in lines) / 1e3)
    return statistics.median(costs)


def help_ms(runs: int = 15) -> float:
    """Return the median wall time of ``flamegate --help``."""
    argv = [sys.executable, "-m", "pytest_flamegate", "--help"]
    times = [time.perf_counter()]
    for _ in range(runs):
        subprocess.run(argv, capture_output=True, check=True)
        times.append(time.perf_counter())
    return statistics.median((after - before) * 1e3 for before, after in pairwise(times))


def timed() -> Table:
    """Measure the figures that depend on the machine."""
    from benchmarks.signing import table

    rows = [
        ("own imports while off, median", f"{import_cost_ms():.2f} ms"),
        ("flamegate --help, median", f"{help_ms():.0f} ms"),
        *((f"10,000 receipts {name}", f"{cpu_s} s CPU") for name, cpu_s, _ in table().rows),
    ]
    return Table("Time", ("", "measured"), tuple(rows))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timed", action="store_true", help="measure what depends on the machine")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    options = parser.parse_args()
    tables = [structure(), rooms(), language(), *([timed()] if options.timed else [])]
    print("\n\n".join(map(as_markdown if options.markdown else as_text, tables)))


if __name__ == "__main__":
    main()
