"""Time and memory to find lines and inlined functions of 100,000 samples in a program of 50 MB.

    python -m benchmarks.source_lines [--directory DIR] [--markdown]

Builds a program of 5,000 functions with debug information, which takes some minutes (once, if a
directory is given). The samples are what `perf script` prints: 5,000 distinct addresses of the
program, four frames deep. Each row is a process of its own; "again" looks the same addresses up
once more in it, as the other side of a pair does.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.tables import Table, as_markdown, as_text
from pytest_flamegate.profile import source_lines
from pytest_flamegate.profile.profilers.perf_data import parse_script

FILES, FUNCTIONS, CALLS = 10, 500, 16
SAMPLES, ADDRESSES, DEPTH = 100_000, 5_000, 4
NODE = "typedef struct node { struct node *next; double value; int kind[8]; } node;\n"
INLINE = "static inline __attribute__((always_inline))"
SYMBOLIZERS = {
    "llvm-symbolizer": ("llvm-symbolizer", "--output-style=GNU"),
    "addr2line": ("addr2line",),
}


def write_sources(directory: Path) -> None:
    """Write functions that each call others inline, two deep."""
    draw = random.Random(1)
    declared, called = [NODE], ["int main(int argc, char **argv)\n{\n    node n = {0};\n"]
    for number in range(FILES):
        text = [NODE]
        text += [
            f"{INLINE} int tiny_{each}(int x, node *n)\n{{\n    int y = x * {each + 3};\n"
            f"    y ^= n->kind[{each % 8}];\n    return y + (y >> {each % 5 + 1});\n}}\n"
            f"{INLINE} int small_{each}(int x, node *n)\n{{\n"
            f"    int first = tiny_{each}(x, n);\n    n->kind[{each % 8}] += first;\n"
            f"    return first ^ tiny_{each}(first, n);\n}}\n"
            for each in range(10)
        ]
        for function in range(FUNCTIONS):
            name = f"work_{number}_{function}"
            calls = "".join(
                f"    total += small_{draw.randrange(10)}(x + {call}, n);\n"
                for call in range(CALLS)
            )
            text.append(
                f"int {name}(int x, node *n)\n{{\n    int total = 0;\n{calls}"
                "    return total;\n}\n"
            )
            declared.append(f"int {name}(int, node *);\n")
            called.append(f"    argc += {name}(argc, &n);\n")
        (directory / f"part{number}.c").write_text("".join(text))
    called.append("    return argc & 1;\n}\n")
    (directory / "main.c").write_text("".join(declared + called))


def build(directory: Path) -> Path:
    """Build the program unless it is there."""
    program = directory / "program"
    if not program.exists():
        write_sources(directory)
        names = sorted(path.name for path in directory.glob("*.c"))
        for name in names:
            subprocess.run(["gcc", "-O1", "-g", "-c", name], cwd=directory, check=True)
        objects = [f"{Path(name).stem}.o" for name in names]
        subprocess.run(["gcc", "-o", program.name, *objects], cwd=directory, check=True)
    return program


def code_range(program: Path) -> range:
    """Return the offsets of the machine code of a program."""
    listed = subprocess.run(
        ["readelf", "-SW", program], check=True, capture_output=True, text=True
    ).stdout
    fields = next(line for line in listed.splitlines() if " .text " in line).split()
    at = fields.index("PROGBITS")
    start, size = int(fields[at + 2], 16), int(fields[at + 3], 16)
    return range(start, start + size)


def print_samples(program: Path) -> Iterator[bytes]:
    """Yield what ``perf script`` prints, in chunks."""
    draw = random.Random(2)
    addresses = draw.sample(code_range(program), ADDRESSES)
    for first in range(0, SAMPLES, 1000):
        samples = []
        for number in range(first, first + 1000):
            frames = b"".join(
                b"\t%16x work (%s)\n" % (draw.choice(addresses), bytes(program))
                for _ in range(DEPTH)
            )
            samples.append(
                b"7/7 %d.%06d: cpu-clock: \n%s\n" % (number // 999, number % 999, frames)
            )
        yield b"".join(samples)


def measure(program: Path, symbolizer: str) -> dict[str, float]:
    """Parse the samples, twice, and return seconds and MiB."""
    if symbolizer:
        command = SYMBOLIZERS[symbolizer]
        source_lines.find_symbolizer = lambda: command
    else:
        source_lines.find_symbolizer = lambda: None
    chunks = list(print_samples(program))
    began_s = time.monotonic()
    parsed = parse_script(chunks, (f"{program.parent}/",))
    took_s = time.monotonic() - began_s
    began_s = time.monotonic()
    offsets = random.Random(2).sample(code_range(program), ADDRESSES)
    found = source_lines.locate(str(program), offsets)
    again_s = time.monotonic() - began_s
    return {
        "took_s": took_s,
        "again_s": again_s,
        "found": len(found),
        "stacks": len(parsed.lines),
        "own_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "symbolizer_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }


def main() -> int:
    """Print a row for each symbolizer that is installed, and one without."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, help="where the program is, or will be built")
    parser.add_argument("--markdown", action="store_true", help="for the documentation")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(measure(asked.directory / "program", asked.one)))
        return 0
    rows = []
    with ExitStack() as stack:
        directory = asked.directory
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        program = build(directory.resolve())
        for name in ("", *filter(shutil.which, SYMBOLIZERS)):
            argv = [sys.executable, "-m", "benchmarks.source_lines", "--one", name]
            argv += ["--directory", str(program.parent)]
            done = subprocess.run(argv, check=True, capture_output=True, text=True)
            one = json.loads(done.stdout)
            rows.append(
                (
                    name or "none: parsing alone",
                    f"{one['took_s']:.2f}",
                    f"{one['again_s']:.2f}",
                    f"{one['found']:,.0f}",
                    f"{one['own_mib']:.0f}",
                    f"{one['symbolizer_mib']:.0f}",
                )
            )
        size = f"{program.stat().st_size / 1e6:.0f} MB"
    head = ("symbolizer", "s", "again, s", "addresses found", "MiB", "MiB of the symbolizer")
    table = Table(f"{SAMPLES:,} samples, {ADDRESSES:,} addresses of {size}", head, tuple(rows))
    print((as_markdown if asked.markdown else as_text)(table))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
