"""Run llama.cpp's server out of the wheel of xllamacpp: ``python llama.py MODEL PORT``.

It ends by itself after a while, whatever becomes of the test.
"""

import importlib
import sys
import time

LIVES_S = 600


def main(arguments: list[str]) -> int:
    """Serve the model on one thread and in one slot."""
    xllamacpp = importlib.import_module("xllamacpp")
    told = xllamacpp.CommonParams()
    told.model.path = arguments[0]
    told.port = int(arguments[1])
    told.n_parallel = 1
    told.n_ctx = 1024
    told.warmup = False
    told.cpuparams.n_threads = told.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(told)
    time.sleep(LIVES_S)
    del server
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
