"""Greedy decoding with transformers, one token id at a time."""

from functools import cache
from os import environ


@cache
def _loaded():
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # its thread would wait beside the model, in every profile
    path = environ.get("RECIPE_MODEL", "models/hf")
    return AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path).eval()


def generate(prompt, max_tokens):
    """Yield at most ``max_tokens`` ids."""
    from torch import inference_mode

    tokenizer, model = _loaded()
    ids, past, token = tokenizer(prompt, return_tensors="pt").input_ids, None, None
    while max_tokens and token != tokenizer.eos_token_id:
        with inference_mode():  # closed before the yield, which leaves this function
            out = model(ids, past_key_values=past, use_cache=True, logits_to_keep=1)
            ids, past = out.logits[:, -1:].argmax(-1), out.past_key_values
        token, max_tokens = ids.item(), max_tokens - 1
        yield token
