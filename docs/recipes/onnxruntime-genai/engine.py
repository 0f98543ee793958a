"""Greedy decoding with onnxruntime-genai, one token id at a time."""

import json
from functools import cache
from os import environ


@cache
def _loaded():
    import onnxruntime_genai as og

    options = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}
    if trace := environ.get("FLAMEGATE_KERNEL_TRACE"):  # set in one run, which is not timed
        options["enable_profiling"] = f"{trace}/onnx"
    config = og.Config(environ.get("RECIPE_MODEL", "models/onnx"))
    config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    return og.Model(config)


def generate(prompt, max_tokens):
    """Yield at most ``max_tokens`` ids."""
    import onnxruntime_genai as og

    model = _loaded()
    ids = og.Tokenizer(model).encode(prompt)
    params = og.GeneratorParams(model)
    params.set_search_options(do_sample=False, max_length=len(ids) + max_tokens)
    generator = og.Generator(model, params)
    generator.append_tokens(ids)
    while not generator.is_done():
        generator.generate_next_token()
        yield int(generator.get_next_tokens()[0])
