"""Greedy decoding with ctranslate2, one token id at a time."""

from functools import cache
from os import environ


@cache
def _loaded():
    import ctranslate2
    from tokenizers import Tokenizer

    path = environ.get("RECIPE_MODEL", "models/ct2")
    threads = int(environ.get("OMP_NUM_THREADS", "1"))
    generator = ctranslate2.Generator(path, device="cpu", intra_threads=threads)
    return Tokenizer.from_file(f"{path}/tokenizer.json"), generator


def generate(prompt, max_tokens):
    """Yield at most ``max_tokens`` ids."""
    tokenizer, generator = _loaded()
    tokens = tokenizer.encode(prompt).tokens
    for step in generator.generate_tokens(tokens, max_length=max_tokens, sampling_topk=1):
        yield step.token_id
