"""The files of a small project with an engine in C and one in Python.

Both engines do about 3 ms of work for each token, in three functions, most of it in ``matmul``.
`honest_edits.py` changes it.
"""

from __future__ import annotations

from collections.abc import Mapping

ENGINE_C = """\
#include <stdio.h>
#include <stdlib.h>
#include "kernels.h"

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    float *weights = make_weights();
    static float state[COLUMNS];
    fill_state(state, argv[1]);
    int tokens = atoi(argv[2]);
    for (int token = 0; token < tokens; token++) {
        matmul(weights, state);
        attention(state);
        sample(state, token);
        printf("%d ", ((int)state[token % COLUMNS] & 1023) + token % 7);
        fflush(stdout);
    }
    return 0;
}
"""
KERNELS_H = """\
#ifndef KERNELS_H
#define KERNELS_H
#define ROWS 512
#define COLUMNS 512
#define KERNEL __attribute__((noinline))
float *make_weights(void);
void fill_state(float *state, const char *prompt);
void matmul(const float *weights, float *state);
void attention(float *state);
void sample(float *state, int token);
#endif
"""
KERNELS_C = """\
#include <stdlib.h>
#include "kernels.h"
#include "vendor/tinyrng.h"

float *make_weights(void)
{
    float *weights = malloc(sizeof(float) * ROWS * COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        weights[i] = (i % 17 - 8) * 1e-3f;
    return weights;
}

void fill_state(float *state, const char *prompt)
{
    for (int i = 0; i < COLUMNS; i++)
        state[i] = prompt[0] % 7 + i % 5;
}

KERNEL void matmul(const float *weights, float *state)
{
    for (int pass = 0; pass < 5; pass++)
        for (int row = 0; row < ROWS; row++) {
            float sum = 0;
            for (int i = 0; i < COLUMNS; i++)
                sum += weights[row * COLUMNS + i] * state[i];
            state[row % COLUMNS] = sum;
        }
}

KERNEL void attention(float *state)
{
    for (int head = 0; head < 600; head++) {
        float most = state[head % COLUMNS];
        for (int i = 0; i < COLUMNS; i++)
            most = most * 0.5f + state[i];
        state[head % COLUMNS] += most * 1e-6f;
    }
}

KERNEL void sample(float *state, int token)
{
    unsigned x = token;
    for (int i = 0; i < 150000; i++)
        x = tinyrng_next(x);
    state[token % COLUMNS] += x % 3;
}
"""
TINYRNG_H = """\
/* tinyrng 1.2.0 */
#ifndef TINYRNG_H
#define TINYRNG_H
#define TINYRNG_VERSION "1.2.0"
static inline unsigned tinyrng_next(unsigned x) { return x * 1103515245u + 12345u; }
#endif
"""
MAKEFILE = """\
BUILD ?= build
$(BUILD)/engine: engine.c kernels.c kernels.h vendor/tinyrng.h
\t@mkdir -p $(BUILD)
\t$(CC) -O2 -g -fno-omit-frame-pointer -o $@ engine.c kernels.c
"""
KERNELS_PY = """\
MASK = 0x7FFFFFFF


def matmul(x):
    for _ in range(14_000):
        x = (x * 1103515245 + 12345) & MASK
    return x


def attention(x):
    total = 0
    for i in range(5_000):
        total += (x >> (i & 15)) & 7
    return (x + total) & MASK


def sample(x):
    for i in range(3_000):
        x ^= (x << 1 ^ i) & MASK
    return x
"""
ENGINE_PY = """\
from toy_engine import kernels


def generate(prompt, max_tokens):
    state = len(prompt)
    for letter in prompt:
        state = kernels.attention(state + ord(letter))
    for _ in range(max_tokens):
        state = kernels.matmul(state)
        state = kernels.attention(state)
        state = kernels.sample(state)
        yield state % 1000
"""
BUILD_LINE = 'build = ["make"]\n'
NATIVE = f"""\
[workloads.native]
engine = "command"
command = ["build/engine", "{{prompt}}", "{{max_tokens}}"]
{BUILD_LINE}prompt = "What is 2+2?"
max_tokens = 300
token_unit = "word"
"""
PYTHON = """\
[workloads.python]
target = "toy_engine.engine:generate"
prompt = "What is 2+2?"
max_tokens = 48
"""
PROJECT: Mapping[str, str] = {
    "engine.c": ENGINE_C,
    "kernels.h": KERNELS_H,
    "kernels.c": KERNELS_C,
    "vendor/tinyrng.h": TINYRNG_H,
    "Makefile": MAKEFILE,
    "toy_engine/__init__.py": "",
    "toy_engine/kernels.py": KERNELS_PY,
    "toy_engine/engine.py": ENGINE_PY,
    "flamegate.toml": f"{NATIVE}\n{PYTHON}",
    "pyproject.toml": '[project]\nname = "toy"\nversion = "0.1"\n[tool.pytest.ini_options]\n',
    "requirements.txt": "numpy==1.26.4\n",
    "README.md": "# Toy\n\nTwo engines.\n",
    "tests/test_kernels.py": (
        "from toy_engine import kernels\n\n\n"
        "def test_sample():\n    assert kernels.sample(1) == kernels.sample(1)\n"
    ),
    ".gitignore": "__pycache__\n.pytest_cache\n.flamegate\n/build\n/out\n",
}
