"""Greedy decoding with llama-cpp-python, one token id at a time."""

from functools import cache
from os import environ


@cache
def _loaded():
    from llama_cpp import Llama

    return Llama(
        environ.get("RECIPE_MODEL", "models/model.gguf"),
        n_ctx=2048,
        n_threads=int(environ.get("OMP_NUM_THREADS", "1")),
        verbose=False,
    )


def generate(prompt, max_tokens):
    """Yield at most ``max_tokens`` ids."""
    llama = _loaded()
    tokens = llama.tokenize(prompt.encode())
    for count, token in enumerate(llama.generate(tokens, temp=0.0, reset=True), 1):
        if token == llama.token_eos():
            return
        yield token
        if count == max_tokens:
            return
