"""Real receipts for the corpus, from the product itself: ``python -m tests.receipt.produce DIR``.

Needs py-spy, perf and a C compiler. The measured project is made in DIR, which must be
empty or absent; a neutral one such as ``/tmp/project`` keeps odd names out of what is kept.
What comes of it stands under ``data/produced``.
"""

import argparse
import shutil
import sys
from pathlib import Path

from pytest_flamegate.core import process
from pytest_flamegate.receipt import verify_receipt
from tests.workload.repositories import repository

PRODUCED = Path(__file__).parent / "data" / "produced"
FILES = ("receipt.json", "evidence.json", "profile.folded")

ENGINE_C = """\
#include <stdio.h>
#include <string.h>

static unsigned weights[4096];

__attribute__((noinline)) unsigned gemv(unsigned x, int rows)
{
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < 4096; i++) x = x * 1664525u + weights[i];
    return x;
}

__attribute__((noinline)) unsigned rms_norm(unsigned x)
{
    for (int i = 0; i < 40 * 4096; i++) x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    return x;
}

__attribute__((noinline)) unsigned decode_step(unsigned x) { return gemv(rms_norm(x), 7000) + 1; }

int main(int argc, char **argv)
{
    unsigned x = argc > 1 ? strlen(argv[1]) : 1;
    for (int i = 0; i < 4096; i++) weights[i] = i * 2654435761u;
    for (int i = 0; i < 24; i++) {
        x = decode_step(x);
        printf("%u ", x % 100);
        fflush(stdout);
    }
    return 0;
}
"""

TOY_PY = """\
def gemv(x, rounds):
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def rms_norm(x, rounds):
    for _ in range(rounds):
        x ^= (x << 3) & 0xFFFF
    return x


def generate(prompt, max_tokens):
    x = len(prompt)
    for _ in range(max_tokens):
        x = gemv(rms_norm(x, {rounds} // 4), {rounds})
        yield x % 100
"""

WORKLOADS = """\
[workloads.embedded-1tok]
engine = "embedded"
prompt = "2+2="
max_tokens = 1

[workloads.embedded-10tok]
engine = "embedded"
prompt = "What is 2+2?"
max_tokens = 10

[workloads.passage]
engine = "embedded"
prompt = "The flame graph of a transformer shows "
max_tokens = 96

[workloads.program]
engine = "command"
command = ["./engine", "{prompt}"]
token_unit = "word"
prompt = "2+2="
max_tokens = 24

[workloads.callable]
engine = "python"
target = "toy:generate"
prompt = "2+2="
max_tokens = 6
"""

RUNS = (
    # As what it is kept, the workload, and options beyond the usual ones.
    ("embedded-1tok", "embedded-1tok", ()),
    ("embedded-10tok", "embedded-10tok", ()),
    ("embedded-10tok-again", "embedded-10tok", ()),
    ("passage", "passage", ()),
    ("program", "program", ("--flamegate-profiler=perf",)),
    ("callable", "callable", ()),
    ("pair-head", "callable", ("--flamegate-against=HEAD~1", "--flamegate-budget=20")),
)


def main() -> None:
    """Make the project, measure it, and replace the measurements that are stored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="make these alone again")
    given = parser.parse_args()
    directory = given.directory.resolve()
    make_project(directory)
    for name, workload, options in RUNS:
        if not given.only or name in given.only:
            measure(directory, name, workload, options)
            answer = verify_receipt(PRODUCED / name / "receipt.json")
            print(name, answer.grade.name, *(each.code for each in answer.refusals))


def make_project(directory: Path) -> None:
    """Make a repository of two commits: a program, a callable and their workloads."""
    declared = {
        "flamegate.toml": WORKLOADS,
        "engine.c": ENGINE_C,
        ".gitignore": "engine\n__pycache__\n.flamegate\n",
        "toy.py": TOY_PY.replace("{rounds}", "5000"),
    }
    repository(directory, declared, {"toy.py": TOY_PY.replace("{rounds}", "4000")})
    flags = ["-O1", "-g", "-fno-omit-frame-pointer"]
    _run(["cc", *flags, "-o", "engine", "engine.c"], directory)


def measure(directory: Path, name: str, workload: str, options: tuple[str, ...]) -> None:
    """Measure ``workload`` in the project and store its three files as ``name``."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    gate = ["--flamegate", "--flamegate-budget=1", *options, f"flamegate.toml::{workload}"]
    print(_run([*pytest, *gate], directory), flush=True)
    (PRODUCED / name).mkdir(parents=True, exist_ok=True)
    for file in FILES:
        shutil.copyfile(directory / ".flamegate/latest" / workload / file, PRODUCED / name / file)


def _run(argv: list[str], directory: Path) -> str:
    done = process.run(argv, cwd=directory, timeout_s=600)
    output = (done.stdout + done.stderr).decode("utf-8", "replace")
    if done.returncode not in (0, 1):  # 1: a verdict that does not pass is a receipt all the same
        raise SystemExit(f"{argv} ended with {done.returncode}:\n{output}")
    return output


if __name__ == "__main__":
    main()
