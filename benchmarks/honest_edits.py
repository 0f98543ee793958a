"""Honest changes to the project of `honest_project.py`: nothing gets slower by any of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.honest_project import BUILD_LINE, PROJECT, PYTHON

Files = dict[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """An honest change: what head makes of the base's files, and what the base makes of PROJECT.

    ``engine`` is the one that it is about, None if it is about both.
    """

    name: str
    head: Callable[[Files], None]
    base: Callable[[Files], None] | None = None
    engine: str | None = None


def files_of(change: Change, engine: str | None = None) -> tuple[Files, Files]:
    """Return the files of the base and of the head.

    With ``engine`` they do not declare the other one, unless the change is about that.
    """
    base = dict(PROJECT)
    if change.base is not None:
        change.base(base)
    head = dict(base)
    change.head(head)
    for files in (base, head) if engine else ():
        if text := files.get("flamegate.toml"):
            kept = change.engine or engine
            other = "native" if kept == "python" else "python"
            tables = re.split(r"(?m)^(?=\[)", text)
            files["flamegate.toml"] = "".join(
                each for each in tables if not each.startswith(f"[workloads.{other}]")
            )
    if head == base:
        raise ValueError(f"{change.name} changes nothing.")
    return base, head


def edit(files: Files, path: str, old: str, new: str) -> None:
    """Replace ``old`` wherever it occurs in a file; it must."""
    if old not in files[path]:
        raise ValueError(f"{path} does not contain {old!r}.")
    files[path] = files[path].replace(old, new)


def function(text: str, name: str) -> str:
    """Return the source of a function: from its first line to the next empty line."""
    found = re.search(rf"(?:KERNEL void|def) {name}\(.*?(?:\n\n|\Z)", text, re.DOTALL)
    if found is None:
        raise ValueError(f"There is no function {name}.")
    return found[0]


def add_comments(files: Files) -> None:
    edit(files, "kernels.c", "KERNEL void matmul", "/* The hot one. */\nKERNEL void matmul")
    edit(files, "toy_engine/kernels.py", "def matmul", "# The hot one.\ndef matmul")


def rename_hot_function(files: Files) -> None:
    for path in ("kernels.c", "kernels.h", "engine.c"):
        edit(files, path, "matmul(", "multiply_matrix(")
    for path in ("kernels", "engine"):
        edit(files, f"toy_engine/{path}.py", "matmul(", "multiply_matrix(")


def move_to_another_file(files: Files) -> None:
    hot = function(files["kernels.c"], "matmul")
    edit(files, "kernels.c", hot, "")
    files["linear.c"] = f'#include "kernels.h"\n\n{hot}'
    edit(files, "Makefile", "kernels.c", "kernels.c linear.c")
    hot = function(files["toy_engine/kernels.py"], "matmul")
    edit(files, "toy_engine/kernels.py", hot, "")
    files["toy_engine/linear.py"] = f"MASK = 0x7FFFFFFF\n\n\n{hot}"
    edit(files, "toy_engine/engine.py", "import kernels", "import kernels, linear")
    edit(files, "toy_engine/engine.py", "kernels.matmul", "linear.matmul")


def split_in_two(files: Files) -> None:
    hot = function(files["kernels.c"], "matmul")
    first = hot.replace("matmul(", "matmul_first(").replace("pass < 5", "pass < 3")
    second = hot.replace("matmul(", "matmul_second(").replace("pass < 5", "pass < 2")
    both = (
        "void matmul(const float *weights, float *state)\n{\n"
        "    matmul_first(weights, state);\n    matmul_second(weights, state);\n}\n\n"
    )
    edit(files, "kernels.c", hot, first + second + both)
    edit(
        files,
        "toy_engine/kernels.py",
        function(files["toy_engine/kernels.py"], "matmul"),
        "def matmul_first(x):\n    for _ in range(8_000):\n"
        "        x = (x * 1103515245 + 12345) & MASK\n    return x\n\n\n"
        "def matmul_second(x):\n    for _ in range(6_000):\n"
        "        x = (x * 1103515245 + 12345) & MASK\n    return x\n\n\n"
        "def matmul(x):\n    return matmul_second(matmul_first(x))\n\n",
    )


def waste_time(files: Files) -> None:
    """Let the hot functions do work without effect on the tokens: 30 % of what they take."""
    edit(
        files,
        "kernels.c",
        "    for (int pass",
        "    volatile unsigned waste = 0;\n    for (int i = 0; i < WASTE; i++)\n"
        "        waste = waste + 1;\n    for (int pass",
    )
    edit(files, "kernels.h", "#define ROWS", "#define WASTE 390000\n#define ROWS")
    edit(
        files,
        "toy_engine/kernels.py",
        "def matmul(x):\n",
        "def matmul(x):\n    waste = x\n    for _ in range(6_000):\n"
        "        waste = (waste * 1103515245 + 12345) & MASK\n",
    )


def make_faster(files: Files) -> None:
    """Remove that work."""
    files.update(PROJECT)


def log_at_start(files: Files) -> None:
    edit(
        files,
        "engine.c",
        "    float *weights",
        '    fprintf(stderr, "start\\n");\n    float *weights',
    )
    edit(
        files,
        "toy_engine/engine.py",
        "from toy_engine import kernels\n",
        "import sys\n\nfrom toy_engine import kernels\n\nprint('start', file=sys.stderr)\n",
    )


def add_unrelated_file(files: Files) -> None:
    files["tools/count.py"] = "import sys\n\nprint(len(sys.argv))\n"
    files["tools/count.c"] = "int main(int argc, char **argv) { return argc; }\n"


def separate_prefill_from_decode(files: Files) -> None:
    body = files["engine.c"]
    loop = body[body.index("    for (int token") : body.index("    return 0;")]
    edit(files, "engine.c", loop, "    decode(weights, state, tokens);\n")
    edit(files, "engine.c", "fill_state(state, argv[1])", "prefill(state, argv[1])")
    edit(
        files,
        "engine.c",
        "int main(",
        "static void prefill(float *state, const char *prompt)\n{\n"
        "    fill_state(state, prompt);\n}\n\n"
        f"static void decode(const float *weights, float *state, int tokens)\n{{\n{loop}}}\n\n"
        "int main(",
    )
    files["toy_engine/engine.py"] = """\
from toy_engine import kernels


def prefill(prompt):
    state = len(prompt)
    for letter in prompt:
        state = kernels.attention(state + ord(letter))
    return state


def step(state):
    return kernels.sample(kernels.attention(kernels.matmul(state)))


def generate(prompt, max_tokens):
    state = prefill(prompt)
    for _ in range(max_tokens):
        state = step(state)
        yield state % 1000
"""


def bump_dependencies(files: Files) -> None:
    edit(files, "vendor/tinyrng.h", "1.2.0", "1.2.1")
    edit(files, "requirements.txt", "1.26.4", "2.0.2")


def add_workload(files: Files) -> None:
    files["toy_engine/short.py"] = (
        "from toy_engine.engine import generate\n\n\n"
        "def shorter(prompt, max_tokens):\n    return generate(prompt[:3], max_tokens)\n"
    )
    added = PYTHON.replace("workloads.python", "workloads.short")
    files["flamegate.toml"] += "\n" + added.replace("engine:generate", "short:shorter")


def without_flamegate(files: Files) -> None:
    del files["flamegate.toml"]


def add_flamegate(files: Files) -> None:
    files["flamegate.toml"] = PROJECT["flamegate.toml"]


def without_build(files: Files) -> None:
    edit(files, "flamegate.toml", BUILD_LINE, "")


def add_build(files: Files) -> None:
    files["flamegate.toml"] = PROJECT["flamegate.toml"]


def change_build_directory(files: Files) -> None:
    edit(files, "Makefile", "BUILD ?= build", "BUILD ?= out")
    edit(files, "flamegate.toml", "build/engine", "out/engine")


def write_documentation(files: Files) -> None:
    files["README.md"] += "\nBuild the first one with make.\n"


def add_test(files: Files) -> None:
    files["tests/test_kernels.py"] += (
        "\n\ndef test_attention():\n    assert kernels.attention(1) == kernels.attention(1)\n"
    )


def add_types(files: Files) -> None:
    for name in ("matmul", "attention", "sample"):
        edit(files, "toy_engine/kernels.py", f"def {name}(x):", f"def {name}(x: int) -> int:")
    edit(
        files,
        "toy_engine/engine.py",
        "def generate(prompt, max_tokens):",
        "def generate(prompt: str, max_tokens: int):",
    )
    edit(files, "kernels.c", "unsigned x = token;", "unsigned x = (unsigned)token;")


def reformat(files: Files) -> None:
    for path in ("engine.c", "kernels.c"):
        edit(files, path, "    ", "\t")
        edit(files, path, ")\n{", ") {")
    edit(
        files,
        "toy_engine/kernels.py",
        "x = (x * 1103515245 + 12345) & MASK",
        "x = (\n            x * 1103515245 + 12345\n        ) & MASK",
    )


def rename_variable(files: Files) -> None:
    edit(files, "kernels.c", "float sum", "float total")
    edit(files, "kernels.c", "sum +=", "total +=")
    edit(files, "kernels.c", "= sum;", "= total;")
    edit(files, "toy_engine/kernels.py", "total", "result")


def reorder_functions(files: Files) -> None:
    for path in ("kernels.c", "toy_engine/kernels.py"):
        last = function(files[path], "sample")
        first = function(files[path], "matmul")
        gap = "\n" if path.endswith(".py") else ""
        edit(files, path, last, "")
        edit(files, path, first, f"{last.rstrip()}\n\n{gap}{first}")


def add_optional_argument(files: Files) -> None:
    edit(files, "engine.c", "atoi(argv[2]);", "atoi(argv[2]);\n    int echo = argc > 3;")
    edit(
        files,
        "engine.c",
        "    for (int token",
        '    if (echo)\n        printf("%s ", argv[1]);\n    for (int token',
    )
    edit(files, "toy_engine/engine.py", "(prompt, max_tokens)", "(prompt, max_tokens, echo=False)")
    edit(
        files, "toy_engine/engine.py", "    for _ in", "    if echo:\n        yield 0\n    for _ in"
    )


CHANGES = (
    Change("comment", add_comments),
    Change("hot function renamed", rename_hot_function),
    Change("hot function moved to another file", move_to_another_file),
    Change("hot function split in two", split_in_two),
    Change("hot function 30 % faster", make_faster, waste_time),
    Change("log line at the start", log_at_start),
    Change("new unrelated file", add_unrelated_file),
    Change("prefill separated from decode", separate_prefill_from_decode),
    Change("dependency bumped", bump_dependencies),
    Change("new workload", add_workload),
    Change("flamegate introduced", add_flamegate, without_flamegate),
    Change("build step introduced", add_build, without_build, engine="native"),
    Change("build directory changed", change_build_directory, engine="native"),
    Change("documentation only", write_documentation),
    Change("new test", add_test),
    Change("type hints", add_types),
    Change("reformatted", reformat),
    Change("variable renamed", rename_variable),
    Change("functions reordered", reorder_functions),
    Change("new optional argument", add_optional_argument),
)
