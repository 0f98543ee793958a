"""llama.cpp as a program for one answer: ``python llama_cli.py MODEL PROMPT MAX_TOKENS THREADS``.

Writes the answer to standard output as it is made, and llama.cpp's own timings to standard error.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def main(arguments: list[str]) -> int:
    """Load, answer, tell, end."""
    model, prompt, max_tokens, threads = arguments
    xllamacpp = importlib.import_module("xllamacpp")
    told = xllamacpp.CommonParams()
    told.model.path = model
    told.n_parallel = 1
    told.n_ctx = 512
    told.warmup = False
    told.cpuparams.n_threads = told.cpuparams_batch.n_threads = int(threads)
    server = xllamacpp.Server(told)
    timings: dict[str, Any] = {}

    def piece(chunk: dict[str, Any]) -> None:
        timings.update(chunk.get("timings") or {})
        sys.stdout.write(chunk["choices"][0]["text"])
        sys.stdout.flush()

    asked = {"prompt": prompt, "n_predict": int(max_tokens), "temperature": 0, "stream": True}
    server.handle_completions({**asked, "cache_prompt": False}, piece)
    print(
        f"made {timings['predicted_n']} tokens, {timings['predicted_ms']} ms decode, "
        f"{timings['prompt_n']} tokens of prompt",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
