"""Slowdowns of one line of the project of `line_project.py`, and harmless changes beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.honest_edits import Files, edit
from benchmarks.line_project import NATIVE, PYTHON, SEPARATE, TOKENS, WHOLE


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A change that makes the engine slower.

    ``right`` are the lines that take the time afterwards, each a file and a part of its text.
    ``beside`` renames a variable in another hot function: file, old and new name. ``options`` are
    those of the C compiler, None for Python.
    """

    name: str
    change: Callable[[Files], None]
    right: Sequence[tuple[str, str]]
    beside: tuple[str, str, str]
    options: str | None = None


def files_of(slowdown: Slowdown) -> tuple[Files, Files]:
    """Return the files of the base and of the head."""
    base = dict(PYTHON if slowdown.options is None else NATIVE)
    if slowdown.options is not None:
        made = "build/engine: $(wildcard *.c *.h)\n\t@mkdir -p build\n\t$(CC) "
        base["Makefile"] = f"{made}{slowdown.options}\n"
        tokens = f"max_tokens = {TOKENS[slowdown.options]}"
        edit(base, "flamegate.toml", "max_tokens = 300", tokens)
    head = dict(base)
    slowdown.change(head)
    _change_harmlessly(head, slowdown)
    return base, head


def right_lines(slowdown: Slowdown, head: Files) -> list[str]:
    """Return the right lines as ``file:line``."""
    found = [
        f"{path}:{number}"
        for path, part in slowdown.right
        for number, line in enumerate(head[path].split("\n"), start=1)
        if part in line
    ]
    if len(found) != len(slowdown.right):
        raise ValueError(f"{slowdown.name}: {slowdown.right} are {found}.")
    return found


def _change_harmlessly(files: Files, slowdown: Slowdown) -> None:
    """Insert an import and a comment in every file, and rename variables of hot lines."""
    path, old, new = slowdown.beside
    _rename(files, path, old, new)
    if slowdown.options is None:
        _rename(files, "src/toy/engine.py", "state", "current")
        for name in [each for each in files if each.endswith(("layers.py", "words.py"))]:
            files[name] = f"import math\n\nTAU = 2 * math.pi\n{files[name]}"
            files[name] = files[name].replace("\n\ndef ", "\n\n# As in the paper.\ndef ", 2)
        return
    _rename(files, "engine.c", "step", "position")
    for name in ("kernels.c", "table.c", "engine.c"):
        files[name] = f"#include <limits.h>\n{files[name]}"
        files[name] = files[name].replace("\n\nKERNEL ", "\n\n/* As in the paper. */\nKERNEL ", 2)


def _rename(files: Files, path: str, old: str, new: str) -> None:
    files[path], count = re.subn(rf"\b{old}\b", new, files[path])
    if not count:
        raise ValueError(f"{path} does not contain {old}.")


def make_edits(*edits: tuple[str, str, str]) -> Callable[[Files], None]:
    """Return a change that replaces texts: file, old and new text each."""

    def change(files: Files) -> None:
        for path, old, new in edits:
            edit(files, path, old, new)

    return change


LAYERS, WORDS, SETTINGS, MIXING = (
    f"src/toy/{name}.py" for name in ("layers", "words", "settings", "mixing")
)
MIX_PY = PYTHON[LAYERS][PYTHON[LAYERS].index("def mix") :]


def _move_mix(files: Files) -> None:
    """Move ``mix`` to another file, and let it do more."""
    edit(files, LAYERS, f"\n\n{MIX_PY}", "")
    files[MIXING] = MIX_PY.replace(
        "value >> shift & total", "(value + shift) * 3 // 2 >> shift & total"
    )
    edit(
        files,
        "src/toy/engine.py",
        "matmul, mix, scale\n",
        "matmul, scale\nfrom toy.mixing import mix\n",
    )


MATMUL_C = NATIVE["kernels.c"][
    NATIVE["kernels.c"].index("KERNEL void matmul") : NATIVE["kernels.c"].index(
        "KERNEL void attend"
    )
]


def _move_matmul(files: Files) -> None:
    """Move ``matmul`` to the end of its file, and let it do more."""
    edit(files, "kernels.c", MATMUL_C, "")
    files["kernels.c"] += (
        "\n" + MATMUL_C.rstrip().replace("* x[i];", "* x[i] / (1.0f + x[i] * x[i]);") + "\n"
    )


PY_TOTAL, PY_MIXED = (LAYERS, "total", "subtotal"), (LAYERS, "mixed", "blended")
C_BEST, C_SCORE = ("table.c", "best", "highest"), ("kernels.c", "score", "product")
C_SUM = ("kernels.c", "sum", "total")

SLOWDOWNS = (
    Slowdown(
        "Python: heavier arithmetic",
        make_edits(
            (
                LAYERS,
                "mixed ^= value >> shift & total",
                "mixed ^= (value * 3 + shift) // 2 >> shift & total",
            )
        ),
        [(LAYERS, "(value * 3 + shift)")],
        PY_TOTAL,
    ),
    Slowdown(
        "Python: a call added",
        make_edits(
            (
                "src/toy/engine.py",
                "        total += choose(SCORES)\n",
                "        total += choose(SCORES)\n        total -= attend(state)\n",
            )
        ),
        [("src/toy/engine.py", "-= attend(")],
        PY_MIXED,
    ),
    Slowdown(
        "Python: a call moved into a loop",
        make_edits((LAYERS, "        value * size\n", "        value * length(x)\n")),
        [(LAYERS, "value * length(x)")],
        PY_MIXED,
    ),
    Slowdown(
        "Python: more passes of a loop",
        make_edits((WORDS, "range(600)", "range(1400)")),
        [(WORDS, "range(1400)")],
        PY_TOTAL,
    ),
    Slowdown(
        "Python: a list instead of a set",
        make_edits((WORDS, "frozenset(VOCABULARY)", "list(VOCABULARY)")),
        [(WORDS, "in KNOWN")],
        PY_TOTAL,
    ),
    Slowdown(
        "Python: a copy added",
        make_edits((LAYERS, "zip(row, x)", "zip(list(row), [*map(int, x)])")),
        [(LAYERS, "zip(list(row)")],
        PY_MIXED,
    ),
    Slowdown(
        "Python: sorting for the highest",
        make_edits((WORDS, "top += max(scores)", "top += sorted(scores)[-1]")),
        [(WORDS, "sorted(scores)")],
        PY_TOTAL,
    ),
    Slowdown(
        "Python: no early exit",
        make_edits((WORDS, "        if number > 1200:\n            break\n", "")),
        [(WORDS, "if score > scores[best]")],
        PY_TOTAL,
    ),
    Slowdown(
        "Python: a constant of another file",
        make_edits((SETTINGS, "WINDOW = 64", "WINDOW = 110")),
        [(LAYERS, "value >> (t & 7)")],
        PY_MIXED,
    ),
    Slowdown(
        "Python: a function moved to another file, and slower",
        _move_mix,
        [(MIXING, "(value + shift) * 3")],
        (WORDS, "found", "hits"),
    ),
    Slowdown(
        "C -O2: heavier arithmetic",
        make_edits(
            (
                "kernels.c",
                "out[i] = x[i] * inverse * size;",
                "out[i] = sqrtf(x[i] * inverse * size);",
            )
        ),
        [("kernels.c", "sqrtf(x[i] * inv")],
        C_BEST,
        SEPARATE,
    ),
    Slowdown(
        "C -O2: a call added",
        make_edits(
            (
                "engine.c",
                "    activate(hidden);\n",
                "    activate(hidden);\n    attend(next, cache, state);\n",
            )
        ),
        [("engine.c", "attend(next, cache, state)")],
        C_SUM,
        SEPARATE,
    ),
    Slowdown(
        "C -O2: a call moved into a loop",
        make_edits(
            (
                "kernels.c",
                "    for (int pass = 0; pass < 200; pass++)\n        for",
                "    for (int pass = 0; pass < 200; pass++)\n        if (size_of(x) > 0) for",
            )
        ),
        [("kernels.c", "if (size_of(x) > 0)")],
        C_SCORE,
        SEPARATE,
    ),
    Slowdown(
        "C -O2: division",
        make_edits(("kernels.c", "x[i] * inverse * size", "x[i] / inverse / size")),
        [("kernels.c", "x[i] / inverse / size")],
        C_BEST,
        SEPARATE,
    ),
    Slowdown(
        "C -O2: no early exit",
        make_edits(("table.c", "        if (i > HIDDEN / 2)\n            break;\n", "")),
        [("table.c", "if (scores[i] > scores[best])")],
        C_SCORE,
        SEPARATE,
    ),
    Slowdown(
        "C -Ofast: a list instead of a hash table",
        make_edits(("engine.c", "find_hashed((word >> 8) % 16", "find_listed((word >> 8) % 16")),
        [("engine.c", "sum += find_listed(")],
        C_SUM,
        WHOLE,
    ),
    Slowdown(
        "C -Ofast: a copy added",
        make_edits(
            (
                "engine.c",
                "        scale(next, state);\n",
                "        memcpy(spare, hidden, sizeof(hidden) / 2);\n        scale(next, state);\n",
            )
        ),
        [("engine.c", "memcpy(spare, hidden")],
        C_BEST,
        WHOLE,
    ),
    Slowdown(
        "C -Ofast: more passes of a loop",
        make_edits(("engine.c", "layer < 12", "layer < 16")),
        [("engine.c", "layer < 16")],
        C_BEST,
        WHOLE,
    ),
    Slowdown(
        "C -Ofast: a constant of a header",
        make_edits(("kernels.h", "WINDOW 600", "WINDOW 1400")),
        [("kernels.c", "[t * WIDTH + i] * x[i]"), ("kernels.c", "* cache[t * WIDTH + i] *")],
        C_BEST,
        WHOLE,
    ),
    Slowdown(
        "C -Ofast: a function moved in its file, and slower",
        _move_matmul,
        [("kernels.c", "/ (1.0f + x[i]")],
        C_BEST,
        WHOLE,
    ),
)
