"""The files of a small project with an engine in C and one in Python, for `line_slowdowns.py`.

Both take 2 to 3 ms for each token, in several functions. What they generate depends on integers
alone, so that no change of a floating-point expression changes a token.
"""

from __future__ import annotations

from collections.abc import Mapping

KERNELS_H = """\
#ifndef KERNELS_H
#define KERNELS_H
#define WIDTH 256
#define WINDOW 600
#define HIDDEN 120000
#define WORDS 64
#define SQUASH(x) ((x) * (1.5f - 0.5f * (x) * (x)))
#ifndef KERNEL
#define KERNEL __attribute__((noinline))
#endif
KERNEL float size_of(const float *x);
KERNEL void scale(float *out, const float *x);
KERNEL void matmul(float *out, const float *weights, const float *x);
KERNEL void attend(float *out, const float *cache, const float *x);
KERNEL void activate(float *x);
KERNEL int find_hashed(unsigned word);
KERNEL int find_listed(unsigned word);
KERNEL void fill_table(void);
KERNEL int choose(const float *scores);
#endif
"""
KERNELS_C = """\
#include <math.h>
#include "kernels.h"

KERNEL float size_of(const float *x)
{
    float sum = 0;
    for (int i = 0; i < WIDTH; i++)
        sum += x[i] * x[i];
    return sqrtf(sum / WIDTH + 1e-5f);
}

KERNEL void scale(float *out, const float *x)
{
    float size = size_of(x);
    float inverse = 1.0f / size;
    for (int pass = 0; pass < 200; pass++)
        for (int i = 0; i < WIDTH; i++)
            out[i] = x[i] * inverse * size;
}

KERNEL void matmul(float *out, const float *weights, const float *x)
{
    for (int row = 0; row < WIDTH; row++) {
        float sum = 0;
        for (int i = 0; i < WIDTH; i++)
            sum += weights[row * WIDTH + i] * x[i];
        out[row] = sum;
    }
}

KERNEL void attend(float *out, const float *cache, const float *x)
{
    float scores[WINDOW];
    for (int t = 0; t < WINDOW; t++) {
        float score = 0;
        for (int i = 0; i < WIDTH; i++)
            score += cache[t * WIDTH + i] * x[i];
        scores[t] = expf(score * 1e-3f);
    }
    for (int t = 0; t < WINDOW; t++)
        for (int i = 0; i < WIDTH; i++)
            out[i] += scores[t] * cache[t * WIDTH + i] * 1e-3f;
}

KERNEL void activate(float *x)
{
    const float half = 0.5f;
    for (int i = 0; i < HIDDEN; i++)
        x[i] = SQUASH(x[i] * half) + half;
}
"""
TABLE_C = """\
#include "kernels.h"

static unsigned listed[WORDS];
static int hashed[4 * WORDS];

KERNEL void fill_table(void)
{
    for (int i = 0; i < WORDS; i++) {
        listed[i] = i * 2654435761u;
        hashed[listed[i] >> 24] = i;
    }
}

KERNEL int find_hashed(unsigned word)
{
    return hashed[word >> 24];
}

KERNEL int find_listed(unsigned word)
{
    for (int i = 0; i < WORDS; i++)
        if (listed[i] >> 24 == word >> 24)
            return i;
    return 0;
}

KERNEL int choose(const float *scores)
{
    int best = 0;
    for (int i = 0; i < HIDDEN; i++) {
        if (scores[i] > scores[best])
            best = i;
        if (i > HIDDEN / 2)
            break;
    }
    return best;
}
"""
ENGINE_C = """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels.h"

static float weights[WIDTH * WIDTH], cache[WINDOW * WIDTH];
static float state[WIDTH], next[WIDTH], hidden[HIDDEN], spare[HIDDEN];

static void forward(int token)
{
    for (int layer = 0; layer < 12; layer++) {
        scale(next, state);
        matmul(state, weights, next);
    }
    attend(state, cache, next);
    hidden[token % HIDDEN] += state[0];
    activate(hidden);
}

static unsigned tokenize(unsigned word)
{
    unsigned sum = 0;
    for (int i = 0; i < 60000; i++) {
        word = word * 1103515245u + 12345u;
        sum += find_hashed((word >> 8) % 16 * 2654435761u);
    }
    return sum;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    for (int i = 0; i < WIDTH * WIDTH; i++)
        weights[i] = (i % 17 - 8) * 1e-3f;
    for (int i = 0; i < WINDOW * WIDTH; i++)
        cache[i] = (i % 13 - 6) * 1e-2f;
    for (int i = 0; i < WIDTH; i++)
        state[i] = argv[1][0] % 7 + i % 5;
    fill_table();
    int tokens = atoi(argv[2]);
    for (int step = 0; step < tokens; step++) {
        forward(step);
        unsigned sum = tokenize(step);
        sum += choose(hidden) < 0;
        printf("%u ", sum % 1000u + (unsigned)(spare[step % HIDDEN] > 1e9f));
        fflush(stdout);
    }
    return 0;
}
"""
WHOLE_C = """\
#include "kernels.c"
#include "table.c"
#include "engine.c"
"""
SEPARATE, WHOLE = (
    "-O2 -g -fno-omit-frame-pointer -o build/engine engine.c kernels.c table.c -lm",
    "-Ofast -g -DKERNEL=static -o build/engine whole.c -lm",
)
"""Options of the compiler: each function for itself, or all of them inlined into ``main``."""
TOKENS = {SEPARATE: 300, WHOLE: 1500}
NATIVE_TOML = """\
[workloads.native]
engine = "command"
command = ["build/engine", "{prompt}", "{max_tokens}"]
build = ["make"]
prompt = "What is 2+2?"
max_tokens = 300
token_unit = "word"
"""
NATIVE: Mapping[str, str] = {
    "kernels.h": KERNELS_H,
    "kernels.c": KERNELS_C,
    "table.c": TABLE_C,
    "engine.c": ENGINE_C,
    "whole.c": WHOLE_C,
    "flamegate.toml": NATIVE_TOML,
    ".gitignore": ".flamegate\n/build\n",
}

LAYERS_PY = """\
from toy.settings import MASK, WINDOW


def matmul(rows, x):
    result = []
    for row in rows:
        total = 0
        for weight, value in zip(row, x):
            total += weight * value
        result.append(total & MASK)
    return result


def length(x):
    return sum(value & 15 for value in x) + 1


def scale(x):
    size = length(x)
    return [
        value * size
        & MASK
        for value in x
    ]


def attend(x):
    total = 0
    for t in range(WINDOW):
        for value in x:
            total += value >> (t & 7) & 3
    return total


def mix(x, total):
    mixed = 0
    for value in x:
        for shift in range(24):
            mixed ^= value >> shift & total
    return mixed
"""
WORDS_PY = """\
VOCABULARY = [number * 7919 % 1009 for number in range(60)]
KNOWN = frozenset(VOCABULARY)


def tokenize(seed):
    found = 0
    for number in range(600):
        seed = seed * 1103515245 + 12345 & 0x7FFFFFFF
        if VOCABULARY[seed >> 8 & 31] in KNOWN:
            found += 1
    return found


def choose(scores):
    best = 0
    for number, score in enumerate(scores):
        if score > scores[best]:
            best = number
        if number > 1200:
            break
    return best


def highest(scores):
    top = 0
    for _ in range(2):
        top += max(scores)
    return top
"""
SETTINGS_PY = """\
MASK = 0x7FFFFFFF
WINDOW = 64
"""
ENGINE_PY = """\
from toy.layers import attend, matmul, mix, scale
from toy.words import choose, highest, tokenize

ROWS = [[(row * 31 + column) % 17 for column in range(48)] for row in range(48)]
SCORES = [number * 7919 % 1009 for number in range(6000)]


def forward(state):
    for _ in range(3):
        state = scale(state)
        state = matmul(ROWS, state)
    return state


def generate(prompt, max_tokens):
    state = [ord(prompt[i % len(prompt)]) for i in range(48)]
    for step in range(max_tokens):
        state = forward(state)
        total = attend(state)
        total = mix(state, total)
        total += tokenize(step)
        total += choose(SCORES)
        total += highest(SCORES)
        yield step % 1000
"""
PYTHON_TOML = """\
[workloads.python]
target = "toy.engine:generate"
env = { PYTHONPATH = "src" }
prompt = "What is 2+2?"
max_tokens = 48
"""
PYTHON: Mapping[str, str] = {
    "src/toy/__init__.py": "",
    "src/toy/layers.py": LAYERS_PY,
    "src/toy/words.py": WORDS_PY,
    "src/toy/settings.py": SETTINGS_PY,
    "src/toy/engine.py": ENGINE_PY,
    "flamegate.toml": PYTHON_TOML,
    "pyproject.toml": '[project]\nname = "toy"\nversion = "0.1"\n',
    ".gitignore": "__pycache__\n.flamegate\n",
}
