"""Greedy decoding with vLLM in process: its engine is stepped by hand, one token id at a time."""

from functools import cache
from os import environ


@cache
def _loaded():
    environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the work stays in the process that is seen
    from vllm import EngineArgs, LLMEngine

    path = environ.get("RECIPE_MODEL", "models/hf")
    return LLMEngine.from_engine_args(
        EngineArgs(model=path, enforce_eager=True, enable_prefix_caching=False, max_num_seqs=1)
    )


def generate(prompt, max_tokens):
    """Yield at most ``max_tokens`` ids."""
    from vllm import SamplingParams

    engine, seen = _loaded(), 0
    engine.add_request("0", prompt, SamplingParams(temperature=0, max_tokens=max_tokens))
    while engine.has_unfinished_requests():
        for output in engine.step():
            yield from output.outputs[0].token_ids[seen:]
            seen = len(output.outputs[0].token_ids)
