"""Ten more slowdowns of one line, which no rule was written or changed for.

They were written before their author read how lines are judged, and are measured as they are: if
one is named wrongly, the table says so. One that led to a mend moves to `line_edits.py`, and a
new one takes its place here.
"""

from __future__ import annotations

from benchmarks.line_edits import (
    C_BEST,
    C_SCORE,
    C_SUM,
    LAYERS,
    PY_MIXED,
    PY_TOTAL,
    WORDS,
    Slowdown,
    make_edits,
)
from benchmarks.line_project import SEPARATE, WHOLE

HELD_OUT = (
    Slowdown(
        "Python: a string for each number",
        make_edits(
            (WORDS, "            found += 1\n", "            found += len(str(number)) > 0\n")
        ),
        [(WORDS, "found += len(str(number))")],
        PY_MIXED,
    ),
    Slowdown(
        "Python: a power",
        make_edits((LAYERS, "total += weight * value\n", "total += weight * value**1\n")),
        [(LAYERS, "value**1")],
        PY_MIXED,
    ),
    Slowdown(
        "Python: a function in a condition",
        make_edits((WORDS, "if score > scores[best]:", "if score > max(scores[best], -1):")),
        [(WORDS, "max(scores[best], -1)")],
        PY_TOTAL,
    ),
    Slowdown(
        "Python: rows converted in the header of a loop",
        make_edits(
            (
                LAYERS,
                "for row in rows:",
                "for row in [[int(each) for each in row] for row in rows]:",
            )
        ),
        [(LAYERS, "[[int(each)")],
        PY_MIXED,
    ),
    Slowdown(
        "Python: a generator that yields more",
        make_edits(
            (
                LAYERS,
                "sum(value & 15 for value in x) + 1",
                "sum(value & 15 for value in x for _ in range(64)) // 64 + 1",
            )
        ),
        [(LAYERS, "for _ in range(64)")],
        PY_TOTAL,
    ),
    Slowdown(
        "C -O2: a function of a library in the inner loop",
        make_edits(
            (
                "kernels.c",
                "sum += weights[row * WIDTH + i] * x[i];",
                "sum = fmaf(weights[row * WIDTH + i], x[i], sum);",
            )
        ),
        [("kernels.c", "fmaf(weights")],
        C_SCORE,
        SEPARATE,
    ),
    Slowdown(
        "C -O2: columns instead of rows",
        make_edits(
            ("kernels.c", "weights[row * WIDTH + i] * x[i]", "weights[i * WIDTH + row] * x[i]")
        ),
        [("kernels.c", "weights[i * WIDTH + row]")],
        C_BEST,
        SEPARATE,
    ),
    Slowdown(
        "C -O2: tanhf instead of a polynomial",
        make_edits(
            ("kernels.c", "x[i] = SQUASH(x[i] * half) + half;", "x[i] = tanhf(x[i] * half) + half;")
        ),
        [("kernels.c", "tanhf(x[i] * half)")],
        C_SUM,
        SEPARATE,
    ),
    Slowdown(
        "C -Ofast: a remainder of floating-point numbers",
        make_edits(
            (
                "engine.c",
                "find_hashed((word >> 8) % 16 *",
                "find_hashed((unsigned)fmod(word >> 8, 16) *",
            )
        ),
        [("engine.c", "(unsigned)fmod(")],
        C_BEST,
        WHOLE,
    ),
    Slowdown(
        "C -Ofast: a wider type",
        make_edits(("kernels.c", "float sum = 0;\n        for", "double sum = 0;\n        for")),
        [("kernels.c", "sum += weights[row")],
        C_BEST,
        WHOLE,
    ),
)
"""Ten slowdowns, five of each language, by the same project as the others."""
